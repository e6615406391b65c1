"""`interleave db` as an operator meets it."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from slurm_interleave.client.cli.interleave import main
from slurm_interleave.sql.migrate import HEAD
from slurm_interleave.sql.rows import Slice
from slurm_interleave.sql.store import Store
from tests.sql.given import LEASE, put, slice_of


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INTERLEAVE_CONFIG", raising=False)
    monkeypatch.delenv("INTERLEAVE_ORCHESTRATOR_DATABASE", raising=False)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(["db", *arguments])
    said = capsys.readouterr()
    return status, said.out, said.err


def test_upgrade_says_from_where_to_where_and_a_second_one_that_nothing_is_to_do(
    database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = run(capsys, "upgrade", "--database", database)
    assert (status, out.rpartition(": ")[2]) == (0, f"from an empty database to revision {HEAD}\n")

    status, out, _ = run(capsys, "upgrade", "--database", database)
    assert (status, out.rpartition(": ")[2]) == (0, f"at revision {HEAD} already\n")


def test_check_lists_what_is_wrong_and_fails(database: str, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(Store(database)) as store:
        assert run(capsys, "check", "--database", database)[0] == 0
        store.record(put(LEASE), 1)

    assert run(capsys, "check", "--database", database) == (
        1,
        "job 17 of group grpo: a lease without its member\n",
        "",
    )


def test_prune_forgets_old_slices_beside_a_running_orchestrator(
    database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    now = time.time()
    with closing(Store(database)) as store:
        store.record(put(slice_of(1, ended=now - 91 * 86400), slice_of(2, ended=now - 89 * 86400)), 2)
        arguments = ("prune", "--database", database, "--older-than", "90days")

        status, out, _ = run(capsys, *arguments, "--dry-run")
        assert (status, "would forget 1 slice that ended before" in out) == (0, True)
        assert len(store.all(Slice)) == 2

        status, out, _ = run(capsys, *arguments)
        assert (status, "forgot 1 slice that ended before" in out) == (0, True)
        assert [row.epoch for row in store.all(Slice)] == [2]
        store.record(put(LEASE), 3)  # it was not taken over


@pytest.mark.parametrize("age", ["90", "", "soon", "-1days", "0days", "90 years", "days"])
def test_an_age_that_cannot_be_read_deletes_nothing(
    tmp_path: Path, age: str, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:///{tmp_path}/orchestrator.db"
    with closing(Store(url)) as store:
        store.record(put(slice_of(1)), 1)
        status, out, err = run(capsys, "prune", "--database", url, "--older-than", age)

        assert (status, out) == (1, "")
        assert err == (
            f"interleave: error: --older-than {age!r} is no age; "
            "write a number and a unit, as 90days, 12weeks or 36hours\n"
        )
        assert len(store.all(Slice)) == 1


@pytest.mark.parametrize("verb", ["check", "prune"])
def test_a_file_that_is_not_there_is_an_error_and_is_not_made(
    tmp_path: Path, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "orchestrator.db"
    more = ["--older-than", "1days"] if verb == "prune" else []
    status, out, err = run(capsys, verb, "--database", f"sqlite:///{path}", *more)

    assert (status, out, err.count("\n")) == (1, "", 1)
    assert f"interleave: error: database sqlite:///{path} cannot be opened: no such file" in err
    assert not path.exists()


def test_a_database_that_needs_an_upgrade_is_not_pruned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "orchestrator.db"
    path.touch()
    url = f"sqlite:///{path}"
    status, _, err = run(capsys, "prune", "--database", url, "--older-than", "1days")

    assert status == 1
    assert err.endswith(f"is at revision none, this release needs {HEAD}; run: interleave db upgrade\n")


def test_the_database_is_the_one_of_the_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "interleave.toml"
    config.write_text(f'[orchestrator]\ndatabase = "sqlite:///{tmp_path}/named.db"\n')

    assert run(capsys, "upgrade", "--config", str(config))[0] == 0
    assert (tmp_path / "named.db").exists()


def test_without_a_command_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys)

    assert (status, err) == (2, "")
    assert [word for word in ("upgrade", "check", "prune") if word in out] == ["upgrade", "check", "prune"]


@pytest.mark.parametrize("package", ["sqlalchemy", "alembic"])
def test_without_the_extra_it_says_which_one_to_install_and_the_rest_works(package: str) -> None:
    hide = f"import sys; sys.modules[{package!r}] = None\n"
    code = f"{hide}from slurm_interleave.client.cli.interleave import main; sys.exit(main(sys.argv[1:]))"

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-c", code, *arguments]
        return subprocess.run(argv, capture_output=True, text=True, check=False)

    asked = call("db", "check")
    assert asked.returncode == 1
    assert asked.stderr == (
        f"interleave: error: this needs {package}, which is not installed; "
        "run: pip install 'slurm-interleave[orchestrator]'\n"
    )
    assert "db " in call("--help").stdout
