"""Imports point one way only: the core never needs SB3 or Gymnasium, agents never need studies."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import nearl

ROOT = Path(nearl.__file__).parent
LAYERS = [  # a module imports only from its own layer or an earlier one
    {"free_memory", "interrupts", "locking", "saving", "user_code"},
    {
        "metrics",
        "neighbors",
        "memory",
        "memory_checks",
        "approximator",
        "networks",
        "losses",
        "augmented",
        "mixing",
        "residual",
        "ring_numbers",
        "spinning",
        "pixel_networks",
        "encoded",
        "critic_features",
        "whitened",
        "ucrl",
    },
    {"experience", "lipschitz", "certified", "recent", "thinned"},
    {
        "critic",
        "graph",
        "policy_keys",
        "soft_checks",
        "soft_config",
        "soft_update",
        "theory",
        "versioned",
    }
    | {"graph_keys", "partners", "residual_graph", "residual_skill", "soft_parts"},
    {"presets", "envs", "siamese", "data"},
    {"agents", "baselines"},
    {"algorithms", "evaluation", "pictures", "population", "recorder", "run_folder", "runs"},
    {"bench", "inspection", "studies"},
    {"__main__", "cli", "cli_bench", "cli_metric", "cli_inspect", "cli_population", "cli_study"}
    | {"cli_compare", "cli_console", "cli_default", "cli_paper", "cli_sac", "cli_set"},
]
CORE = set().union(*LAYERS[:4])


def modules():
    for path in sorted(ROOT.rglob("*.py")):
        name = path.relative_to(ROOT).parts[0].removesuffix(".py")
        if name != "__init__":
            yield name, path


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def layer(name):
    return next(i for i, names in enumerate(LAYERS) if name in names)


def test_every_module_has_a_layer():
    assert {name for name, _ in modules()} == set().union(*LAYERS)


def test_imports_point_up_the_list():
    for name, path in modules():
        for target in imported(path):
            parts = target.split(".")
            if parts[0] == "nearl" and len(parts) > 1:
                assert layer(parts[1]) <= layer(name), f"{path.name} imports {target}"


def test_the_core_needs_neither_sb3_nor_gymnasium():
    for name, path in modules():
        if name in CORE:
            roots = {target.split(".")[0] for target in imported(path)}
            assert not roots & {"stable_baselines3", "gymnasium", "mujoco"}, path.name


def test_importing_the_core_imports_neither_sb3_nor_gymnasium():
    code = (
        "import sys, nearl; nearl.NNCritic, nearl.SoftNN, nearl.CandidateGraph, nearl.Experience; "
        "assert not {'stable_baselines3', 'gymnasium'} & set(sys.modules); "
        "nearl.NNAC, nearl.evaluate; assert 'stable_baselines3' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="DQN"):
        nearl.DQN  # noqa: B018


def test_the_command_line_answers_before_torch_is_loaded():
    code = (
        "import sys; from typer.testing import CliRunner; from nearl.cli import app; "
        "assert CliRunner().invoke(app, ['study', 'paper', '--help']).exit_code == 0; "
        "assert not {'torch', 'numba', 'stable_baselines3'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_public_names_and_modules_are_found_when_they_are_asked_for():
    code = (
        "import nearl; assert set(nearl.__all__) <= set(dir(nearl)); "
        "assert all(getattr(nearl, name) is not None for name in nearl.__all__); "
        "assert nearl.metrics.WeightedL2 is nearl.WeightedL2; "
        "assert 'WeightedL2' in vars(nearl)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert set(nearl._MODULES) == set(nearl.__all__)


def test_an_interrupt_while_the_command_line_is_imported_leaves_no_traceback():
    code = (
        "import sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'nearl.cli':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "from nearl.__main__ import main\n"
        "main()"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, b"", b"")
