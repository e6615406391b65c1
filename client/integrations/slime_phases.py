"""slime's fork that has phase callbacks.

    --phase-callback-path slurm_interleave.client.integrations.slime_phases.PhaseCallback

Source: `slime/utils/phase_callback.py` of github.com/aishukamal/slime.
"""

from __future__ import annotations

import os
from typing import Any

from slurm_interleave.client.integrations.turns import Turns
from slurm_interleave.client.interleaver import Interleaver

_BOTH = "both"


class PhaseCallback:
    """Takes turns with the devices of the job's role (INTERLEAVE_ROLE); without a role with all that it has.

    With a role they are held until a phase of the other role begins: what ends and begins at once, as an
    offload and an onload, costs nothing. Without one the boundary is the end of training.
    """

    def __init__(self, turns: Turns | None = None, role: str | None = None) -> None:
        """Made by slime without arguments."""
        self._turns = turns or Turns(Interleaver.from_env())
        self._role = os.environ.get("INTERLEAVE_ROLE", "") if role is None else role

    def on_phase_begin(self, phase: str, role: str, context: Any = None) -> None:
        """Acquire for a phase that uses our devices; yield before one that does not."""
        if self._role in ("", role) or role == _BOTH:
            self._turns.start(phase)
        else:
            self._turns.leave()

    def on_phase_end(self, phase: str, role: str, context: Any = None) -> None:
        """Let others have their turn after training, where all devices are shared."""
        if not self._role and phase == "train":
            self._turns.boundary(phase, at_end=True)

    def close(self) -> None:
        """Yield."""
        self._turns.drop()
