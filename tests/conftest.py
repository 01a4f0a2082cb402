"""One thread for torch, here and in commands that tests start: sums do not depend on it then."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
