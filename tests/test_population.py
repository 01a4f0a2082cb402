"""The population's parts: random numbers, stacked networks, Adam, settings, updates."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import stats
from stable_baselines3 import DDPG, TD3

from nearl.metrics import ActionCode, Standardized
from nearl.population import MemberSettings, settings_from_preset
from nearl.population.adam import StackedAdam
from nearl.population.draws import BLOCK, Draws
from nearl.population.learner import Learner
from nearl.population.members import arm, check_members, stack, swept
from nearl.population.networks import Stack, forward
from nearl.population.random import Stream, below, normal, random_bits, uniform
from nearl.population.ring import Ring
from nearl.soft_update import AugmentedBatch

SEEDS = torch.arange(6)
STEPS = torch.arange(300)


def member(algo="td3", seed=0, **changes):
    small = {"net_arch": (16, 12), "batch_size": 32, "buffer_size": 150, "learning_starts": 20}
    return MemberSettings(algo=algo, seed=seed, **(small | changes))


MIXED = [
    member("td3", 0),
    member("ddpg", 1, learning_rate=3e-3),
    member("td3", 2, policy_delay=3, gamma=0.9, noise_std=0.3, learning_rate=3e-3),
    member("nntd3", 3, tau=0.05, target_policy_noise=0.1, nn={"weight": 0.0}, paper_init=True),
    member("nnddpg", 4, nn={"weight": 0.0, "reward_scale": 0.1}),
]


# -- random numbers ------------------------------------------------------------------------------


def test_random_numbers_have_the_right_distribution():
    assert stats.kstest(uniform(SEEDS, STEPS, 0, (50,)).flatten().numpy(), "uniform").pvalue > 0.01
    drawn = normal(SEEDS, STEPS, 1, (50,)).double()
    assert stats.kstest(drawn.flatten().numpy(), "norm").pvalue > 0.01
    assert abs(drawn.mean()) < 0.02 and abs(drawn.var() - 1) < 0.03
    assert drawn.abs().max() < 5.8
    slots = below(random_bits(SEEDS, STEPS, 2, (50,)), 10).flatten()
    assert stats.chisquare(slots.bincount(minlength=10).numpy()).pvalue > 0.01
    assert slots.min() == 0 and slots.max() == 9


def test_members_steps_streams_and_places_are_independent():
    drawn = torch.stack([normal(SEEDS, STEPS, stream, (20,)) for stream in (0, 1, 2)])
    for axis in range(4):  # streams, steps, members, places
        rows = drawn.movedim(axis, 0).flatten(1)[:20].double()
        correlations = torch.corrcoef(rows).fill_diagonal_(0.0).abs()
        assert correlations.max() < 5 / rows.shape[1] ** 0.5
    shifted = torch.corrcoef(torch.stack([drawn[..., :-1].flatten(), drawn[..., 1:].flatten()]))
    assert abs(shifted[0, 1]) < 0.01


def test_a_member_draws_the_same_whatever_else_there_is():
    everything = uniform(SEEDS, STEPS, 3, (4, 5))
    assert everything.shape == (300, 6, 4, 5)
    assert torch.equal(uniform(SEEDS[4:5], STEPS[7], 3, (4, 5))[0], everything[7, 4])
    assert torch.equal(uniform(SEEDS, STEPS, 3, (2, 5)), everything[:, :, :2])  # and batch
    assert everything.unique().numel() > 0.99 * everything.numel()


def test_random_numbers_are_those_of_every_device_and_version():
    bits = random_bits(torch.tensor([0, 7]), torch.tensor(5), Stream.SLOT, (2,))
    mask = (1 << 64) - 1

    def mix(x):
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & mask
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB & mask
        return x ^ (x >> 31)

    golden = 0x9E3779B97F4A7C15
    key = mix(mix(7 + 4 * golden & mask) + 5 * golden & mask)
    assert int(bits[1, 1]) & mask == mix(key + 2 * golden & mask)


def test_blocks_of_draws_change_no_number():
    draws = Draws(SEEDS, act_dim=2, batch_size=4, learning_starts=70)
    for step in (0, 1, BLOCK - 1, BLOCK, 69, 70, 5 * BLOCK + 3, 2):
        at = torch.tensor(step)
        draws.target_noise.reach(step)
        draws.actions.reach(step)
        expected = normal(SEEDS, at, Stream.TARGET, (4, 2))
        assert torch.equal(draws.target_noise.at(at), expected)
        late = normal(SEEDS, at, Stream.ACTION, (2,))
        early = uniform(SEEDS, at, Stream.ACTION, (2,)) * 2 - 1
        assert torch.equal(draws.actions.at(at), early if step < 70 else late)


# -- networks ------------------------------------------------------------------------------------


def test_initial_weights_are_distributed_as_torch_does_and_do_not_depend_on_the_population():
    actors = Stack(6, (17, 400, 300, 6), heads=2)
    small = SEEDS % 2 == 1
    actors.initialize(SEEDS, Stream.CRITIC, small=small)
    for (weight, bias), inputs in zip(actors.fixed, (17, 400, 300), strict=True):
        bound = inputs**-0.5
        for part in (weight, bias):
            rows = part.unflatten(0, (6, 2))[~small]
            assert rows.abs().max() <= bound
            scaled = (rows / bound / 2 + 0.5).flatten().numpy()
            assert stats.kstest(scaled, "uniform").pvalue > 0.001
    output = actors.fixed[-1].weight.unflatten(0, (6, 2))
    assert 2.9e-3 < output[small].abs().max() <= 3e-3
    alone = Stack(1, (17, 400, 300, 6))
    alone.initialize(SEEDS[2:3], Stream.CRITIC)
    assert torch.equal(alone.flat[0], actors.flat[2].view(2, -1)[0])
    used = sum(parameter.numel() for parameter in actors.parameters)
    assert used < actors.flat.numel() and actors.flat.count_nonzero() <= used


@pytest.mark.parametrize("kind", [TD3, DDPG])
def test_stacks_are_sb3s_networks_side_by_side(kind):
    models = [
        kind("MlpPolicy", "Pendulum-v1", policy_kwargs={"net_arch": [16, 12]}, seed=i, device="cpu")
        for i in range(3)
    ]
    heads = models[0].critic.n_critics
    names = [f"qf{i}" for i in range(heads)]
    actors, critics = Stack(3, (3, 16, 12, 1)), Stack(3, (4, 16, 12, 1), heads=heads)
    for i, model in enumerate(models):
        actors.load(actors.flat[i], model.actor.state_dict(), ["mu"])
        critics.load(critics.flat[i], model.critic.state_dict(), names)
    obs, act = torch.randn(3, 10, 3), torch.randn(3, 10, 1).clamp(-1, 1)
    means = forward(actors.fixed, obs).tanh()
    pairs = torch.cat([obs, act], -1).repeat_interleave(heads, 0)
    values = forward(critics.layers, pairs).view(3, heads, 10)
    firsts = forward(critics.first_heads(), torch.cat([obs, act], -1))[..., 0]
    for i, model in enumerate(models):
        torch.testing.assert_close(means[i], model.actor(obs[i]), atol=1e-6, rtol=1e-5)
        expected = torch.stack([q[:, 0] for q in model.critic(obs[i], act[i])])
        torch.testing.assert_close(values[i], expected, atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(firsts[i], expected[0], atol=1e-6, rtol=1e-5)
        for name, value in critics.export(critics.flat[i], names).items():
            assert torch.equal(value, model.critic.state_dict()[name])
    gradients = critics.gradients(values.square().sum())
    for i, model in enumerate(models):
        torch.cat(model.critic(obs[i], act[i])).square().sum().backward()
        for name, value in critics.export(gradients[i], names).items():
            parameter = model.critic.get_parameter(name)
            torch.testing.assert_close(value, parameter.grad, atol=1e-5, rtol=1e-4)


# -- Adam ----------------------------------------------------------------------------------------


def test_adam_is_torchs_with_a_learning_rate_and_a_step_count_per_member():
    torch.manual_seed(0)
    rates, delays = [1e-3, 3e-3, 1e-3, 3e-3], [1, 2, 2, 2]
    flat = torch.randn(4, 100)
    ours = StackedAdam(flat, rates, together=delays)
    rows = [row.clone().requires_grad_() for row in flat]
    theirs = [torch.optim.Adam([row], lr=rate) for row, rate in zip(rows, rates, strict=True)]
    for t in range(20):
        gradients = torch.randn(4, 100)
        due = torch.tensor([t % delay == 0 for delay in delays])
        before = [flat.clone(), ours.first.clone(), ours.second.clone(), ours.steps.clone()]
        ours.step(gradients, due)
        for old, new in zip(before, (flat, ours.first, ours.second, ours.steps), strict=True):
            assert torch.equal(old[~due], new[~due])
        for i in due.nonzero().flatten().tolist():
            rows[i].grad = gradients[i].clone()
            theirs[i].step()
    assert ours.steps.tolist() == [20, 10, 10, 10]
    torch.testing.assert_close(flat, torch.stack(rows).detach(), atol=1e-6, rtol=1e-5)
    for i, optimizer in enumerate(theirs):
        state = optimizer.state[rows[i]]
        torch.testing.assert_close(ours.first[i], state["exp_avg"])
        torch.testing.assert_close(ours.second[i], state["exp_avg_sq"])
    ours.step(torch.randn(4, 100))  # without a mask: everyone
    assert ours.steps.tolist() == [21, 11, 11, 11]


# -- memory --------------------------------------------------------------------------------------


def test_the_ring_keeps_the_last_transitions_and_gives_typed_columns():
    ring, clock = Ring(2, 5, 3, 1), torch.zeros((), dtype=torch.int64)
    for t in range(7):
        row = torch.full((2, ring.width), float(t))
        row[1] += 100
        row[:, ring.places["terminated"]], row[:, ring.places["truncated"]] = t == 6, 0
        ring.store(row, clock)
        clock += 1
    assert ring.size(clock) == 5 and ring.column("reward")[0].tolist() == [5, 6, 2, 3, 4]
    batch = ring.gather(torch.tensor([[0, 1, 4], [1, 2, 2]]))
    assert batch.obs.shape == batch.next_obs.shape == (2, 3, 3) and batch.act.shape == (2, 3, 1)
    assert batch.reward.tolist() == [[5, 6, 4], [106, 102, 102]]
    assert batch.terminated.tolist() == [[False, True, False], [True, False, False]]
    assert not batch.truncated.any()


# -- settings ------------------------------------------------------------------------------------


def test_settings_come_from_presets():
    ours = settings_from_preset("nntd3", "paper", "Hopper-v4", 3, {"lipschitz": 1.0})
    assert ours.paper_init and ours.net_arch == (400, 300) and ours.noise_std == 0.3
    assert ours.nn.lipschitz == 1.0 and ours.nn.reward_scale == 0.1 and ours.uses_neighbors
    base = settings_from_preset("ddpg", "default", "Ant-v5", 1, {"learning_rate": 1e-4})
    assert base.learning_rate == 1e-4 and not base.twin and base.delay == 1
    assert base.smoothing == (0.0, 0.0) and not base.uses_neighbors and not base.paper_init
    assert MemberSettings(**base.as_dict()) == base
    columns = stack([ours, base])
    assert columns.twin.tolist() == [[True], [False]] and columns.delay.tolist() == [2, 1]
    assert columns.reward_scale.tolist() == [[pytest.approx(0.1)], [1.0]]


def test_a_sweep_is_what_differs_between_members_of_an_algorithm():
    members = [
        member("nntd3", s, nn={"lipschitz": k}, policy_delay=2) for k in (1, 3) for s in (0, 1)
    ]
    members.append(member("ddpg", 0, tau=0.1))
    assert swept(members) == ["lipschitz"]
    assert [arm(m, ["lipschitz"]) for m in members[1:3]] == [
        "nntd3 lipschitz=1",
        "nntd3 lipschitz=3",
    ]
    assert arm(members[-1], ["tau", "lipschitz"]) == "ddpg tau=0.1"  # it has no use for the other


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"algo": "sac"}, "td3, ddpg, nntd3, nnddpg.*'sac'"),
        ({"gamma": 1.5}, r"gamma must be a number in \[0, 1\], got 1.5"),
        ({"batch_size": 2.5}, "batch_size must be an integer"),
        ({"seed": -1}, "seed must be an integer"),
        ({"net_arch": ()}, "net_arch must be whole sizes"),
        ({"net_arch": 64}, "net_arch must be whole sizes of layers.*got 64"),
        ({"net_arch": (8.5,)}, r"net_arch must be whole sizes of layers.*got \(8.5,\)"),
        ({"nn": {"per_episode": (64, 4)}}, "once per step"),
        (
            {"nn": {"metric": Standardized(3, ActionCode.box(1))}},
            "measures by 'standardized' or 'raw'",
        ),
    ],
)
def test_bad_settings_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        member(**({"algo": "td3"} | changes))


@pytest.mark.parametrize(
    ("preset", "env", "changes", "message"),
    [
        ("authors", "Hopper-v4", {}, "one update per step"),
        ("default", "Hopper-v4", {"noise_type": "pink"}, "noise_type must be one of normal, orns"),
        ("default", "Hopper-v4", {"learning_rate": "lin_1e-3"}, "learning_rate must be a number"),
        ("default", "Hopper-v4", {"n_steps": 3}, "n_steps=3 is for td3 and ddpg"),
        ("default", "Hopper-v4", {"optimize_memory_usage": True}, "no setting optimize"),
        ("default", "Hopper-v4", {"policy": "CnnPolicy"}, "policy must be"),
        (
            "default",
            "Hopper-v4",
            {"policy_kwargs": {"net_arch": [8], "n_critics": 3}},
            "with ReLU, got .*n_critics",
        ),
    ],
)
def test_presets_that_a_population_cannot_follow_are_refused(preset, env, changes, message):
    with pytest.raises(ValueError, match=message):
        settings_from_preset("nntd3", preset, env, 0, changes)


def test_members_that_cannot_be_one_population_are_named():
    with pytest.raises(ValueError, match="batch_size is 32 for member 0 and 64 for member 2"):
        check_members([member(), member(seed=1), member(batch_size=64)])
    with pytest.raises(ValueError, match="at least one member"):
        check_members([])


# -- updates -------------------------------------------------------------------------------------


def fill(learner, count, seeds):
    """Transitions that depend on nothing but each member's seed."""
    ring = learner.memory
    rows = np.stack([np.random.default_rng(s).normal(size=(count, ring.width)) for s in seeds], 1)
    rows = torch.as_tensor(rows, dtype=torch.float32)
    rows[..., ring.places["act"]] = rows[..., ring.places["act"]].tanh()
    rows[..., ring.places["terminated"]] = (rows[..., ring.places["terminated"]] > 1).float()
    for row in rows:
        learner.store(row)


