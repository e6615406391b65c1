"""How long SQL takes to record a handover, beside an empty commit of the same database: see sql/README.md."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa
from databases import SERVERS, serving
from figures import spread
from measures import commits

from slurm_interleave.client.core.states import Context, SliceState
from slurm_interleave.sql.rows import Lease, Member, Part, Row, Slice, Waiter
from slurm_interleave.sql.store import RowId, Store, row_id

GROUPS, MEMBERS = 1000, 10
WARM = 200


def handover(epoch: int) -> dict[RowId, Row | None]:
    """Return what a handover with a switch changes: six rows."""
    old, new = ("1", "2") if epoch % 2 else ("2", "1")
    now = time.time()
    words = ("role", "user", "account", "partition", "name", "backend", "phase")
    common: dict[str, Any] = {
        **dict.fromkeys(words, "x"),
        **dict.fromkeys(("switch_s", "snapshot_s", "restore_s"), 0.1),
        **dict.fromkeys(("requested", "granted", "ended"), now),
    }
    ended = Slice(
        **common,
        epoch=epoch,
        job_id=old,
        group="grpo",
        uid=1000,
        nodes=("n1",),
        devices=("n1/0",),
        state=SliceState.YIELDED,
        switched=True,
        switch_bytes=2**30,
    )
    rows: list[Row] = [
        ended,
        Lease(new, "grpo", epoch + 1, "rollout", now, now, restored=True),
        Part(old, "grpo", "n1", "1", (0,), Context.SAVED, 2**30, f"s{epoch}", "ab" * 32),
        Part(new, "grpo", "n1", "1", (0,), Context.RESIDENT, 0, f"r{epoch}", "ab" * 32),
    ]
    gone: list[Row] = [Lease(old, "grpo", epoch, "", 0.0, 0.0), Waiter(new, "grpo", epoch, "", 0.0)]
    return {**dict.fromkeys(map(row_id, gone)), **{row_id(row): row for row in rows}}


def measure(url: str, times: int) -> dict[str, Any]:
    """Return the figures of the empty database *url*."""
    with contextlib.closing(Store(url)) as store:
        wall, cpu = [], []
        for epoch in range(1, WARM + times):
            changes = handover(epoch)
            began, used = time.perf_counter(), time.thread_time()
            store.record(changes, epoch)
            cpu.append((time.thread_time() - used) * 1e6)
            wall.append((time.perf_counter() - began) * 1e6)
        names = [(f"j{n}", f"g{n % GROUPS}") for n in range(GROUPS * MEMBERS)]
        rows = (row for name in names for row in (Member(*name), Part(*name, "n1", "1", (0,))))
        store.record({row_id(row): row for row in rows}, store.epoch)
    began = time.perf_counter()
    with contextlib.closing(Store(url)) as store:
        for kind in (Member, Part, Lease, Waiter):
            store.all(kind)
        store.last_yields()
        load_s = time.perf_counter() - began
    record, used_us = asdict(spread(wall[WARM:])), asdict(spread(cpu[WARM:]))
    return {
        "record_us": record,
        "record_cpu_us": used_us,
        "commit_us": asdict(spread(commits(url, times))),
        "load_10000_members_s": load_s,
    }


def databases(chosen: Sequence[str], stack: contextlib.ExitStack) -> Iterator[str]:
    """Yield the URLs to measure: those that were *chosen*, or SQLite and the servers that can be had."""
    if chosen:
        yield from chosen
        return
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="interleave-bench-"))
    yield f"sqlite:///{folder}/orchestrator.db"
    for kind, server in SERVERS.items():
        if reason := server.why_not():
            print(f"store: {kind} is left out: {reason}", file=sys.stderr)
        else:
            yield stack.enter_context(serving(kind)).fresh()


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--times", type=int, default=3000, help="batches and commits to measure")
    parser.add_argument("--database", action="append", default=[], metavar="URL", help="an empty database")
    args = parser.parse_args(arguments)
    with contextlib.ExitStack() as stack:
        urls = databases(args.database, stack)
        figures = {sa.make_url(url).get_backend_name(): measure(url, args.times) for url in urls}
    if args.json:
        print(json.dumps(figures))
        return
    for kind, values in figures.items():
        print(kind)
        for name, value in values.items():
            spans = isinstance(value, dict)
            print(f"  {name:<22}", *(f"{k} {v:.0f}" for k, v in value.items()) if spans else [f"{value:.3f}"])


if __name__ == "__main__":
    main()
