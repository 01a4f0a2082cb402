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
        "from nearl.__main__ import main\n"
        "sys.argv = ['nearl', 'bench', '--help']\n"
        "assert 'torch' not in sys.modules\n"
        "try:\n"
        "    main()\n"
        "except SystemExit:\n"
        "    pass\n"
        "print('asked for', os.environ['GOMP_SPINCOUNT'])"
    )
    plain = {
        name: value
        for name, value in os.environ.items()
        if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    }
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, text=True, env=plain
    )
    assert ended.stdout.splitlines()[-1] == f"asked for {SPINS}"
