"""What the orchestrator's log says of decisions, once they are recorded. Event names: README.md."""

from __future__ import annotations

import logging

from slurm_interleave.orchestrator.core import commands as cmd
from slurm_interleave.sql import rows

log = logging.getLogger(__name__)


def journal(command: cmd.Command) -> None:
    """Log *command* if an operator would want to see it."""
    match command:
        case cmd.Put(row=rows.Lease() as lease, new=True):
            log.info(
                "lease.granted",
                extra={
                    "job": lease.job_id,
                    "group": lease.group,
                    "epoch": lease.epoch,
                    "waited": round(lease.granted - lease.requested, 4),
                    "switch": round(lease.switch_s, 4),
                },
            )
        case cmd.Put(row=rows.Slice() as ended):
            log.info(
                "lease.ended",
                extra={"job": ended.job_id, "epoch": ended.epoch, "state": ended.state.value},
            )
        case cmd.Operate():
            log.info(
                "context.ordered",
                extra={"job": command.job_id, "node": command.node, "verb": command.verb.value},
            )
        case cmd.Note():
            log.warning(command.event, extra={"member": str(command.key), "reason": command.text})
