"""Ctrl-C at any moment: what is asked next is answered as if it had never been pressed."""

import os
import signal
import sys

import gymnasium as gym
import numpy as np
import pytest
import reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from stable_baselines3.common.callbacks import BaseCallback

import nearl
from nearl import (
    NNAC,
    NNSAC,
    NNTD3,
    UCRLFA,
    ActionCode,
    CandidateGraph,
    ContinuousGraph,
    Experience,
    NNCritic,
    Standardized,
    TransitionMemory,
    critic_features,
)
from nearl.population import Population, settings_from_preset
from nearl.recent import RecentExperience
from nearl.saving import save_state
from nearl.thinned import ThinnedExperience

CAPACITY = 48
INSIDE = tuple(
    os.path.join("nearl", *part) + end
    for *part, end in (
        ["experience", ".py"], ["recent", ".py"], ["thinned", ".py"], ["certified", ".py"],
        ["policy_keys", ".py"], ["critic", ".py"], ["graph", ""], ["neighbors", ""],
    )
)  # fmt: skip


class Cut:
    """Raises KeyboardInterrupt at the ``at``-th line that is run of what finds neighbors."""

    def __init__(self, at, inside=INSIDE):
        self.left, self.inside = at, inside

    def __enter__(self):
        self.before = sys.gettrace()
        sys.settrace(self.call)

    def __exit__(self, kind, *rest):
        sys.settrace(self.before)
        torch.set_grad_enabled(True)  # at the very end of a `with` Python itself would not
        return kind is KeyboardInterrupt

    def call(self, frame, event, arg):
        inside = any(part in frame.f_code.co_filename for part in self.inside)
        return self.line if inside else None

    def line(self, frame, event, arg):
        if event == "line":
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
        return self.line


def one_action(obs):
    return torch.tanh(obs[..., :1])


def weights(obs):
    return torch.softmax(torch.cat([obs, -obs], -1)[..., :3], -1)


def candidate(experience):
    graph = CandidateGraph(experience, torch.tensor([[-1.0], [0.0], [1.0]]), lipschitz=0.5)
    return lambda: (graph.evaluate(weights, sweeps=7, warm=False), values(graph))[1]


def continuous(experience):
    graph = ContinuousGraph(experience, lipschitz=0.5, neighbors=2)
    return lambda: (graph.evaluate(one_action, sweeps=7, warm=False), values(graph))[1]


def values(graph):
    return graph.next_values(torch.arange(len(graph.experience)))


def critic(experience):
    found = NNCritic(experience, lipschitz=0.5, horizon=4)
    return lambda: found.td_error(
        experience.memory.gather(torch.arange(len(experience))), one_action
    )


def whole(memory):
    return Experience(memory, Standardized(2, ActionCode.box(1), least=8))


def recent(memory):
    return RecentExperience(memory, Standardized(2, ActionCode.box(1), least=8), window=30)


def sampled(memory):
    metric = Standardized(2, ActionCode.box(1), least=8)
    return ThinnedExperience(memory, metric, window=40, sample=12)


@pytest.mark.parametrize(
    ("make", "over"),
    [(candidate, whole), (continuous, whole), (critic, whole), (critic, recent), (critic, sampled)],
)
@given(seed=st.integers(0, 2**16), cuts=st.lists(st.integers(1, 250), min_size=6, max_size=6))
@settings(max_examples=25, deadline=None)
def test_a_line_at_which_it_was_pressed_makes_no_difference(make, over, seed, cuts):
    """The ring goes round, and the scale changes as the data drifts."""
    rng = np.random.default_rng(seed)
    memory = TransitionMemory(CAPACITY, (2,), (1,))
    experience = over(memory)
    ask = make(experience)
    rows = reference.walk(rng, 20 * len(cuts))
    for i, at in enumerate(cuts):
        for t in range(20 * i, 20 * (i + 1)):
            memory.add(**{name: column[t] for name, column in rows.items()})
        with Cut(at):
            ask()
    answer = ask()
    fresh = over(memory)
    fresh.metric = experience.metric  # what it has seen is another question
    fresh._observed, fresh._next_check = experience._observed, experience._next_check
    torch.testing.assert_close(answer, make(fresh)(), rtol=1e-5, atol=1e-5)