def train(members, updates=200, stored=30):
    learner = Learner(members, 3, 2)
    seeds = [m.seed for m in members]
    fill(learner, stored, seeds)
    actions = []
    for i in range(updates):
        step = stored + i
        learner.reach(step)
        learner.draws.actions.reach(step)
        learner.update(actor=learner.actor_due(step))
        obs = [np.random.default_rng((s, i)).normal(size=3) for s in seeds]
        actions.append(learner.act(torch.as_tensor(np.array(obs), dtype=torch.float32)))
        row = [np.random.default_rng((s, i, 1)).normal(size=learner.memory.width) for s in seeds]
        learner.store(torch.as_tensor(np.array(row), dtype=torch.float32))
    return learner, torch.stack(actions)


def numbers(learner, i):
    """All of a member's numbers, of the first critic only where it has but one."""
    critic = learner.critic.flat[i].view(learner.critics, -1)
    target = learner.critic_target.flat[i].view(learner.critics, -1)
    moments = learner.critic_adam.second[i].view(learner.critics, -1)
    used = 2 if learner.members[i].twin else 1
    return torch.cat(
        [
            learner.actor.flat[i],
            learner.actor_target.flat[i],
            learner.actor_adam.first[i],
            *(part[:used].flatten() for part in (critic, target, moments)),
        ]
    )


