"""Where tests of Triton's kernels run: on a GPU or, slowly, in Triton's interpreter.

TRITON_INTERPRET=1 python -m pytest tests/test_gpu_walk.py

The interpreter of Triton 3.6 fails with NumPy 2.4; with 2.3 it works.
"""

import os

import pytest
import torch

pytest.importorskip("triton")
CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
NO_DEVICE = "no CUDA device"
on_either = [
    pytest.mark.gpu,
    pytest.mark.skipif(not (CUDA or INTERPRETED), reason=NO_DEVICE),
]
needs_cuda = pytest.mark.skipif(not CUDA or INTERPRETED, reason=NO_DEVICE)
