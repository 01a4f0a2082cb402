"""Actors with a forward of their own: the module knows them by their actions."""

import numpy as np
import pytest
import torch
from stable_baselines3 import SAC, TD3
from stable_baselines3.sac.policies import Actor as SACActor
from stable_baselines3.sac.policies import SACPolicy
from stable_baselines3.td3.policies import Actor, TD3Policy

import nearl
from nearl import NNDDPG, NNSAC, NNTD3

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
    return small(kind, policy, nn=TD)


def small(kind, policy, **more):
    options = {"batch_size": 16, "learning_starts": 20, "policy_kwargs": {"net_arch": [8]}}
    return kind(policy, "Pendulum-v1", seed=0, device="cpu", **options, **more)


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


class OtherName(Actor):
    """TD3's actor whose layers have another name."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.layers = self.mu
        del self.mu

    def forward(self, obs):
        return self.layers(self.extract_features(obs, self.features_extractor))


class OtherPolicy(TD3Policy):
    """TD3's policy with such an actor."""

    def make_actor(self, features_extractor=None):
        return OtherName(**self._update_features_extractor(self.actor_kwargs, features_extractor))


class DrawnOtherwise(SACActor):
    """SAC's actor whose mean has another name."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.center = self.mu
        del self.mu

    def get_action_dist_params(self, obs):
        latent = self.latent_pi(self.extract_features(obs, self.features_extractor))
        return self.center(latent), self.log_std(latent).clamp(-20, 2), {}


class DrawnPolicy(SACPolicy):
    """SAC's policy with such an actor."""

    def make_actor(self, features_extractor=None):
        own = self._update_features_extractor(self.actor_kwargs, features_extractor)
        return DrawnOtherwise(**own).to(self.device)


GRAPH = {"form": "residual", "weight": 0.5, "refresh_every": 20}


@pytest.mark.parametrize(
    ("base", "kind", "policy", "module", "words"),
    [
        (SAC, NNSAC, DrawnPolicy, TD, "'mu', .* which DrawnOtherwise has not.*actor_weight=0"),
        (TD3, NNTD3, OtherPolicy, GRAPH | {"saturation": 0.1}, "'mu', which OtherName has not"),
    ],
)
def test_an_actor_without_what_the_module_needs_is_refused_at_once(
    base, kind, policy, module, words
):
    with pytest.raises(TypeError, match=words):
        small(kind, policy, nn=module)
    with pytest.raises(TypeError, match=words):
        nearl.accelerate(small(base, policy), module)


@pytest.mark.parametrize(
    ("base", "policy", "module"),
    [(SAC, DrawnPolicy, GRAPH), (TD3, OtherPolicy, GRAPH), (TD3, OtherPolicy, TD)],
)
def test_where_nothing_needs_the_name_it_may_be_another(base, policy, module):
    model = nearl.accelerate(small(base, policy), module)
    assert model.learn(60)._n_updates > 0
