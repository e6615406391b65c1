"""What `interleave doctor` says of the database, to whoever asks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_interleave.client.doctor.finding import Host
from slurm_interleave.orchestrator.doctor.part import findings
from slurm_interleave.sql.admin import Database

NOBODY = 65534


@pytest.fixture
def host() -> Iterator[Host]:
    """A head node whose file of settings all users may read, as they may pass through all folders to it."""
    folder = Path(tempfile.mkdtemp(prefix="ilv-", dir="/tmp"))
    folder.chmod(0o755)
    database = folder / "state" / "orchestrator.db"
    with Database(f"sqlite:///{database}", create=True) as opened:
        opened.upgrade()
    (folder / "interleaved.sock").touch()
    config = folder / "interleave.toml"
    lines = [f'database = "sqlite:///{database}"', f'socket = "{folder}/interleaved.sock"']
    config.write_text("\n".join(["[orchestrator]", *lines, "[placement]", "enabled = false"]))
    yield Host(config, "head")
    shutil.rmtree(folder)


def seen(host: Host) -> dict[str, tuple[str, str, str]]:
    return {found.check: (found.level.value, found.text, found.advice) for found in findings(host)}


_AS_NOBODY = """
import os, sys
from pathlib import Path
from slurm_interleave.client.doctor.finding import Host
from slurm_interleave.orchestrator.doctor.part import findings
list(findings(Host(Path(sys.argv[1]), "head")))  # imports all: a Python of root's may be closed to others
os.setgroups([])
os.setgid(int(sys.argv[2]))
os.setuid(int(sys.argv[2]))
for found in findings(Host(Path(sys.argv[1]), "head")):
    print(found.check, found.level.value, found.text, found.advice, sep="|")
"""


def test_root_has_the_schema_compared(host: Host) -> None:
    level, text, _ = seen(host)["database"]

    assert (level, "schema is this release's" in text) == ("ok", True)


@pytest.mark.skipif(os.geteuid() != 0, reason="to ask as another user takes root")
@pytest.mark.parametrize("closed", ["state", "state/orchestrator.db"])
def test_who_may_not_read_it_is_told_so_and_not_that_it_is_broken(host: Host, closed: str) -> None:
    assert host.config is not None
    folder = host.config.parent
    (folder / "state").chmod(0o755)
    (folder / closed).chmod(0o700)

    argv = [sys.executable, "-c", _AS_NOBODY, str(host.config), str(NOBODY)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 0, done.stderr
    [line] = [line for line in done.stdout.splitlines() if line.startswith("database|")]
    _, level, text, advice = line.split("|")
    assert (level, advice) == ("warning", "run interleave doctor as root")
    assert text.endswith("orchestrator.db: not checked: this user may not read and write it")


def test_a_file_that_is_not_there_is_an_error(host: Host) -> None:
    assert host.config is not None
    (host.config.parent / "state" / "orchestrator.db").unlink()

    level, text, _ = seen(host)["database"]

    assert (level, "no such file" in text) == ("error", True)
