"""REPORTS.md says which test holds what; they are there, and none has gone by that name."""

from __future__ import annotations

import re

from tests.slurm_plugin.programs import PLUGIN, REPOSITORY


def test_each_test_that_the_table_of_reports_names_is_there() -> None:
    named = set(re.findall(r"`(test_\w+)`", (PLUGIN / "REPORTS.md").read_text()))
    files = (REPOSITORY / "tests").rglob("test_*.py")
    there = {name for file in files for name in re.findall(r"def (test_\w+)\(", file.read_text())}

    assert len(named) > 20
    assert named <= there
