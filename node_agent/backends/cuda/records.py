"""What is known of the jobs' contexts; of those that are saved, on disk: the driver does not say how much."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from slurm_interleave.node_agent import whole_file
from slurm_interleave.node_agent.job_processes import is_alive
from slurm_interleave.node_agent.processes import Process

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Record:
    """One job. *bytes* by UUID of the device where it was; *devices*: the job's then, by index."""

    saved: bool
    processes: tuple[Process, ...]
    bytes: dict[str, int] = field(default_factory=dict)
    devices: tuple[int, ...] = ()
    # Of a job that came from elsewhere: its devices as they were called there, and as they are here.
    pairs: tuple[tuple[str, str], ...] = ()
    store: str = ""  # the folder of its copies; empty: the driver keeps them

    @property
    def alive(self) -> bool:
        """Whether any of its processes runs: the context ends with the last."""
        return any(is_alive(process) for process in self.processes)

    @property
    def total(self) -> int:
        """All its bytes."""
        return sum(self.bytes.values())


class Records:
    """One record a job. Those of saved contexts outlive the agent, and of those about to be saved.

    The next agent asks the driver where a job is, and this what that takes when it comes back.
    """

    def __init__(self, path: Path, spare: Path | None = None) -> None:
        """Read *path*, and *spare*, on another disk, where what *path* does not take is written.

        What cannot be read is as nothing, and the driver is asked.
        """
        self._path, self._spare = path, spare
        self._jobs: dict[str, Record] = {}
        self._intended: dict[str, Record] = {}
        self._read(spare if spare is not None and spare.exists() else path)  # it is there while it is newer

    def _read(self, path: Path) -> None:
        try:
            for job, raw in json.loads(path.read_text()).items():
                processes = tuple(Process(**process) for process in raw["processes"])
                pairs = tuple((old, new) for old, new in raw.get("pairs", ()))
                devices, store = tuple(raw["devices"]), str(raw.get("store", ""))
                self._jobs[job] = Record(True, processes, raw["bytes"], devices, pairs, store)
        except FileNotFoundError:
            pass
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            log.warning("records.unreadable", extra={"path": path, "reason": str(error)})

    def jobs(self) -> list[str]:
        """Return the jobs of which something is known."""
        return list(self._jobs)

    def get(self, job: str) -> Record | None:
        """Return what is known of *job*."""
        return self._jobs.get(job)

    def put(self, job: str, record: Record) -> None:
        """Remember; on disk if it is about a saved context, now or before."""
        before = self._jobs.get(job)
        self._jobs[job] = record
        intended = self._intended.pop(job, None) is not None
        if record.saved or intended or (before is not None and before.saved):
            self._save()

    def intend(self, job: str, record: Record | None) -> None:
        """Have *record* on disk of what is about to be saved; None: it was not. What is known stays."""
        self._intended.pop(job, None)
        if record is not None:
            self._intended[job] = record
        self._save()

    def forget(self, job: str) -> None:
        """Forget *job*; again is fine."""
        record, intended = self._jobs.pop(job, None), self._intended.pop(job, None)
        if intended is not None or (record is not None and record.saved):
            self._save()

    def keep_only(self, jobs: Iterable[str]) -> None:
        """Forget all but *jobs*."""
        for job in set(self._jobs) - set(jobs):
            self.forget(job)

    def _save(self) -> None:
        known = {job: record for job, record in self._jobs.items() if record.saved} | self._intended
        saved = {job: asdict(record) for job, record in known.items()}
        try:
            refused = whole_file.write(self._path, self._spare, json.dumps(saved))
        except OSError as error:
            refused = error
        if refused is not None:
            log.warning("records.unwritten", extra={"path": self._path, "reason": str(refused)})
