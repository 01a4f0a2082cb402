"""Environments and wrappers."""

from nearl.envs.base import BatchedEnv, StepResult
from nearl.envs.batched import BatchedMujoco, make_batched
from nearl.envs.contact import WithoutContactForces
from nearl.envs.finite import Finite
from nearl.envs.parallel import ParallelGym
from nearl.envs.registration import register_all
from nearl.envs.replayable import Replayable
from nearl.envs.vectorized import VectorizedGym

__all__ = [
    "BatchedEnv",
    "BatchedMujoco",
    "Finite",
    "ParallelGym",
    "Replayable",
    "StepResult",
    "VectorizedGym",
    "WithoutContactForces",
    "make_batched",
]

register_all()
