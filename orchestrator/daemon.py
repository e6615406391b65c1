"""`interleaved`: the orchestrator's process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from pathlib import Path

from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health_aio

from slurm_interleave.client.answers import ErrorsToStatus
from slurm_interleave.client.core.config import load_section
from slurm_interleave.client.core.groups import DeclaredGroup, load_groups
from slurm_interleave.client.core.hook_server import HookServer, Peer
from slurm_interleave.client.core.metrics import Metrics, serving_metrics
from slurm_interleave.client.core.names import parse_job_id
from slurm_interleave.client.core.tracing import tracer
from slurm_interleave.client.core.until_stopped import until_stopped
from slurm_interleave.client.core.values import parse_number
from slurm_interleave.client.wire import interleave_v1_pb2_grpc as rpc
from slurm_interleave.client.wire import timeslice_orchestrator_v1alpha1_pb2_grpc as timeslice_rpc
from slurm_interleave.orchestrator.arbiter import Arbiter
from slurm_interleave.orchestrator.auth import Gate, uids
from slurm_interleave.orchestrator.book import Reservations
from slurm_interleave.orchestrator.clock import SteadyClock
from slurm_interleave.orchestrator.config import OrchestratorConfig
from slurm_interleave.orchestrator.core.events import JobOver
from slurm_interleave.orchestrator.core.rules import Rules, with_groups
from slurm_interleave.orchestrator.door import Door
from slurm_interleave.orchestrator.links import Links
from slurm_interleave.orchestrator.members import RegisteredMembers, TurnFigures
from slurm_interleave.orchestrator.pairing.config import PairingConfig
from slurm_interleave.orchestrator.pairing.known import Known
from slurm_interleave.orchestrator.placement.accounts import Accounts
from slurm_interleave.orchestrator.placement.config import PlacementConfig, load_placement
from slurm_interleave.orchestrator.placement.gateway import choose
from slurm_interleave.orchestrator.placement.helper import PlacementHelper
from slurm_interleave.orchestrator.placement.ports import Slurm
from slurm_interleave.orchestrator.placement.slurm import SlurmCommands
from slurm_interleave.orchestrator.retention import Retention
from slurm_interleave.orchestrator.services.agent_link import AgentLinkService
from slurm_interleave.orchestrator.services.interleave import InterleaveService
from slurm_interleave.orchestrator.services.pairing import PairingService
from slurm_interleave.orchestrator.services.ranks import RanksService
from slurm_interleave.orchestrator.services.timeslice import TimeSliceService
from slurm_interleave.orchestrator.web.config import WebConfig
from slurm_interleave.sql.rows import Reservation
from slurm_interleave.sql.store import Store

log = logging.getLogger(__name__)
_LATEST_S = 1 << 40


class Orchestrator:
    """All parts of one orchestrator; `run` serves until it is cancelled."""

    def __init__(
        self,
        config: OrchestratorConfig,
        placement: PlacementConfig,
        rules: Rules,
        store: Store,
        groups: Mapping[str, DeclaredGroup] | None = None,
        clock: Callable[[], float] | None = None,
        slurm: Slurm | None = None,
        web: WebConfig | None = None,
        pairing: PairingConfig | None = None,
        door: Door | None = None,
    ) -> None:
        self._config = config
        self._door = door
        self._web = web or WebConfig()
        self._groups = groups or {}
        self.ready = asyncio.Event()
        self.port = 0  # once it is ready
        self.metrics_port = 0
        self.web_port = 0
        self.links = Links()
        wall = clock or time.time
        clock = clock or SteadyClock()
        self.arbiter = Arbiter(store, self.links, with_groups(rules, self._groups), clock, wall)
        self._retention = Retention(store, self.arbiter.remember, config.keep_slices_days, clock)
        self.reservations = Reservations(self.arbiter, store.all(Reservation))
        self._gate = Gate(config, self.arbiter.core)
        self._helper: PlacementHelper | None = None
        self._accounts = Accounts(SlurmCommands(), TurnFigures(self.arbiter).of)
        self._known: Known | None = None
        if placement.enabled:
            seated = (pairing or PairingConfig()).seated(placement.most_members)
            self._known = Known(store.slices, store.newest, seated, clock)
            self._helper = self._placing(placement, slurm or SlurmCommands(), self._known)

    def _placing(self, config: PlacementConfig, slurm: Slurm, known: Known) -> PlacementHelper:
        return PlacementHelper(
            slurm,
            self.reservations,
            self.links,
            RegisteredMembers(self.arbiter),
            config,
            over=self._accounts.over,
            advice=lambda: known.advice,
        )

    async def run(self) -> None:
        """Serve; raises whatever ends a part that must not end."""
        tasks = [asyncio.create_task(self.arbiter.run(), name="arbiter")]
        if self._config.keep_slices_days:
            tasks.append(asyncio.create_task(self._retention.run(), name="retention"))
        if self._helper is not None and self._known is not None:
            tasks.append(asyncio.create_task(self._helper.run(), name="placement"))
            tasks.append(asyncio.create_task(self._nudge(self._helper), name="nudge"))
            tasks.append(asyncio.create_task(self._accounts.run(), name="accounts"))
            tasks.append(asyncio.create_task(self._known.run(), name="profiles"))
        try:
            hooks = {"job-over": self._job_over}
            async with (
                serving_metrics(self._config.metrics, "orchestrator", self._metrics) as self.metrics_port,
                self._server() as self.port,
                HookServer(self._config.socket, hooks, users=frozenset(uids(self._config.operators))),
            ):
                extra = {"port": self.port, "cluster": self._config.cluster, "pid": os.getpid()}
                log.info("ready", extra=extra)
                self.ready.set()
                try:
                    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                    for task in done:
                        task.result()
                finally:
                    # First of all nothing is written any more: calls that a stop cuts keep their places.
                    await _end(tasks)
        finally:
            await _end(tasks)
            self.arbiter.close()

    @contextlib.asynccontextmanager
    async def _server(self) -> AsyncIterator[int]:
        door = self._door or Door(self._config.listen)
        ours, arbiter, gate = ErrorsToStatus(door), self.arbiter, self._gate
        audit = self._helper.audit if self._helper is not None else None
        own = self._service()(arbiter, gate, self.links, self._groups, audit)
        rpc.add_InterleaveServicer_to_server(own, ours)
        rpc.add_RanksServicer_to_server(RanksService(gate, arbiter.core.state), ours)
        rpc.add_PairingServicer_to_server(PairingService(gate, self._helper), ours)
        agents = AgentLinkService(arbiter, gate, self.links, self.reservations, self._config.cluster)
        rpc.add_AgentLinkServicer_to_server(agents, ours)
        timeslice_rpc.add_TimeSliceOrchestratorServiceServicer_to_server(
            TimeSliceService(arbiter, gate, open_to_all=self._config.v1alpha1_open), ours
        )
        health = health_aio.HealthServicer()
        await health.set("", health_pb2.HealthCheckResponse.SERVING)
        health_pb2_grpc.add_HealthServicer_to_server(health, door)
        try:
            async with self._page(own, ours) as self.web_port:
                door.serve()
                await door.open()
                yield door.port
        finally:
            await door.close()

    @contextlib.asynccontextmanager
    async def _page(self, service: InterleaveService, server: ErrorsToStatus) -> AsyncIterator[int]:
        if not self._web.listen:
            yield 0
            return
        from slurm_interleave.orchestrator.web.pages import Pages

        pages = Pages(self._web, self._config.cluster, self._gate, service, self.arbiter.now)
        rpc.add_PagesServicer_to_server(pages, server)
        async with pages.serving() as port:
            yield port

    def _service(self) -> Callable[..., InterleaveService]:
        """Return what makes the service: the one that makes spans, where this process does."""
        making = tracer()
        if making is None:
            return InterleaveService
        from slurm_interleave.orchestrator.traces import TracedInterleave, Traces

        traces = Traces(self.arbiter, making)
        self.links.parent = traces.parent
        return partial(TracedInterleave, traces)

    def _metrics(self) -> Metrics:
        from slurm_interleave.orchestrator import metrics

        return metrics.Metrics(self.arbiter, self._config.metrics_groups)

    async def _job_over(self, request: dict[str, object], _peer: Peer) -> dict[str, object]:
        """The slurmctld epilog: a job is over on all nodes."""
        job_id, wall = parse_job_id(str(request.get("job", ""))), self.arbiter.wall()
        ended = parse_number(request.get("ended", wall), "ended", _LATEST_S)
        # Of a job that still runs in its books, Slurm tells the end that is to come.
        await self.arbiter.tell(JobOver(self.arbiter.now(), job_id, min(ended, wall)))
        if self._helper is not None:
            self._helper.nudge()
        return {}

    async def _nudge(self, helper: PlacementHelper) -> None:
        while True:
            await self.links.changed.wait()
            self.links.changed.clear()
            helper.nudge()


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def serve(config: OrchestratorConfig, path: Path | None, door: Door) -> None:
    """Run `interleaved` until a signal ends it; *path* has the sections beside *config*."""
    placement = load_placement(path)
    rules = load_section(Rules, "turns", path)
    web = load_section(WebConfig, "web", path)
    pairing = load_section(PairingConfig, "pairing", path)
    groups = load_groups(path)
    gateway = await choose(placement.gateway) if placement.enabled else None
    if gateway is not None:
        log.info("gateway.chosen", extra={"gateway": gateway.name, "reason": gateway.why})
    store, slurm = Store(config.database), gateway.slurm if gateway is not None else None
    orchestrator = Orchestrator(
        config, placement, rules, store, groups, slurm=slurm, web=web, pairing=pairing, door=door
    )
    try:
        await until_stopped(orchestrator.run())
    finally:
        store.close()
        if gateway is not None:
            await gateway.close()
