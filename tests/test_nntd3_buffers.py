"""A replay buffer belongs to the user: emptied, refilled or exchanged, the module goes along."""

import pickle
from copy import copy as shallow
from copy import deepcopy

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from sb3_contrib import TQC
from stable_baselines3 import SAC, TD3
from stable_baselines3.common.buffers import ReplayBuffer

import nearl
from nearl import NNSAC, NNTD3

ARRAYS = ("observations", "next_observations", "actions", "rewards", "dones", "timeouts")
GRAPH = {"form": "residual", "weight": 0.05, "refresh_every": 10}


class Toy(gym.Env):
    """Ends at random one step in five, and is cut after 15."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,))
    action_space = spaces.Box(-1, 1, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.at = 0, self.np_random.normal(size=2)
        return self.at.astype(np.float32), {}

    def step(self, action):
        self.steps += 1
        self.at = 0.9 * self.at + 0.1 * self.np_random.normal(size=2) + 0.1 * action
        over = self.np_random.random() < 0.2
        return self.at.astype(np.float32), -float(self.at @ self.at), over, self.steps >= 15, {}


def make(kind, **changes):
    given = {"seed": 1, "learning_starts": 20, "batch_size": 16, "buffer_size": 300}
    given |= {"policy_kwargs": {"net_arch": [16]}, "device": "cpu"}
    return kind("MlpPolicy", Toy(), **(given | changes))


def same(first, second):
    pairs = zip(first.policy.parameters(), second.policy.parameters(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def in_step(agent):
    """The memory has what the arrays have, and the module is over this memory."""
    buffer = agent.replay_buffer
    over = (buffer.dones * (1 - buffer.timeouts)).ravel()[: len(buffer.memory)] > 0
    assert len(buffer.memory) == buffer.size()
    assert (buffer.memory["terminated"].numpy() == over).all()
    return buffer.soft is agent.soft and agent.soft.memory is buffer.memory


@pytest.mark.parametrize("nn", [{"weight": 0}, GRAPH], ids=["weight 0", "graph"])
def test_an_emptied_buffer_is_empty_for_the_module_too(nn):
    agents = []
    for kind, given in ((TD3, {}), (NNTD3, {"nn": nn})):
        agents.append(agent := make(kind, **given))
        agent.learn(77)
        agent.replay_buffer.reset()
        agent.learn(100, reset_num_timesteps=False)
    assert agents[1].replay_buffer.size() == 100
    if nn["weight"] == 0:
        assert same(*agents)
    assert in_step(agents[1]) or nn["weight"] == 0


def test_weight_zero_is_sb3_on_arrays_that_were_filled_by_hand():
    source = make(TD3)
    source.learn(100)
    assert source.replay_buffer.dones[:100].sum() > 10
    agents = []
    for kind, given in ((TD3, {}), (NNTD3, {"nn": {"weight": 0}}), (NNTD3, {"nn": GRAPH})):
        agents.append(agent := make(kind, seed=2, **given))
        for name in ARRAYS:
            getattr(agent.replay_buffer, name)[:100] = getattr(source.replay_buffer, name)[:100]
        agent.replay_buffer.pos = 100
        agent._setup_learn(10)
        agent.train(20, 16)
    assert same(*agents[:2])
    assert in_step(agents[2]) and agents[2].soft.graph.metrics()["residual_skill"] != 0


def test_a_buffer_that_is_shared_has_the_module_of_who_trains():
    first, second = make(NNTD3, nn=GRAPH), make(NNTD3, nn=GRAPH, seed=2)
    first.learn(60)
    second.replay_buffer = first.replay_buffer
    second.learn(40)
    assert in_step(second) and second.replay_buffer.size() == 100
    module = first.soft
    first.train(1, 16)
    assert in_step(first) and first.soft is module  # nothing is built anew


def test_a_plain_buffer_that_is_put_in_is_adopted_and_another_kind_refused():
    agent, other = make(NNTD3, nn=GRAPH), make(TD3)
    other.learn(50)
    agent.replay_buffer = other.replay_buffer
    agent.learn(30)
    assert in_step(agent) and agent.replay_buffer.size() == 80

    class Latest(ReplayBuffer):
        """Samples the newest transition only."""

    for kind in (make(TD3), make(NNTD3, nn=GRAPH)):
        kind.replay_buffer = Latest(300, kind.observation_space, kind.action_space, "cpu")
        with pytest.raises(ValueError, match=r"Latest may .*NeighborReplayBuffer"):
            kind.learn(30) if isinstance(kind, NNTD3) else nearl.accelerate(kind)


def test_a_loaded_buffer_leaves_the_schedule_to_the_agent(tmp_path):
    nn = {"cutoff": 100, "unit": "step", "actor_weight": 0.05}
    trained, fresh = make(NNSAC, nn=nn), make(NNSAC, nn=nn)
    trained.learn(150)
    trained.save_replay_buffer(tmp_path / "buffer")
    assert trained.nn_schedule.weight == 0
    weight = fresh.nn_schedule.weight
    fresh.load_replay_buffer(tmp_path / "buffer")
    assert (fresh.nn_schedule.steps, fresh.nn_schedule.weight) == (0, weight) and weight > 0
    assert in_step(fresh) and fresh.soft.schedule is fresh.nn_schedule


@pytest.mark.parametrize("kind", [NNTD3, NNSAC])
def test_a_discount_that_is_set_later_is_the_modules_too(kind):
    agent = make(kind, nn=GRAPH | {"anchor": "stored"})
    agent.learn(60)
    agent.gamma = 0.5
    agent.train(1, 16)
    sample = agent.replay_buffer.sample(200)
    plain = sample.discounts.ravel()[~agent.replay_buffer.batch.terminated]
    assert plain.max() <= 0.5 + 1e-6
    assert agent.soft.critic.gamma == agent.soft.graph.gamma == 0.5


def test_an_agent_of_a_class_that_was_made_can_be_pickled():
    agent = nearl.accelerate(make(TQC), GRAPH)
    agent.learn(60)
    copy = pickle.loads(pickle.dumps(agent))
    assert type(copy) is type(agent) is nearl.accelerated(TQC)
    for each in (agent, copy):
        each.set_random_seed(5)
        each.train(3, 16)
    assert same(agent, copy)


def test_a_copy_is_of_the_users_own_class():
    class Mine(nearl.accelerated(TQC)):
        """Somebody's own."""

    agent = make(Mine, nn=GRAPH)
    agent.learn(30)
    for copy in (deepcopy(agent), shallow(agent)):
        assert type(copy) is Mine and same(copy, agent)


def test_sac_under_weight_zero_is_untouched_by_a_reset():
    agents = []
    for kind, given in ((SAC, {}), (NNSAC, {"nn": {"weight": 0}})):
        agents.append(agent := make(kind, **given))
        agent.learn(50)
        agent.replay_buffer.reset()
        agent.learn(60, reset_num_timesteps=False)
    assert same(*agents)
