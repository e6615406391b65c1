"""The page of settings, and what is said of wrong ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from settings_page import SECTIONS

from slurm_interleave.client.core.config import load_tables
from slurm_interleave.client.core.errors import ConfigError

ROOT = Path(__file__).parents[1]


def test_the_page_of_settings_is_what_the_classes_say() -> None:
    check = [sys.executable, "deploy/settings_page.py", "--check"]
    run = subprocess.run(check, cwd=ROOT, capture_output=True, text=True, env=os.environ, timeout=60)

    assert run.returncode == 0, run.stderr


def test_a_wrong_key_of_a_named_table_is_said_with_its_file_once(tmp_path: Path) -> None:
    path = tmp_path / "interleave.toml"
    path.write_text("[node_classes.old]\nmembrs = 3\n")

    with pytest.raises(ConfigError) as caught:
        load_tables(SECTIONS["node_classes.NAME"][0], "node_classes", path)

    assert str(caught.value).count(str(path)) == 1
    assert "did you mean 'members'" in str(caught.value)