@pytest.fixture(autouse=True)
def attended():
    """Ctrl-C is heeded, though a shell may have begun this in the background, where it is not."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Press(BaseCallback):
    """Presses Ctrl-C in the middle of a step."""

    def __init__(self, at):
        super().__init__()
        self.at = at

    def _on_step(self):
        if self.n_calls == self.at:
            os.kill(os.getpid(), signal.SIGINT)
        return True


@pytest.mark.parametrize("preset", ["default", "rollout"])
def test_nnac_ends_its_step_and_goes_on_as_if_it_had_been_asked_for_so_many(preset):
    pressed, asked = (NNAC("MlpPolicy", "CartPole-v1", preset=preset, seed=0) for _ in range(2))
    with pytest.raises(KeyboardInterrupt):
        pressed.learn(300, callback=Press(137))
    asked.learn(137)
    assert pressed.num_timesteps == 137
    for model in (pressed, asked):
        model.learn(163, reset_num_timesteps=False)
    for one, other in zip(pressed.policy.parameters(), asked.policy.parameters(), strict=True):
        assert torch.equal(one, other)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ucrlfa_ends_its_step_and_stores_it():
    env = gym.make("nearl/LipschitzPoint1-v1")
    metric_free = {"lipschitz": env.unwrapped.lipschitz, "seed": 0}
    pressed, asked = (UCRLFA("MlpPolicy", env, **metric_free) for _ in range(2))
    with pytest.raises(KeyboardInterrupt):
        pressed.learn(60, callback=Press(33))
    asked.learn(33)
    assert pressed.num_timesteps == 33
    np.testing.assert_array_equal(pressed.envelope.keys, asked.envelope.keys)
    np.testing.assert_array_equal(pressed.envelope.labels, asked.envelope.labels)


def small():
    return {"learning_starts": 20, "batch_size": 8, "policy_kwargs": {"net_arch": [8]}}


def hooks_of(model):
    layers = [*model.actor.modules(), *model.critic.modules()]
    own = [hook for layer in layers for hook in layer._forward_hooks.values()]
    return own + list(model.actor.optimizer._optimizer_step_pre_hooks.values())


@pytest.mark.parametrize(
    ("kind", "changes"),
    [(NNTD3, {"saturation": 0.1}), (NNTD3, {"actor_weight": 0.3}), (NNSAC, {"actor_weight": 0.3})],
)
def test_nothing_of_the_module_is_left_in_an_agent_that_is_not_learning(kind, changes):
    """Wherever its hooks were being put in place: at 40 lines in turn."""
    module = nearl.presets.default_module(kind)
    nn = nearl.SoftNNConfig.of(module, tau_nn=0.1, **changes)
    model = kind("MlpPolicy", "Pendulum-v1", nn=nn, seed=0, **small()).learn(30)
    tau, inside = model.tau, ("agents/soft.py", "actor_term.py", "saturation.py")
    for at in range(1, 41):
        with Cut(at, inside):
            model.train(1, 8)
        assert model.tau == tau and hooks_of(model) == []


def test_keys_of_a_critic_are_of_one_snapshot_whatever_was_cut_short(monkeypatch):
    nn = {"form": "residual", "metric": "critic", "graph_size": 500, "refresh_every": 20}
    model = NNTD3("MlpPolicy", "Pendulum-v1", nn=nn, seed=0, **small()).learn(60)
    moments = critic_features.moments

    def cut(rows):
        raise KeyboardInterrupt

    monkeypatch.setattr(critic_features, "moments", cut)
    with pytest.raises(KeyboardInterrupt):
        model.learn(200, reset_num_timesteps=False)
    for _ in range(2):  # as it is, and with the next snapshot
        found = model.soft.graph.experience
        found.sync()
        slots, keys = found.index.contents()
        memory = found.memory
        expected = found.embed(memory.array("obs")[slots], memory.array("act")[slots])
        np.testing.assert_array_equal(keys, expected)
        monkeypatch.setattr(critic_features, "moments", moments)
        model.learn(200, reset_num_timesteps=False)


def test_a_population_does_not_go_on_from_the_middle_of_a_step(tmp_path):
    members = [settings_from_preset("td3", "default", "Pendulum-v1", 0, small())]
    options = {"steps": 60, "eval_every": 30, "eval_episodes": 1, "device": "cpu", "threads": 1}
    options |= {"table": False}
    whole = Population("Pendulum-v1", members, out=tmp_path / "whole", **options)
    whole.train()
    cut = Population("Pendulum-v1", members, out=tmp_path / "cut", **options)
    take, counts = cut._take_in, []

    def interrupted(result):
        counts.append(1)
        if len(counts) == 45:
            raise KeyboardInterrupt
        take(result)

    cut.train(minutes=0)  # a checkpoint after the first step
    cut._take_in = interrupted
    with pytest.raises(KeyboardInterrupt):
        cut.train()
    for go_on in (cut.train, cut.save):
        with pytest.raises(RuntimeError, match=r"middle of a step.*Population\.load\('.*cut'\)"):
            go_on()
    Population.load(tmp_path / "cut", device="cpu", threads=1, table=False).train()
    texts = [(tmp_path / name / "eval.csv").read_text() for name in ("whole", "cut")]
    assert texts[0] == texts[1]


def test_a_disk_that_is_full_is_said_to_be(tmp_path, monkeypatch):
    def save(payload, file):
        try:
            raise OSError(28, "No space left on device")
        except OSError:
            raise RuntimeError("unexpected pos 107456 vs 107408")  # noqa: B904

    monkeypatch.setattr(torch, "save", save)
    with pytest.raises(OSError, match="No space left"):
        save_state(tmp_path / "state.pt", "kind", {})
    assert not list(tmp_path.iterdir())
