"""The options of the plugin on a real Slurm, by flag and by variable, and those that are refused."""

from __future__ import annotations

import re

import pytest

from lab import Cluster, SubmitRefused
from tests.slurm_plugin.jobs import CHOSEN, group_in, script, variables
from tests.slurm_plugin.programs import PLUGIN

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300), pytest.mark.usefixtures("nothing_left")]


@pytest.mark.parametrize("command", ["sbatch", "srun", "salloc"])
def test_the_help_of_each_command_has_our_options(cluster: Cluster, command: str) -> None:
    text = cluster.command(command, "--help")
    named = re.findall(r"^ +--interleave-([a-z-]+)", text, re.MULTILINE)
    explained = re.findall(r"^ +--interleave-([a-z-]+)\S*\s+\[interleave\] \w", text, re.MULTILINE)

    assert {"group", "gpus", "role", "backend", "max-wait"} <= set(named)
    assert named == explained


def test_role_backend_and_longest_wait_reach_the_job_and_its_steps(cluster: Cluster) -> None:
    env = {"SBATCH_INTERLEAVE_ROLE": "sampler", "SBATCH_INTERLEAVE_MAX_WAIT": "5"}
    tries = "srun --interleave-role=judge true; echo $?; srun --interleave-role=trainer env"
    job = cluster.sbatch(script(f"env; {tries}"), group="roles", gres="gpu:1", options=CHOSEN, env=env)

    cluster.wait(job)

    batch, refusal, step = cluster.output(job, 1000).partition("srun: error: interleave: --interleave-role: ")
    wanted = {
        "INTERLEAVE_ROLE": "trainer",
        "INTERLEAVE_BACKEND": "app_channel+sim",
        "INTERLEAVE_MAX_WAIT": "90",
    }
    for seen in (variables(batch), variables(step)):
        assert {name: seen[name] for name in wanted} == wanted
    assert refusal
    assert step.startswith("a step has it from its job")
    assert ";role=trainer;backend=app_channel+sim;max_wait=90;" in cluster.job(job)["AdminComment"]


def test_profile_and_slowdown_reach_placement_and_the_job_and_win_over_variables(cluster: Cluster) -> None:
    env = {"SBATCH_INTERLEAVE_PROFILE": "other", "SBATCH_INTERLEAVE_MAX_SLOWDOWN": "25%"}
    job = cluster.sbatch(
        ["env"], group="named", gres="gpu:1", options=["--interleave-profile=math-7B"], env=env
    )

    cluster.wait(job)

    assert ";profile=math-7B;max_slowdown=25;" in cluster.job(job)["AdminComment"]
    seen = variables(cluster.output(job, 1000))
    assert (seen["INTERLEAVE_PROFILE"], seen["INTERLEAVE_MAX_SLOWDOWN"]) == ("math-7B", "25")


def test_a_slowdown_or_a_profile_that_is_none_is_refused_by_what_it_came_from(cluster: Cluster) -> None:
    with pytest.raises(SubmitRefused, match=r'--interleave-max-slowdown: "1001" is not allowed.*0 to 1000'):
        cluster.sbatch(["true"], group="slow", gres="gpu:1", options=["--interleave-max-slowdown=1001"])
    with pytest.raises(SubmitRefused, match='SBATCH_INTERLEAVE_PROFILE: "a b" is not allowed'):
        cluster.sbatch(["true"], group="slow", gres="gpu:1", env={"SBATCH_INTERLEAVE_PROFILE": "a b"})
    with pytest.raises(SubmitRefused, match="--interleave-profile needs --interleave-group=NAME"):
        cluster.sbatch(["true"], options=["--interleave-profile=x"])


def test_a_role_without_a_group_is_refused_but_in_a_variable_it_may_just_be_there(cluster: Cluster) -> None:
    with pytest.raises(SubmitRefused, match="--interleave-role needs --interleave-group=NAME"):
        cluster.sbatch(["true"], options=["--interleave-role=trainer"])

    job = cluster.sbatch(["true"], env={"SBATCH_INTERLEAVE_ROLE": "trainer"})
    assert "AdminComment" not in cluster.job(job)


def test_a_backend_that_there_is_not_is_refused_with_those_that_there_are(cluster: Cluster) -> None:
    with pytest.raises(SubmitRefused, match="'magic' is not known on this cluster; known are app_channel"):
        cluster.sbatch(["true"], group="magic", gres="gpu:1", options=["--interleave-backend=cuda,magic"])


def test_the_command_line_wins_over_the_variable(cluster: Cluster) -> None:
    env = {"SBATCH_INTERLEAVE_GROUP": "variable"}

    job = cluster.sbatch(["true"], group="line", gres="gpu:1", env=env)
    free = cluster.sbatch(["true"], group="none", gres="gpu:1", env=env)

    assert group_in(cluster.job(job)["AdminComment"]) == "line"
    assert "AdminComment" not in cluster.job(free)


def test_a_bad_name_in_the_variable_is_refused_by_that_variables_name(cluster: Cluster) -> None:
    with pytest.raises(SubmitRefused, match='SBATCH_INTERLEAVE_GROUP: "a b" is not allowed'):
        cluster.sbatch(["true"], gres="gpu:1", env={"SBATCH_INTERLEAVE_GROUP": "a b"})


# What each option takes as a variable, and what the job's own variable is then.
BY_VARIABLE = {
    "GROUP": ("by-variable", "by-variable"),
    "GPUS": ("2", None),
    "ROLE": ("judge", "judge"),
    "BACKEND": ("app_channel,sim", "app_channel+sim"),
    "MAX_WAIT": ("1:30", "90"),
    "PROFILE": ("math-7B", "math-7B"),
    "MAX_SLOWDOWN": ("25", "25"),
}


PROGRAMS = {
    "SBATCH": ("sbatch", "--wait", "--output=variables", "--wrap=env"),
    "SALLOC": ("salloc", "--quiet", "srun", "env"),
    "SRUN": ("srun", "env"),
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_each_option_can_come_by_a_variable_of_its_program_and_of_no_other(
    cluster: Cluster, program: str
) -> None:
    settings = re.findall(r'NAMES\("[a-z-]+", "[a-z_]+", "([A-Z_]+)"\)', (PLUGIN / "settings.c").read_text())
    assert set(settings) == set(BY_VARIABLE)
    own = {f"{program}_INTERLEAVE_{name}": BY_VARIABLE[name][0] for name in settings}
    others = {f"{one}_INTERLEAVE_{name}": "7" for one in PROGRAMS for name in settings}
    given = [f"{name}={value}" for name, value in (others | own).items()]

    said = cluster.command("env", *given, *PROGRAMS[program])
    seen = variables((cluster.out / "variables").read_text() if program == "SBATCH" else said)

    expected = {f"INTERLEAVE_{name}": value for name, (_, value) in BY_VARIABLE.items() if value}
    assert {name: seen.get(name) for name in expected} == expected
    assert len(seen["CUDA_VISIBLE_DEVICES"].split(",")) == 2
