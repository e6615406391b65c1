"""`interleave status --watch`: the groups as they are, again at each change, until Ctrl-C."""

from __future__ import annotations

import os
import queue
import select
import sys
import threading
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

import click
import grpc

from slurm_interleave.client.cli.link import Orchestrator, orchestrator
from slurm_interleave.client.connect import Unreachable, domain_error
from slurm_interleave.client.wire import interleave_v1_pb2 as pb

_TICK_S = 1.0  # ages are drawn anew, and a reader who is gone is noticed
_AGAIN_S = 0.3


@dataclass
class Groups:
    """What is known of the groups, by name; *changed* are those of the last update."""

    now: dict[str, pb.GroupStatus] = field(default_factory=dict)
    changed: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()

    def take(self, update: pb.WatchUpdate, *, whole: bool) -> None:
        """Take an update; a *whole* one, the first of a stream, names all groups that there are."""
        named = {group.name: group for group in update.groups}
        gone = set(self.now) - set(named) if whole else set(update.gone) & set(self.now)
        for name in gone:
            del self.now[name]
        self.now.update(named)
        self.changed, self.gone = tuple(sorted(named)), tuple(sorted(gone))


def follow(config: str | None, address: str | None, group: str) -> Generator[Groups | None, None, None]:
    """Yield the groups at each change, and None each second. An orchestrator that restarts is waited for.

    Raises what the orchestrator refuses; at first also `Unreachable`.
    """
    groups, connected, away = Groups(), False, False
    with orchestrator(config, address) as link:
        while True:
            try:
                for item in _stream(link, group):
                    connected, away = True, False
                    if item is not None:
                        groups.take(item[0], whole=item[1])
                        if group and item[1] and not groups.now:
                            click.echo(f"group {group} is not known, or not to you; waiting for it", err=True)
                    yield groups if item else None
            except grpc.RpcError as error:
                if not (connected and isinstance(domain_error(error, ""), Unreachable)):
                    raise
            if not away:
                click.echo("the orchestrator does not answer; waiting for it", err=True)
            away = True
            time.sleep(_AGAIN_S)
            require_reader()


def require_reader() -> None:
    """Raise `BrokenPipeError` if nobody reads our output any more: without news nothing else would tell."""
    poll = select.poll()
    try:
        poll.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError):  # not a file
        return
    if any(events & select.POLLERR for _, events in poll.poll(0)):
        raise BrokenPipeError


def _stream(link: Orchestrator, group: str) -> Iterator[tuple[pb.WatchUpdate, bool] | None]:
    """Yield the updates of one stream, and whether each is the first; None each second."""
    call, news = link.watch(group), queue.SimpleQueue[Any]()
    threading.Thread(target=_read, args=(call, news), daemon=True).start()
    first = True
    try:
        while True:
            try:
                update = news.get(timeout=_TICK_S)
            except queue.Empty:
                require_reader()
                yield None
                continue
            if isinstance(update, grpc.RpcError):
                raise update
            if update is None:
                return
            yield update, first
            first = False
    finally:
        call.cancel()


def _read(call: Any, news: queue.SimpleQueue[Any]) -> None:
    try:
        for update in call:
            news.put(update)
    except grpc.RpcError as error:
        news.put(error)
    else:
        news.put(None)


def is_terminal() -> bool:
    """Tell whether what we write is drawn."""
    return sys.stdout.isatty() and os.environ.get("TERM", "") != "dumb"
