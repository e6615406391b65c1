"""What is right and wrong with what was found of Slurm, pure: facts in, findings out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from slurm_interleave.client.doctor.finding import Finding, error, ok, warning
from slurm_interleave.orchestrator.doctor.facts import SCRIPTS, SlurmFacts
from slurm_interleave.orchestrator.placement.config import PlacementConfig
from slurm_interleave.orchestrator.placement.reservations import Reservation

_TRIED, _LANES = ((22, 5), (26, 5)), (23, 2)
_OURS = {"Prolog": "job-start", "Epilog": "job-end", "EpilogSlurmctld": "job-over"}
_FILES = {"Prolog": "prolog.sh", "Epilog": "epilog.sh", "EpilogSlurmctld": "slurmctld_epilog.sh"}
_INSTALL = "see section 3 of docs/install.md"
# Ends all processes of a user on the node, and so those of his other jobs, which share it here.
_SWEEPS = re.compile(
    r"\b(pkill|killall|slay)\b[^\n|;]*\s(-[a-zA-Z0-9]*[uU]|--euid|--uid|--user)\b"
    r"|\bloginctl\s+(terminate|kill)-user\b|\bps\s[^\n|]*-[uU]\b[^\n]*\|\s*xargs\s[^\n]*kill"
)


def findings(facts: SlurmFacts, config: PlacementConfig, *, head: bool, node: bool) -> Iterator[Finding]:
    """Check Slurm; *head*: this is slurmctld's host, *node*: one of the partition's nodes."""
    yield release(facts, config)
    yield from plugin(facts)
    yield _submit(facts, head=head)
    for option in SCRIPTS:
        yield hook(facts, option, here=head if option == "EpilogSlurmctld" else node)
    yield _prolog_flags(facts)
    yield from _gres(facts, config)
    yield from sweeps(facts)


def _text(numbers: tuple[int, int]) -> str:
    return f"{numbers[0]}.{numbers[1]:02}"


def release(facts: SlurmFacts, config: PlacementConfig) -> Finding:
    """Say whether Slurm and the mode of placement go together."""
    modes = dict.fromkeys([config.mode, *(one.mode for one in config.classes)])
    slurm = f"Slurm {_text(facts.release)}, mode {', '.join(modes)}"
    if "lane" in modes and facts.release < _LANES:
        text = f"{slurm}: with ConstrainDevices a job of a lane gets no device before Slurm 23.02"
        return error("slurm", text, 'set [placement] mode = "token" with one GRES name')
    if not _TRIED[0] <= facts.release <= _TRIED[1]:
        return warning("slurm", f"{slurm}; tried with {_text(_TRIED[0])} to {_text(_TRIED[1])}")
    return ok("slurm", slurm)


def plugin(facts: SlurmFacts) -> Iterator[Finding]:
    """Say whether sbatch and slurmd load our plugin, and the one for their release."""
    if not facts.plugins:
        text = f"{facts.plugstack} does not name interleave.so"
        yield error("spank plugin", text, "add: optional /usr/lib/slurm-interleave/interleave.so")
    for one in facts.plugins:
        if one.release is None:
            yield error("spank plugin", f"{one.path}: {one.problem}", "make -C slurm_plugin install")
        elif one.release != facts.release:
            built, runs = _text(one.release), _text(facts.release)
            text = f"{one.path} was built for Slurm {built}, here is {runs}"
            yield error("spank plugin", text, "build it anew: make -C slurm_plugin install")
        elif one.required:
            text = f"{one.path} is required: when it cannot be loaded, no job can be submitted at all"
            yield warning("spank plugin", text, f"write optional in {facts.plugstack}")
        else:
            yield ok("spank plugin", f"{one.path}, built for Slurm {_text(one.release)}")
    if len(facts.plugins) > 1:
        yield error(
            "spank plugin", f"{facts.plugstack} names it {len(facts.plugins)} times", "leave one line"
        )


def _submit(facts: SlurmFacts, *, head: bool) -> Finding:
    if "lua" not in facts.setting("JobSubmitPlugins").split(","):
        text = f"JobSubmitPlugins is {facts.setting('JobSubmitPlugins') or 'empty'}, without lua"
        return error("job_submit", text, f"jobs would get no devices and no turns: {_INSTALL}")
    if not head:
        return ok("job_submit", "lua is configured; its script is slurmctld's host's to check")
    if facts.job_submit is None:
        return error("job_submit", "there is no job_submit.lua beside slurm.conf", _INSTALL)
    code = re.sub(r"--[^\n]*", "", facts.job_submit.text)
    calls = ("interleave.submit(", "interleave.modify(")
    lacking = [name for name in calls if not re.search(rf"(?<!function )\b{re.escape(name)}", code)]
    if lacking:
        text = f"{facts.job_submit.path} does not call {' and '.join(name + '...)' for name in lacking)}"
        return error("job_submit", text, "add the marked part of slurm_plugin/job_submit.lua and its calls")
    return ok("job_submit", f"{facts.job_submit.path} calls our rules")


def hook(facts: SlurmFacts, option: str, *, here: bool) -> Finding:
    """Say whether the scripts of *option* call ours; *here*: they run on this host."""
    value = facts.setting(option)
    if not value:
        return error(option, "not set", f"{option}=/etc/slurm/interleave/{_FILES[option]}")
    if not here:
        return ok(option, f"{value}; not run on this host")
    found = facts.scripts.get(option, ())
    if not found:
        return error(option, f"{value}: there is no such file here, or it cannot be read", _INSTALL)
    if not any(_calls_ours(option, _code(script.text)) for script in found):
        advice = f"call /etc/slurm/interleave/{_FILES[option]} from it"
        return error(option, f"{value} does not call ours", advice)
    for script in found:
        if script.path.name == _FILES[option] and script.path.parent in facts.hookless:
            advice = f"set bin_dir in {script.path.parent / 'interleave-hooks.conf'} to its folder"
            return error(option, f"{script.path} does not find the program interleave-hook", advice)
    return ok(option, f"{value} calls ours")


def _calls_ours(option: str, code: str) -> bool:
    """Tell it of our own script, or of another that names ours, in whatever folder."""
    return _OURS[option] in code or ("interleave" in code and _FILES[option] in code)


def _prolog_flags(facts: SlurmFacts) -> Finding:
    flags = facts.setting("PrologFlags")
    # Contain and X11 bring Alloc along: slurm.conf(5).
    if {"alloc", "contain", "x11"} & {flag.strip().lower() for flag in flags.split(",")}:
        return ok("PrologFlags", flags)
    text = f"{flags or 'empty'}: without Alloc a node hears of a job at its first step, not at its start"
    return error("PrologFlags", text, "PrologFlags=Alloc")


def _gres(facts: SlurmFacts, config: PlacementConfig) -> Iterator[Finding]:
    wanted = dict.fromkeys(lane.name for lane in config.lanes)
    names = ", ".join(wanted)
    types = facts.setting("GresTypes").split(",")
    lacking = [name for name in wanted if name not in types]
    if "gpu" not in types:
        text = "gpu is not in it, so sbatch itself refuses --gres=gpu:N"
        yield error("GresTypes", text, f"GresTypes={','.join(['gpu', *filter(None, types), *lacking])}")
    elif lacking:
        text = f"{', '.join(lacking)} of our gres not in it: {','.join(types) or 'empty'}"
        yield error("GresTypes", text, f"GresTypes={','.join([*filter(None, types), *lacking])}")
    else:
        yield ok("GresTypes", f"has {names}")
    if facts.partition is None:
        text = f"there is no partition {config.partition}"
        yield error("partition", text, f"add PartitionName={config.partition}, or set [placement] partition")
        return
    without = [
        name for name in facts.partition if not has_gres(facts.gres.get(name, ""), config.of(name).gres)
    ]
    if without or not facts.partition:
        lacks = config.of(without[0]).gres if without else config.gres
        text = (
            f"{config.partition}: without typed {', '.join(lacks)}: {', '.join(without) or 'it has no nodes'}"
        )
        yield error("partition", text, f"Gres={lacks[0]}:g0:...,{lacks[0]}:g1:...: {_INSTALL}")
    else:
        yield ok("partition", f"{config.partition}: {len(facts.partition)} nodes, all with {names}")


def has_gres(text: str, names: Iterable[str]) -> bool:
    """Tell whether a node's Gres have each of *names*, with the same types g0, g1, ... in each."""
    found = re.findall(r"(?:^|,)([\w-]+):(g\d+):\d+", text)
    types = [{kind for name, kind in found if name == wanted} for wanted in names]
    return all(types) and all(one == types[0] for one in types)


