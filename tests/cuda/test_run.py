"""`interleave run` around programs that know nothing of turns: real processes, and the driver's stub."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab import LocalLab
from lab.processes import wait_until
from tests.stub_driver.stub import CHECKPOINTED, MIB, RUNNING, Stub

pytestmark = pytest.mark.timeout(120)

PROGRAM = str(Path(sys.executable).with_name("interleave"))
DEVICE = """
import ctypes, os, sys, time
from pathlib import Path
cuda = ctypes.CDLL("libcuda.so.1")
works = Path(os.environ["STUB_DIR"], f"works.{os.getpid()}")
context, address, size = ctypes.c_void_p(), ctypes.c_uint64(), 40 << 20
secret, copy = os.urandom(size), ctypes.create_string_buffer(size)
def tell(*what):
    print(time.monotonic_ns(), *what, flush=True)
def put():
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)) == 0
    assert cuda.cuMemcpyHtoD_v2(address, secret, ctypes.c_size_t(size)) == 0
def check():
    tell("asks")
    assert cuda.cuMemcpyDtoH_v2(copy, address, ctypes.c_size_t(size)) == 0
    tell("right" if copy.raw == secret else "wrong")
def until(name):
    while not Path(sys.argv[1], name).exists():
        time.sleep(0.01)
"""
# It works until it is told to rest, and then at once again when it is told to.
UNMODIFIED = f"""{DEVICE}
until("load")
put()
tell("pid", os.getpid())
works.touch()
until("rest")
works.unlink()
tell("rests")
until("go on")
check()
until("end")
sys.exit(7)
"""
PARTNER = f"""{DEVICE}
from slurm_interleave.client import Interleaver
with Interleaver.from_env().turn("train"):
    put()
    tell("begins")
    until("partner ends")
    assert cuda.cuMemFree_v2(address) == 0
    tell("ends")