def test_a_member_of_a_population_is_the_same_member_alone():
    together, actions = train(MIXED)
    for i, settings in enumerate(MIXED):
        alone, own = train([settings])
        torch.testing.assert_close(numbers(together, i), numbers(alone, 0), atol=2e-5, rtol=1e-4)
        torch.testing.assert_close(actions[:, i], own[:, 0], atol=2e-5, rtol=1e-4)
        assert not torch.equal(numbers(alone, 0), numbers(Learner([settings], 3, 2), 0))


def test_changing_one_member_changes_no_bit_of_the_others():
    before, _ = train(MIXED, updates=60)
    changed = list(MIXED)
    changed[2] = member("td3", 9, policy_delay=1, learning_rate=1e-2, gamma=0.5, tau=0.5)
    after, _ = train(changed, updates=60)
    for i in range(5):
        assert torch.equal(numbers(before, i), numbers(after, i)) == (i != 2)


def test_actors_that_are_not_due_stay_as_they_are():
    learner = Learner(MIXED, 3, 2)
    fill(learner, 21, [m.seed for m in MIXED])  # the first update: only delay 1 is due
    assert learner.actor_due(21) and [m.delay for m in MIXED] == [2, 1, 3, 2, 1]
    old = [learner.actor.flat.clone(), learner.critic_target.flat.clone()]
    learner.update(actor=True)
    new = [learner.actor.flat, learner.critic_target.flat]
    moved = [(a != b).any(1) for a, b in zip(old, new, strict=True)]
    assert moved[0].tolist() == moved[1].tolist() == [False, True, False, False, True]
    assert learner.actor_adam.steps.tolist() == [0, 1, 0, 0, 1]
    assert learner.critic_adam.steps.tolist() == [1] * 5


