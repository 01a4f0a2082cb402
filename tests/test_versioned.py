"""A network as a policy: whatever is done to the network, it acts as the network does now."""

import copy
import pickle

import pytest
import torch
from test_soft_update import make
from torch import nn

from nearl import NNCritic
from nearl.versioned import VersionedPolicy

OBS, ACT = 3, 2


def network(seed=0, bias=True):
    torch.manual_seed(seed)
    layers = [nn.Linear(OBS, 8, bias=bias), nn.ReLU(), nn.Linear(8, ACT, bias=bias), nn.Tanh()]
    return nn.Sequential(*layers)


def in_place(net, new):
    net.load_state_dict(new.state_dict())


def assigned(net, new):
    net.load_state_dict(new.state_dict(), assign=True)


def data(net, new):
    for mine, theirs in zip(net.parameters(), new.parameters(), strict=True):
        mine.data = theirs.data.clone()


def layer(net, new):
    net[0], net[2] = new[0], new[2]


def one_tensor(net, new):
    net[2].weight.data = new[2].weight.data.clone()


CHANGES = [in_place, assigned, data, layer, one_tensor]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("rows", [1, 4, 5])
@pytest.mark.parametrize("bias", [True, False])
def test_it_acts_as_its_network_does_now(change, rows, bias):
    net, obs = network(bias=bias), torch.randn(rows, OBS)
    policy = VersionedPolicy(net)
    for seed in (1, 2):
        before = policy(obs)
        change(net, network(seed, bias))
        torch.testing.assert_close(policy(obs), net(obs).detach())
        assert not torch.equal(policy(obs), before)


@pytest.mark.parametrize("change", CHANGES)
def test_the_version_changes_with_the_network_and_only_then(change):
    net = network()
    policy = VersionedPolicy(net)
    policy.refresh()
    for seed in (1, 2):
        before = policy.version
        policy.refresh()
        assert policy.version == before
        change(net, network(seed))
        policy.refresh()
        assert policy.version == before + 1


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
@pytest.mark.parametrize("rows", [1, 5])
def test_a_copy_acts_by_its_own_network(copied, rows):
    policy, obs = VersionedPolicy(network()), torch.randn(rows, OBS)
    twin, before = copied(policy), policy(obs)
    in_place(twin.net, network(1))
    assert torch.equal(policy(obs), before)
    torch.testing.assert_close(twin(obs), network(1)(obs).detach())


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("ask", ["value", "td_error"])
def test_a_critic_notices_by_itself_that_the_policy_has_changed(change, ask):
    soft, net = make(net=network(), refresh="batch", metric="raw")
    batch = soft.memory.gather(torch.arange(60))
    given = batch.obs if ask == "value" else batch
    kept, policy = NNCritic(soft.experience, lipschitz=1.0, horizon=4), VersionedPolicy(net)
    for seed in (1, 2):
        getattr(kept, ask)(given, policy)
        change(net, network(seed))
        fresh = NNCritic(soft.experience, lipschitz=1.0, horizon=4)
        expected = getattr(fresh, ask)(given, lambda obs: net(obs).detach())
        torch.testing.assert_close(getattr(kept, ask)(given, policy), expected)


def test_policies_of_the_same_version_do_not_get_each_others_actions():
    soft, _ = make(refresh="batch", metric="raw")
    batch = soft.memory.gather(torch.arange(60))
    kept = NNCritic(soft.experience, lipschitz=1.0, horizon=4)
    policies = [VersionedPolicy(network(seed)) for seed in (1, 2)]
    for policy in policies * 2:
        fresh = NNCritic(soft.experience, lipschitz=1.0, horizon=4)
        expected = fresh.td_error(batch, lambda obs, net=policy.net: net(obs).detach())
        torch.testing.assert_close(kept.td_error(batch, policy), expected)


@pytest.mark.parametrize("outer", [True, False])
def test_every_layer_keeps_its_own_mode_and_none_moves(outer):
    net = nn.Sequential(nn.BatchNorm1d(OBS), nn.BatchNorm1d(OBS), nn.Linear(OBS, ACT))
    net.train(outer)
    net[1].train(not outer)
    before = [buffer.clone() for buffer in net.buffers()]
    policy, obs = VersionedPolicy(net), torch.randn(7, OBS)
    acted = policy(obs)
    assert [layer.training for layer in net.modules()] == [outer, outer, not outer, outer]
    assert all(map(torch.equal, before, net.buffers()))
    torch.testing.assert_close(acted, net.eval()(obs).detach())


def test_layers_that_compute_their_weights_are_asked_each_time():
    net = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(OBS, ACT)), nn.Tanh())
    policy, obs = VersionedPolicy(net), torch.randn(1, OBS)
    with torch.no_grad():
        net[0].parametrizations.weight.original0.mul_(3.0)
    torch.testing.assert_close(policy(obs), net(obs).detach())
