"""What is said of facts: hand-made ones, of a site where all is well but for one thing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurm_interleave.client.doctor.finding import Finding, Level
from slurm_interleave.orchestrator.doctor import checks
from slurm_interleave.orchestrator.doctor.facts import Plugin, Script, SlurmFacts
from slurm_interleave.orchestrator.placement.config import PlacementConfig
from slurm_interleave.orchestrator.placement.reservations import Reservation
from slurm_interleave.orchestrator.placement.sharing import NodeClass

ROOT = Path(__file__).parents[2]
LANES = PlacementConfig(enabled=True)
ETC = Path("/etc/slurm")
HOOKS = {"Prolog": "prolog.sh", "Epilog": "epilog.sh", "EpilogSlurmctld": "slurmctld_epilog.sh"}


def ours(folder: str, name: str) -> Script:
    return Script(ETC / name, (ROOT / folder / name).read_text())


WELL = SlurmFacts(
    release=(24, 11),
    config={
        "JobSubmitPlugins": ("lua",),
        "PrologFlags": ("Alloc",),
        "GresTypes": ("ilva,ilvb,gpu",),
        "SlurmctldHost": ("head(10.0.0.1)", "spare.cluster(10.0.0.2)"),
        **{option: (f"/etc/slurm/{name}",) for option, name in HOOKS.items()},
    },
    plugstack=ETC / "plugstack.conf",
    plugins=(Plugin(Path("/usr/lib/interleave.so"), required=False, release=(24, 11)),),
    job_submit=ours("slurm_plugin", "job_submit.lua"),
    scripts={option: (ours("prolog_epilog", name),) for option, name in HOOKS.items()},
    hookless=frozenset(),
    partition=("n1", "n2"),
    gres=dict.fromkeys(("n1", "n2"), "ilva:g0:1,ilva:g1:1,ilvb:g0:1,ilvb:g1:1(S:0-1)"),
)


def bad(facts: SlurmFacts, config: PlacementConfig = LANES) -> dict[str, Finding]:
    found = checks.findings(facts, config, head=True, node=True)
    return {one.check: one for one in found if one.level is not Level.OK}


def test_nodes_of_a_class_need_the_gres_of_that_class_alone() -> None:
    old = NodeClass("n2", "token", ("ilv",))
    config = replace(LANES, classes=(old,))
    facts = replace(configured(GresTypes="gpu,ilva,ilvb,ilv"), gres={**WELL.gres, "n2": "ilv:g0:2,ilv:g1:2"})

    assert bad(facts, config) == {}
    found = bad(replace(facts, gres=WELL.gres), config)
    assert "n2" in found["partition"].text
    assert "n1" not in found["partition"].text


def configured(**values: str) -> SlurmFacts:
    return replace(WELL, config={**WELL.config, **{key: (value,) for key, value in values.items()}})


def of_release(*release: int) -> SlurmFacts:
    major, minor = release
    plugins = (replace(WELL.plugins[0], release=(major, minor)),)
    return replace(WELL, release=(major, minor), plugins=plugins)


def script(option: str, text: str, path: str = "/etc/slurm/site.sh") -> SlurmFacts:
    more = (*WELL.scripts[option], Script(Path(path), text))
    return replace(WELL, scripts={**WELL.scripts, option: more})


def test_of_a_site_where_all_is_well_nothing_bad_is_said() -> None:
    found = list(checks.findings(WELL, LANES, head=True, node=True))

    assert [one for one in found if one.level is not Level.OK] == []
    assert {one.check for one in found} >= {"slurm", "spank plugin", "job_submit", *HOOKS, "GresTypes"}


@pytest.mark.parametrize("host", ["head", "spare"])
def test_the_host_of_slurmctld_is_known_by_its_name(host: str) -> None:
    assert WELL.is_head(host)
    assert not WELL.is_head("n1")


@pytest.mark.parametrize(
    ("facts", "check", "level", "text"),
    [
        (of_release(22, 5), "slurm", "error", "before Slurm 23.02"),
        (of_release(27, 5), "slurm", "warning", "tried with 22.05 to 26.05"),
        (replace(WELL, plugins=()), "spank plugin", "error", "does not name interleave.so"),
        (
            replace(WELL, plugins=(replace(WELL.plugins[0], release=(22, 5)),)),
            "spank plugin", "error", "was built for Slurm 22.05, here is 24.11",
        ),
        (
            replace(WELL, plugins=(replace(WELL.plugins[0], release=None, problem="no such file"),)),
            "spank plugin", "error", "no such file",
        ),
        (
            replace(WELL, plugins=(replace(WELL.plugins[0], required=True),)),
            "spank plugin", "warning", "no job can be submitted at all",
        ),
        (replace(WELL, plugins=WELL.plugins * 2), "spank plugin", "error", "names it 2 times"),
        (configured(JobSubmitPlugins="(null)"), "job_submit", "error", "without lua"),
        (replace(WELL, job_submit=None), "job_submit", "error", "no job_submit.lua"),
        (
            replace(WELL, job_submit=Script(ETC / "job_submit.lua", "return slurm.SUCCESS")),
            "job_submit", "error", "does not call interleave.submit(...) and interleave.modify(...)",
        ),
        (configured(PrologFlags="(null)"), "PrologFlags", "error", "empty: without Alloc"),
        (configured(GresTypes="gpu,ilva"), "GresTypes", "error", "ilvb of our gres not in it"),
        (configured(GresTypes="ilva,ilvb"), "GresTypes", "error", "sbatch itself refuses --gres=gpu:N"),
        (replace(WELL, partition=None), "partition", "error", "no partition interleave"),
        (replace(WELL, partition=()), "partition", "error", "it has no nodes"),
        (replace(WELL, partition=("n1", "n9")), "partition", "error", ": n9"),
        *((configured(**{option: "(null)"}), option, "error", "not set") for option in HOOKS),
        *(
            (replace(WELL, scripts={**WELL.scripts, option: ()}), option, "error", "no such file here")
            for option in HOOKS
        ),
        *(
            (
                replace(WELL, scripts={**WELL.scripts, option: (Script(ETC / "x", "# interleave\nexit 0"),)}),
                option, "error", "does not call ours",
            )
            for option in HOOKS
        ),
    ],
)  # fmt: skip
def test_one_thing_that_is_wrong_is_all_that_is_said(
    facts: SlurmFacts, check: str, level: str, text: str
) -> None:
    [(named, found)] = bad(facts).items()

    assert (named, found.level.value) == (check, level)
    assert text in found.text
    assert found.advice or check == "slurm"


@pytest.mark.parametrize("option", HOOKS)
def test_a_script_of_the_site_may_call_ours_from_any_folder(option: str) -> None:
    text = f'#!/bin/sh\n/opt/site/health\n"$DIR/interleave/{HOOKS[option]}"\n'
    facts = replace(WELL, scripts={**WELL.scripts, option: (Script(ETC / "site.sh", text),)})

    assert bad(facts) == {}


def test_a_call_of_our_rules_that_is_commented_out_is_none() -> None:
    assert WELL.job_submit is not None
    text = WELL.job_submit.text.replace("    return interleave.modify(", "    -- return interleave.modify(")

    found = bad(replace(WELL, job_submit=replace(WELL.job_submit, text=text)))
    assert "does not call interleave.modify(...)" in found["job_submit"].text


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("#!/bin/sh\nexit 0", "/etc/slurm/epilog.d/40-lastuserjob-processes"),
        ("pkill -KILL -U $SLURM_UID", "/e"),
        ("killall -9 -u $SLURM_JOB_USER", "/e"),
        ("loginctl terminate-user $SLURM_JOB_USER", "/e"),
        ("ps -u $SLURM_UID -o pid= | xargs kill -9", "/e"),
    ],
)
def test_an_epilog_that_ends_a_users_other_jobs_is_warned_of(text: str, path: str) -> None:
    found = bad(script("Epilog", text, path))

    assert found.keys() == {"other epilogs"}
    assert path in found["other epilogs"].text


@pytest.mark.parametrize(
    "text", ["# pkill -u root would be wrong", "pkill -F /run/x.pid", "killall dcgm", "ps -u root"]
)
def test_an_epilog_that_does_not_is_not(text: str) -> None:
    assert bad(script("Epilog", text)) == {}


def test_our_scripts_are_to_find_their_program() -> None:
    found = bad(replace(WELL, hookless=frozenset({ETC})))

    assert found.keys() == HOOKS.keys()
    assert found["Epilog"].text == "/etc/slurm/epilog.sh does not find the program interleave-hook"
    assert "bin_dir in /etc/slurm/interleave-hooks.conf" in found["Epilog"].advice


def test_what_does_not_run_on_a_host_is_not_looked_for_there() -> None:
    elsewhere = replace(WELL, job_submit=None, scripts={})

    found = checks.findings(elsewhere, LANES, head=False, node=False)
    assert [one for one in found if one.level is not Level.OK] == []


@pytest.mark.parametrize(
    ("text", "names", "has"),
    [
        ("ilv:g0:2,ilv:g1:2", ["ilv"], True),
        ("gpu:h200:2", ["ilv"], False),
        ("ilv:2", ["ilv"], False),  # without types no device can be pinned
        ("(null)", ["ilv"], False),
        ("ilva:g0:1,ilvb:g0:1,ilvb:g1:1", ["ilva", "ilvb"], False),  # a lane without device 1
        ("gpu:h200:2,ilva:g0:1(S:0),ilvb:g0:1(S:0)", ["ilva", "ilvb"], True),
    ],
)
def test_each_lane_of_a_node_has_the_same_devices(text: str, names: list[str], has: bool) -> None:
    assert checks.has_gres(text, names) is has


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, {}),
        ({"states": {"n1": "idle", "n2": "down*"}}, {"nodes": "n2 down*"}),
        ({"states": {"n1": "idle"}}, {"nodes": "n2 unknown"}),
        ({"states": {"n1": "idle+drain", "n2": "mixed"}}, {"nodes": "n1 idle+drain"}),
        ({"kept": [Reservation("maint", ("n2",), active=True)]}, {"nodes": "maint keeps n2"}),
        ({"kept": [Reservation("later", ("n2",), active=False)]}, {}),
        ({"kept": [Reservation("other", ("n7",), active=True)]}, {}),
        ({"connected": frozenset({"n1"})}, {"agents": "n2"}),
        ({"connected": frozenset({"n1"}), "states": {"n1": "idle", "n2": "down"}}, {"nodes": "n2 down"}),
        ({"connected": None}, {}),
    ],
)
def test_nodes_that_get_no_jobs_or_have_no_agent_are_named(
    given: dict[str, Any], said: dict[str, str]
) -> None:
    site: dict[str, Any] = {
        "states": {"n1": "idle", "n2": "mixed"},
        "kept": [],
        "connected": frozenset({"n1", "n2", "n3"}),
        **given,
    }
    found: Iterable[Finding] = checks.nodes(
        LANES, ("n1", "n2"), site["states"], site["kept"], site["connected"]
    )

    wrong = {one.check: one.text for one in found if one.level is not Level.OK}
    assert wrong.keys() == said.keys()
    assert all(text in wrong[check] for check, text in said.items())
