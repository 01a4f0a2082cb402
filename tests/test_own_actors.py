"""Actors with a forward of their own: the module knows them by their actions."""

import numpy as np
import pytest
import torch
from stable_baselines3.td3.policies import Actor, TD3Policy

from nearl import NNDDPG, NNTD3

TD = {"form": "td", "weight": 0.5, "cutoff": None, "horizon": 2}


class Half(Actor):
    """Half of what the network says."""

    def forward(self, obs):
        return 0.5 * super().forward(obs)


class HalfPolicy(TD3Policy):
    """TD3's policy with such an actor."""

    def make_actor(self, features_extractor=None):
        return Half(**self._update_features_extractor(self.actor_kwargs, features_extractor))


def agent(kind, policy=HalfPolicy):
    options = {"batch_size": 16, "learning_starts": 20, "policy_kwargs": {"net_arch": [8]}}
    return kind(policy, "Pendulum-v1", seed=0, device="cpu", nn=TD, **options)


@pytest.mark.parametrize("kind", [NNTD3, NNDDPG])
@pytest.mark.parametrize("rows", [2, 50])  # a few are computed in NumPy where that is possible
def test_rollouts_follow_the_actor_and_not_a_part_of_it(kind, rows):
    model = agent(kind)
    obs = torch.from_numpy(np.random.default_rng(0).normal(size=(rows, 3))).float()
    assert torch.equal(model.soft.policy(obs), model.actor_target(obs))


@pytest.mark.parametrize("policy", [HalfPolicy, "MlpPolicy"])
def test_the_actors_term_is_about_its_actions(policy, monkeypatch):
    model = agent(NNTD3, policy).learn(60)
    found = []
    gradients = model.soft.actor_gradients

    def watched(means, batch, parameters):
        with torch.no_grad():
            found.append((means, model.actor(batch.obs)))  # before the optimizer steps
        return gradients(means, batch, parameters)

    monkeypatch.setattr(model.soft, "actor_gradients", watched)
    monkeypatch.setattr(model, "_n_updates", 1)  # the next one is the actor's, too
    model.train(1, 16)
    assert found and torch.equal(*found[0])
