from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pytest

from tests.cli.server import GivenOrchestrator, served
from tests.cli.turns import two_jobs

# Rules instead of names, since a small machine may have no time zone database.
BERLIN = "CET-1CEST,M3.5.0,M10.5.0/3"
Main = Callable[[Sequence[str]], int]


@dataclass(frozen=True)
class Outcome:
    """What a command left behind."""

    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


Call = Callable[..., Outcome]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Run the `main` of a program with some arguments, in this process."""

    def run(main: Main, *arguments: str) -> Outcome:
        status = main(arguments)
        captured = capsys.readouterr()
        return Outcome(status, captured.out, captured.err)

    return run


@pytest.fixture
def orchestrator(monkeypatch: pytest.MonkeyPatch) -> Iterator[GivenOrchestrator]:
    """One that knows of two jobs."""
    given = GivenOrchestrator(two_jobs()[0])
    with served(given) as address:
        monkeypatch.setenv("INTERLEAVE_CLIENT_ORCHESTRATOR", address)
        yield given


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the machine's own configuration reaches a test."""
    for name in (
        "INTERLEAVE_CONFIG",
        "INTERLEAVE_TOKEN",
        "SINTERLEAVE_FORMAT",
        "INTERLEAVE_CLIENT_ORCHESTRATOR",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("INTERLEAVE_CLIENT_AUTH", "none")


@pytest.fixture(params=["UTC0", BERLIN, "PST8PDT,M3.2.0,M11.1.0", "IST-5:30"])
def zone(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run the test in several time zones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", request.param)
        time.tzset()
        yield request.param
    time.tzset()


@pytest.fixture
def berlin() -> Iterator[None]:
    """Run the test in one time zone that has summer time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", BERLIN)
        time.tzset()
        yield
    time.tzset()
