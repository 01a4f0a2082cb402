"""CartPole seen through a camera: four gray frames, cropped around the cart."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from gymnasium import spaces
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

from nearl.envs.frames import CROP, FRAME, Camera, crop
from nearl.envs.rasterizer import Bytes, picture

STACK = 4  # frames of an observation, oldest first


class CartPolePixels(CartPoleEnv):
    """CartPole-v1 whose observations are the last four frames, ``uint8``.

    ``observe="crop"`` shows ``(4, 20, 20)``: all four frames through one window, around where the
    cart is now, so that what moved can be seen to have moved. ``observe="frames"`` shows all of
    them, ``(4, 160, 240)``. ``info["state"]`` holds the true state.

    Gymnasium moves cart and pole by their old velocities, so its picture lags one step behind
    the state: what the last push did is in no picture yet, and four of them do not determine the
    state. With ``ahead``, the newest frame is the one that Gymnasium draws after the next step,
    which follows from the state and not from the next action; four frames are then enough.
    ``ahead=False`` shows the picture as it is.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 50}  # noqa: RUF012

    def __init__(
        self,
        *,
        observe: Literal["crop", "frames"] = "crop",
        ahead: bool = True,
        render_mode: str | None = None,
    ) -> None:
        if observe not in ("crop", "frames"):
            raise ValueError(f"observe must be 'crop' or 'frames', got {observe!r}")
        super().__init__(render_mode=render_mode)
        self.observe, self.ahead = observe, ahead
        shape = (STACK, *(CROP if observe == "crop" else FRAME))
        self.observation_space = spaces.Box(0, 255, shape, np.uint8)
        self._camera = Camera()
        self._frames = np.empty((STACK, *FRAME), np.uint8)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Bytes, dict[str, Any]]:
        state, info = super().reset(seed=seed, options=options)
        self._shoot(ahead=False, into=self._frames[0])
        self._frames[1:] = self._frames[0]  # nothing was seen before
        self._shoot(ahead=self.ahead, into=self._frames[-1])
        return self._observation(), info | {"state": state}

    def step(self, action: Any) -> tuple[Bytes, float, bool, bool, dict[str, Any]]:
        state, reward, terminated, truncated, info = super().step(action)  # type: ignore[no-untyped-call]
        self._frames[:-1] = self._frames[1:]
        self._shoot(ahead=self.ahead, into=self._frames[-1])
        return self._observation(), reward, terminated, truncated, info | {"state": state}

    def render(self) -> Bytes | None:
        """Gymnasium's picture, drawn faster."""
        drawn = self.render_mode == "rgb_array" and self.state is not None
        return picture(np.asarray(self.state)) if drawn else None

    def _place(self, ahead: bool) -> tuple[float, float]:
        """Where cart and pole are, or will be after the next step."""
        assert self.state is not None
        x, speed, theta, turning = (float(value) for value in self.state)
        later = self.tau if ahead else 0.0
        return x + later * speed, theta + later * turning

    def _shoot(self, *, ahead: bool, into: Bytes) -> None:
        self._camera.frame(*self._place(ahead), out=into)

    def _observation(self) -> Bytes:
        if self.observe == "frames":
            return self._frames.copy()
        return crop(self._frames, self._place(self.ahead)[0])