def test_a_second_critic_of_ddpg_is_not_trained():
    learner = Learner(MIXED, 3, 2)
    fill(learner, 30, [m.seed for m in MIXED])
    old = learner.critic.flat.clone()
    for _ in range(3):
        learner.update(actor=True)
    moved = (learner.critic.flat != old).view(len(MIXED), 2, -1).any(2)
    assert moved.tolist() == [[True, m.twin] for m in MIXED]


@pytest.mark.parametrize("algo", ["td3", "ddpg"])
def test_an_update_is_sb3s_on_the_same_batch(algo):
    """Two updates by SB3's networks, torch's Adam and the losses as they are written."""
    settings = member(algo, 5, learning_rate=3e-3, gamma=0.9, tau=0.1, policy_delay=2)
    learner = Learner([member("td3", 1), settings, member("ddpg", 2)], 3, 1)
    fill(learner, 99, [1, 5, 2])
    twin = sb3_twin(algo, settings, learner, 1)
    for step in (99, 100):
        learner.reach(step)
        batch = type(learner.sample())(*(column[1] for column in learner.sample()))
        noise = learner.draws.target_noise.at(learner.clock)[1]
        by_hand(twin, settings, batch, noise, actor=algo == "ddpg" or step == 100)
        learner.update(actor=learner.actor_due(step))
        names = ["qf0", "qf1"][: twin.critic.n_critics]
        for nets, prefix, network in (
            (learner.actor, ["mu"], twin.actor),
            (learner.actor_target, ["mu"], twin.actor_target),
            (learner.critic, names, twin.critic),
            (learner.critic_target, names, twin.critic_target),
        ):
            for name, value in nets.export(nets.flat[1], prefix).items():
                expected = network.state_dict()[name]
                torch.testing.assert_close(value, expected, atol=2e-6, rtol=1e-4)
        fill(learner, 1, [7, 8, 9])


