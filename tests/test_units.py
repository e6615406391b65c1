"""The units of systemd: what they let the daemons survive."""

from __future__ import annotations

import configparser
from pathlib import Path

import pytest

UNITS = sorted((Path(__file__).parents[1] / "deploy" / "systemd").glob("*.service"))


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_a_daemon_that_cannot_start_is_tried_until_it_can(path: Path) -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment]
    unit.read_string(path.read_text())

    assert unit["Service"]["Restart"] == "always"
    # systemd's own limit is five starts in ten seconds: on a full disk they are over before there is room.
    assert unit["Unit"]["StartLimitIntervalSec"] == "0"
