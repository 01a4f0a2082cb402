"""How long torch's threads wait in busy loops: what a user has set stays, and torch comes later."""

import os
import subprocess
import sys

import pytest

from nearl.spinning import SPINS, spin_briefly


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, {"GOMP_SPINCOUNT": str(SPINS)}),
        ({"GOMP_SPINCOUNT": "7"}, {"GOMP_SPINCOUNT": "7"}),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, {"OMP_WAIT_POLICY": "ACTIVE"}),
    ],
)
def test_the_users_own_wish_comes_first(given, found):
    spin_briefly(given)
    assert given == found


def test_the_command_asks_before_torch_reads_it():
    code = (
        "import os, sys\n"
        "class Torch:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'torch':\n"
        "            print('when torch is loaded it is', os.environ.get('GOMP_SPINCOUNT'))\n"
        "            raise SystemExit(0)\n"
        "sys.meta_path.insert(0, Torch())\n"
        "sys.argv = ['nearl', 'bench', 'memory']\n"
        "from nearl.__main__ import main\n"
        "main()"
    )
    own = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    plain = {name: value for name, value in os.environ.items() if name not in own}
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, text=True, env=plain
    )
    assert ended.stdout == f"when torch is loaded it is {SPINS}\n"
