"""deploy/lab/install-packages.sh, as far as it can be tested without changing this machine."""

from __future__ import annotations

import subprocess

import pytest

from tests.slurm_plugin.programs import REPOSITORY

SCRIPT = REPOSITORY / "deploy" / "lab" / "install-packages.sh"


def run(*args: str) -> tuple[int, str]:
    done = subprocess.run([SCRIPT, *args], capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stdout + done.stderr


def test_an_unknown_option_is_refused_with_the_usage() -> None:
    assert run("--optinal") == (2, "usage: install-packages.sh [--optional] [--databases | --browser]\n")


@pytest.mark.slurm
def test_where_all_is_installed_it_says_nothing() -> None:
    assert run() == (0, "")
    assert run("--optional") == (0, "")


@pytest.mark.mariadb
@pytest.mark.postgresql
def test_where_the_database_servers_are_installed_it_says_nothing() -> None:
    assert run("--databases") == (0, "")
    assert run("--optional", "--databases") == (0, "")