def sweeps(facts: SlurmFacts) -> Iterator[Finding]:
    """Warn of epilogs that end more than their own job."""
    found = {script.path: script.text for script in facts.scripts.get("Epilog", ())}
    for path, text in found.items():
        if "lastuserjob" in path.name or _SWEEPS.search(_code(text)):
            said = f"{path} may end processes of a user's other jobs, which share the node with this one"
            advice = "end what is in the job's cgroup alone, or leave the interleaving nodes out of it"
            yield warning("other epilogs", said, advice)


def nodes(
    config: PlacementConfig,
    partition: Sequence[str],
    states: Mapping[str, str],
    reservations: Iterable[Reservation],
    connected: frozenset[str] | None,
) -> Iterator[Finding]:
    """Say which nodes of the partition get no jobs now; *connected*: those with an agent, if known."""
    out = [name for name in partition if re.search("down|drain|fail|maint", states.get(name, "down"))]
    if out:
        said = ", ".join(f"{name} {states.get(name, 'unknown')}" for name in out)
        yield warning("nodes", f"get no jobs: {said}", "sinfo -R says why")
    for reservation in reservations:
        kept = [name for name in partition if reservation.active and name in reservation.nodes]
        if kept:
            text = f"reservation {reservation.name} keeps {', '.join(kept)}"
            yield warning("nodes", text, "jobs without it wait")
    away = [name for name in partition if connected is not None and name not in connected and name not in out]
    if away:
        text = f"no agent is connected from {', '.join(away)}"
        yield error("agents", text, "start interleave-agent there; its log says what keeps it")
    elif connected is not None and not out:
        yield ok("nodes", f"all {len(partition)} of {config.partition} are up, and have their agents")


def _code(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
