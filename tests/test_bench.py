"""Benchmarks run, in small, in the promised form; what they compare agrees."""

import pytest
import torch
from rich.console import Console

from nearl.bench import (
    critic,
    memory,
    modules,
    nnac,
    population,
    search,
    sharing,
    simulations,
    train,
)
from nearl.bench.population_turns import repeated


def test_critic_bench_compares_equal_numbers():
    result = critic.run(sizes=(500,), repeats=2, samples=12, warm_up=2)
    assert len(result["cells"]) == 4
    for cell in result["cells"]:
        assert cell["env"] == "HalfCheetah-v5" and cell["n"] == 500
        assert (cell["metric"], cell["mode"]) in [
            (metric, mode) for metric in ("raw", "standardized") for mode in ("cold", "steady")
        ]
        assert cell["max_abs_diff"] <= 1e-4
        assert cell["speedup"] == pytest.approx(cell["reference_ms"] / cell["nearl_ms"])
    critic.rows(result)


def test_search_bench_has_every_column():
    result = search.run(dims=(5,), sizes=(3000,), repeats=1)
    (cell,) = result["cells"]
    assert (cell["dim"], cell["n"]) == (5, 3000)
    ours = [cell["brute_ms"], cell["pruned_ms"], cell["kdtree_ms"], cell["ckdtree_ms"]]
    assert cell["best_exact_ms"] <= min(ours)
    assert {"auto_ms", "torch_ms", "faiss_ms"} <= cell.keys()
    search.rows(result)


def test_nnac_bench_counts_steps():
    result = nnac.run(steps=400, reference_steps=3)
    for preset in ("rollout", "default"):
        cell = result["presets"][preset]
        assert cell["speedup"] == pytest.approx(cell["steps_per_s"] / cell["reference_steps_per_s"])
        assert cell["steps_per_s"] > 0
    nnac.rows(result)
    with pytest.raises(ValueError, match="steps must be at least 1, got 0"):
        nnac.run(steps=0)


def test_memory_bench_counts_what_the_columns_hold():
    result = memory.run(n=4000, piece=500)
    assert result["columns_bytes"] == 4000 * (17 + 6 + 1 + 17 + 1) * 4 + 4000 * 2
    assert result["index_bytes"] > 0
    memory.rows(result)


def test_train_bench_has_the_ratio_of_every_case():
    result = train.run(rounds=1, steps=2, warm_up=3, scale=0.02)
    cases = {"step", "batch_10k", "batch_30k", "after"}
    cases |= {f"residual_{size}k" for size in (10, 30, 90)}
    cases |= {f"{kind}_{size}k" for kind in ("live", "kernel", "mix") for size in (10, 30, 100)}
    cases |= {"live_300k", "mix_300k"}
    assert set(result["ratios"]) == cases
    for name, case in result["cases"].items():
        assert case["ratio"] == pytest.approx(case["nearl_ms"] / case["sb3_ms"])
        assert result["ratios"][name] == case["ratio"]
    train.rows(result)


def test_population_bench_has_ratios_and_floors(monkeypatch):
    # Beside other tests, threads that wait for each other in busy loops take minutes.
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    result = population.run(sizes=(2,), steps=4, stored=(150,), device="cpu", refresh_every=4)
    (row,) = result["runs"]
    assert row["ratio"] == pytest.approx(row["agent_steps_per_s"] / row["sb3_steps_per_s"])
    assert row["members"] == 2 and {"nn_step_ratio", "nn_batch_ratio"} <= row.keys()
    assert row["nn_residual_ratio"] > 0 and row["nn_mix_ratio"] > 0
    assert row["floor_matrix_us"] > 0 and 0 < row["floor_physics_us"] < row["us_per_step"]
    assert row["evaluation_share"] == 0  # on a CPU nothing is evaluated
    population.rows(result)


def test_simulations_bench_compares_equal_states():
    result = simulations.run(env_ids=("Hopper-v4", "Ant-v4"), n=2, threads=1, steps=30)
    for cell in result["cells"]:
        assert cell["equal"] and min(cell[kind] for kind in simulations.KINDS) > 0
        assert cell["ratio"] == pytest.approx(cell["batch"] / cell["nearl"])
    assert simulations.rows(result).count("yes") == 2
    with pytest.raises(ValueError, match="simulations must be at least 1, got 0"):
        simulations.run(n=0)
    with pytest.raises(ValueError, match="threads must be at least 1 .*got 0"):
        simulations.run(env_ids=(), threads=0)


def test_modules_bench_has_a_row_for_every_number_of_stored_transitions():
    few = {"refresh_every": 4, "refresh_nodes": 20}
    result = modules.run(sizes=(2,), stored=(102, 106), steps=4, device="cpu", **few)
    assert [(row["members"], row["stored"]) for row in result["runs"]] == [(2, 102), (2, 106)]
    for row in result["runs"]:
        assert min(row["residual_ratio"], row["mix_ratio"], row["us_per_step"]) > 0
    modules.rows(result)


def test_what_is_stored_beyond_what_was_trained_is_copies_of_it_in_order(monkeypatch):
    monkeypatch.setattr(modules, "TRAINED", 103)
    few = {"refresh_every": 4, "refresh_nodes": 20}
    result = modules.run(sizes=(1,), stored=(102, 230), steps=4, device="cpu", **few)
    assert [row["stored"] for row in result["runs"]] == [102, 230]
    rows = torch.arange(5.0)[None, :, None]
    assert repeated(rows, 3)[0, :, 0].tolist() == [2, 3, 4]
    assert repeated(rows, 12)[0, :, 0].tolist() == [3, 4, 0, 1, 2, 3, 4, 0, 1, 2, 3, 4]


def test_sharing_bench_times_every_way_alone_and_together(monkeypatch):
    sizes = {"8-8": (2, (8, 8), 16)}
    monkeypatch.setattr(sharing, "SIZES", sizes)
    processes = []

    def slowest(networks, way, number, seconds):
        processes.append((networks, way, number, seconds))
        return {"torch's own": 6.0, "nearl's": 4.0, "one torch thread each": 5.0}[way] * number

    monkeypatch.setattr(sharing, "_slowest", slowest)
    result = sharing.run(processes=2, seconds=3.0)
    assert len(set(processes)) == 6 and {p[2] for p in processes} == {1, 2}
    (cell,) = result["cells"]
    assert (cell["networks"], cell["members"]) == ("8-8", 2)
    assert cell["together"]["torch's own"] == 12.0 and cell["alone"]["nearl's"] == 4.0
    console = Console(width=120)
    with console.capture() as shown:
        console.print(sharing.rows(result))
    assert shown.get().count("1.50x") == 2  # torch's own to nearl's
    with pytest.raises(ValueError, match="processes must be at least 1, got 0"):
        sharing.run(processes=0)
    with pytest.raises(ValueError, match="seconds must be above 0, got 0"):
        sharing.run(seconds=0)


def test_sharing_bench_times_real_processes_together():
    assert 0 < sharing._slowest("64-64", "one torch thread each", 2, 0.2) < 1000


def test_ways_of_waiting_differ_in_their_variables_alone():
    given = {"PATH": "/bin", "OMP_NUM_THREADS": "8", "OMP_WAIT_POLICY": "ACTIVE"}
    assert sharing.environment("torch's own", given) == {"PATH": "/bin"}
    assert sharing.environment("nearl's", given) == {"PATH": "/bin", "GOMP_SPINCOUNT": "3000"}
    one = sharing.environment("one torch thread each", given)
    assert one == {"PATH": "/bin", "OMP_NUM_THREADS": "1"}
