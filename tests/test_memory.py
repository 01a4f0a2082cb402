"""The memory is a ring of rows: it equals a plain list, and bad input leaves it as it was."""

import copy
import pickle
import zipfile

import numpy as np
import pytest
import reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nearl import TransitionMemory
from nearl.saving import CorruptFileError


def fill(memory, rows):
    for t in range(len(rows["reward"])):
        memory.add(**{name: column[t] for name, column in rows.items()})


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    capacity=st.integers(2, 20),
    streams=st.integers(1, 2),
    steps=st.integers(1, 50),
)
def test_ring_equals_a_list(seed, capacity, streams, steps):
    rows = reference.walk(np.random.default_rng(seed), steps, streams=streams)
    memory = TransitionMemory(capacity, (2,), (1,), streams=streams)
    fill(memory, rows)
    total = steps * streams
    flat = {name: column.reshape(total, *column.shape[2:]) for name, column in rows.items()}
    assert len(memory) == min(total, capacity) and memory.total == total
    for slot in range(len(memory)):
        newest = max(i for i in range(total) if i % capacity == slot)
        for name, column in flat.items():
            np.testing.assert_array_equal(memory[name][slot], column[newest].astype(np.float32))
        assert memory["td_error"][slot].isnan()


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), capacity=st.integers(4, 20), streams=st.integers(1, 3))
def test_followers_continue_the_same_episode(seed, capacity, streams):
    steps = 15
    rows = reference.walk(np.random.default_rng(seed), steps, streams=streams)
    memory = TransitionMemory(capacity, (2,), (1,), streams=streams)
    fill(memory, rows)
    total = steps * streams
    over = (rows["terminated"] | rows["truncated"]).reshape(total)
    followers = memory.followers().tolist()
    for count in range(max(0, total - capacity), total):
        goes_on = not over[count] and count + streams < total
        expected = (count + streams) % capacity if goes_on else -1
        assert followers[count % capacity] == expected


@pytest.mark.parametrize("shape", [(), (2,), (2, 2)])
def test_nothing_follows_where_the_next_observation_is_another(shape):
    memory = TransitionMemory(8, shape, (1,))
    numbers = np.arange(5.0).reshape(5, *(1,) * len(shape)) * np.ones(shape)
    after = numbers + 1
    after[2] += 7  # an episode that was given up
    if shape == (2, 2):
        after[1, 0, 1] += 7  # in one of its numbers
    never = np.zeros(5, bool)
    memory.add(numbers, np.zeros((5, 1)), np.zeros(5), after, never, never)
    assert memory.followers().tolist() == [1, -1 if shape == (2, 2) else 2, -1, 4, -1]


@pytest.mark.parametrize("start", range(5))
def test_a_batch_can_fill_the_ring_from_anywhere(start):
    memory = TransitionMemory(4, (1,), (1,))
    rows, over = np.arange(9.0)[:, None], np.zeros(9, bool)
    for begin, end in ((0, start), (start, start + 4)):
        part = rows[begin:end]
        batch = (part, part, part[:, 0], part, over[begin:end], over[begin:end])
        slots = memory.add(*batch)
    assert slots.tolist() == [i % 4 for i in range(start, start + 4)]
    assert memory["reward"][slots].tolist() == list(range(start, start + 4))


