"""Searching rows as they lie gives what an index over them gives, bit for bit."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nearl.neighbors import BruteForce
from nearl.neighbors.rows import nearest_rows
from nearl.population.neighbors import search_host, search_torch


def drawn(seed, owners, stored, asked, dim, *, ties):
    rng = np.random.default_rng(seed)
    keys, queries = rng.normal(size=(owners, stored, dim)), rng.normal(size=(owners, asked, dim))
    if ties:
        keys, queries = keys.round(), queries.round()
    return torch.from_numpy(keys).float(), torch.from_numpy(queries).float()


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    owners=st.integers(1, 3),
    stored=st.integers(1, 200),
    asked=st.integers(0, 9),
    dim=st.integers(1, 40),
    k=st.integers(1, 5),
    ties=st.booleans(),
    data=st.data(),
)
def test_every_owner_gets_the_neighbors_that_an_index_of_its_rows_finds(
    seed, owners, stored, asked, dim, k, ties, data
):
    keys, queries = drawn(seed, owners, stored, asked, dim, ties=ties)
    count = data.draw(st.integers(1, stored))
    rows = torch.tensor(
        data.draw(st.lists(st.integers(0, asked), min_size=owners, max_size=owners))
    )
    k = min(k, count)
    distances, slots = nearest_rows(queries, keys, count, k, rows=rows)
    assert distances.shape == slots.shape == (owners, asked, k)
    for p in range(owners):
        index = BruteForce(dim)
        index.add(np.arange(count), keys[p, :count])
        n = int(rows[p])
        expected = index.query(queries[p, :n], k) if n else (distances[p, :0], slots[p, :0])
        assert torch.equal(distances[p, :n], expected[0])
        assert torch.equal(slots[p, :n], expected[1])
        assert not slots[p, n:].any()  # what is not asked is a slot that exists


@pytest.mark.parametrize("count", [1, 63, 64, 65, 300])
def test_it_is_the_search_in_torch(count):
    keys, queries = drawn(0, 3, 300, 50, 24, ties=True)
    expected = search_torch(queries, keys, torch.tensor([count]), budget=2**12)
    found = search_host(queries, keys, torch.tensor([count]))
    assert torch.equal(found[0], expected[0]) and torch.equal(found[1], expected[1])


def test_a_query_that_is_not_finite_changes_no_other_answer():
    keys, queries = drawn(1, 2, 100, 6, 8, ties=False)
    expected = nearest_rows(queries, keys, 100, 2)
    wrong = queries.clone()
    wrong[0, 2, 3], wrong[0, 4, 0] = torch.nan, torch.inf
    distances, slots = nearest_rows(wrong, keys, 100, 2)
    assert distances[0, [2, 4]].isinf().all() and not slots[0, [2, 4]].any()
    others = torch.ones(2, 6, dtype=torch.bool)
    others[0, [2, 4]] = False
    assert torch.equal(distances[others], expected.distances[others])
    assert torch.equal(slots[others], expected.slots[others])


def test_rows_may_be_views_and_are_only_read():
    keys, queries = drawn(2, 2, 80, 5, 8, ties=False)
    wide = torch.cat([keys, torch.full_like(keys, torch.nan)], -1)
    before = wide.clone()
    found = nearest_rows(queries[..., :8], wide[..., :8], 80)
    assert torch.equal(found.slots, nearest_rows(queries, keys, 80).slots)
    assert torch.equal(wide.nan_to_num(), before.nan_to_num())
