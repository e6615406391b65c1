"""What a job's log or terminal shows while it waits for its devices."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable
from typing import TextIO

from slurm_interleave.client.wire import interleave_v1_pb2 as pb

# An agent that lost the orchestrator reports its jobs again within seconds of reaching it.
_REGISTRATION_GRACE_S = 30.0
_OUTAGE_S = 30.0  # an outage is told so often
_CHANGE_S = 10.0  # a place that has changed is told so often at most
_STILL_S = 60.0  # one that has not is told again
_TICK_S = 0.5
_BAR = 20


def say(text: str) -> None:
    """Write a line to the job's log, if there is one: a full disk, or none at all, ends no job."""
    with contextlib.suppress(AttributeError, OSError, ValueError):
        sys.stderr.write(f"[interleave] {text}\n")
        sys.stderr.flush()


_told_outside = threading.Event()


def say_outside() -> None:
    """Say once that there is nothing to wait for."""
    if not _told_outside.is_set():
        _told_outside.set()
        say("not in an interleaved job: acquire and yield do nothing")


class Waiting:
    """One wait, in lines: the place in the queue at first, later now and then; an outage; the grant."""

    def __init__(self, group: str, tell: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._group, self._tell, self._clock = group, tell, clock
        self._began = clock()
        self._place = pb.Queued()
        self._placed_at = 0.0
        self._said: tuple[int, str] | None = None
        self._said_at = float("-inf")
        self._away_told = float("-inf")
        self._unknown_since: float | None = None
        self._waited = False

    def queued(self, place: pb.Queued) -> None:
        """The place in the queue is told."""
        self._place, self._placed_at, self._waited = place, self._clock(), True
        self.look()

    def look(self) -> None:
        """Say the place, if it is time to."""
        place, now = (self._place.ahead, self._place.reason), self._clock()
        if now - self._said_at >= (_STILL_S if place == self._said else _CHANGE_S):
            self._said, self._said_at = place, now
            self._line(f"waiting for the devices of group {self._group}: {self.place()}")

    def place(self) -> str:
        """Return what it waits for, and how long it will take where that is known."""
        place, text = self._place, f"{self._place.ahead} ahead"
        if place.HasField("expected_s"):
            text += f", about {self.rest_s():.0f} s"
        return f"{text}; {place.reason}" if place.reason else text

    def rest_s(self) -> float:
        """Return what is left of the wait, if that was told."""
        return max(self._place.expected_s - (self._clock() - self._placed_at), 0.0)

    def unknown(self) -> bool:
        """Tell whether the orchestrator, which does not know the job, may still hear of it."""
        since = self._unknown_since = self._unknown_since or self._clock()
        self._say_away("the orchestrator does not know this job, or its group, yet")
        return self._clock() - since < _REGISTRATION_GRACE_S

    def away(self, what: str) -> None:
        """The orchestrator cannot be reached."""
        self._unknown_since = None
        self._say_away(what)

    def granted(self, phase: str, lease: pb.Granted) -> None:
        """The wait is over."""
        if self._waited:
            restored = ", device state restored" if lease.context_restored else ""
            named = f" for phase {phase}" if phase else ""
            self._tell(f"granted{named} after {self._clock() - self._began:.2f} s{restored}")

    def over(self) -> None:
        """Nobody waits any more, granted or not."""

    def _say_away(self, what: str) -> None:
        now = self._clock()
        if now - self._away_told >= _OUTAGE_S:
            self._away_told, self._waited = now, True
            self._tell(f"{what}; waiting, and trying again")

    def _line(self, text: str) -> None:
        self._tell(text)


class Shown(Waiting):
    """The same, looked at by a thread while it lasts; on a terminal one line that is drawn anew."""

    def __init__(self, group: str, tell: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._screen = _terminal()
        super().__init__(group, self._clear_and_tell, clock)
        self._say = tell
        self._over = threading.Event()
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None

    def queued(self, place: pb.Queued) -> None:
        """The place in the queue is told."""
        with self._lock:
            super().queued(place)
            self._draw()
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="interleave-waiting", daemon=True)
            self._thread.start()

    def over(self) -> None:
        """Nobody waits any more: leave the terminal as it was."""
        self._over.set()
        if self._thread is not None:
            with contextlib.suppress(RuntimeError):  # an interrupt came before it had begun
                self._thread.join()
            self._clear()

    def _watch(self) -> None:
        while not self._over.wait(_TICK_S):
            with self._lock:
                self.look()
                self._draw()

    def _draw(self) -> None:
        if self._screen is None:
            return
        waited_s = self._clock() - self._began
        text = f"[interleave] {self._group}: waiting {waited_s:.0f} s {self._bar(waited_s)} {self.place()}"
        try:
            width = os.get_terminal_size(self._screen.fileno()).columns or 80
            self._screen.write(f"\r{text[: width - 1]}\x1b[K")
            self._screen.flush()
        except (OSError, ValueError):  # it is gone
            self._screen = None

    def _bar(self, waited_s: float) -> str:
        if not self._place.HasField("expected_s"):
            return "[" + "." * _BAR + "]"
        done = round(_BAR * waited_s / max(waited_s + self.rest_s(), 1e-9))
        return "[" + "#" * done + "." * (_BAR - done) + "]"

    def _line(self, text: str) -> None:
        if self._screen is None:
            super()._line(text)

    def _clear_and_tell(self, text: str) -> None:
        self._clear()
        self._say(text)

    def _clear(self) -> None:
        if self._screen is not None and self._thread is not None:
            with contextlib.suppress(OSError, ValueError):
                self._screen.write("\r\x1b[K")
                self._screen.flush()


def _terminal() -> TextIO | None:
    """Return stderr if a line on it can be drawn anew."""
    try:
        drawn = sys.stderr.isatty() and os.environ.get("TERM", "") not in ("", "dumb")
    except (AttributeError, ValueError):  # replaced, or closed
        return None
    return sys.stderr if drawn else None
