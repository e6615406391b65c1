"""What is shown of a wait, in lines and on a terminal."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest

from slurm_interleave.client.waiting import Shown, Waiting, say
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from tests.client.fakes import queued


class Watched:
    """A wait whose time is the test's."""

    def __init__(self, kind: type[Waiting] = Waiting) -> None:
        self.now = 1000.0
        self.lines: list[str] = []
        self.waiting = kind("demo", self.lines.append, lambda: self.now)

    def place(self, ahead: int, reason: str = "", expected_s: float | None = None) -> None:
        self.waiting.queued(queued(ahead, reason, expected_s).queued)

    def after(self, seconds: float) -> None:
        self.now += seconds
        self.waiting.look()


def test_the_first_place_is_said_at_once_and_its_wait_where_that_is_known() -> None:
    watched = Watched()

    watched.place(2, expected_s=34.6)

    assert watched.lines == ["waiting for the devices of group demo: 2 ahead, about 35 s"]


def test_places_that_change_are_said_every_ten_seconds_at_most_and_the_last_is_not_left_out() -> None:
    watched = Watched()
    for ahead in range(9, 0, -1):
        watched.place(ahead)
        watched.after(1)

    watched.after(1.5)

    assert [line.partition(": ")[2] for line in watched.lines] == ["9 ahead", "1 ahead"]


def test_a_long_wait_is_said_again_each_minute_with_what_is_left_of_it() -> None:
    watched = Watched()
    watched.place(1, expected_s=100)

    for _ in range(130):
        watched.after(1)

    assert [line.partition(", ")[2] for line in watched.lines] == ["about 100 s", "about 40 s", "about 0 s"]


def test_what_it_waits_for_is_said() -> None:
    watched = Watched()

    watched.place(0, "the agent of node n2 is away")

    assert watched.lines == ["waiting for the devices of group demo: 0 ahead; the agent of node n2 is away"]


def test_the_grant_is_said_to_who_waited_and_to_nobody_else() -> None:
    quick, waited = Watched(), Watched()
    waited.place(1)
    for watched in (quick, waited):
        watched.now += 65
        watched.waiting.granted("train", pb.Granted(context_restored=True))

    assert quick.lines == []
    assert waited.lines[1:] == ["granted for phase train after 65.00 s, device state restored"]


@contextlib.contextmanager
def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Let stderr be a terminal; give its other end."""
    ours, theirs = pty.openpty()
    monkeypatch.setenv("TERM", "xterm")
    with os.fdopen(theirs, "w") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        yield ours
    os.close(ours)


def read(terminal: int, wanted: str) -> str:
    shown = ""
    while wanted not in shown:
        shown += os.read(terminal, 4096).decode()
    return shown


def test_a_terminal_shows_one_line_that_is_drawn_anew_and_is_gone_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with on_a_terminal(monkeypatch) as terminal:
        watched = Watched(Shown)
        watched.now += 10
        watched.place(1, expected_s=10)

        first = read(terminal, "about 10 s\x1b[K")
        watched.now += 5
        later = read(terminal, "about 5 s\x1b[K")
        watched.waiting.granted("", pb.Granted())
        watched.waiting.over()
        end = read(terminal, "\r\x1b[K")

    assert "demo: waiting 10 s [##########..........] 1 ahead, about 10 s" in first
    assert "demo: waiting 15 s [###############.....] 1 ahead, about 5 s" in later
    assert "\n" not in first + later + end
    assert watched.lines == ["granted after 15.00 s"]


def streams() -> Iterator[TextIO | None]:
    """Yield what a job may find in place of a log."""
    yield None
    reader, writer = os.pipe()
    os.close(reader)
    yield os.fdopen(writer, "w")
    yield Path("/dev/full").open("w")  # noqa: SIM115
    yield io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    closed = io.StringIO()
    closed.close()
    yield closed


def test_a_job_whose_log_takes_nothing_is_not_ended_by_what_it_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for stream in streams():
        monkeypatch.setattr(sys, "stderr", stream)

        say("group dé: 2 ahead")

        with contextlib.suppress(AttributeError, OSError):
            stream.close()  # type: ignore[union-attr]


def test_where_there_is_no_terminal_lines_come_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr("slurm_interleave.client.waiting._TICK_S", 0.001)
    watched = Watched(Shown)
    watched.place(2)
    watched.place(1)

    watched.now += 11
    while len(watched.lines) < 2:
        assert watched.waiting._thread is not None  # type: ignore[attr-defined]
        watched.waiting._thread.join(0.01)  # type: ignore[attr-defined]
    watched.waiting.over()

    assert [line.partition(": ")[2] for line in watched.lines] == ["2 ahead", "1 ahead"]


def test_an_interrupt_while_the_wait_begins_to_be_shown_comes_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watched = Watched(Shown)

    def interrupted(_thread: threading.Thread) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            watched.place(1)
        watched.waiting.over()
