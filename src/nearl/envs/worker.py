"""A process of ``ParallelGym``: answers calls that come in on its input, until that ends."""

from __future__ import annotations

import os
import pickle
import signal
from typing import IO, Any

import gymnasium as gym

from nearl.envs.vectorized import VectorizedGym
from nearl.user_code import keep_place


def main() -> None:
    """Serve the batch that the first message describes."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what environments print must not be among the answers
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    with open(0, "rb", closefd=False) as calls:
        serve(calls, answers)


def serve(calls: IO[bytes], answers: IO[bytes]) -> None:
    """``(spec, seeds, kwargs)``, then ``(method, arguments)``; answers are (failed, value)."""
    batch: VectorizedGym | None = None
    while True:
        try:
            message = pickle.load(calls)
        except EOFError:
            return
        try:
            value: Any = None
            if batch is None:
                spec, seeds, kwargs = message
                gym.registry[spec.id] = spec  # as it is where the batch was asked for
                batch = VectorizedGym(spec.id, len(seeds), seeds=seeds, **kwargs)
            else:
                method, arguments = message
                value = getattr(batch, method)(*arguments)
            answer: tuple[bool, Any] = False, value
        except Exception as error:
            answer = True, portable(error)
        try:
            pickle.dump(answer, answers)
            answers.flush()
        except BrokenPipeError:  # nobody waits for it any more
            return


def portable(error: Exception) -> Exception:
    """The error, or its words where it cannot be read in another process."""
    keep_place(error)
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        told = RuntimeError(f"{type(error).__name__}: {error}").with_traceback(error.__traceback__)
        keep_place(told)
        return told
    return error


if __name__ == "__main__":
    main()
