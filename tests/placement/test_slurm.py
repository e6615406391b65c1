"""The commands, run for real: small scripts named squeue and scontrol stand in a folder of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_interleave.client.core.errors import SlurmFailed
from slurm_interleave.orchestrator.placement.ports import Update
from slurm_interleave.orchestrator.placement.reservations import Reservation
from slurm_interleave.orchestrator.placement.slurm import SlurmCommands
from slurm_interleave.orchestrator.placement.traits import Traits


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return tmp_path


def put(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def lives(pid_file: Path) -> bool:
    return Path("/proc", pid_file.read_text().strip()).exists()


async def test_the_values_reach_scontrol_as_arguments_whatever_they_hold(programs: Path) -> None:
    put(programs / "scontrol", f'printf "%s\\n" "$@" > {programs}/seen')

    note = "interleave:v1;role=$(reboot);state=placed"
    assert await SlurmCommands().update([Update("17", note, ("n1", "n2"), "ilva:g0:1")]) == {}

    assert (programs / "seen").read_text().splitlines() == [
        "update",
        "JobId=17",
        "ReqNodeList=n1,n2",
        "Gres=ilva:g0:1",
        "AdminComment=interleave:v1;role=$(reboot);state=placed",
    ]


async def test_a_number_of_nodes_is_set_where_it_is_named(programs: Path) -> None:
    put(programs / "scontrol", f'printf "%s\n" "$@" > {programs}/seen')

    assert await SlurmCommands().update([Update("17", "$", ("n1", "n2"), "ilva:g0:1", count=2)]) == {}

    assert "NumNodes=2-2" in (programs / "seen").read_text().splitlines()


async def test_the_state_of_a_node_is_what_sinfo_says_of_it_in_any_partition(programs: Path) -> None:
    put(programs / "sinfo", 'printf "%s\\n" "n1 idle" "n2 down*" "n2 down*" "n3 DRAINED" ""')

    assert await SlurmCommands().node_states() == {"n1": "idle", "n2": "down*", "n3": "drained"}


async def test_types_and_features_of_nodes_are_what_sinfo_lists(programs: Path) -> None:
    gpus = "gpu:h200:4(S:0-1),gpu:h200:4(S:2-3),ilva:g0:1"
    put(
        programs / "sinfo",
        f'printf "%s\\n" "n1 ib,fast {gpus}" "n1 ib,fast {gpus}" "n2 (null) gpu:2" "n3 (null) (null)" ""',
    )

    assert await SlurmCommands().traits() == {
        "n1": Traits(frozenset({"h200"}), frozenset({"ib", "fast"})),
        "n2": Traits(),
        "n3": Traits(),
    }


@pytest.mark.parametrize(
    ("version", "asked"),
    [
        ("slurm-wlm 22.05.8", "--json"),
        ("slurm 24.05.4", "--json"),
        ("slurm-wlm 24.11.5", "--json=v0.0.42"),
        ("slurm 26.05.3", "--json=v0.0.42"),
        ("slurm 26.11.0", "--json"),
    ],
)
async def test_the_queue_is_asked_for_in_one_form_of_all_releases_that_have_it(
    programs: Path, version: str, asked: str
) -> None:
    put(
        programs / "squeue",
        f"[ $1 = --version ] && echo {version} && exit\n"
        f'echo "$@" >> {programs}/seen; echo "{{\\"jobs\\": []}}"',
    )
    commands = SlurmCommands()

    assert [await commands.jobs(), await commands.jobs()] == [[], []]
    assert (programs / "seen").read_text().split() == [asked, "--all", asked, "--all"]


async def test_after_a_failure_squeue_is_asked_for_its_release_again(programs: Path) -> None:
    put(
        programs / "squeue",
        '[ $1 = --version ] && echo slurm 24.11.5 && exit; [ "$1" = --json ] && exit 0; exit 1',
    )
    commands = SlurmCommands()
    with pytest.raises(SlurmFailed, match=r"squeue --json=v0\.0\.42 --all: exit code 1"):
        await commands.jobs()

    put(programs / "squeue", "[ $1 = --version ] && echo slurm 26.11.0 && exit; echo '{\"jobs\": []}'")
    assert await commands.jobs() == []


@pytest.mark.parametrize("release", ["22.05", "24.11", "26.05"])
async def test_a_job_is_found_by_its_id(programs: Path, release: str) -> None:
    queue = Path(__file__).parent / "squeue" / f"{release}.json"
    put(programs / "squeue", f"[ $1 = --version ] && echo slurm {release}.1 && exit; cat {queue}")
    known = await SlurmCommands().jobs()

    assert [await SlurmCommands().job(job.job_id) for job in known] == known
    with pytest.raises(SlurmFailed, match="job 999 is not known"):
        await SlurmCommands().job("999")


@pytest.mark.parametrize(
    "name", ["SQUEUE_USERS", "SQUEUE_STATES", "SLURM_CLUSTERS", "SINFO_ALL", "SCONTROL_ALL"]
)
async def test_what_the_environment_would_filter_by_does_not_reach_slurms_commands(
    programs: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "x")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm.conf")
    put(programs / "sinfo", f"env > {programs}/env")
    await SlurmCommands().node_states()

    seen = (programs / "env").read_text().splitlines()
    assert "SLURM_CONF=/etc/slurm.conf" in seen
    assert not [line for line in seen if line.startswith(f"{name}=")]


_TASKS = "JobId=18 ArrayJobId=17 JobName=a JobState=RUNNING\nJobId=17 ArrayJobId=17 JobName=a JobState={}"
_INVALID = "slurm_load_jobs error: Invalid job id specified"


@pytest.mark.parametrize(
    ("answer", "runs"),
    [
        ("JobId=17 JobName=a JobState=RUNNING Reason=None", True),
        ("JobId=17 JobName=a JobState=SUSPENDED Reason=None", True),
        ("JobId=17 JobName=a JobState=COMPLETING Reason=None", True),
        ("JobId=17 JobName=a JobState=PENDING Reason=None", False),
        ("JobId=17 JobName=a JobState=COMPLETED Reason=None", False),
        ("JobId=17 JobName=JobState=COMPLETED JobState=RUNNING", True),
        (_TASKS.format("COMPLETED"), False),
        (_TASKS.format("RUNNING"), True),
        ("JobId=170 JobName=a JobState=COMPLETED", True),
        ("", True),
    ],
)
async def test_a_job_asked_for_alone_has_no_run_only_if_slurmctld_says_so(
    programs: Path, answer: str, runs: bool
) -> None:
    (programs / "answer").write_text(answer)
    put(programs / "scontrol", f'echo "$@" > {programs}/seen; cat {programs}/answer')

    assert await SlurmCommands().runs("17") == runs
    assert (programs / "seen").read_text().split() == ["--all", "--oneliner", "show", "job", "17"]


@pytest.mark.parametrize("private", ["none", "jobs,usage"])
async def test_an_invalid_id_is_no_run_unless_the_job_may_be_hidden_from_us(
    programs: Path, private: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = f'echo "PrivateData = {private}"; echo "SlurmUser = slurm(64030)"'
    put(programs / "scontrol", f'[ "$2" = config ] && {{ {config}; exit; }}; echo "{_INVALID}" >&2; exit 1')

    for uid in (0, 64030):
        monkeypatch.setattr("os.getuid", lambda uid=uid: uid)
        assert not await SlurmCommands().runs("17")
    monkeypatch.setattr("os.getuid", lambda: 1000)
    if private == "none":
        assert not await SlurmCommands().runs("17")
    else:
        with pytest.raises(SlurmFailed, match="PrivateData=jobs may hide it"):
            await SlurmCommands().runs("17")


async def test_another_failure_says_nothing_of_a_run(programs: Path) -> None:
    put(programs / "scontrol", "echo 'Unable to contact slurm controller (connect failure)' >&2; exit 1")

    with pytest.raises(SlurmFailed, match="Unable to contact"):
        await SlurmCommands().runs("17")


async def test_reservations_are_read_with_their_nodes(programs: Path) -> None:
    put(
        programs / "scontrol",
        'echo "ReservationName=maint Nodes=n[1-2] NodeCnt=2 Users=root State=ACTIVE"\n'
        'echo "ReservationName=later Nodes=(null) State=INACTIVE BurstBuffer=(null)"',
    )
    assert await SlurmCommands().reservations() == [
        Reservation("maint", ("n1", "n2"), active=True),
        Reservation("later", (), active=False),
    ]

    put(programs / "scontrol", "echo No reservations in the system")
    assert await SlurmCommands().reservations() == []


async def test_the_first_component_of_a_heterogeneous_job_is_pinned_by_what_it_excludes(
    programs: Path,
) -> None:
    put(programs / "scontrol", f'printf "%s\\n" "$@" > {programs}/seen')
    put(programs / "sinfo", 'printf "%s\\n" n1 n2 n3 n3')

    await SlurmCommands().update([Update("20+0", "x", ("n2",), "ilva:g0:1")])
    assert (programs / "seen").read_text().splitlines()[1:3] == ["JobId=20+0", "ExcNodeList=n1,n3"]
    await SlurmCommands().unpin("20+0")
    assert (programs / "seen").read_text().splitlines()[1:] == ["JobId=20+0", "ExcNodeList="]


@pytest.mark.parametrize(
    ("text", "used"),
    [
        ("ilv:g0:2,ilv:g1:0,gpu:0", {"ilv:g0": 2, "ilv:g1": 0}),  # 22.05
        ("ilva:g0:1(IDX:0),ilva:g1:0(IDX:N/A)", {"ilva:g0": 1, "ilva:g1": 0}),
        ("ilva:0,gpu:sim:2(IDX:0,3)", {"gpu:sim": 2}),
        ("(null)", {}),
    ],
)
async def test_what_is_in_use_is_read_of_each_node(programs: Path, text: str, used: dict[str, int]) -> None:
    put(
        programs / "scontrol",
        f'echo "NodeName=n1 Arch=x86_64 GresUsed={text} OS=Linux"; echo; echo NodeName=n2',
    )

    assert await SlurmCommands().used() == {("n1", name): count for name, count in used.items()}


async def test_a_refusal_comes_with_slurms_own_words(programs: Path) -> None:
    put(programs / "scontrol", 'echo "Invalid job id specified for job $2" >&2; exit 1')

    with pytest.raises(SlurmFailed, match="requeue 17: exit code 1: Invalid job id specified for job 17"):
        await SlurmCommands().requeue("17")


async def test_a_command_that_hangs_is_ended_at_its_deadline(programs: Path) -> None:
    put(programs / "scontrol", f"echo $$ > {programs}/pid; exec sleep 60")

    with pytest.raises(SlurmFailed, match=r"hold 17: no answer within 0\.5 s"):
        await SlurmCommands(timeout_s=0.5).hold("17")

    assert not lives(programs / "pid")


async def test_a_machine_without_slurm_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(SlurmFailed, match="squeue --version: cannot be run"):
        await SlurmCommands().jobs()
