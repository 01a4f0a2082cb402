"""NStep: an SB3 agent whose n-step buffer comes back from a file without a false alarm."""

from __future__ import annotations

import warnings

from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm


class NStep(OffPolicyAlgorithm):
    """Mixin before an SB3 class.

    SB3 warns that ``n_steps`` is ignored wherever the buffer's class is given, as it is in a file;
    not where the buffer's own settings have the same number.
    """

    def _setup_model(self) -> None:
        with warnings.catch_warnings():
            if self.replay_buffer_kwargs.get("n_steps") == self.n_steps:
                warnings.filterwarnings("ignore", "`n_steps=.* is ignored", UserWarning)
            super()._setup_model()