@pytest.mark.parametrize("field", ["obs", "act", "reward", "next_obs"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_named_and_change_nothing(field, bad):
    rows = reference.walk(np.random.default_rng(0), 4)
    memory = TransitionMemory(8, (2,), (1,))
    fill(memory, {name: column[:3] for name, column in rows.items()})
    before = memory.state_dict()
    row = {name: column[3].copy() for name, column in rows.items()}
    row[field].flat[-1] = bad
    with pytest.raises(ValueError) as error:
        memory.add(**row)
    message = str(error.value)
    assert field in message and str(bad) in message and "step 3" in message
    after = memory.state_dict()
    assert before["total"] == after["total"]
    for name, column in before["columns"].items():
        assert torch.equal(column.nan_to_num(7), after["columns"][name].nan_to_num(7))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_large_finite_values_are_accepted(dtype):
    memory = TransitionMemory(2, (2,), (1,))
    huge = np.full((1, 2), 3e38, dtype)
    memory.add(huge, [[0.0]], [0.0], -huge, [False], [False])
    assert torch.equal(memory["obs"][0], torch.full((2,), 3e38))


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        (torch.float32, np.array([[1.0, 1e39]]), r"obs\[0, 1\] is 1e\+39 .* float32"),
        (torch.float16, np.array([[7e4, 1.0]], np.float32), r"obs\[0, 0\] is 70000.0 .* float16"),
        (torch.uint8, np.array([[3, 300]], np.uint16), r"obs\[0, 1\] is 300 .* uint8"),
        (torch.int32, np.array([[-(2**31) - 1, 0]]), r"obs\[0, 0\] is -2147483649 .* int32"),
        (torch.int64, np.array([[2**63, 0]], np.uint64), r"obs\[0, 0\] is 9223372036854775808 "),
    ],
)
def test_numbers_too_large_for_their_column_are_named_and_change_nothing(kind, values, message):
    memory = TransitionMemory(4, (2,), (1,), obs_dtype=kind)
    fine = np.array([[1, 2]], values.dtype)
    memory.add(fine, [[0.0]], [0.0], fine, [False], [False])
    with pytest.raises(ValueError, match=message):
        memory.add(values, [[0.0]], [0.0], fine, [False], [False])
    assert memory.total == 1 and memory["obs"].tolist() == [[1, 2]]


@pytest.mark.parametrize("rows", [1, 3])
def test_td_errors_of_another_length_are_named_and_change_nothing(rows):
    memory = TransitionMemory(4, (1,), (1,))
    two = np.ones((2, 1))
    memory.add(two, two, two[:, 0], two, [False] * 2, [False] * 2, [0.5, np.nan])
    before = memory.state_dict()
    with pytest.raises(ValueError, match=f"td_error has {rows} rows but reward has 2"):
        memory.add(two * 7, two, two[:, 0], two, [False] * 2, [False] * 2, np.zeros(rows))
    assert memory.total == 2 and torch.equal(memory["obs"], before["columns"]["obs"])
    assert memory["td_error"].tolist() == pytest.approx([0.5, np.nan], nan_ok=True)
    assert (memory.array("obs") != 7).all()


@pytest.mark.parametrize("stored", range(9))
def test_an_empty_batch_changes_nothing(stored):
    memory = TransitionMemory(4, (2,), (1,))
    fill(memory, reference.walk(np.random.default_rng(0), stored) if stored else {"reward": []})
    before = memory.state_dict()
    none = np.zeros((0, 2))
    slots = memory.add(none, none[:, :1], none[:, 0], none, *[none[:, 0] > 0] * 2)
    assert slots.shape == (0,) and slots.dtype == torch.int64 and memory.total == stored
    for name, column in before["columns"].items():
        assert torch.equal(column.nan_to_num(7), memory[name].nan_to_num(7))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"obs": np.zeros((1, 3))}, ["obs", "(1, 3)", "(batch, 2)"]),
        ({"obs": np.zeros(2)}, ["obs", "(2,)", "(batch, 2)"]),
        ({"reward": [0.0, 1.0]}, ["1 rows", "reward has 2"]),
        ({"terminated": [0.5]}, ["terminated", "float64", "bool"]),
        ({"act": np.array([["a"]])}, ["act"]),
    ],
)
def test_wrong_shapes_and_types_are_named(change, words):
    memory = TransitionMemory(4, (2,), (1,))
    row = {
        "obs": np.zeros((1, 2)),
        "act": np.zeros((1, 1)),
        "reward": [0.0],
        "next_obs": np.zeros((1, 2)),
        "terminated": [False],
        "truncated": [False],
    }
    with pytest.raises((ValueError, TypeError)) as error:
        memory.add(**(row | change))
    assert all(word in str(error.value) for word in words)
    assert len(memory) == 0


