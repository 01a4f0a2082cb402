"""The exact search's kernels, on a GPU; slowly, without one, in Triton's interpreter:

TRITON_INTERPRET=1 python -m pytest tests/test_gpu_search.py
"""

import pytest
import torch
from triton_device import DEVICE, INTERPRETED, on_either

from nearl.population.neighbors import search_torch

pytestmark = on_either

SHAPES = [(1, 1, 100, 100, 3), (3, 2, 1000, 1, 5), (2, 21, 400, 129, 23)]
if not INTERPRETED:  # members, queries, capacity, stored, dim
    SHAPES += [(2, 77, 1000, 129, 23), (4, 512, 5000, 4321, 23), (2, 33, 40_000, 40_000, 11)]
    SHAPES += [(20, 512, 30_000, 30_000, 23), (2, 64, 3000, 3000, 40)]


def data(kind, members, queries, capacity, dim):
    """Keys and queries (P, n, W), zeros after the last dimension."""
    torch.manual_seed(0)
    width = -(-dim // 8) * 8
    keys, wanted = torch.randn(members, capacity, dim), torch.randn(members, queries, dim)
    pick = torch.randint(capacity, (queries,))
    if kind == "clustered":
        keys = 1e-3 * keys + 10 * torch.randn(members, 1, dim)
        wanted = keys[:, pick] + 1e-4 * wanted
    elif kind == "duplicates":
        keys = keys[:, torch.randint(max(1, capacity // 8), (capacity,))]
        wanted[:, ::2] = keys[:, pick[::2]]
    elif kind == "grid":
        keys, wanted = keys.round(), wanted.round()
    elif kind == "near ties":  # all points at the same distance but for rounding
        keys, wanted = 3 * torch.nn.functional.normalize(keys, dim=-1), 1e-6 * wanted
    elif kind == "far":
        keys, wanted = 1e3 + keys, 1e3 + wanted
    rows = [torch.zeros(*x.shape[:2], width) for x in (keys, wanted)]
    for row, x in zip(rows, (keys, wanted), strict=True):
        row[..., :dim] = x
    return [row.to(DEVICE) for row in rows]


@pytest.mark.parametrize("precision", ["tf32", "tf32x3"])
@pytest.mark.parametrize("kind", ["random", "clustered", "duplicates", "grid", "near ties", "far"])
@pytest.mark.parametrize(("members", "queries", "capacity", "stored", "dim"), SHAPES)
def test_the_kernels_find_the_canonical_winner(
    members, queries, capacity, stored, dim, kind, precision
):
    from nearl.neighbors.triton_search import search_triton

    keys, wanted = data(kind, members, queries, capacity, dim)
    count = torch.tensor([stored], device=DEVICE)
    distances, slots = search_triton(wanted, keys, count, precision=precision)
    expected, right = search_torch(wanted, keys, count)  # float64 differences of all pairs
    assert torch.equal(slots, right)
    torch.testing.assert_close(distances, expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("precision", ["tf32", "tf32x3", "ieee"])
@pytest.mark.parametrize("kind", ["random", "clustered", "duplicates", "grid", "near ties", "far"])
def test_floors_are_lower_bounds_and_tight(kind, precision):
    from nearl.neighbors.triton_floors import TILE, lowered_norms, tile_floors

    members, queries, stored = 2, 130, 1000
    keys, wanted = data(kind, members, queries, 1024, 23)
    count, rows = torch.tensor([stored], device=DEVICE), torch.full((members,), queries).to(DEVICE)
    floors = tile_floors(wanted, keys, count, rows, precision=precision).double()
    # What a query has on top, by the same kernel as a point's norm but with q rounded, not cut.
    q, tiles = wanted.double(), -(-stored // TILE)
    lost = q - ((wanted.view(torch.int32) + 0x1000) & -0x2000).view(torch.float32).double()
    share = {"tf32": 2.0**-12, "tf32x3": 2.0**-18, "ieee": 0.0}[precision]
    lift = (q**2).sum(-1) * (1 - 1.01 * share - 24 * 2.0**-20)
    lift -= 2.0**12 * (lost**2).sum(-1) * (precision == "tf32")
    far = torch.full((members, queries, tiles * TILE), torch.inf, dtype=torch.float64).to(DEVICE)
    far[..., :stored] = torch.cdist(q, keys[:, :stored].double()).square()
    nearest = far.unflatten(2, (tiles, TILE)).amin(3)
    gap = nearest - (floors[..., :tiles] + lift[..., None])
    norms = (q**2).sum(-1).amax() + (keys.double() ** 2).sum(-1).amax()
    assert (gap >= -1e-12 * norms).all()
    assert (gap <= norms * {"tf32": 2.0**-8, "tf32x3": 2.0**-13, "ieee": 2.0**-14}[precision]).all()
    assert (lowered_norms(keys, count)[:, :stored] <= (keys[:, :stored] ** 2).sum(-1)).all()


def test_norms_of_one_block_are_those_of_all():
    from nearl.neighbors.triton_floors import NORMS, lowered_norms

    keys, _ = data("random", 2, 1, 3 * NORMS, 9)
    count = torch.tensor([2 * NORMS + 5], device=DEVICE)
    norms, slots = lowered_norms(keys, count), (NORMS + 7, 2 * NORMS + 3)
    keys[:, slots] += 1.0
    wanted = lowered_norms(keys, count)
    for slot in slots:
        assert not torch.equal(norms[:, slot], wanted[:, slot])
        lowered_norms(keys, count, out=norms, at=torch.tensor([slot], device=DEVICE))
    assert torch.equal(norms[:, : int(count)], wanted[:, : int(count)])


@pytest.mark.parametrize("asked", [(200, 0, 70), (32, 33, 160), (1, 161, 128)])
def test_only_the_rows_asked_are_searched(asked):
    from nearl.neighbors.triton_search import search_triton

    keys, wanted = data("random", 3, 200, 1000, 9)
    count, rows = torch.tensor([900], device=DEVICE), torch.tensor(asked, device=DEVICE)
    distances, slots = search_triton(wanted, keys, count, rows)
    everything = search_triton(wanted, keys, count)
    for p, asked in enumerate(rows.tolist()):
        assert torch.equal(distances[p, :asked], everything[0][p, :asked])
        assert torch.equal(slots[p, :asked], everything[1][p, :asked])
        assert (slots[p, asked:] == 0).all() and (distances[p, asked:] == 0).all()
