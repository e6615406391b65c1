"""Why placement puts jobs together or not, in words: by what it saw in a round and by its own code. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from slurm_interleave.client.core.errors import BadArgument
from slurm_interleave.orchestrator.pairing.advice import AUTO, Worth
from slurm_interleave.orchestrator.placement.auto import RATED, Auto
from slurm_interleave.orchestrator.placement.groups import Groups
from slurm_interleave.orchestrator.placement.plan import Lane, Node, Pending, Placement, Seats
from slurm_interleave.orchestrator.placement.waiting import Jobs, array_of

_PARTNERS = 100  # of those that wait with a job, so many are rated
_FOUND = f"{AUTO}-"
_GIB = 2**30


@dataclass(frozen=True)
class Seen:
    """What a round of placement went by, and who had a place after it."""

    at: float
    jobs: Jobs
    pending: Sequence[Pending]
    book: Sequence[Placement]
    nodes: Sequence[Node]
    lanes: Sequence[Lane]
    closed: frozenset[str]
    groups: Groups
    refusals: Mapping[str, str]
    """Why jobs wait, by id."""

    def of_user(self, uid: int | None) -> frozenset[str]:
        """Return the jobs that a user may know of: his own, and those in a group with one of them."""
        mine = {job_id for job_id, (job, _) in self.jobs.items() if 0 <= job.uid == uid}
        groups = {one.group for one in self.book if one.job_id in mine}
        return frozenset(mine.union(one.job_id for one in self.book if one.group in groups))

    def auto(self, book: Sequence[Placement]) -> Auto:
        """Return what rates groups, with those of the *book* in their places; a round may go on beside it."""
        return Auto(self.groups.anew(book), Seats(book, self.nodes, self.lanes, self.closed).join_now)


class Explanation:
    """The answer to one question."""

    def __init__(self, seen: Seen, shown: Container[str] | None = None) -> None:
        """*shown* are the jobs that the caller may know of; None: all."""
        self._seen, self._shown, self._auto = seen, shown, seen.auto(seen.book)
        self._sets: dict[tuple[str, str], list[Placement]] = {}  # who shares devices, by group and role
        for placement in seen.book:
            self._sets.setdefault((placement.group, placement.role), []).append(placement)
        seated = {placement.job_id for placement in seen.book}
        self._waiting = [job for job in seen.pending if job.job_id not in seated]
        self._told: dict[str, None] = {}  # jobs and nodes whose numbers stand in the end
        self._nodes: dict[str, None] = {}
        self._left_out = 0

    def of_all(self) -> Iterator[str]:
        """Say what each group is worth, and what each job that waits may hope for."""
        for members in self._sets.values():
            if self._may_know(one.job_id for one in members):
                yield self._as_it_is(members)
        yield from (self._prospect(job) for job in self._waiting if self._may_know([job.job_id]))
        yield from self._numbers()

    def of_job(self, job_id: str) -> Iterator[str]:
        """Say what becomes of *job_id* with each group and each job that waits. Raises `BadArgument`."""
        place = next((one for one in self._seen.book if one.job_id == job_id), None)
        job = next((one for one in self._waiting if one.job_id == job_id), None)
        known, self._left_out = self._may_know([job_id]), 0
        if known and place is not None:
            return self._of_seated(place)
        if known and job is not None:
            return self._of_waiting(job)
        raise BadArgument(
            f"job {job_id} has no place and waits for none, as one that its user holds, that waits for "
            "another job or came this moment; or it is not yours; else give its numbers with --jobs FILE"
        )

    def _of_seated(self, mine: Placement) -> Iterator[str]:
        yield self._as_it_is(self._sets[mine.group, mine.role])
        if not mine.group.startswith(_FOUND):
            yield f"job {mine.job_id} named its group, so it is put with nobody else"
        else:
            # Elsewhere it would come as one that waits; what its user asked of nodes has become its pin.
            account = self._auto.groups.sharer(mine.job_id).account
            job = Pending(mine.job_id, AUTO, mine.role, len(mine.nodes), len(mine.devices), account)
            others = [one for one in self._seen.book if one.job_id != mine.job_id]
            yield from self._elsewhere(job, self._seen.auto(others), but=mine.group)
            yield from self._lines(
                (
                    f"group {mine.group}, joined by {other.job_id}",
                    *self._joined(self._auto, other, mine.group),
                )
                for other in self._partners(job)
            )
        yield from self._numbers()

    def _of_waiting(self, job: Pending) -> Iterator[str]:
        yield self._prospect(job)
        if job.group == AUTO:
            yield from self._elsewhere(job, self._auto)
            others = [other.job_id for other in self._partners(job)]
            yield from self._lines(
                (f"with {other}, which waits too", (job.job_id, other), self._pair(job.job_id, other))
                for other in others
            )
            if others:
                yield "of jobs that both wait, host memory counts once one of them has its node"
        yield from self._numbers()

    def _elsewhere(self, job: Pending, auto: Auto, but: str = "") -> Iterator[str]:
        """Rate the groups that *job* may come into, the best first."""
        rated = {name for name, _ in auto.with_seats(job)} | {self._seen.groups.partners.get(job.job_id, "")}
        may = [one for one in auto.groups.found() if one != but and self._may_know(auto.groups.members(one))]
        yield from self._lines((f"group {one}", *self._joined(auto, job, one)) for one in may if one in rated)
        others = [one for one in may if one not in rated]
        if others:
            named = ", ".join(others[:RATED]) + (", ..." if len(others) > RATED else "")
            yield f"no seat is free on devices as it wants them, or {RATED} groups come before: {named}"

    def _joined(self, auto: Auto, job: Pending, group: str) -> tuple[Sequence[str], Worth]:
        """Return the members of a group with *job*, and what becomes of it."""
        place, members = auto.place(job, group), (*auto.groups.members(group), job.job_id)
        if place is None:
            return members, Worth(why=f"no seat is free on devices as {job.job_id} wants them")
        self._nodes.update(dict.fromkeys(place.nodes))
        return members, auto.worth(job, group, place)

    def _pair(self, one: str, other: str) -> Worth:
        mine, its = map(self._auto.groups.sharer, (one, other))
        if mine.kind != its.kind:
            return Worth(why="they have different roles or ask for different types of GPU")
        return self._auto.groups.advice.worth([mine, its])

    def _partners(self, job: Pending) -> list[Pending]:
        """Return who waits for any group and may be told of."""
        others = (other for other in self._waiting if other.group == AUTO and other.job_id != job.job_id)
        return list(islice((other for other in others if self._may_know([other.job_id])), _PARTNERS))

    def _may_know(self, jobs: Iterable[str]) -> bool:
        if self._shown is None or all(job in self._shown or array_of(job) in self._shown for job in jobs):
            return True
        self._left_out += 1
        return False

    def _as_it_is(self, shared: Sequence[Placement]) -> str:
        place, members = shared[0], [one.job_id for one in shared]
        if len(members) == 1:
            return f"group {place.group}: {self._name(members[0])}: alone"
        self._nodes.update(dict.fromkeys(place.nodes))
        worth = self._auto.groups.together(members, place)
        return self._line(f"group {place.group}", members, worth, "by these numbers not put together")

    def _prospect(self, job: Pending) -> str:
        partners = self._seen.groups.partners
        best = partners.get(job.job_id, "")
        asked = "" if job.group == AUTO else f" in group {job.group}, which it named"
        hope = f"; by profiles and hours, all who wait are best off with it in {best}" if best else ""
        why = self._seen.refusals.get(array_of(job.job_id), "")
        return f"{self._name(job.job_id)} waits for a place{asked}{hope}{f'; {why}' if why else ''}"

    def _lines(self, rated: Iterable[tuple[str, Sequence[str], Worth]]) -> Iterator[str]:
        """Yield what is rated as placement would try it: the best first."""
        for where, members, worth in sorted(rated, key=lambda one: (bool(one[2].why), -one[2].saved)):
            yield self._line(where, members, worth, "no")

    def _line(self, where: str, members: Sequence[str], worth: Worth, no: str) -> str:
        names = " + ".join(map(self._name, members))
        if worth.why:
            return f"{where}: {names}: {no}: {worth.why}"
        unknown = "nothing is known of one of them, and the site does not measure first"
        return f"{where}: {worth.numbers or f'{names}: {unknown}'}"

    def _name(self, job_id: str) -> str:
        self._told[job_id] = None
        return f"{job_id} ({self._auto.groups.sharer(job_id).workload})"

    def _numbers(self) -> Iterator[str]:
        """Say which numbers counted of each job and node that was named, and which are not known."""
        groups = self._auto.groups
        for job_id in self._told:
            sharer = groups.sharer(job_id)
            size = groups.advice.context_bytes(sharer)
            left = (
                f"at most {sharer.hours} h left" if sharer.hours else "no time limit known: counts as longest"
            )
            state = (
                f"saved state {size / _GIB:.1f} GiB a node" if size else "saved state not known: counts as 0"
            )
            known = "" if sharer.workload in groups.advice.profiles else "; not measured yet"
            yield f"  {job_id}: {left}; {state}{known}"
        for node in self._nodes:
            room = groups.host_bytes.get(node, 0)
            there = f"{room / _GIB:.1f} GiB" if room else "not known or without limit: not looked at"
            yield f"  node {node}: host memory for saved state {there}"
        if self._left_out:
            yield f"  groups or jobs that are not yours are left out: {self._left_out}"
