"""Every index gives the same bits as the definition: float64 sums, sorted by (distance, slot)."""

import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nearl.neighbors import (
    AutoIndex,
    BruteForce,
    KDTreeIndex,
    NeighborIndex,
    PrunedIndex,
    TorchBruteForce,
    make_index,
    update_lists,
)


class Rows:
    """A key source that is not the index's own, as a memory's columns are."""

    def __init__(self) -> None:
        self.rows: dict[int, np.ndarray] = {}

    def take(self, slots: np.ndarray) -> np.ndarray:
        return np.stack([self.rows[int(s)] for s in slots])

    def put(self, slots: np.ndarray, keys: np.ndarray) -> None:
        self.rows.update(zip(slots.tolist(), keys.copy(), strict=True))


INDEXES: dict[str, Callable[[int], NeighborIndex]] = {
    "brute": BruteForce,
    "torch": TorchBruteForce,
    "kdtree": lambda dim: KDTreeIndex(dim, tail=16),
    "pruned": PrunedIndex,
    "auto": lambda dim: AutoIndex(dim, start=50),
    "pruned, other source": lambda dim: PrunedIndex(dim, keys=Rows()),
}
KIND = pytest.mark.parametrize("kind", INDEXES)
FEW = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))


def reference(points: dict[int, np.ndarray], queries: np.ndarray, k: int) -> tuple:
    """The definition, in plain NumPy."""
    slots = np.array(sorted(points))
    keys = np.stack([points[s] for s in slots]).astype(np.float64)
    total = np.zeros((len(queries), len(slots)))
    for d in range(keys.shape[1]):
        total += (queries[:, d, None].astype(np.float64) - keys[None, :, d]) ** 2
    order = np.argsort(total, axis=1, kind="stable")[:, :k]  # slots ascend, so ties do too
    return np.sqrt(np.take_along_axis(total, order, 1)), slots[order]


def assert_equal(index: NeighborIndex, points: dict, queries: np.ndarray, k: int) -> None:
    distances, slots = index.query(queries, k)
    wanted, names = reference(points, queries, k)
    np.testing.assert_array_equal(slots, names)
    np.testing.assert_array_equal(distances, wanted)
    assert len(index) == len(points)


