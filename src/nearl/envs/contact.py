"""WithoutContactForces: Ant-v5 observed as Ant-v4 is."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

KEPT, FORCES = 27, 78  # positions and velocities; six forces on each of 13 bodies


class WithoutContactForces(gym.ObservationWrapper[Any, Any, Any]):
    """Leaves the external contact forces out of Ant-v5's observations."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        space = env.observation_space
        if not isinstance(space, spaces.Box) or space.shape != (KEPT + FORCES,):
            raise ValueError(
                f"WithoutContactForces is for Ant-v5's box of {KEPT + FORCES} numbers, got {space}"
            )
        self.observation_space = spaces.Box(
            space.low[:KEPT], space.high[:KEPT], dtype=space.dtype.type
        )

    def observation(self, observation: NDArray[np.floating]) -> NDArray[np.floating]:
        return observation[:KEPT]
