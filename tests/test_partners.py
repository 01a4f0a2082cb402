"""Lists of partners: the nearest others of stored transitions, and who is drawn from them."""

import numpy as np
import pytest
import torch

from nearl import Experience, SoftNNConfig, TransitionMemory
from nearl.augmented import make_metric
from nearl.mixing import drawn_partners, numbers_at
from nearl.partners import Partners

OBS, ACT = 3, 2


def lists_over(rng, n, capacity, *, rounded=False, **changes):
    """Partners over ``n`` random transitions in a ring."""
    memory = TransitionMemory(capacity, (OBS,), (ACT,))
    config = SoftNNConfig(
        **({"form": "residual", "gate": 0.0, "mix": 1.0, "metric": "raw"} | changes)
    )
    experience = Experience(memory, make_metric(memory, config.metric))
    partners = Partners(experience, config)
    store(memory, rng, n, rounded=rounded)
    return partners


def store(memory, rng, n, *, rounded=False):
    for _ in range(n):
        pair = [rng.normal(size=(1, size)).astype(np.float32) for size in (OBS, ACT)]
        obs, act = (np.round(0.4 * x) for x in pair) if rounded else pair
        ends = np.zeros(1, bool)
        memory.add(obs, act, np.zeros(1, np.float32), obs, ends, ends)


def naive_lists(partners, numbers):
    """Numbers of the k nearest others of transitions, ties to the lowest slot."""
    memory, k = partners.memory, partners.k
    slots = numbers % memory.capacity
    keys = partners.experience.metric.embed(memory["obs"][slots], memory["act"][slots]).double()
    squares = (keys[:, None] - keys).square().sum(-1).numpy()
    np.fill_diagonal(squares, np.inf)
    order = [np.lexsort((slots, row))[:k] for row in squares]
    return numbers[np.array(order)]


@pytest.mark.parametrize("metric", ["raw", "standardized"])
@pytest.mark.parametrize("rounded", [False, True])  # with duplicates, more than k of some
@pytest.mark.parametrize(("n", "capacity"), [(90, 200), (250, 120)])  # the ring goes round
def test_lists_are_the_nearest_others_after_a_full_refresh(n, capacity, rounded, metric):
    rng = np.random.default_rng(n)
    options = {"mix_neighbors": 4, "metric": metric}
    partners = lists_over(rng, n, capacity, rounded=rounded, **options)
    numbers = np.arange(max(0, n - capacity), n)
    for _ in range(3):
        partners.refresh()
        found = partners._lists[numbers % partners.window]
        assert (found == naive_lists(partners, numbers)).all()
        store(partners.memory, rng, 11, rounded=rounded)
        numbers = np.arange(max(0, partners.memory.total - capacity), partners.memory.total)


def test_in_a_window_lists_are_among_the_latest():
    rng = np.random.default_rng(3)
    partners = lists_over(rng, 130, 100, mix_neighbors=5, graph_size=40)
    for _ in range(3):
        partners.refresh()
        total = partners.memory.total
        numbers = np.arange(total - 40, total)
        right = naive_lists(partners, numbers)
        assert (partners._lists[numbers % 40] == right).all()
        store(partners.memory, rng, 17)


@pytest.mark.parametrize("size", [None, 40])
@pytest.mark.parametrize("n", [20, 70, 130])
def test_a_memory_that_is_loaded_by_itself_has_lists_of_its_own(n, size):
    rng = np.random.default_rng(6)
    partners, other = (
        lists_over(rng, m, 100, mix_neighbors=4, graph_size=size, refresh_nodes=10) for m in (70, n)
    )
    partners.renew()
    partners.memory.load_state_dict(other.memory.state_dict())
    slots = torch.arange(len(other.memory))
    assert torch.equal(partners.drawn(slots, torch.rand(len(slots))), slots)  # no lists yet
    assert partners.metrics()["partner_distance"] == 0 and partners.state_dict()["counts"][0] == 0
    partners.renew()
    numbers = np.arange(max(0, n - partners.window), n)
    assert (partners._lists[numbers % partners.window] == naive_lists(partners, numbers)).all()


def test_a_short_refresh_visits_the_new_and_those_visited_longest_ago():
    rng = np.random.default_rng(4)
    partners = lists_over(rng, 60, 500, mix_neighbors=3, refresh_nodes=20)
    partners.refresh()  # all are new
    before = partners._lists[:60].copy()
    store(partners.memory, rng, 12)
    partners.refresh()
    visited = partners._visited[:72]
    assert (visited[:8] == 72).all() and (visited[8:60] == 60).all() and (visited[60:] == 72).all()
    right = naive_lists(partners, np.arange(72))
    assert (partners._lists[:72][visited == 72] == right[visited == 72]).all()
    assert (partners._lists[8:60] == before[8:]).all()  # as of their visit
    with_all = lists_over(rng, 10, 500, mix_neighbors=10)
    with_all.refresh()  # 10 transitions have 9 others
    assert with_all.refreshes == 0
    slots = torch.arange(10)
    assert torch.equal(with_all.drawn(slots, torch.rand(10)), slots)


