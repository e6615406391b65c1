"""A line of a daemon's log is one line of printable text, whatever a job has said."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from slurm_interleave.client.core.logs import KeyValue, WholeLines
from tests.small_disk import small_disk


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a b",
        "a\nevent=ready",
        "\x1b[2J",
        "\x7f",
        "\u202eabc",
        "\u2028",
        "\ud800",
        "\0",
        'a"b',
        "é",
        "plain",
    ],
)
def test_what_a_job_says_is_one_word_without_control_characters(text: str) -> None:
    record = logging.LogRecord("interleaved", logging.INFO, "", 0, "snapshot.failed", None, None)
    vars(record).update(reason=text, job="17")

    line = KeyValue().format(record)

    assert line.isprintable()
    assert re.fullmatch(r'\S+ info event=snapshot\.failed reason=(\S+|"([^"\\]|\\.)*") job=17', line)


_MANY = """
import logging, os, sys
from slurm_interleave.client.core import logs
logs.set_up()
log = logging.getLogger("x")
for number in range(int(sys.argv[1])):
    log.info("lease.granted", extra={"number": number, "padding": 70 * "x"})
    if number == int(sys.argv[1]) // 2:
        os.unlink(sys.argv[2])
"""


def test_a_log_on_a_full_disk_has_whole_lines_and_counts_those_that_it_lacks(tmp_path: Path) -> None:
    many = 600
    with small_disk(tmp_path / "disk", 64) as disk:
        disk.fill(but=16 * 1024)
        log = disk.path / "log"
        shell = 'exec "$0" -c "$1" "$2" "$3" 2>"$4"'
        argv = [*disk.enter, "sh", "-c", shell, sys.executable, _MANY, str(many), str(disk.ballast), str(log)]
        subprocess.run(argv, check=True, timeout=60)
        lines = (disk.seen / "log").read_text().splitlines()

    whole = [
        line for line in lines if re.fullmatch(r"\S+ info event=lease.granted number=\d+ padding=x{70}", line)
    ]
    [lost] = [int(line.partition("count=")[2]) for line in lines if " warning event=log.lost count=" in line]
    assert len(whole) + lost == many
    assert lost > 10
    assert len(lines) - len(whole) <= 2  # that which counts, and one that was cut short
    assert lines[-1].split()[3] == f"number={many - 1}"


def test_a_log_that_nobody_reads_any_more_ends_no_daemon() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    handler = WholeLines(writer)
    handler.setFormatter(KeyValue())

    handler.handle(logging.makeLogRecord({"msg": "ready"}))

    os.close(writer)
