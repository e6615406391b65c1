"""What `interleave pair` and `interleave profile` take into account of jobs and profiles in files."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurm_interleave.client.cli.interleave import main
from slurm_interleave.client.core.states import SliceState
from slurm_interleave.sql.rows import Slice
from slurm_interleave.sql.store import Store, row_id

HALF = {"name": "half", "period_s": 400, "held_s": 230}
LIGHT = {"name": "light", "period_s": 400, "held_s": 100, "context_bytes": 40 * 2**30}


def turn(number: int, held_s: float, off_s: float, **more: Any) -> Slice:
    at = time.time() - 20_000 + number * (held_s + off_s)
    row = Slice(
        epoch=number + 1, job_id="1", group="g", role="", uid=1, user="u", account="ml", partition="p",
        name="x", backend="sim", nodes=("n1",), devices=("n1/0",), phase="", state=SliceState.YIELDED,
        requested=at, granted=at, ended=at + held_s, switched=False, switch_s=0, snapshot_s=0, restore_s=0,
        switch_bytes=0, off_s=off_s, profile="mine",
    )  # fmt: skip
    return replace(row, **more)


class Site:
    """A configuration, and a database that an orchestrator left."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capsys = folder, capsys
        self._config = folder / "interleave.toml"
        self._url = f"sqlite:///{folder}/site.db"
        Store(self._url).close()
        self.rules("")

    def rules(self, text: str) -> None:
        """Write section [pairing]."""
        kept = f'profiles = "{self.folder}/kept.json"'
        self._config.write_text(f'[orchestrator]\ndatabase = "{self._url}"\n[pairing]\n{kept}\n{text}\n')

    def turns(self, held_s: float, off_s: float, phases: Sequence[str] = ("",)) -> None:
        """Let six turns of each phase have ended, of the workload `mine`."""
        numbers = range(6 * len(phases))
        self.record([turn(n, held_s, off_s, phase=phases[n % len(phases)]) for n in numbers])

    def record(self, rows: Sequence[Any]) -> None:
        store = Store(self._url)
        store.record({row_id(row): row for row in rows}, 0)
        store.close()

    def file(self, **content: Any) -> str:
        path = self.folder / "file.json"
        path.write_text(json.dumps(content))
        return str(path)

    def tell(self, *arguments: str, status: int = 0) -> str:
        """Return what a command prints, or says where it fails."""
        assert main([*arguments, "--config", str(self._config)]) == status
        captured = self._capsys.readouterr()
        return captured.err if status else captured.out

    def jobs(self, *jobs: dict[str, Any]) -> str:
        named = [{"job_id": str(n), **job} for n, job in enumerate(jobs)]
        return self.tell("pair", "--jobs", self.file(profiles=[LIGHT, HALF], jobs=named))


@pytest.fixture
def site(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Site:
    return Site(tmp_path, capsys)


def saved(told: str) -> float:
    return float(re.findall(r"saves (\S+) device", told)[0])


def test_what_a_file_says_of_a_job_counts(site: Site) -> None:
    light, half = {"profile": "light"}, {"profile": "half"}

    assert saved(site.jobs({**light, "hours": 30}, {**light, "hours": 10})) == pytest.approx(
        10 * saved(site.jobs(light, light)), rel=0.1
    )
    assert "0 (light): alone" in site.jobs({**light, "host_bytes": 60 * 2**30}, light)
    assert "0 (half): alone" in site.jobs(half, half)
    assert ": saves" in site.jobs({**half, "epsilon": 0.6}, {**half, "epsilon": 0.6})
    assert "0 (light): alone" in site.jobs({**light, "device_type": "H100"}, light)
    assert "0 (light): alone" in site.jobs({**light, "account": "art"}, light)


def test_no_more_jobs_of_a_file_share_devices_than_the_site_says(site: Site) -> None:
    light = {"profile": "light", "epsilon": 3.0}
    assert len(site.jobs(light, light, light).splitlines()) == 1

    site.rules("members = 2")

    assert len(site.jobs(light, light, light).splitlines()) == 2


def test_jobs_on_two_pools_may_be_slower_as_the_site_says(site: Site) -> None:
    pools = [{"job_id": name, "rollout_s": 100, "train_s": 20, "switch_s": 1} for name in "ab"]
    file = site.file(pools=pools)

    assert site.tell("pair", "--pools", file).count("no: it may take 1.10") == 2
    site.rules("epsilon = 0.7")
    assert "no:" not in site.tell("pair", "--pools", file)


def test_an_import_adds_to_what_is_kept_and_its_own_numbers_count(site: Site) -> None:
    site.tell("profile", "import", site.file(profiles=[LIGHT, HALF]))

    told = site.tell(
        "profile", "import", site.file(profiles=[{**HALF, "held_s": 7}, {**HALF, "name": "new"}])
    )

    assert "2 profiles imported, 3 in all" in told
    rows = site.tell("profile", "show").splitlines()[1:]
    assert [(row.split()[0], row.split()[3]) for row in rows] == [
        *(("half", "7.0"), ("light", "100.0"), ("new", "230.0"))
    ]
    assert all(row.endswith("declared") for row in rows)


def test_profiles_are_shown_and_exported_by_their_names(site: Site) -> None:
    site.tell("profile", "import", site.file(profiles=[LIGHT, HALF]))

    assert len(site.tell("profile", "show", "half").splitlines()) == 2
    exported = json.loads(site.tell("profile", "export", "half"))["profiles"]
    assert [one["name"] for one in exported] == ["half"]
    assert "no profile is called other" in site.tell("profile", "show", "half", "other", status=1)


def test_a_profile_is_shown_with_each_phase_of_a_step(site: Site) -> None:
    site.turns(100, 50, ["rollout", "train"])

    rows = site.tell("profile", "show").splitlines()[1:]

    assert re.fullmatch(r"mine +300.0 s +200.0 s +67% .* 12", rows[0])
    assert rows[1:] == ["  rollout: 100.0 s, varies by 0%", "  train: 100.0 s, varies by 0%"]


def test_a_profile_has_the_moves_of_its_own_context_and_not_of_its_partners(site: Site) -> None:
    both = {"switched": True, "switch_bytes": 44 * 2**30}
    other = {"job_id": "2", "profile": "other", "snapshot_s": 12, **both}
    site.record(
        [
            turn(0, 100, 300),
            turn(0, 150, 250, **{**other, "epoch": 50, "switch_bytes": 40 * 2**30}),
            *(turn(n, 100, 300, snapshot_s=1, restore_s=5, **both) for n in range(1, 7)),
            *(turn(n, 150, 250, epoch=50 + n, restore_s=0.5, **other) for n in range(1, 7)),
        ]
    )

    rows = site.tell("profile", "show").splitlines()[1:]

    assert [re.split(r" {2,}", row)[4:6] for row in rows] == [
        ["17.0 s", "40.0 GiB 7"],
        ["1.5 s", "4.0 GiB 7"],
    ]
