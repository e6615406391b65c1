"""Jobs that could not use a turn now. Not remembered: after a restart Slurm and the agents say it again."""

from __future__ import annotations

from collections.abc import Iterable, Set


class Pauses:
    """Jobs that Slurm has stopped, and those whose processes are being saved, with the nodes that say so."""

    def __init__(self) -> None:
        self.suspended: set[str] = set()
        self._saved_on: dict[str, set[str]] = {}

    @property
    def jobs(self) -> Set[str]:
        """All of them."""
        return self.suspended | self._saved_on.keys() if self._saved_on else self.suspended

    def stopped(self, jobs: Iterable[str]) -> str:
        """Return one of *jobs* that is here; empty: none is."""
        stopped = self.jobs
        return next((job for job in jobs if job in stopped), "") if stopped else ""

    def is_being_saved(self, job_id: str, node: str = "") -> bool:
        """Tell whether the processes of the job are being saved, on *node* or anywhere."""
        nodes = self._saved_on.get(job_id, ())
        return node in nodes if node else bool(nodes)

    def being_saved(self, job_id: str, node: str) -> None:
        """Note that the processes of the job on *node* are being saved."""
        self._saved_on.setdefault(job_id, set()).add(node)

    def go_on(self, job_id: str, node: str) -> None:
        """Note that what runs of the job on *node* is not being saved: one node says nothing of another."""
        nodes = self._saved_on.get(job_id, set())
        nodes.discard(node)
        if not nodes:
            self._saved_on.pop(job_id, None)

    def forget(self, job_id: str) -> None:
        """Forget a job."""
        self.suspended.discard(job_id)
        self._saved_on.pop(job_id, None)
