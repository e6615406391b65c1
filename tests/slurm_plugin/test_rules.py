"""The rules of job_submit in plain Lua: each test in the files *_test.lua is one here."""

from __future__ import annotations

import os
import re
import subprocess

import pytest

from tests.slurm_plugin.programs import PLUGIN, TESTS, lua

SCRIPTS = ("rules_test.lua", "job_submit_test.lua")
NAMES = [
    (script, name)
    for script in SCRIPTS
    for name in re.findall(r'^tests\["(.+)"\] = function', (TESTS / script).read_text(), re.MULTILINE)
]

pytestmark = pytest.mark.slurm


@pytest.mark.parametrize(("script", "name"), NAMES)
def test_rules(script: str, name: str) -> None:
    paths = {"LUA_PATH": f"{PLUGIN}/?.lua;{TESTS}/?.lua", "JOB_SUBMIT": str(PLUGIN / "job_submit.lua")}
    argv = [lua(), str(TESTS / script), name]

    done = subprocess.run(argv, env={**os.environ, **paths}, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr


def test_each_lua_test_is_run() -> None:
    assert len(NAMES) == sum((TESTS / script).read_text().count('\ntests["') for script in SCRIPTS)