def adversarial(rng: np.random.Generator, n: int, dim: int, kind: str) -> np.ndarray:
    """Points that trip shortcuts: ties, duplicates, tiny, huge and mixed scales."""
    normal = rng.standard_normal((n, dim))
    data = {
        "normal": normal,
        "offset": normal * 1e-3 + 1e4,
        "grid": rng.integers(0, 3, (n, dim)),
        "identical": np.ones((n, dim)),
        "duplicates": normal[rng.integers(0, max(1, n // 4), n)],
        "tiny": normal * 1e-30,
        "denormal": normal * 1e-43,
        "huge": normal * 1e25,
        "largest": np.sign(normal) * 3e38,
        "mixed": normal * 10.0 ** rng.choice([-30, 0, 25], (n, dim)),
        "line": normal[:, :1] * np.ones(dim) + normal * 1e-6,
    }
    return data[kind].astype(np.float32)


SHAPES = ["normal", "offset", "grid", "identical", "duplicates", "tiny", "denormal", "huge"]
SHAPES += ["largest", "mixed", "line"]


@KIND
@pytest.mark.parametrize("shape", SHAPES)
def test_index_equals_definition_on_adversarial_points(kind: str, shape: str) -> None:
    rng = np.random.default_rng(0)
    for n, dim in ((1, 1), (70, 3), (300, 7), (400, 23), (65, 40)):
        keys = adversarial(rng, n, dim, shape)
        slots = rng.permutation(3 * n)[:n]
        index = INDEXES[kind](dim)
        index.add(slots, keys)
        points = dict(zip(slots.tolist(), keys, strict=True))
        queries = np.concatenate([keys[:9], adversarial(rng, 14, dim, shape), keys[:1] * 0])
        for k in {1, min(2, n), min(16, n), n}:
            assert_equal(index, points, queries, k)


operations = st.lists(
    st.tuples(st.sampled_from(["add", "add", "remove", "clear"]), st.integers(0, 2**31)),
    min_size=1,
    max_size=12,
)


@KIND
@FEW
@given(operations, st.integers(1, 9), st.sampled_from(SHAPES))
def test_index_equals_definition_after_any_sequence_of_changes(
    kind: str, changes: list, dim: int, shape: str
) -> None:
    index, points = INDEXES[kind](dim), {}
    for what, seed in changes:
        rng = np.random.default_rng(seed)
        if what == "add":
            slots = rng.permutation(250)[: rng.integers(1, 120)]
            keys = adversarial(rng, len(slots), dim, shape)
            index.add(slots, keys)
            points.update(zip(slots.tolist(), keys, strict=True))
        elif what == "remove" and points:
            slots = rng.permutation(sorted(points))[: rng.integers(1, len(points) + 1)]
            index.remove(slots)
            for s in slots:
                del points[int(s)]
        elif what == "clear" and seed % 4 == 0:
            index.clear()
            points = {}
        if points:
            queries = adversarial(rng, 5, dim, shape)
            assert_equal(index, points, queries, min(len(points), int(rng.integers(1, 6))))
    assert len(index) == len(points)


@KIND
def test_ring_overwrites_its_oldest_points(kind: str) -> None:
    rng = np.random.default_rng(1)
    capacity, dim = 200, 6
    index, points = INDEXES[kind](dim), {}
    keys = np.cumsum(rng.standard_normal((3 * capacity, dim)), 0).astype(np.float32)
    for step, key in enumerate(keys):
        index.add([step % capacity], key[None])
        points[step % capacity] = key
        if step % 37 == 0 or step == len(keys) - 1:
            assert_equal(index, points, keys[max(0, step - 5) : step + 5], min(3, len(points)))


@KIND
def test_torch_in_torch_out(kind: str) -> None:
    rng = np.random.default_rng(2)
    keys = rng.standard_normal((90, 4)).astype(np.float32)
    index = INDEXES[kind](4)
    index.add(torch.arange(90), torch.from_numpy(keys))
    got = index.query(torch.from_numpy(keys[:7]) + 0.1, 3)
    wanted = reference(dict(enumerate(keys)), keys[:7] + np.float32(0.1), 3)
    assert got.distances.dtype == torch.float32 and got.slots.dtype == torch.int64
    np.testing.assert_array_equal(got.slots.numpy(), wanted[1])
    np.testing.assert_array_equal(got.distances.numpy(), wanted[0].astype(np.float32))


@pytest.mark.parametrize("budget", [1, 2**28])
def test_population_equals_a_loop_over_its_members(budget: int) -> None:
    rng = np.random.default_rng(3)
    keys = rng.integers(0, 4, (3, 2500, 5)).astype(np.float32)
    queries = rng.integers(0, 4, (3, 11, 5)).astype(np.float32)
    slots = rng.permutation(4000)[:2500]
    together = TorchBruteForce(5, population=3, budget=budget)
    together.add(slots, torch.from_numpy(keys))
    found = together.query(torch.from_numpy(queries), 4)
    assert found.distances.shape == (3, 11, 4)
    for p in range(3):
        alone = BruteForce(5)
        alone.add(slots, keys[p])
        distances, names = alone.query(queries[p], 4)
        np.testing.assert_array_equal(found.slots[p].numpy(), names)
        np.testing.assert_array_equal(found.distances[p].numpy(), distances.astype(np.float32))


def test_learned_metric_is_ranked_as_given() -> None:
    keys = torch.tensor([[1.0], [-3.0], [2.0]])
    index = TorchBruteForce(1, distances=lambda q, x: (q.abs() - x.abs().mT).abs())
    index.add([4, 2, 9], keys)
    distances, slots = index.query(torch.tensor([[3.0]]), 3)
    assert slots.tolist() == [[2, 9, 4]] and distances.tolist() == [[0.0, 1.0, 2.0]]


@KIND
@pytest.mark.parametrize(
    ("action", "message"),
    [
        (lambda i: i.add([0], np.zeros((1, 3), np.float32)), r"\(B, 2\), got \(1, 3\)"),
        (lambda i: i.add([0], np.zeros(2, np.float32)), r"\(B, 2\), got \(2,\)"),
        (lambda i: i.add([0], np.array([[0, np.nan]], np.float32)), "finite, got .*nan"),
        (lambda i: i.query(np.array([[0, np.inf]], np.float32)), "finite, got .*inf"),
        (lambda i: i.add([-1], np.zeros((1, 2), np.float32)), "between 0 and .* got -1"),
        (lambda i: i.add([5, 7, 5], np.zeros((3, 2), np.float32)), "distinct .* got 5 twice"),
        (lambda i: i.add([5, 7], np.zeros((3, 2), np.float32)), "2 slots given for 3 keys"),
        (lambda i: i.add([0.5], np.zeros((1, 2), np.float32)), "integers, got .*float64"),
        (lambda i: i.remove([3]), "slot 3 is not stored"),
        (lambda i: i.query(np.zeros((1, 2), np.float32), 3), "number of points, 2; got 3"),
        (lambda i: i.query(np.zeros((1, 2), np.float32), 0), "k must be .* got 0"),
        (lambda i: (i.clear(), i.query(np.zeros((1, 2), np.float32))), "index is empty"),
    ],
)
def test_errors_name_what_was_given(kind: str, action: Callable, message: str) -> None:
    index = INDEXES[kind](2)
    index.add([0, 1], np.ones((2, 2), np.float32))
    with pytest.raises(ValueError, match=message):
        action(index)


@pytest.mark.parametrize("shape", ["normal", "grid", "huge", "line"])
def test_box_tree_stays_exact_through_splits_and_wear(shape: str) -> None:
    rng = np.random.default_rng(5)
    index, points = PrunedIndex(6), {}
    for _ in range(60):
        slots = rng.permutation(3000)[:80]
        keys = adversarial(rng, 80, 6, shape) + np.float32(rng.normal())
        index.add(slots, keys)
        points.update(zip(slots.tolist(), keys, strict=True))
    assert_equal(index, points, adversarial(rng, 40, 6, shape), 3)
    index.remove(list(points)[:-50])
    points = dict(list(points.items())[-50:])
    assert_equal(index, points, adversarial(rng, 40, 6, shape), 50)


def test_byte_codes_take_at_most_45_bytes_per_point() -> None:
    keys = np.random.default_rng(6).standard_normal((50_000, 23)).astype(np.float32)
    index = PrunedIndex(23)
    index.add(np.arange(len(keys)), keys)
    assert index.nbytes <= 45 * len(keys)


@pytest.mark.parametrize("dim", [2, 20])
@pytest.mark.parametrize("source", [None, Rows()])
def test_auto_equals_definition_while_growing_and_choosing(dim: int, source: Rows | None) -> None:
    rng = np.random.default_rng(7)
    index, points = AutoIndex(dim, keys=source, start=100), {}
    for step in range(40):
        slots = np.arange(step * 50, step * 50 + 50) % 1500
        keys = rng.standard_normal((50, dim)).astype(np.float32)
        index.add(slots, keys)
        points.update(zip(slots.tolist(), keys, strict=True))
        for size in (1, 13, 70):
            assert_equal(index, points, rng.standard_normal((size, dim)).astype(np.float32), 2)


def test_auto_respects_its_budget() -> None:
    rng = np.random.default_rng(8)
    index = AutoIndex(20, start=100, budget=0)
    index.add(np.arange(300), rng.standard_normal((300, 20)).astype(np.float32))
    index.query(rng.standard_normal((70, 20)).astype(np.float32))
    assert index.choice == "pruned"


@pytest.mark.parametrize("kind", ["pruned", "pruned, other source"])
def test_box_tree_needs_little_room_for_many_duplicates(kind: str) -> None:
    rng = np.random.default_rng(9)
    keys = rng.standard_normal((4000, 3)).astype(np.float32)
    keys[rng.random(4000) < 0.5] = 0
    indexes = INDEXES[kind](3), BruteForce(3)
    for index in indexes:
        index.add(np.arange(4000), keys)
        index.query(keys[:1])  # compiled
    tracemalloc.start()
    found = indexes[0].query(keys, 2)  # half of them have 2000 candidates
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    wanted = indexes[1].query(keys, 2)
    np.testing.assert_array_equal(found.slots, wanted.slots)
    np.testing.assert_array_equal(found.distances, wanted.distances)
    assert peak < 40e6


def test_unknown_kind_lists_the_accepted_ones() -> None:
    with pytest.raises(ValueError, match="'hnsw'; accepted: auto, brute, pruned, kdtree"):
        make_index("hnsw", 3)


@FEW
@given(st.integers(0, 2**31), st.integers(1, 40), st.integers(1, 5), st.sampled_from(SHAPES))
def test_updated_lists_equal_a_fresh_query(seed: int, dim: int, k: int, shape: str) -> None:
    rng = np.random.default_rng(seed)
    nodes = adversarial(rng, int(rng.integers(1, 40)), dim, shape)
    squares = np.full((len(nodes), k), np.inf)
    slots = np.full((len(nodes), k), -1)
    points: dict[int, np.ndarray] = {}
    names = rng.permutation(300)
    for size in (k, 1, int(rng.integers(1, 100)), 3):
        batch, names = names[:size], names[size:]
        keys = adversarial(rng, size, dim, shape)
        before = slots.copy()
        changed = update_lists(nodes, squares, slots, keys, batch)
        points.update(zip(batch.tolist(), keys, strict=True))
        wanted = reference(points, nodes, k)
        np.testing.assert_array_equal(slots, wanted[1])
        np.testing.assert_array_equal(np.sqrt(squares), wanted[0])
        np.testing.assert_array_equal(changed, (before != slots).any(1))


@pytest.mark.parametrize("form", [np.asfortranarray, lambda x: x[::2], lambda x: x[:, ::2], float])
def test_nodes_of_any_layout_have_the_same_lists(form: Callable) -> None:
    rng = np.random.default_rng(10)
    given = rng.standard_normal((40, 6)).astype(np.float32)
    nodes = given.astype(np.float64) if form is float else form(given)
    keys = rng.standard_normal((30, nodes.shape[1])).astype(np.float32)
    squares, slots = np.full((len(nodes), 2), np.inf), np.full((len(nodes), 2), -1)
    assert update_lists(nodes, squares, slots, keys, np.arange(30)).all()
    wanted = reference(dict(enumerate(keys)), np.ascontiguousarray(nodes, np.float32), 2)
    np.testing.assert_array_equal(slots, wanted[1])
    np.testing.assert_array_equal(np.sqrt(squares), wanted[0])
