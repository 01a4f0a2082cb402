"""How long torch's threads stay busy while they wait for each other.

Left alone they spin for so long that two processes on the same processors keep each other from
working. A short spin takes nothing from a process that is alone (``nearl bench sharing``).
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping

SPINS = 3_000  # turns of an empty loop; a third of it still takes nothing, a tenth does


def spin_briefly(environ: MutableMapping[str, str] = os.environ) -> None:
    """Ask GNU's OpenMP, which reads this when torch is loaded; what a user has set stays."""
    if "OMP_WAIT_POLICY" not in environ:
        environ.setdefault("GOMP_SPINCOUNT", str(SPINS))