def sb3_twin(algo, settings, learner, i):
    kind = TD3 if algo == "td3" else DDPG
    options = {"net_arch": list(settings.net_arch)}
    rate = settings.learning_rate
    twin = kind("MlpPolicy", "Pendulum-v1", learning_rate=rate, policy_kwargs=options, device="cpu")
    names = ["qf0", "qf1"][: twin.critic.n_critics]
    for network in (twin.actor, twin.actor_target):
        network.load_state_dict(learner.actor.export(learner.actor.flat[i], ["mu"]))
    for network in (twin.critic, twin.critic_target):
        network.load_state_dict(learner.critic.export(learner.critic.flat[i], names))
    return twin


def by_hand(twin, settings, batch, noise, *, actor):
    with torch.no_grad():
        clipped = (noise * 0.2).clamp(-0.5, 0.5) if settings.algo == "td3" else 0.0
        actions = (twin.actor_target(batch.next_obs) + clipped).clamp(-1, 1)
        values = torch.cat(twin.critic_target(batch.next_obs, actions), 1).min(1).values
        targets = batch.reward + (~batch.terminated).float() * settings.gamma * values
    losses = [(q[:, 0] - targets).square().mean() for q in twin.critic(batch.obs, batch.act)]
    twin.critic.optimizer.zero_grad()
    sum(losses).backward()
    twin.critic.optimizer.step()
    if actor:
        twin.actor.optimizer.zero_grad()
        (-twin.critic.q1_forward(batch.obs, twin.actor(batch.obs)).mean()).backward()
        twin.actor.optimizer.step()
        for fast, slow in ((twin.actor, twin.actor_target), (twin.critic, twin.critic_target)):
            for new, old in zip(fast.parameters(), slow.parameters(), strict=True):
                old.data.mul_(1 - settings.tau).add_(settings.tau * new.data)


