"""Frames per second of CartPole's picture: Gymnasium's pygame beside our rasterizer."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from rich.table import Table

from nearl.envs.frames import Camera, crop, to_gray
from nearl.envs.rasterizer import picture


def run(*, count: int = 500, rounds: int = 5, seed: int = 0) -> dict[str, Any]:
    """Draw ``count`` random states in turns, ``rounds`` times; the best round counts.

    ``picture`` is the 400 x 600 picture in color. ``frame`` is the gray 160 x 240 frame with its
    20 x 20 crop: Gymnasium's picture reduced in NumPy, beside the frame drawn as such.
    """
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    states = np.random.default_rng(seed).uniform(-1, 1, (count, 4)) * [2.4, 2.0, 0.21, 2.0]
    env: Any = gym.make("CartPole-v1", render_mode="rgb_array").unwrapped
    env.reset(seed=seed)
    camera = Camera()

    def theirs(state: Any) -> Any:
        env.state = state
        return env.render()

    drawers: dict[str, Callable[[Any], Any]] = {
        "gymnasium_picture": theirs,
        "nearl_picture": picture,
        "gymnasium_frame": lambda s: crop(to_gray(theirs(s))[None], s[0]),
        "nearl_frame": lambda s: crop(camera.frame(s[0], s[2])[None], s[0]),
    }
    best = dict.fromkeys(drawers, np.inf)
    for _ in range(rounds):
        for name, draw in drawers.items():
            draw(states[0])
            begin = time.perf_counter()
            for state in states:
                draw(state)
            best[name] = min(best[name], time.perf_counter() - begin)
    equal = [np.mean((theirs(s) == picture(s)).all(-1)) for s in states[:100]]
    env.close()
    result: dict[str, Any] = {f"{name}s_per_s": count / seconds for name, seconds in best.items()}
    for kind in ("picture", "frame"):
        result[f"{kind}_ratio"] = best[f"gymnasium_{kind}"] / best[f"nearl_{kind}"]
    return result | {"pixels_equal": float(np.mean(equal)), "count": count}


def rows(result: dict[str, Any]) -> Table:
    table = Table(title="CartPole pictures per second")
    for name in ("what", "Gymnasium", "nearl", "ratio"):
        table.add_column(name, justify="right")
    for kind in ("picture", "frame"):
        table.add_row(
            kind,
            f"{result[f'gymnasium_{kind}s_per_s']:.0f}",
            f"{result[f'nearl_{kind}s_per_s']:.0f}",
            f"{result[f'{kind}_ratio']:.1f}",
        )
    return table
