"""The same answers on a GPU. Needs a CUDA device; skipped where there is none."""

import numpy as np
import pytest
import reference
import torch

from nearl import ActionCode, Experience, NNCritic, TransitionMemory, WeightedL2
from nearl.neighbors import BruteForce, TorchBruteForce

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


@pytest.mark.parametrize(("n", "dim", "k"), [(1, 3, 1), (5_000, 23, 1), (30_000, 23, 4)])
@pytest.mark.parametrize("ties", [False, True])
def test_search_on_the_gpu_equals_the_cpu(n, dim, k, ties):
    rng = np.random.default_rng(0)
    keys = rng.normal(size=(n, dim)).astype(np.float32)
    queries = rng.normal(size=(200, dim)).astype(np.float32)
    if ties:
        keys, queries = np.round(keys[:, :dim]), np.round(queries)
    cpu, gpu = BruteForce(dim), TorchBruteForce(dim, device="cuda")
    for index in (cpu, gpu):
        index.add(np.arange(n), keys)
    expected = cpu.query(queries, k)
    found = gpu.query(torch.from_numpy(queries).cuda(), k)
    assert found.slots.device.type == "cuda"
    np.testing.assert_array_equal(found.slots.cpu().numpy(), expected.slots)
    np.testing.assert_array_equal(found.distances.cpu().numpy(), expected.distances.astype("f4"))


@pytest.mark.parametrize("members", [None, 4])
@pytest.mark.parametrize("neighbors", [1, 2])
def test_td_errors_on_the_gpu_equal_the_cpu(members, neighbors):
    errors = []
    for device in ("cpu", "cuda"):
        rng = np.random.default_rng(1)
        memory = TransitionMemory(100, (2,), (1,), members=members, device=device)
        experience = Experience(memory, WeightedL2([0.25, 0.5], 1.0, ActionCode.box(1)))
        rows = reference.walk(rng, 130, streams=members or 1)
        for t in range(130):
            row = {name: column[t] for name, column in rows.items()}
            experience.add(**({k: v[:, None] for k, v in row.items()} if members else row))
        weights = torch.tensor([[0.3], [-0.2]], device=device)
        critic = NNCritic(experience, lipschitz=1.0, horizon=5, neighbors=neighbors)
        lead = () if members is None else (members,)
        slots = torch.from_numpy(rng.integers(100, size=(*lead, 40))).to(device)
        batch = memory.gather(slots)
        errors.append(critic.td_error(batch, lambda obs, w=weights: torch.tanh(obs @ w)).cpu())
    torch.testing.assert_close(errors[0], errors[1], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("refresh", ["step", "batch"])
@pytest.mark.parametrize("name", ["NNTD3", "NNSAC"])
def test_an_agent_on_the_gpu_has_the_errors_of_one_on_the_cpu(name, refresh):
    pytest.importorskip("stable_baselines3")
    import nearl

    config = nearl.SoftNNConfig(
        weight=0.5, lipschitz=1.0, refresh=refresh, critic_weight=None, keep="all", grad_clip=10.0
    )
    kind, errors = getattr(nearl, name), []
    for device in ("cuda", "cpu"):
        options = {"nn": config, "learning_starts": 50, "batch_size": 32, "buffer_size": 500}
        model = kind("MlpPolicy", "Pendulum-v1", seed=0, device=device, **options)
        if device == "cuda":
            model.learn(150)
            assert model.replay_buffer.batch.reward.device.type == "cuda"
            trained, buffer = model.get_parameters(), model.replay_buffer
        else:
            model.set_parameters(trained)
            model.replay_buffer = type(buffer).adopt(buffer.give_back())
            model._attach()
        errors.append(model.soft.refresh(torch.arange(150)))
    torch.testing.assert_close(errors[0], errors[1], atol=1e-3, rtol=1e-3)
