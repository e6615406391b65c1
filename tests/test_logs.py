"""A line of a daemon's log is one line of printable text, whatever a job has said."""

from __future__ import annotations

import logging
import re

import pytest

from slurm_interleave.client.core.logs import KeyValue


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