def test_sampling_follows_its_generator_and_covers_everything():
    memory = TransitionMemory(16, (2,), (1,))
    with pytest.raises(ValueError, match="empty"):
        memory.sample(4)
    fill(memory, reference.walk(np.random.default_rng(0), 10))
    first, second = (
        memory.sample(200, generator=torch.Generator().manual_seed(3)) for _ in range(2)
    )
    assert torch.equal(first.slots, second.slots)
    assert set(first.slots.tolist()) == set(range(10))
    assert torch.equal(first.obs, memory["obs"][first.slots])
    with pytest.raises(ValueError, match="batch_size.*0"):
        memory.sample(0)


def test_members_are_rings_in_lockstep():
    memory = TransitionMemory(4, (2,), (1,), members=3)
    obs = torch.arange(3.0).view(3, 1, 1).expand(3, 1, 2)
    for step in range(6):
        none = torch.zeros(3, 1, dtype=torch.bool)
        reward = torch.full((3, 1), float(step))
        memory.add(obs + step, obs[..., :1], reward, obs, none, none)
    slots = torch.tensor([[0, 1], [2, 3], [3, 0]])
    batch = memory.gather(slots)
    assert torch.equal(batch.obs[:, 0, 0], torch.tensor([4.0, 3.0, 5.0]))
    memory.write_td(slots, torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]))
    assert memory["td_error"][1, 3] == 4.0 and memory["td_error"][0, 3].isnan()


@pytest.mark.parametrize("members", [None, 2])
@pytest.mark.parametrize(("stored", "slot"), [(0, 0), (3, 3), (3, -1), (9, 4)])
def test_slots_that_hold_nothing_are_named_and_change_nothing(members, stored, slot):
    memory, lead = TransitionMemory(4, (2,), (1,), members=members), (members,) if members else ()
    two, one, none = torch.ones(*lead, 1, 2), torch.ones(*lead, 1), np.zeros((*lead, 1), bool)
    for _ in range(stored):
        memory.add(two, one[..., None], one, two, none, none)
    slots = torch.full((*lead, 1), slot)
    words = f"slot {slot} holds no transition: {min(stored, 4)} are stored"
    with pytest.raises(ValueError, match=words):
        memory.gather(slots)
    with pytest.raises(ValueError, match=words):
        memory.write_td(slots, torch.zeros(*lead, 1))
    assert memory["td_error"].isnan().all()
    assert memory.gather(slots[..., :0]).reward.shape == (*lead, 0)


@pytest.mark.parametrize("members", [None, 2])
def test_save_and_load_give_the_same_memory(tmp_path, members):
    memory = TransitionMemory(5, (2,), (), act_dtype=torch.int64, members=members)
    rows = reference.walk(np.random.default_rng(2), 7, n_actions=3)
    for t in range(7):
        row = {name: column[t] for name, column in rows.items()}
        memory.add(**(row if members is None else {k: np.stack([v, v]) for k, v in row.items()}))
    memory.save(tmp_path / "memory.pt")
    loaded = TransitionMemory.load(tmp_path / "memory.pt")
    assert (loaded.total, loaded.capacity, loaded.members) == (7, 5, members)
    for name in memory.state_dict()["columns"]:
        assert loaded[name].dtype == memory[name].dtype
        assert torch.equal(loaded[name].nan_to_num(7), memory[name].nan_to_num(7))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_a_copy_keeps_what_is_added_to_it_and_nothing_else(copied):
    rows = reference.walk(np.random.default_rng(0), 9)
    memory, whole = TransitionMemory(6, (2,), (1,)), TransitionMemory(6, (2,), (1,))
    fill(memory, {name: column[:4] for name, column in rows.items()})
    before = memory["obs"].clone()
    twin = copied(memory)
    fill(twin, {name: column[4:] for name, column in rows.items()})
    fill(whole, rows)
    for name in ("obs", "act", "reward", "next_obs", "terminated", "truncated"):
        assert torch.equal(twin[name], whole[name])
        assert torch.equal(twin[name], torch.from_numpy(twin.array(name)))
    assert len(memory) == 4 and torch.equal(memory["obs"], before)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"capacity": 6}, "capacity 6, this one 5"),
        ({"streams": 2}, "of 2 environments.*this one of 1"),
        ({"act_shape": (3,)}, r"column act has rows of shape \(3,\), this memory \(1,\)"),
        ({"obs_dtype": torch.float64}, "column obs has dtype torch.float64, this memory.*float32"),
        ({"members": 2}, "2 members, this one no members"),
        ({"members": 1}, "1 members, this one no members"),
    ],
)
def test_a_saved_memory_that_does_not_fit_changes_nothing(change, words):
    shape = {"capacity": 5, "obs_shape": (2,), "act_shape": (1,)}
    memory, saved = TransitionMemory(**shape), TransitionMemory(**shape | change)
    fill(memory, reference.walk(np.random.default_rng(0), 4))
    before, lead = memory["obs"].clone(), saved.lead
    obs, act = np.ones((*lead, 1, 2)), np.ones((*lead, 1, *change.get("act_shape", (1,))))
    none = np.zeros((*lead, 1), bool)
    saved.add(obs, act, np.zeros((*lead, 1)), obs, none, none)
    with pytest.raises(ValueError, match=words):
        memory.load_state_dict(saved.state_dict())
    assert torch.equal(memory["obs"], before) and memory.total == 4


