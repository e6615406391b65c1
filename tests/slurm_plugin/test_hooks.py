"""prolog.sh, epilog.sh and slurmctld_epilog.sh: they say what they must, and never fail a node."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.slurm_plugin.programs import HOOKS

SCRIPTS = ("prolog.sh", "epilog.sh", "slurmctld_epilog.sh")
JOB = {
    "SLURM_JOB_ID": "17",
    "SLURM_JOB_UID": "1000",
    "SLURM_JOB_GID": "100",
    "SLURM_JOB_USER": "alice",
    "SLURM_JOB_ACCOUNT": "acc",
    "SLURM_JOB_PARTITION": "interleave",
    "SLURM_JOB_RESTART_COUNT": "2",
    "SLURMD_NODENAME": "n1",
}
OURS = {**JOB, "SPANK_INTERLEAVE_GROUP": "demo"}
HOSTILE = [
    "$(touch pwned)",
    "`touch pwned`",
    "; touch pwned #",
    "-h",
    "--socket=/x",
    "a b  c",
    "'\"",
    "*",
    "%n\\",
]


@dataclass(frozen=True)
class Node:
    """A folder with our scripts and an interleave-hook that writes its arguments down, one a line."""

    root: Path

    def hook(self, body: str) -> None:
        path = self.root / "bin" / "interleave-hook"
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def run(self, script: str, env: dict[str, str]) -> list[str]:
        """Run *script* as Slurm does, without PATH, from the root folder; return what the hook was given."""
        calls = self.root / "calls"
        calls.unlink(missing_ok=True)
        done = subprocess.run(
            [self.root / script],
            env=env,
            cwd=self.root,
            capture_output=True,
            errors="replace",
            check=False,
            timeout=60,
        )
        assert done.returncode == 0
        assert done.stdout == ""
        assert not (self.root / "pwned").exists()
        return calls.read_text().splitlines() if calls.exists() else []

    def register(self, job: str) -> None:
        (self.root / "run" / "n1" / "jobs" / job).mkdir(parents=True)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    for name in (*SCRIPTS, "common.sh"):
        shutil.copy(HOOKS / name, tmp_path / name)
    (tmp_path / "bin").mkdir()
    (tmp_path / "interleave-hooks.conf").write_text(
        f"# a comment\n\nbin_dir={tmp_path}/bin\nrun_dir={tmp_path}/run/%n\nsocket={tmp_path}/ctl.sock"
    )
    made = Node(tmp_path)
    made.hook(f'printf "%s\\n" "$@" >{tmp_path}/calls')
    return made


@pytest.mark.parametrize("script", [*SCRIPTS, "common.sh"])
def test_each_script_is_sound_shell(script: str) -> None:
    checks = [["sh", "-n", script]]
    if shutil.which("shellcheck"):
        checks.append(["shellcheck", "-x", script])

    for argv in checks:
        subprocess.run(argv, cwd=HOOKS, check=True, timeout=60)


def test_prolog_gives_the_agent_of_its_node_all_it_knows(node: Node) -> None:
    assert node.run("prolog.sh", OURS) == [
        *("job-start", f"--socket={node.root}/run/n1/agent.sock", "--job=17", "--uid=1000", "--gid=100"),
        *("--user=alice", "--account=acc", "--partition=interleave", "--restarts=2", "--group=demo"),
    ]


def test_prolog_tells_the_devices_where_slurm_chose_them(node: Node) -> None:
    assert node.run("prolog.sh", {**OURS, "SLURM_JOB_GPUS": "0,2"})[-1] == "--devices=0,2"


@pytest.mark.parametrize("cuda", ["0,1", "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"])
def test_what_slurm_calls_the_devices_of_a_job_inside_it_does_not_matter(node: Node, cuda: str) -> None:
    assert node.run("prolog.sh", {**OURS, "CUDA_VISIBLE_DEVICES": cuda}) == node.run("prolog.sh", OURS)


def test_prolog_tells_what_else_the_job_was_submitted_with(node: Node) -> None:
    given = {"ROLE": "trainer", "BACKEND": "app_channel+cuda", "MAX_WAIT": "600"}
    given |= {"PROFILE": "math", "MAX_SLOWDOWN": "0"}
    spank = {f"SPANK_INTERLEAVE_{name}": value for name, value in given.items()}

    told = node.run("prolog.sh", {**OURS, **spank})

    assert told[-5:] == [
        *("--role=trainer", "--backend=app_channel+cuda", "--max-wait=600"),
        *("--profile=math", "--max-slowdown=0"),
    ]


@pytest.mark.parametrize(
    "comment", ["interleave=demo", "night run,interleave=demo;x", "a interleave=nonesuch"]
)
def test_a_job_that_asked_by_comment_is_ours_in_the_group_that_the_daemons_know(
    node: Node, comment: str
) -> None:
    assert node.run("prolog.sh", {**JOB, "SLURM_JOB_COMMENT": comment})[-1] == "--group="
    assert node.run("slurmctld_epilog.sh", {**JOB, "SLURM_JOB_COMMENT": comment})[0] == "job-over"


def test_prolog_takes_the_option_of_a_client_without_our_plugin(node: Node) -> None:
    option = "SPANK__SLURM_SPANK_OPTION_interleave_interleave_group"

    assert node.run("prolog.sh", {**JOB, option: "rest"})[-1] == "--group=rest"


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_job_that_did_not_ask_is_nobodys_business(node: Node, script: str) -> None:
    assert node.run(script, JOB) == []
    assert node.run(script, {**JOB, "SPANK_INTERLEAVE_GROUP": ""}) == []
    assert node.run(script, {**JOB, "SPANK_INTERLEAVE_GROUP": "None"}) == []
    assert node.run(script, {}) == []
    for comment in ("interleave", "interleave=", "interleave=none", "xinterleave=demo", "no interleave = x"):
        assert node.run(script, {**JOB, "SLURM_JOB_COMMENT": comment}) == []


@pytest.mark.parametrize("text", HOSTILE)
def test_what_a_user_wrote_arrives_as_one_argument(node: Node, text: str) -> None:
    assert node.run("prolog.sh", {**OURS, "SPANK_INTERLEAVE_GROUP": text})[-1] == f"--group={text}"
    assert node.run("slurmctld_epilog.sh", {**OURS, "SPANK_INTERLEAVE_GROUP": text})[0] == "job-over"
    assert node.run("prolog.sh", {**OURS, "SPANK_INTERLEAVE_ROLE": text})[-1] == f"--role={text}"
    for name in ("max-wait", "profile", "max-slowdown"):
        said = {f"SPANK_INTERLEAVE_{name.upper().replace('-', '_')}": text}
        assert node.run("prolog.sh", {**OURS, **said})[-1] == f"--{name}={text}"


def test_epilog_ends_a_job_that_the_agent_knows_even_without_its_spank_variables(node: Node) -> None:
    node.register("17")

    assert node.run("epilog.sh", JOB) == ["job-end", f"--socket={node.root}/run/n1/agent.sock", "--job=17"]
    assert node.run("epilog.sh", {**JOB, "SLURM_JOB_ID": "18"}) == []
    assert node.run("epilog.sh", {**JOB, "SLURM_JOB_ID": "../jobs/17"}) == []


def test_slurmctld_epilog_tells_the_orchestrator(node: Node) -> None:
    assert node.run("slurmctld_epilog.sh", OURS) == ["job-over", "--job=17", f"--socket={node.root}/ctl.sock"]


def test_slurmctld_epilog_tells_when_the_job_ended_where_slurm_says_so(node: Node) -> None:
    told = node.run("slurmctld_epilog.sh", {**OURS, "SLURM_JOB_END_TIME": "1772203535"})

    assert told == ["job-over", "--job=17", "--ended=1772203535", f"--socket={node.root}/ctl.sock"]


def test_without_settings_the_defaults_of_the_hook_count(node: Node) -> None:
    (node.root / "interleave-hooks.conf").write_text(f"bin_dir={node.root}/bin\n")

    assert node.run("prolog.sh", OURS)[1] == "--socket=/run/interleave/agent.sock"
    assert node.run("slurmctld_epilog.sh", OURS) == ["job-over", "--job=17"]


def test_scripts_and_plugin_look_for_the_hook_in_the_same_folders() -> None:
    plugin = re.search(
        r"folders\[\] = \{(.*?)\};", (HOOKS.parent / "slurm_plugin/hook.c").read_text(), re.DOTALL
    )
    scripts = re.search(r"^PATH=(\S+)$", (HOOKS / "common.sh").read_text(), re.MULTILINE)

    assert plugin is not None
    assert scripts is not None
    assert set(re.findall(r'"(\S+)"', plugin[1])) <= set(scripts[1].split(":"))


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("trouble", ["exit 1", "kill -9 $$", "echo noise; exit 2"])
def test_a_failing_hook_fails_no_node(node: Node, script: str, trouble: str) -> None:
    node.register("17")
    node.hook(f"exec 1>&2; {trouble}")

    node.run(script, OURS)


@pytest.mark.parametrize("script", SCRIPTS)
def test_what_a_hook_could_not_do_is_in_the_journal_of_its_node(node: Node, script: str) -> None:
    node.register("17")
    node.hook("exit 1")
    logger = node.root / "bin" / "logger"
    logger.write_text(f'#!/bin/sh\nprintf "%s\\n" "$*" >>{node.root}/journal\n')
    logger.chmod(0o755)

    node.run(script, OURS)

    (line,) = (node.root / "journal").read_text().splitlines()
    assert line.startswith("-t interleave -- ")
    assert "job 17: " in line


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_missing_hook_or_a_half_installed_folder_fails_no_node(node: Node, script: str) -> None:
    node.register("17")

    (node.root / "bin" / "interleave-hook").unlink()
    node.run(script, OURS)
    (node.root / "interleave-hooks.conf").write_bytes(b"nonsense\n=\n$(touch pwned)=1\n\xff\xfe\n")
    node.run(script, OURS)
    (node.root / "common.sh").unlink()
    node.run(script, OURS)


def test_a_hook_that_hangs_is_ended(node: Node) -> None:
    node.hook("exec sleep 60")

    assert node.run("prolog.sh", OURS) == []  # within the 20 s that run() waits
