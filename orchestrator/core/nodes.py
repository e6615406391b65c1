"""Nodes and the jobs on them: registration, ends, and what an agent's word changes."""

from __future__ import annotations

from dataclasses import replace

from typing_extensions import assert_never

from slurm_interleave.client.core.errors import JobEnded
from slurm_interleave.client.core.states import Context, SliceState
from slurm_interleave.orchestrator.core import events as ev
from slurm_interleave.orchestrator.core.attendance import Absences
from slurm_interleave.orchestrator.core.book import Device
from slurm_interleave.orchestrator.core.clears import Clears
from slurm_interleave.orchestrator.core.runs import are_two_runs, came_later, is_another_run, member_of
from slurm_interleave.orchestrator.core.state import IN_MOTION, State
from slurm_interleave.orchestrator.core.switches import Switches
from slurm_interleave.orchestrator.core.word import Word
from slurm_interleave.sql.rows import Key, Part

_MAY_BE_THERE = IN_MOTION | {Context.RESIDENT}


class Nodes:
    """Keeps members and parts in step with what agents and Slurm say."""

    def __init__(
        self, state: State, switches: Switches, clears: Clears, absences: Absences, word: Word
    ) -> None:
        self._state = state
        self._word = word
        self._absences = absences
        self._switches = switches
        self._clears = clears
        # Attempts by node that are over, by all that is known, although the node's agent has not said so.
        self._ended: dict[str, set[str]] = {}
        # Attempts that an agent named while another run was known: one of the two is over; which, is to come.
        self._aside: dict[tuple[str, Key], ev.Registration] = {}

    def handle(self, event: ev.NodeEvent) -> None:
        """Take what a node or Slurm says."""
        match event:
            case ev.OperationDone():
                self.operation_done(event)
            case ev.Registered():
                self.register(event.node, event.job, event.at)
            case ev.PartOver():
                self.part_over(event.node, event.job_id, event.attempt, event.at)
            case ev.JobOver():
                self.job_over(event)
            case ev.NodeUp():
                self.up(event)
            case ev.NodeDown():
                self.down(event.node)
            case ev.Used():
                pass  # see trespass.py
            case _:
                assert_never(event)
        self._take_up_aside(event.at)

    def up(self, event: ev.NodeUp) -> None:
        """Take an agent's whole truth: jobs that it does not name are over on its node."""
        state = self._state
        state.nodes_up.add(event.node)
        state.memory.update({Device(event.node, minor): size for minor, size in event.memory})
        told = {(job.job_id, job.group): job.attempt for job in event.jobs}
        self._ended.get(event.node, set()).intersection_update(told.values())
        self._drop_aside(event.node)
        for part in self._state.parts_on(event.node):
            if told.get((part.job_id, part.group)) != part.attempt:
                self.part_over(event.node, part.job_id, part.attempt, event.at)
        for job in event.jobs:
            self.register(event.node, job, event.at, hello=True)
        self._touch(event.node)
        self._switches.node_up(event.node)
        self._clears.node_up(event.node)

    def draining(self, event: ev.Draining) -> None:
        """An agent begins to save a job, or has ended; of the attempt that it names, if that is put aside."""
        for place, job in self._aside.items():
            if (place[0], job.job_id) == (event.node, event.job_id):
                self._aside[place] = replace(job, being_saved=event.draining)
        self._word.handle(event)

    def down(self, node: str) -> None:
        """The agent is away: nothing can be moved there until it is back."""
        self._state.nodes_up.discard(node)
        self._drop_aside(node)
        self._touch(node)

    def _touch(self, node: str) -> None:
        """What can be done for the jobs on *node*, and what is known of them, has changed."""
        for key in self._state.on_node.get(node, ()):
            self._state.touch(self._state.devices(key))
            self._state.note_changed(key)

    def register(self, node: str, job: ev.Registration, at: float, *, hello: bool = False) -> None:
        """A job is on *node*; the same attempt again changes only where its device state is."""
        state, key = self._state, Key(job.job_id, job.group)
        before = self._aside.pop((node, key), None)  # what is said now is newer
        if self._is_stale(node, key, job, hello=hello):
            if hello or before is not None:
                self._aside[node, key] = job
            return
        earlier = state.parts.get(key, {}).get(node)
        if earlier is not None and earlier.attempt != job.attempt:
            self.part_over(node, earlier.job_id, earlier.attempt, at)
        if node not in state.parts.get(key, {}):
            self._join(node, job, at)
        if job.caution != state.cautions.get(key, {}).get(node, ""):
            state.cautions.setdefault(key, {})[node] = job.caution
            state.note_changed(key)
        saved = job.being_saved and not state.members[key].over  # what is over keeps no later run waiting
        if saved or (hello and state.pauses.is_being_saved(job.job_id, node)):
            # Its agent knows, whatever became of the order and its answer.
            self._word.handle(ev.Draining(at, job.job_id, node, saved))
        state.tokens.resumed(job.attempt, key, job.resumed_token_sha256)
        self._reported(key, node, job.context, job.bytes, job.fault)
        self._absences.reported(key, node, job.attendance, at)

    def _join(self, node: str, job: ev.Registration, at: float) -> None:
        state, key = self._state, Key(job.job_id, job.group)
        member = state.members.get(key)
        if member is None or member.over or self._is_another_run(key, job):
            self._start_again(key, job, at)
        elif not member.nodes:
            state.put_member(replace(member, nodes=job.nodes))
        # Queued or holding before this node joined: its devices must be claimed too.
        lease, claim = state.leases.get(key), state.claims.get(key)
        part = Part(
            job.job_id,
            job.group,
            node,
            job.attempt,
            tuple(sorted(set(job.devices))),
            job.context,
            job.bytes,
            token_sha256=job.token_sha256,
            restarts=job.restarts,
            started=job.started,
        )
        if job.priority:
            state.priorities[job.job_id] = job.priority
            state.note_changed(*state.jobs[job.job_id])
        state.put_part(part)
        if claim is not None:
            state.put_waiter(state.waiters[claim], state.keeping[claim])
        if lease is not None:
            state.end_lease(key, SliceState.REVOKED, at)
        state.touch(state.devices(key))

    def _is_stale(self, node: str, key: Key, job: ev.Registration, *, hello: bool) -> bool:
        """Tell whether this attempt is over, and a later one runs: an agent that was away does not know."""
        state = self._state
        if key not in state.members or not self._is_another_run(key, job):
            return False
        if job.attempt in self._ended.get(node, ()):
            return True
        later = came_later(state.parts[key].values(), job)
        if later is not None:
            return not later
        here = any(other != node and other in state.nodes_up for other in state.parts[key])
        return hello and here

    def _is_another_run(self, key: Key, job: ev.Registration) -> bool:
        return is_another_run(self._state.parts[key].values(), self._state.members[key].nodes, job)

    def _drop_aside(self, node: str, attempt: str = "") -> None:
        for place, job in list(self._aside.items()):
            if place[0] == node and attempt in ("", job.attempt):
                del self._aside[place]

    def _take_up_aside(self, at: float) -> None:
        """Register what was put aside, once the run that stood in its way is over."""
        for (node, key), job in list(self._aside.items()):
            if not self._is_stale(node, key, job, hello=True):
                self.register(node, job, at, hello=True)

    def _start_again(self, key: Key, job: ev.Registration, at: float) -> None:
        """Make the member anew. A part on a node of the new run, whose agent is here, belongs to that run
        unless Slurm has put the job back since: it starts a job again only when its last run is cleaned up on
        all nodes that answer.
        """
        state = self._state
        if key in state.members:
            self._leave(key, at)
            self._forget_troubles(key)
        for part in list(state.parts.get(key, {}).values()):
            here = part.node in state.nodes_up and (part.node in job.nodes or not job.nodes)
            if here and not are_two_runs(part, job):
                continue
            self._ended.setdefault(part.node, set()).add(part.attempt)
            state.drop_part(part)
            self._switches.part_over(key, part.node, at)
        state.put_member(member_of(job))

    def operation_done(self, event: ev.OperationDone) -> None:
        """An agent ended an operation, maybe one of an earlier life of the orchestrator."""
        if self._switches.done(event) or self._clears.done(event):
            return
        for part in self._state.parts_on(event.node):
            # Any other operation is one of an earlier attempt, or its result has been overtaken.
            if part.job_id == event.job_id and part.operation == event.operation:
                self._reported(
                    Key(part.job_id, part.group), event.node, event.context, event.bytes, event.error
                )

    def _reported(self, key: Key, node: str, context: Context, size: int, fault: str) -> None:
        """The agent says where a device state is. A holder may use its devices at any moment: resident."""
        state = self._state
        if self._switches.pending_on(key, node):
            return
        if context in (Context.SAVING, Context.RESTORING):
            # The result of the operation, kept here, will tell.
            state.set_context(key, node, Context.UNKNOWN, size, state.parts[key][node].operation)
            return
        lease, known = state.leases.get(key), state.parts[key][node].context
        if context is Context.NONE and (lease is not None or known in _MAY_BE_THERE):
            # Since the agent looked, it may have held and yielded; or the agent cannot see. A snapshot will.
            context = Context.RESIDENT
        if lease is not None and context is Context.SAVED:
            # It was yielded, and saved after that, but the host lost the record of it.
            state.end_lease(key, SliceState.YIELDED, lease.granted)
        state.set_context(key, node, context, size)
        if context is Context.FAULTED and not state.members[key].fault:
            state.fault(key, fault or f"its device state on node {node} is lost")

    def part_over(self, node: str, job_id: str, attempt: str, at: float) -> None:
        """The job is over on *node*, so it is over as a whole; its other nodes still clean up."""
        self._drop_aside(node, attempt)
        for part in self._state.parts_on(node):
            if part.job_id != job_id or attempt not in ("", part.attempt):
                continue
            key, ended = Key(part.job_id, part.group), self._ended.get(node, set())
            if part.attempt in ended:
                ended.discard(part.attempt)  # what remains is another run
            else:
                self._leave(key, at)
            self._state.drop_part(part)
            self._switches.part_over(key, node, at)
            self._clears.part_over(key, node)
            self._forget_if_gone(key, at)

    def job_over(self, event: ev.JobOver) -> None:
        """Slurm says that the job is over: devices of nodes whose agent is away are free at once.

        It may say so late, and names no run. One that has begun since goes on; what an earlier one has left
        its agents clean up.
        """
        for key in list(self._state.jobs.get(event.job_id, ())):
            parts = list(self._state.parts.get(key, {}).values())
            if any(part.started > event.ended for part in parts):
                continue
            self._leave(key, event.at)
            for part in parts:
                if part.node not in self._state.nodes_up:
                    self.part_over(part.node, event.job_id, part.attempt, event.at)
                    self._ended.setdefault(part.node, set()).add(part.attempt)
            self._forget_if_gone(key, event.at)

    def _leave(self, key: Key, at: float) -> None:
        """End the turn of a job that is over, and its wait for one."""
        state, member = self._state, self._state.members[key]
        if key in state.claims:
            state.refuse(state.claims[key], JobEnded(f"{key} has ended"))
        if key in state.leases:
            state.end_lease(key, SliceState.JOB_ENDED, at)
        if not member.over:
            state.put_member(replace(member, over=True))
            self._word.over(key)
        if all(state.members[other].over for other in state.jobs[key.job_id]):
            self._leave_driven(key.job_id, at)

    def _leave_driven(self, job_id: str, at: float) -> None:
        """Nobody is there any more who could yield what the job has asked for of its other components."""
        for claim in self._state.drivers.waiters_of(job_id):
            self._state.refuse(claim, JobEnded(f"job {job_id}, which waits for {claim}, has ended"))
        for lease in sorted(self._state.drivers.leases_of(job_id)):
            self._state.end_lease(lease, SliceState.JOB_ENDED, at)

    def _forget_if_gone(self, key: Key, at: float) -> None:
        if key in self._state.members and not self._state.parts.get(key):
            self._leave(key, at)
            self._state.drop_member(key)
            self._forget_troubles(key)

    def _forget_troubles(self, key: Key) -> None:
        self._switches.forget(key)
        self._clears.forget(key)
