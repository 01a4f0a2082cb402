"""Residual graphs of a population under whitened metrics and features of critics.

That their graphs are those of members alone is among the tests of residual graphs.
"""

import pytest
import torch
from test_population_residual import ON, Both
from test_population_training import member


def test_a_critic_that_diverged_still_has_keys_and_leaves_others_alone():
    both = Both([{"metric": "critic"}, {"metric": "critic"}], capacity=200)
    both.go(40)  # one snapshot, after 21
    both.learner.critic_target.flat[0] = torch.nan
    (group,) = both.learner.module.groups
    group.refresh(40)
    both.learner.memory.data[:, 40:50] = both.learner.memory.data[:, :10]  # ten more
    both.learner.clock.fill_(50)
    group.refresh(50)
    assert group.neighbors.taken == 40 and group.neighbors.keys.isfinite().all()
    assert group.expected[1].isfinite().all() and group.far[:, :50].isfinite().all()


def test_keys_of_critics_stay_between_snapshots():
    both = Both([{"metric": "critic"}] * 2, capacity=200)
    both.go(41)
    (group,) = both.learner.module.groups
    first = group.neighbors.keys[:, :41].clone()
    assert group.neighbors.taken == 41
    both.go(20)  # the networks move
    assert group.refreshed == 61 and torch.equal(group.neighbors.keys[:, :41], first)
    both.go(20)
    assert group.neighbors.taken == 81 and not torch.equal(group.neighbors.keys[:, :41], first)


@pytest.mark.parametrize(
    "nn",
    [
        {"metric": "whitened", "weight": 0.5},
        ON | {"metric": "whitened", "actor_weight": 0.5},
    ],
)
def test_the_papers_errors_are_measured_by_axes(nn):
    with pytest.raises(ValueError, match="nn.metric='whitened' measures in residual graphs alone"):
        member("nntd3", nn=nn)
    member("td3", nn=nn)  # has none
