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
    elif kind in ("tiny", "huge"):  # beyond the range of halves
        scale = 1e-9 if kind == "tiny" else 1e6
        keys, wanted = scale * keys, scale * wanted
    rows = [torch.zeros(*x.shape[:2], width) for x in (keys, wanted)]
    for row, x in zip(rows, (keys, wanted), strict=True):
        row[..., :dim] = x
    return [row.to(DEVICE) for row in rows]


KINDS = ["random", "clustered", "duplicates", "grid", "near ties", "far", "tiny", "huge"]


def uncentered(keys, count):
    from nearl.neighbors.triton_floors import Halves

    return Halves.room(keys).fill(keys, count)


@pytest.mark.parametrize("centered", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("members", "queries", "capacity", "stored", "dim"), SHAPES)
def test_the_kernels_find_the_canonical_winner(
    members, queries, capacity, stored, dim, kind, centered
):
    from nearl.neighbors.triton_search import search_triton

    keys, wanted = data(kind, members, queries, capacity, dim)
    count = torch.tensor([stored], device=DEVICE)
    halves = None if centered else uncentered(keys, count)
    distances, slots = search_triton(wanted, keys, count, halves=halves)
    expected, right = search_torch(wanted, keys, count)  # float64 differences of all pairs
    assert torch.equal(slots, right)
    torch.testing.assert_close(distances, expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("centered", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_floors_are_lower_bounds_and_tight(kind, centered):
    from nearl.neighbors.triton_floors import TILE, Halves, tile_floors

    members, queries, stored = 2, 130, 1000
    keys, wanted = data(kind, members, queries, 1024, 23)
    count, rows = torch.tensor([stored], device=DEVICE), torch.full((members,), queries).to(DEVICE)
    halves = Halves.of(keys, count) if centered else uncentered(keys, count)
    floors = tile_floors(wanted, halves, count, rows).double()
    tiles = -(-stored // TILE)
    far = torch.full((members, queries, tiles * TILE), torch.inf, dtype=torch.float64).to(DEVICE)
    apart = wanted.double()[:, :, None] - keys[:, None, :stored].double()
    far[..., :stored] = apart.square().sum(-1)
    nearest = far.unflatten(2, (tiles, TILE)).amin(3)
    gap = nearest - floors[..., :tiles]
    x, q = ((part - halves.origins[:, :1]).double() for part in (keys[:, :stored], wanted))
    norms = (q**2).sum(-1).amax() + (x**2).sum(-1).amax()
    assert (gap >= 0).all()
    if kind not in ("tiny", "huge"):  # what a half can tell apart
        assert (gap <= norms * 2.0**-9).all()
    assert (halves.norms[:, :stored] <= (x**2).sum(-1)).all()


def test_an_origin_where_the_keys_are_makes_floors_sharp():
    from nearl.neighbors.triton_floors import Halves, tile_floors

    keys, wanted = data("clustered", 2, 40, 1024, 23)
    count, rows = torch.tensor([1024], device=DEVICE), torch.full((2,), 40).to(DEVICE)
    gaps = []
    for halves in (uncentered(keys, count), Halves.of(keys, count)):
        square = (wanted.double()[:, :, None] - keys[:, None].double()).square().sum(-1)
        nearest = square.unflatten(2, (8, 128)).amin(3)
        floors = tile_floors(wanted, halves, count, rows).double()
        gaps.append(float((nearest - floors).mean()))
    assert 0 < 1000 * gaps[1] < gaps[0]


@pytest.mark.parametrize("programs", [1, 2048])  # one for all spans, or one for every tile
def test_every_span_has_its_origin(programs, monkeypatch):
    from nearl.neighbors import triton_floors
    from nearl.neighbors.triton_floors import SPAN, TILE, Halves, tile_floors
    from nearl.neighbors.triton_search import search_triton

    monkeypatch.setattr(triton_floors, "PROGRAMS", programs)
    keys, wanted = data("clustered", 2, 16, 3 * SPAN, 9)
    keys[:, SPAN : 2 * SPAN] += 5.0  # the same keys elsewhere
    wanted[:, ::2] += 5.0
    stored = 2 * SPAN + 2 * TILE + 3
    count, rows = torch.tensor([stored], device=DEVICE), torch.full((2,), 16).to(DEVICE)
    halves = Halves.of(keys, count)
    last = keys[:, 2 * SPAN : stored].amin(1), keys[:, 2 * SPAN : stored].amax(1)
    for span, (low, high) in enumerate(
        [*((k.amin(1), k.amax(1)) for k in keys.split(SPAN, 1)[:2]), last]
    ):
        assert ((low <= halves.origins[:, span]) & (halves.origins[:, span] <= high)).all()
    square = (wanted.double()[:, :, None] - keys[:, None, :stored].double()).square().sum(-1)
    tiles = stored // TILE
    nearest = square[..., : tiles * TILE].unflatten(2, (tiles, TILE)).amin(3)
    gap = nearest - tile_floors(wanted, halves, count, rows).double()[..., :tiles]
    assert (gap >= 0).all()
    assert (gap <= 2e-3 * nearest + 1e-6).all()  # from one origin for all it is up to 0.1
    assert torch.equal(search_triton(wanted, keys, count)[1], search_torch(wanted, keys, count)[1])


def test_spans_without_a_key_have_the_origin_of_the_last():
    from nearl.neighbors.triton_floors import SPAN, Halves

    keys, _ = data("far", 2, 1, 3 * SPAN, 9)
    origins = Halves.of(keys, torch.tensor([SPAN + 7], device=DEVICE)).origins
    assert torch.equal(origins[:, 2], origins[:, 1])
    low, high = keys[:, SPAN : SPAN + 7].amin(1), keys[:, SPAN : SPAN + 7].amax(1)
    assert ((low <= origins[:, 1]) & (origins[:, 1] <= high)).all()


def test_the_origin_is_where_most_of_the_stored_keys_are():
    from nearl.neighbors.triton_floors import Halves
    from nearl.neighbors.triton_search import search_triton

    keys, wanted = data("far", 2, 5, 300, 9)
    count = torch.tensor([200], device=DEVICE)
    keys[:, :80] += 1e3  # a mean would be 400 off
    right = search_triton(wanted, keys, count)[1]
    for garbage in (torch.nan, torch.inf, -1e30):  # of what is not stored
        keys[:, 200:] = garbage
        assert ((Halves.of(keys, count).origins - 1e3)[..., :9].abs() < 3).all()
        assert torch.equal(search_triton(wanted, keys, count)[1], right)


def test_a_key_that_changed_is_rounded_as_all_are():
    from nearl.neighbors.triton_floors import POINTS, SPAN, Halves

    keys, _ = data("random", 2, 1, SPAN + 3 * POINTS, 9)
    count = torch.tensor([SPAN + 2 * POINTS + 5], device=DEVICE)
    halves, slots = Halves.of(keys, count), (POINTS + 7, SPAN + 2 * POINTS + 3)
    keys[:, slots] += 1.0
    right = Halves(halves.origins, *map(torch.zeros_like, halves[1:])).fill(keys, count)
    for slot in slots:
        assert not torch.equal(halves.norms[:, slot], right.norms[:, slot])
        halves.fill(keys, count, at=torch.tensor([slot], device=DEVICE))
    for got, wanted in zip(halves[1:], right[1:], strict=True):
        assert torch.equal(got[:, : int(count)], wanted[:, : int(count)])


@pytest.mark.parametrize("kind", ["random", "duplicates", "clustered"])
def test_what_is_known_of_the_first_keys_need_not_be_found_again(kind):
    from nearl.neighbors.triton_floors import Known
    from nearl.neighbors.triton_search import search_triton

    members, queries, stored = 2, 40, 700
    keys, wanted = data(kind, members, queries, 900, 9)
    count, rows = torch.tensor([stored], device=DEVICE), torch.tensor([40, 23], device=DEVICE)
    since = torch.randint(1, stored + 1, (members, queries), dtype=torch.int32)
    since[:, ::3], since[:, 1] = 0, stored
    slots, order = torch.zeros_like(since), torch.zeros_like(since)
    for p in range(members):
        some = since[p, : rows[p]]
        order[p, : rows[p]] = (some > 0).int().sort(stable=True).indices.int()
        for q in torch.nonzero(some)[:, 0]:
            one = wanted[p : p + 1, q : q + 1], keys[p : p + 1]
            slots[p, q] = search_torch(*one, since[p, q].to(DEVICE))[1]
    known = Known(*(x.to(DEVICE) for x in (slots, since, order)))
    found = search_triton(wanted, keys, count, rows, known=known)
    right = search_triton(wanted, keys, count, rows)
    assert torch.equal(found[1], right[1]) and torch.equal(found[0], right[0])


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


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("kind", ["clustered", "duplicates", "far"])
def test_searches_of_graphs_find_by_kernels_what_torch_finds(kind, k):
    from nearl.population.residual_search import _by_kernels, _by_torch

    keys, wanted = data(kind, 2, 9, 300, 9)
    count = torch.tensor([270], device=DEVICE)
    found, right = (make(keys, count, k)[0](wanted) for make in (_by_kernels, _by_torch))
    assert torch.equal(found[1], right[1])
    torch.testing.assert_close(found[0], right[0], rtol=1e-6, atol=0)
