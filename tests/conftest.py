"""One thread for torch, here and in commands that tests start: sums do not depend on it then."""

import os
import sys

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(autouse=True)
def one_thread():
    """Whatever a test has asked torch for: benchmarks take all processors, and keep them."""
    yield
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
