"""A population's search and errors on a GPU. Needs CUDA and Triton; skipped where there is none."""

import pytest
import torch
from test_gpu_search import data
from triton_device import needs_cuda

from nearl import SoftNNConfig
from nearl.population.neighbors import PopulationNeighbors, search_torch
from nearl.population.ring import Ring
from nearl.population.soft import PopulationSoft

pytestmark = [pytest.mark.gpu, needs_cuda]


def test_on_the_gpu_torch_finds_what_it_finds_on_the_cpu():
    keys, wanted = data("grid", 3, 40, 2000, 7)
    count = torch.tensor([1500], device="cuda")
    on_gpu = search_torch(wanted, keys, count, budget=2**16)
    on_cpu = search_torch(wanted.cpu(), keys.cpu(), count.cpu())
    assert torch.equal(on_gpu[1].cpu(), on_cpu[1])
    torch.testing.assert_close(on_gpu[0].cpu(), on_cpu[0], rtol=1e-6, atol=0)


def test_a_captured_search_sees_the_memory_grow_and_wrap():
    neighbors = PopulationNeighbors(2, 50, 3, 2, kinds="raw", device="cuda")
    obs, act = torch.randn(2, 80, 3, device="cuda"), torch.randn(2, 80, 2, device="cuda")
    asked = torch.randn(2, 30, 3, device="cuda"), torch.randn(2, 30, 2, device="cuda")
    row = torch.zeros(2, 3, device="cuda"), torch.zeros(2, 2, device="cuda")
    clock = torch.zeros((), dtype=torch.int64, device="cuda")

    def step():
        neighbors.write(*row, clock)
        clock.add_(1)
        return neighbors.nearest(*asked)

    step()  # compiles
    clock.zero_()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = step()
    for t in range(80):
        row[0].copy_(obs[:, t])
        row[1].copy_(act[:, t])
        graph.replay()
        first = max(0, t + 1 - 50)  # the oldest that is stored
        ring = torch.zeros(2, 50, 8, device="cuda")
        for i in range(first, t + 1):
            ring[:, i % 50, :5] = torch.cat([obs[:, i], act[:, i]], -1)
        count = torch.tensor([min(t + 1, 50)], device="cuda")
        expected = search_torch(neighbors.embed(*asked), ring, count)
        assert torch.equal(found.slots, expected[1])
        torch.testing.assert_close(found.distances, expected[0], rtol=1e-6, atol=0)


def test_errors_on_the_gpu_in_a_graph_equal_the_cpu():
    configs = [
        SoftNNConfig(weight=0.5, lipschitz=1.0, refresh="batch", keep="all", critic_weight=None),
        SoftNNConfig(weight=0.9, lipschitz=5.0, refresh="step", metric="raw", critic_weight=None),
        None,
    ]
    torch.manual_seed(0)
    policy = torch.randn(3, 4, 2)
    rows = torch.randn(150, 3, 2 * 4 + 2 + 4)
    rows[..., -3:-1] = (rows[..., -3:-1] > 1.3).float()
    rows[..., -1] = torch.nan
    slots = torch.randint(100, (3, 64))
    results = []
    for device in ("cpu", "cuda"):
        ring = Ring(3, 100, 4, 2, device=device)
        clock = torch.zeros((), dtype=torch.int64, device=device)
        neighbors = PopulationNeighbors(
            3, 100, 4, 2, kinds=["standardized", "raw", "raw"], device=device
        )
        weights = policy.to(device)
        soft = PopulationSoft(
            ring,
            neighbors,
            configs,
            clock=clock,
            policy=lambda obs, weights=weights: torch.tanh(obs @ weights),
        )
        for t, row in enumerate(rows.to(device)):
            ring.store(row, clock)
            clock.add_(1)
            soft.step(t + 1, torch.zeros(3, dtype=torch.bool).numpy())
            soft.prepare()
            soft.settle()
        chosen = slots.to(device)
        if device == "cuda":
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                soft.augment(ring.gather(chosen))
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                reward = soft.augment(ring.gather(chosen)).reward
            ring.column("td_error")[0] = torch.nan
            graph.replay()
        else:
            reward = soft.augment(ring.gather(chosen)).reward
        results.append((reward.cpu(), ring.column("td_error").cpu()))
    (reward, errors), (reward_gpu, errors_gpu) = results
    torch.testing.assert_close(reward_gpu, reward, atol=1e-4, rtol=1e-4)
    at = slots[0].unique()
    torch.testing.assert_close(errors_gpu[0, at], errors[0, at], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(errors_gpu[1], errors[1], atol=1e-4, rtol=1e-4)
    assert errors_gpu[2].isnan().all()
