"""Pictures of runs: the learning curve and a short film. Needs the extra ``plots``."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from nearl.evaluation import Predicts
from nearl.saving import write_atomically

MISSING = "pictures need matplotlib and imageio: pip install 'nearl[plots]'"


def learning_curve(rows: list[dict[str, float]], path: Path, *, title: str) -> Path:
    """Mean evaluation return over environment steps, with one standard deviation as a band."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(MISSING) from error
    if not rows:
        raise ValueError("no evaluations to draw yet")
    steps, mean, std = (
        np.array([row[name] for row in rows]) for name in ("step", "mean_return", "std_return")
    )
    figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    axes.fill_between(steps, mean - std, mean + std, alpha=0.2, linewidth=0)
    axes.plot(steps, mean, marker=".", linewidth=1.5)
    axes.set(xlabel="environment steps", ylabel="return of greedy episodes", title=title)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    write_atomically(path, lambda file: figure.savefig(file, dpi=120, format="png"))
    plt.close(figure)
    return path


def film(
    model: Predicts,
    env_id: str,
    path: Path,
    *,
    seed: int,
    frames: int = 150,
    every: int = 2,
    wrap: Callable[[gym.Env[Any, Any]], gym.Env[Any, Any]] = lambda env: env,
) -> Path:
    """A GIF of one greedy episode: every ``every``-th frame, at half size, ``frames`` at most."""
    if path.suffix.lower() != ".gif":
        raise ValueError(f"a film is a GIF: its file must end in .gif, got '{path}'")
    try:
        import imageio.v3 as imageio
    except ImportError as error:
        raise ImportError(MISSING) from error
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # no window is needed
    os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())
    env = wrap(_drawing(env_id))
    obs, _ = env.reset(seed=seed)
    shots: list[Any] = []
    for step in range(frames * every):
        if step % every == 0:
            shots.append(_half(_picture(env, env_id), env_id))
        action, _ = model.predict(obs, deterministic=True)
        obs, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            break
    fps = env.metadata.get("render_fps", 30)
    env.close()
    pause = 1000 * every / fps
    data = imageio.imwrite("<bytes>", np.stack(shots), extension=".gif", duration=pause, loop=0)
    return write_atomically(path, lambda file: file.write(data))


def _drawing(env_id: str) -> gym.Env[Any, Any]:
    """The environment, told to draw itself; one whose constructor cannot be told is refused."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*initialised with render_mode", UserWarning)
        try:
            return gym.make(env_id, render_mode="rgb_array")
        except TypeError as error:
            gym.make(env_id).close()  # or whatever else is wrong is said
            raise ValueError(
                f"{env_id} cannot be filmed: its constructor takes no render_mode, where "
                "'rgb_array' is wanted"
            ) from error


def _picture(env: gym.Env[Any, Any], env_id: str) -> Any:
    """What the environment draws; one that has nothing to draw with is refused."""
    try:
        return env.render()
    except NotImplementedError as error:
        raise ValueError(f"{env_id} cannot be filmed: it has no render()") from error
    except AssertionError as error:  # Gymnasium's, of modes that are not declared
        modes = env.metadata.get("render_modes", [])
        if "rgb_array" in modes:
            raise
        raise ValueError(
            f"{env_id} cannot be filmed: its render_modes are {modes}, where 'rgb_array' is wanted"
        ) from error


def _half(picture: Any, env_id: str) -> NDArray[np.uint8]:
    """A picture at half size."""
    found = np.asarray(picture)
    if found.ndim < 2:
        raise ValueError(
            f"{env_id} cannot be filmed: render() gave {picture!r} in render_mode 'rgb_array', "
            "where a picture (height, width, 3) is wanted"
        )
    return found[::2, ::2]
