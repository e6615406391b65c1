"""Trespass: processes that use a device although their job does not hold it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from slurm_interleave.client.core.states import Context
from slurm_interleave.orchestrator.core.commands import Stop
from slurm_interleave.orchestrator.core.events import Use, Used
from slurm_interleave.orchestrator.core.state import OFF_DEVICE, State
from slurm_interleave.orchestrator.core.switches import Switches
from slurm_interleave.sql.rows import Key


@dataclass(frozen=True)
class Trespass:
    """What is seen now: a process on a device, since when, and why it must not be there."""

    node: str
    device: int
    pid: int
    key: Key | None  # None: a process of no interleaved job
    since: float
    reason: str


@dataclass(frozen=True)
class _Suspect:
    since: float
    last_lease: int  # epoch of the last lease that its job had yielded by then


Place = tuple[int, int]  # device and process


class Trespasses:
    """Looks at what agents see, twice: work that was seen just as a lease began or ended is none."""

    def __init__(self, state: State, switches: Switches, evict: Callable[[Key, float], None]) -> None:
        """*evict* saves the context of a member."""
        self._state = state
        self._switches = switches
        self._evict = evict
        self._policies: dict[str, str] = {}
        self._suspects: dict[str, dict[Place, _Suspect]] = {}
        self._seen: dict[str, dict[Place, Trespass]] = {}
        self.counts: dict[str, int] = {}  # by node, since the start

    def on(self, node: str) -> Iterable[Trespass]:
        """Return what is seen on *node* now."""
        return self._seen.get(node, {}).values()

    def node_up(self, node: str, policy: str) -> None:
        """An agent connects: what its site does with trespassers is `warn`, `save` or `kill`."""
        self._policies[node] = policy
        self.node_down(node)

    def node_down(self, node: str) -> None:
        """Nobody looks there any more."""
        self._suspects.pop(node, None)
        self._seen.pop(node, None)

    def used(self, event: Used) -> None:
        """Take one look of an agent at all its devices."""
        suspects, seen = self._suspects.get(event.node, {}), self._seen.get(event.node, {})
        self._suspects[event.node], self._seen[event.node] = {}, {}
        for use in event.uses:
            key = self._member(event.node, use)
            reason = self._reason(event.node, key, use)
            if not reason:
                continue
            place = (use.device, use.pid)
            suspect = suspects.get(place)
            if suspect is None or suspect.last_lease != self._last_lease(key):
                self._suspects[event.node][place] = _Suspect(event.at, self._last_lease(key))
                continue
            self._suspects[event.node][place] = suspect
            trespass = Trespass(event.node, use.device, use.pid, key, suspect.since, reason)
            self._seen[event.node][place] = trespass
            if place not in seen:
                self._note(trespass)
            if key is not None:
                self._act(event, key, use, new=place not in seen)

    def _member(self, node: str, use: Use) -> Key | None:
        keys = self._state.jobs.get(use.job_id, {}) if use.job_id else {}
        mine = [key for key in keys if node in self._state.parts.get(key, {})]
        there = [key for key in mine if use.device in self._state.parts[key][node].devices]
        return next(iter(there or mine), None)

    def _reason(self, node: str, key: Key | None, use: Use) -> str:
        """Return why this use is not allowed; empty if it is."""
        if key is None:
            return "it belongs to no interleaved job"
        part = self._state.parts[key][node]
        if use.device not in part.devices:
            return "the device is not one of its job"
        if key in self._state.leases or self._switches.pending_on(key, node):
            return ""
        if use.working:
            return "it works without a lease"
        return "it has memory there without a lease" if part.context in OFF_DEVICE else ""

    def _last_lease(self, key: Key | None) -> int:
        return self._state.yielded.get(key, 0) if key is not None else 0

    def _note(self, trespass: Trespass) -> None:
        self.counts[trespass.node] = self.counts.get(trespass.node, 0) + 1
        where = f"process {trespass.pid} on device {trespass.node}/{trespass.device}"
        self._state.note("trespass.seen", trespass.key or Key("", ""), f"{where}: {trespass.reason}")

    def _act(self, event: Used, key: Key, use: Use, *, new: bool) -> None:
        """Do what the site wants. A process of no interleaved job is never touched."""
        state, part = self._state, self._state.parts[key][event.node]
        if new and part.context is Context.NONE and use.device in part.devices:
            # Whoever comes next must not be put beside it.
            state.set_context(key, event.node, Context.RESIDENT)
        match self._policies.get(event.node):
            case "save":
                if key not in self._switches.active and not state.members[key].fault:
                    self._evict(key, event.at)
            case "kill":
                state.out.append(Stop(event.node, key.job_id, part.attempt, use.pid))
