"""A helper: the only process that talks to the driver. One JSON line in for each call, one out.

Calls can hang for good and cannot be cancelled, so the agent kills a helper that takes too long. When the
agent itself is gone, the helper ends by itself, but not in the middle of a call: that can put the driver and
the process out of step.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import threading
from typing import Any

from slurm_interleave.node_agent.backends.cuda import driver, nvml, toggle, tool

_AFTER_S = 60.0


class Worker:
    """Answers calls; opens the driver and NVML when they are first needed."""

    def __init__(self, program: str, *, toggles: bool = False) -> None:
        """*program*: `cuda-checkpoint`; empty: the driver's functions. *toggles*: it knows nothing else."""
        self._program = program
        self._toggles = toggles
        self._checkpoint: driver.Driver | tool.Tool | toggle.Toggle | None = None
        self._nvml: nvml.Nvml | None = None

    def answer(self, call: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the answer; with `unusable` in it nothing has reached the driver."""
        try:
            if call == "devices":
                return {"code": 0, "value": self._opened_nvml().devices()}
            if call == "facts":
                return {"code": 0, "value": self._facts()}
            code, value = getattr(self._opened_checkpoint(), call)(**arguments)
        except (OSError, nvml.NvmlError) as error:
            return {"unusable": str(error)}
        return {"code": code, "value": value}

    def _opened_checkpoint(self) -> driver.Driver | tool.Tool | toggle.Toggle:
        if self._checkpoint is None and self._toggles:
            self._checkpoint = toggle.Toggle(self._program, self._opened_nvml())
        elif self._checkpoint is None:
            self._checkpoint = tool.Tool(self._program) if self._program else driver.Driver()
        return self._checkpoint

    def _opened_nvml(self) -> nvml.Nvml:
        if self._nvml is None:
            self._nvml = nvml.Nvml()
        return self._nvml

    def _facts(self) -> dict[str, Any]:
        """Return what decides whether this backend works here."""
        missing, cuda_version, lacking = driver.version()
        facts = {
            "machine": platform.machine(),
            "missing": missing,
            "cuda_version": cuda_version,
            "lacking": lacking,
            "custom_storage": driver.has_custom_storage(),
            "nvml_missing": "",
            "driver": "",
            "devices": [],
        }
        try:
            facts["driver"] = self._opened_nvml().driver()
            facts["devices"] = self._opened_nvml().devices()
        except nvml.NvmlError as error:
            facts["nvml_missing"] = str(error)
        return facts


def main() -> None:
    """Answer until standard input ends."""
    parser = argparse.ArgumentParser(prog="interleave-cuda-helper")
    parser.add_argument("--tool", default="")
    parser.add_argument("--toggles", action="store_true")
    args = parser.parse_args()
    worker = Worker(args.tool, toggles=args.toggles)
    try:
        for line in sys.stdin.buffer:
            request = json.loads(line)
            # For a helper whose agent is gone, and whose call never comes back.
            last = threading.Timer(request["limit_s"] + _AFTER_S, os._exit, (1,))
            last.daemon = True
            last.start()
            answer = worker.answer(request["call"], request["arguments"])
            last.cancel()
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()
    except ConnectionError:
        os._exit(0)  # the agent is gone


if __name__ == "__main__":
    main()
