"""The rules of job_submit in plain Lua: each test in rules_test.lua is one here."""

from __future__ import annotations

import os
import re
import subprocess

import pytest

from tests.slurm_plugin.programs import PLUGIN, TESTS, lua

SCRIPT = TESTS / "rules_test.lua"
NAMES = re.findall(r'^tests\["(.+)"\] = function', SCRIPT.read_text(), re.MULTILINE)

pytestmark = pytest.mark.slurm


@pytest.mark.parametrize("name", NAMES)
def test_rules(name: str) -> None:
    env = {**os.environ, "LUA_PATH": f"{PLUGIN}/?.lua", "JOB_SUBMIT": str(PLUGIN / "job_submit.lua")}

    done = subprocess.run([lua(), SCRIPT, name], env=env, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr


def test_each_lua_test_is_run() -> None:
    assert len(NAMES) == SCRIPT.read_text().count('\ntests["')