def test_lists_are_renewed_by_transitions_and_by_updates():
    rng = np.random.default_rng(7)
    partners = lists_over(rng, 40, 100, mix_neighbors=3, refresh_every=5)
    for updates, refreshes in ((1, 1), (4, 1), (1, 2), (4, 2), (1, 3)):
        for _ in range(updates):
            partners.renew()
        assert partners.refreshes == refreshes
    for stored, refreshes in ((4, 3), (1, 4), (5, 5)):
        store(partners.memory, rng, stored)
        partners.renew()
        assert partners.refreshes == refreshes


@pytest.mark.parametrize(("n", "size"), [(30, None), (130, None), (130, 40)])
def test_the_reported_distance_is_the_mean_over_all_lists(n, size):
    partners = lists_over(np.random.default_rng(8), n, 100, mix_neighbors=4, graph_size=size)
    partners.refresh()
    numbers = np.arange(max(0, n - partners.window), n)
    memory, slots = partners.memory, numbers % 100
    pairs = torch.cat([memory["obs"][slots], memory["act"][slots]], 1).double()
    others = torch.from_numpy(naive_lists(partners, numbers) - numbers[0])
    apart = (pairs[:, None] - pairs[others]).square().mean(-1).sqrt()
    assert partners.metrics()["partner_distance"] == pytest.approx(float(apart.mean()), rel=1e-5)


def test_fewer_lists_that_are_loaded_leave_nothing_of_the_others():
    rng = np.random.default_rng(9)
    many, few = (lists_over(rng, n, 100, mix_neighbors=3, refresh_nodes=5) for n in (60, 30))
    for partners in (many, few):
        partners.refresh()
    many.memory.load_state_dict(few.memory.state_dict())
    many.load_state_dict(few.state_dict())
    store(many.memory, rng, 10)
    many.refresh()
    assert (many._visited[30:40] == 40).all()
    assert (many._lists[30:40] == naive_lists(many, np.arange(40))[30:]).all()


@pytest.mark.parametrize(
    "changes", [{"mix_neighbors": 4}, {"metric": "standardized"}, {"graph_size": 50}]
)
def test_lists_that_were_found_with_other_settings_are_left(changes):
    saved, other = (
        lists_over(np.random.default_rng(10), 30, 100, **({"mix_neighbors": 3} | more))
        for more in ({}, changes)
    )
    saved.refresh()
    other.load_state_dict(saved.state_dict())
    assert other.refreshes == 0
    slots = torch.arange(30)
    assert torch.equal(other.drawn(slots, torch.rand(30)), slots)


@pytest.mark.parametrize("size", [None, 40])
def test_drawn_partners_are_uniform_in_lists_and_none_that_is_gone(size):
    rng = np.random.default_rng(5)
    partners = lists_over(rng, 130, 100, mix_neighbors=4, graph_size=size)
    partners.refresh()
    window, slots = partners.window, torch.arange(100)
    for later in (0, 9, 60):
        store(partners.memory, rng, later)
        total = partners.memory.total
        numbers = numbers_at(slots, total, 100).numpy()
        listed = (numbers < 130) & (numbers >= 130 - window)
        for i in range(4):
            uniform = torch.full((100,), (i + 0.5) / 4)
            drawn = partners.drawn(slots, uniform)
            right = partners._lists[numbers % window, i]
            there = listed & (right >= total - 100)
            assert (drawn.numpy() == np.where(there, right % 100, slots)).all()
        assert listed.any() == (later < 69 or size is None)


def test_who_has_left_the_window_since_a_visit_is_not_drawn():
    lists = torch.tensor([[6, 3, 2, 5]]).T  # of transitions 4 to 7, as the first four are gone
    found = drawn_partners(
        lists, torch.arange(10), torch.zeros(10), total=10, refreshed=8, capacity=20
    )
    assert found.tolist() == [0, 1, 2, 3, 6, 5, 6, 5, 8, 9]


def test_the_least_and_the_greatest_uniform_number_draw_the_first_and_the_last():
    for k in range(1, 40):
        lists, edges = torch.arange(k).expand(50, k), torch.tensor([0.0, 1 - 2.0**-24])
        slots = torch.tensor([45, 46])
        found = drawn_partners(lists, slots, edges, total=50, refreshed=50, capacity=50)
        assert found.tolist() == [0, k - 1]