until("end")
"""


class Told:
    """What a job has told, with its times."""

    def __init__(self, lab: LocalLab, job: str) -> None:
        self.job, self._lab = job, lab

    def at(self, word: str) -> int:
        """Return when it told *word*; 0: not yet."""
        for line in self._lab.output(self.job).splitlines():
            when, _, what = line.partition(" ")
            if what.split()[:1] == [word]:
                return int(when)
        return 0

    def value(self, word: str) -> str:
        lines = [line.split() for line in self._lab.output(self.job).splitlines()]
        return next(words[2] for words in lines if words[1:2] == [word])

    def until(self, word: str) -> int:
        assert wait_until(lambda: self.at(word) > 0, 30), self.all()
        return self.at(word)

    def says(self, text: str) -> bool:
        return text in self._lab.output(self.job)

    def all(self) -> str:
        return self._lab.output(self.job) + self._lab.logs("agent-local") + self._lab.logs("interleaved")


@pytest.fixture
def lab(stub: Stub) -> Iterator[LocalLab]:
    agent = {"backend": "cuda", "watch_s": 0.1}
    with LocalLab.start(config={"agent": agent, "cuda": {"headroom_mib": 1, "look_s": 0.1}}) as started:
        yield started


Start = Callable[..., Told]


@pytest.fixture
def start(lab: LocalLab, stub: Stub, tmp_path: Path) -> Start:
    """Submit a job of the given code: UNMODIFIED under `interleave run`, with *options*."""

    def submit(code: str, *options: str) -> Told:
        command = [sys.executable, "-c", code, str(tmp_path)]
        run = [PROGRAM, "run", *options, "--"] if code is UNMODIFIED else []
        return Told(lab, lab.submit([*run, *command], group="demo", env=stub.environment))

    return submit


def test_a_program_stands_still_while_others_use_its_devices_and_goes_on_with_the_same_memory(
    lab: LocalLab, stub: Stub, start: Start, tmp_path: Path
) -> None:
    (tmp_path / "load").touch()
    program = start(UNMODIFIED, "--idle-yield=0.6")
    program.until("pid")
    pid = int(program.value("pid"))
    partner = start(PARTNER)
    assert wait_until(lambda: partner.says("1 ahead"), 60)
    assert not wait_until(lambda: partner.at("begins"), 1.5), "it works, so its devices are not to be taken"

    (tmp_path / "rest").touch()
    partner.until("begins")
    assert stub.state(pid) == CHECKPOINTED
    assert stub.on_device(pid) == 0
    (tmp_path / "go on").touch()
    program.until("asks")
    assert not wait_until(lambda: program.at("right"), 0.5), "it works without its devices"
    (tmp_path / "partner ends").touch()

    assert program.until("right") > partner.until("ends") > partner.at("begins") > program.at("rests")
    assert stub.state(pid) == RUNNING
    (tmp_path / "end").touch()
    assert lab.wait(program.job) == 7
    assert lab.wait(partner.job) == 0
    assert "event=trespass.seen" not in lab.logs("interleaved", 1000)


def test_without_the_option_the_devices_are_held_until_the_program_ends(
    lab: LocalLab, start: Start, tmp_path: Path
) -> None:
    for name in ("load", "rest", "go on"):
        (tmp_path / name).touch()
    program = start(UNMODIFIED)
    program.until("right")
    partner = start(PARTNER)
    assert wait_until(lambda: partner.says("1 ahead"), 60)
    assert not wait_until(lambda: partner.at("begins"), 1.5)

    (tmp_path / "end").touch()
    (tmp_path / "partner ends").touch()

    assert lab.wait(program.job) == 7
    assert lab.wait(partner.job) == 0, partner.all()
    assert partner.at("ends")


def test_a_program_waits_for_its_turn_before_it_begins(lab: LocalLab, start: Start, tmp_path: Path) -> None:
    partner = start(PARTNER)
    partner.until("begins")
    for name in ("load", "rest", "go on", "end"):
        (tmp_path / name).touch()
    program = start(UNMODIFIED, "--idle-yield=5")
    assert wait_until(lambda: program.says("1 ahead"), 60)
    assert not program.at("pid")

    (tmp_path / "partner ends").touch()

    assert program.until("pid") > partner.at("ends")
    assert lab.wait(program.job) == 7


def test_a_program_that_has_not_begun_on_its_devices_keeps_them(
    lab: LocalLab, start: Start, tmp_path: Path
) -> None:
    program = start(
        UNMODIFIED, "--idle-yield=0.3"
    )  # it does not stand still yet: nothing of it is on a device
    partner = start(PARTNER)
    assert wait_until(lambda: partner.says("1 ahead"), 60)
    assert not wait_until(lambda: partner.at("begins"), 1.5)

    for name in ("load", "rest", "go on", "partner ends"):
        (tmp_path / name).touch()

    program.until("right")
    partner.until("ends")
    (tmp_path / "end").touch()
    assert lab.wait(program.job) == 7


def test_a_program_that_is_killed_while_it_stands_still_leaves_no_waiter(
    lab: LocalLab, stub: Stub, start: Start, tmp_path: Path
) -> None:
    for name in ("load", "rest"):
        (tmp_path / name).touch()
    program = start(UNMODIFIED, "--idle-yield=0.3")
    program.until("pid")
    partner = start(PARTNER)
    partner.until("begins")
    assert wait_until(lambda: program.says("waiting for the devices"), 60)

    os.kill(int(program.value("pid")), signal.SIGKILL)

    assert lab.wait(program.job) == 128 + signal.SIGKILL
    for name in ("partner ends", "end"):
        (tmp_path / name).touch()
    assert lab.wait(partner.job) == 0


def test_a_program_whose_memory_cannot_come_back_is_killed_with_the_reason(
    lab: LocalLab, stub: Stub, start: Start, tmp_path: Path
) -> None:
    for name in ("load", "rest", "go on", "end"):
        (tmp_path / name).touch()
    stub.fault("restore", 2, state=3, count=-1)
    (tmp_path / "go on").unlink()
    program = start(UNMODIFIED, "--idle-yield=0.3")
    program.until("pid")
    partner = start(PARTNER)
    partner.until("begins")
    (tmp_path / "partner ends").touch()

    assert lab.wait(program.job) == 128 + signal.SIGKILL
    assert program.says("the command cannot go on, and is killed: ")
    assert lab.wait(partner.job) == 0


def test_where_nvml_does_not_tell_it_says_so_and_holds(
    lab: LocalLab, stub: Stub, start: Start, tmp_path: Path
) -> None:
    stub.set(utilization=-1)
    for name in ("load", "rest", "go on"):
        (tmp_path / name).touch()
    program = start(UNMODIFIED, "--idle-yield=0.3")

    assert wait_until(lambda: program.says("NVML does not say whether its devices are idle"), 60)
    assert program.says("the devices are held until the command ends")
    (tmp_path / "end").touch()
    assert lab.wait(program.job) == 7


def test_where_a_program_would_go_on_without_its_devices_they_are_not_taken(tmp_path: Path) -> None:
    with LocalLab.start() as lab:
        waits = 'while [ ! -e "$0/end" ]; do sleep 0.1; done; exit 7'
        command = [PROGRAM, "run", "--idle-yield=0.3", "sh", "-c", waits, str(tmp_path)]
        program = Told(lab, lab.submit(command, group="demo"))

        says = "backend sim does not stop a program whose state is saved"
        assert wait_until(lambda: program.says(says), 60), program.all()
        (tmp_path / "end").touch()
        assert lab.wait(program.job) == 7


def test_the_size_of_the_devices_lets_only_one_of_the_two_have_its_memory_there() -> None:
    assert 2 * 40 * MIB > 64 * MIB
