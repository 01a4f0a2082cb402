"""Copies, seeds and classes of one's own: agents with the module are treated as SB3's are."""

import copy
import random

import cloudpickle
import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import DDPG, SAC, TD3
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.utils import set_random_seed
from test_nntd3 import equal, small, weights

import nearl
from nearl import NNDDPG, NNSAC, NNTD3, SoftNNConfig
from nearl.presets.zoo import default_module

MIX = SoftNNConfig(form="residual", gate=0.0, mix=1.0, mix_neighbors=5, refresh_every=20)
ERRORS = SoftNNConfig(
    weight=0.5, cutoff=None, refresh="batch", policy_noise=0.1, horizon=3, keep="all"
)


def pickled(model):
    return cloudpickle.loads(cloudpickle.dumps(model))


def draws():
    return random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002


def goes_on(model, state):
    """The agent's weights after some more steps from these states of the generators."""
    random.setstate(state[0])
    np.random.set_state(state[1])  # noqa: NPY002
    torch.set_rng_state(state[2])
    return weights(model.learn(40, reset_num_timesteps=False))


@pytest.mark.parametrize("copied", [copy.deepcopy, pickled])
@pytest.mark.parametrize(
    ("kind", "nn"), [(NNTD3, ERRORS), (NNDDPG, MIX), (NNSAC, SoftNNConfig.of(MIX, gate=0.9))]
)
def test_a_copy_learns_on_as_the_original_does(kind, nn, copied):
    def trained():
        return kind("MlpPolicy", "Pendulum-v1", nn=nn, seed=0, **small(buffer_size=90)).learn(120)

    alone = trained()
    expected = goes_on(alone, draws())
    model = trained()
    state, twin = draws(), copied(model)
    assert twin.replay_buffer.soft is twin.soft and twin.soft is not model.soft
    assert twin.soft.schedule.steps == model.soft.schedule.steps == 80
    assert equal(goes_on(twin, state), expected)
    assert equal(goes_on(model, state), expected)  # whatever became of the copy


@pytest.mark.parametrize("nn", [MIX, ERRORS])
def test_without_a_seed_of_its_own_an_agent_has_that_of_torch(nn):
    def run(seed):
        set_random_seed(seed)
        model = NNTD3("MlpPolicy", "Pendulum-v1", nn=nn, **small())
        model.env.seed(0)
        model.action_space.seed(0)
        return weights(model.learn(60))

    assert equal(run(0), run(0)) and not equal(run(0), run(1))
    several = [NNTD3("MlpPolicy", "Pendulum-v1", nn=nn, **small()) for _ in range(2)]
    assert not torch.equal(*(model.soft.generator.get_state() for model in several))


def test_a_new_seed_begins_the_modules_draws_anew():
    model = NNTD3("MlpPolicy", "Pendulum-v1", nn=MIX, seed=0, **small())
    first = model.soft.generator.get_state()
    model.set_random_seed(3)
    third = model.soft.generator.get_state()
    torch.rand(5, generator=model.soft.generator)
    model.set_random_seed(None)  # changes nothing
    assert not torch.equal(model.soft.generator.get_state(), third)
    model.set_random_seed(3)
    assert torch.equal(model.soft.generator.get_state(), third) and not torch.equal(first, third)
    fresh = NNTD3("MlpPolicy", "Pendulum-v1", nn=MIX, seed=3, **small())
    assert torch.equal(fresh.soft.generator.get_state(), third)


def test_a_child_of_an_algorithm_has_its_module():
    for base, kind in ((TD3, NNTD3), (DDPG, NNDDPG), (SAC, NNSAC)):
        child = type(f"My{base.__name__}", (base,), {})
        assert nearl.accelerate(child("MlpPolicy", "Pendulum-v1", **small())).nn == default_module(
            kind
        )
    forms = {default_module(kind).form for kind in (NNTD3, NNDDPG)}
    assert forms == {"residual"} and default_module(NNSAC) == SoftNNConfig()


class Layer(BaseFeaturesExtractor):
    """A linear layer that actor and critic can share."""

    def __init__(self, space):
        super().__init__(space, 8)
        self.net = torch.nn.Linear(space.shape[0], 8)

    def forward(self, obs):
        return torch.relu(self.net(obs))


@pytest.mark.parametrize("shared", [False, True])
def test_a_features_extractor_that_is_shared_keeps_the_actors_gradient(shared):
    def gradients(nn):
        options = {"net_arch": [16], "features_extractor_class": Layer}
        options |= {"share_features_extractor": shared}
        model = TD3("MlpPolicy", "Pendulum-v1", seed=0, **small(policy_kwargs=options))
        model = model if nn is None else nearl.accelerate(model, nn)
        found = []
        model.actor.optimizer.register_step_post_hook(
            lambda *_: found.append(model.actor.features_extractor.net.weight.grad.clone())
        )
        model.learn(44)
        return torch.stack(found)

    # The module's term is there, but adds next to nothing.
    faint = SoftNNConfig(weight=1e-9, threshold=0.0, actor_weight=1e-9)
    expected, found = gradients(None), gradients(faint)
    assert len(found) == 2 and expected.abs().sum() > 0
    torch.testing.assert_close(found, expected)


class Lost(gym.Env):
    """The second episode begins with a number that is not one."""

    observation_space, action_space = spaces.Box(-1, 1, (3,)), spaces.Box(-1, 1, (1,))
    episodes = steps = 0

    def reset(self, *, seed=None, options=None):
        self.episodes, self.steps = self.episodes + 1, 0
        return np.array([0.0, np.nan if self.episodes == 2 else 0.0, 0.0], np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.full(3, 0.1 * self.steps, np.float32), 0.0, self.steps == 7, False, {}


@pytest.mark.parametrize("weight", [0.0, 0.5])
def test_broken_observations_of_a_reset_are_refused_when_they_arrive(weight):
    model = NNTD3("MlpPolicy", Lost(), nn={"weight": weight}, seed=0, **small())
    with pytest.raises(ValueError, match=r"^obs\[0, 1\] is nan in the transition after 7 stored"):
        model.learn(60)
    assert model.replay_buffer.pos == model.soft.memory.total == 7


def test_a_shallow_copy_leaves_the_original_as_it_was():
    model = NNTD3("MlpPolicy", "Pendulum-v1", seed=0, nn=ERRORS, **small()).learn(60)
    twin = copy.copy(model)
    assert type(twin) is NNTD3 and twin.policy is model.policy
    assert twin.soft is model.soft is model.replay_buffer.soft
