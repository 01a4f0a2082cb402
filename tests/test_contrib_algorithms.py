"""TQC and CrossQ by name: their presets, and their bases as sb3-contrib has them."""

from importlib import resources

import gymnasium as gym
import pytest
import torch

from nearl.algorithms import ALGORITHMS, agent_class, make_agent, values_of
from nearl.presets import load_preset
from nearl.presets.zoo import CONTRIB, SOFT, ZOO, base_class, constructor_names, entries
from nearl.soft_config import SoftNNConfig

TASKS = ["HalfCheetah-v4", "Hopper-v4", "Walker2d-v4", "Ant-v4"]
FILES = [(algo, name) for algo in CONTRIB for name in ("default", "residual")]


@pytest.mark.parametrize(("algo", "name"), FILES)
def test_presets_of_tqc_and_crossq_have_every_task_known_keys_and_sources(algo, name):
    found, known = entries(algo, name), constructor_names(algo) | set(ZOO)
    assert set(found) == {t.replace("v4", v) for t in TASKS for v in ("v4", "v5")} | {"default"}
    for entry in found.values():
        assert set(entry) <= known and set(entry["nn"]) <= set(SOFT)
        assert SoftNNConfig.of(entry["nn"]).form == "residual" or name == "default"
        assert {k: v for k, v in entry.items() if k != "nn"} in [
            {k: v for k, v in other.items() if k != "nn"}
            for other in entries(algo, "default").values()
        ]
    text = resources.files("nearl.presets").joinpath(algo, f"{name}.yml").read_text()
    for line in text.splitlines():
        value = line.partition(":")[2].strip()
        if line.startswith("  ") and value and not value.startswith(("*", "{}")):
            assert "#" in value, line


def test_tqc_drops_more_quantiles_on_hopper():
    drops = [load_preset("nntqc", "default", task).kwargs for task in ("Hopper-v5", "Ant-v5")]
    assert [given["top_quantiles_to_drop_per_net"] for given in drops] == [5, 2]


@pytest.mark.parametrize("algo", ["tqc", "crossq"])
def test_the_base_by_name_is_sb3_contribs_own(algo):
    assert {algo, f"nn{algo}"} <= set(ALGORITHMS)
    assert agent_class(algo) is agent_class(f"nn{algo}")
    small = {"policy_kwargs": {"net_arch": [8, 8]}, "learning_starts": 10, "buffer_size": 100}
    env = gym.make("Pendulum-v1")
    vec_env = agent_class(algo)("MlpPolicy", env, buffer_size=1).env
    values = values_of(algo, "default", "Pendulum-v1", small)
    ours = make_agent(algo, values, vec_env, seed=3, device="cpu").learn(40)
    given = load_preset(algo, "default", "Pendulum-v1", small).constructor(env.action_space)
    del given["nn"]
    own = base_class(algo)(env=env, seed=3, device="cpu", **given).learn(40)
    for a, b in zip(ours.policy.parameters(), own.policy.parameters(), strict=True):
        assert torch.equal(a, b)


def test_without_sb3_contrib_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr("nearl.presets.zoo.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"nntqc is sb3-contrib's.*nearl\[baselines\]"):
        load_preset("nntqc", "default", "Hopper-v4")