def test_actions_are_random_first_and_then_the_actors_with_noise():
    learner = Learner([member(), member(seed=1, noise_std=0.0)], 3, 2)
    obs = torch.randn(2, 3)
    early = learner.act(obs)
    assert torch.equal(early, learner.draws.actions.at(torch.tensor(0)))
    learner.clock.fill_(25)
    learner.take_snapshot()
    greedy = learner.greedy(obs[:, None])[:, 0]
    late = learner.act(obs)
    assert torch.equal(late[1], greedy[1]) and not torch.equal(late[0], greedy[0])
    assert late.abs().max() <= 1
    learner.actor.flat[1] = torch.nan  # a member that has diverged stands still
    assert torch.equal(learner.act(obs)[0], late[0]) and (learner.act(obs)[1] == 0).all()


class Spy:
    """A module that changes nothing for member 0 and everything for member 1."""

    phase = SimpleNamespace(actor=True, batch=False)

    def __init__(self, learner):
        self.learner, self.calls = learner, []
        self.on = torch.tensor([[0.0], [1.0]])

    def prepare(self):
        self.calls.append("prepare")

    def settle(self):
        self.calls.append("settle")

    def augment(self, batch):
        self.calls.append("augment")
        reward = batch.reward - self.on * 5.0
        return AugmentedBatch(*batch._replace(reward=reward), self.learner.settings.gamma)

    def actor_term(self, means, batch):
        self.calls.append("actor_term")
        return (means - batch.act).square().mean((1, 2))

    clips = False

    def shares(self, term):
        return torch.ones_like(self.on[:, 0]), self.on[:, 0]

    def tau(self, tau):
        return torch.where(self.on > 0, 0.2, tau)

    def state_dict(self):
        return {"calls": len(self.calls)}

    def load_state_dict(self, state):
        self.loaded = state


def test_a_module_enters_the_update_of_its_members_only():
    members = [member("td3", 0), member("nntd3", 1)]
    plain, hooked = Learner(members, 3, 2), Learner(members, 3, 2, module=Spy)
    for learner in (plain, hooked):
        fill(learner, 40, [0, 1])
        learner.update(actor=True)
    assert hooked.module.calls == ["prepare", "augment", "actor_term", "settle"]
    assert torch.equal(numbers(plain, 0), numbers(hooked, 0))
    assert not torch.equal(numbers(plain, 1), numbers(hooked, 1))
    hooked.load_state_dict(hooked.state_dict())
    assert hooked.module.loaded == {"calls": 4}