def test_numbers_of_another_type_are_not_cut_to_fit():
    memory, saved = (TransitionMemory(2, (1,), (1,), obs_dtype=kind) for kind in
                     (torch.uint8, torch.float32))  # fmt: skip
    saved.add([[1.5]], [[0.0]], [0.0], [[2.5]], [False], [False])
    with pytest.raises(ValueError, match="obs has dtype torch.float32, this memory torch.uint8"):
        memory.load_state_dict(saved.state_dict())


def test_another_archive_is_named(tmp_path):
    with zipfile.ZipFile(tmp_path / "model.zip", "w") as archive:
        archive.writestr("data", "{}")
    with pytest.raises(CorruptFileError, match=r"model\.zip' is no nearl memory but another"):
        TransitionMemory.load(tmp_path / "model.zip")


@pytest.mark.parametrize("damage", ["truncated", "flipped", "foreign", "empty"])
def test_a_damaged_file_is_named(tmp_path, damage):
    path = tmp_path / "memory.pt"
    memory = TransitionMemory(50, (2,), (1,))
    fill(memory, reference.walk(np.random.default_rng(0), 50))
    memory.save(path)
    data = bytearray(path.read_bytes())
    if damage == "truncated":
        data = data[: len(data) // 2]
    elif damage == "flipped":
        for i in range(len(data) // 2, len(data) // 2 + 200):  # more than the padding in between
            data[i] ^= 0xFF
    else:
        data = bytearray(b"" if damage == "empty" else b"step,mean_return\n")
    path.write_bytes(data)
    with pytest.raises(CorruptFileError, match=r"memory\.pt.*cannot be read"):
        TransitionMemory.load(path)


def test_one_bit_anywhere_in_a_file_is_named_or_does_not_matter(tmp_path):
    memory = TransitionMemory(5, (2,), (1,))
    fill(memory, reference.walk(np.random.default_rng(0), 5))
    memory.save(tmp_path / "memory.pt")
    data, named = (tmp_path / "memory.pt").read_bytes(), 0
    for at in range(len(data)):
        (tmp_path / "memory.pt").write_bytes(
            data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :]
        )
        try:
            loaded = TransitionMemory.load(tmp_path / "memory.pt")
        except CorruptFileError:
            named += 1
        else:
            for name, column in memory.state_dict()["columns"].items():
                assert torch.equal(loaded[name].nan_to_num(), column.nan_to_num())
    assert named > len(data) / 4


def test_bad_sizes_are_named():
    with pytest.raises(ValueError, match="capacity.*0"):
        TransitionMemory(0, (1,), (1,))
    with pytest.raises(ValueError, match="members.*0"):
        TransitionMemory(1, (1,), (1,), members=0)
    memory = TransitionMemory(1, (1,), (1,))
    two = np.zeros((2, 1))
    with pytest.raises(ValueError, match="batch of 2 does not fit a memory of 1"):
        memory.add(two, two, two[:, 0], two, [False] * 2, [False] * 2)
