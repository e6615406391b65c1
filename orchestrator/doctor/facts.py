"""What is found out of Slurm on this host, by its commands and its files. Nothing is judged here."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from slurm_interleave.client.core.hostlist import expand
from slurm_interleave.client.core.slurm_command import parse_release, run_slurm
from slurm_interleave.orchestrator.doctor.elf import plugin_release

_TIMEOUT_S = 10.0
_SETTING = re.compile(r"(\w+)(?:\[\d+\])?\s*= ?(.*)")
_WORD = re.compile(r"\b(\w+)=(\S*)")
_SEARCHED = re.compile(r"^PATH=(\S+)$", re.MULTILINE)
_BIN_DIR = re.compile(r"^bin_dir=(.+)$", re.MULTILINE)
_PATH = re.compile(r"/[\w.+@%/-]+")
_TEXT_MAX = 256 * 1024
SCRIPTS = ("Prolog", "Epilog", "EpilogSlurmctld")


@dataclass(frozen=True)
class Plugin:
    """A line of plugstack.conf that names our plugin."""

    path: Path
    required: bool
    release: tuple[int, int] | None = None
    problem: str = ""
    """Why its release is not known."""


@dataclass(frozen=True)
class Script:
    """A script that Slurm runs, or a file that one of them names."""

    path: Path
    text: str


@dataclass(frozen=True)
class SlurmFacts:
    """What there is."""

    release: tuple[int, int]
    config: Mapping[str, tuple[str, ...]]
    """What `scontrol show config` says: a key may have several values."""
    plugstack: Path
    plugins: tuple[Plugin, ...]
    """Ours, as far as plugstack.conf names it."""
    job_submit: Script | None
    """Of slurmctld's host."""
    scripts: Mapping[str, tuple[Script, ...]]
    """By option: the scripts of this host, and the files that they name."""
    hookless: frozenset[Path]
    """The folders of our scripts that do not find interleave-hook."""
    partition: tuple[str, ...] | None
    """The nodes of the interleaving partition; None: there is no such partition."""
    gres: Mapping[str, str]
    """By node, as in `ilva:g0:1,ilvb:g0:1`."""

    def setting(self, key: str) -> str:
        """Return the value of a key of slurm.conf; empty if it has none."""
        return ",".join(value for value in self.config.get(key, ()) if value != "(null)")

    def is_head(self, host: str) -> bool:
        """Tell whether slurmctld runs on *host*."""
        names = (value.partition("(")[0] for value in self.config.get("SlurmctldHost", ()))
        return host in {name.partition(".")[0] for name in names}


async def gather(partition: str) -> SlurmFacts:
    """Ask Slurm. Raises `SlurmFailed`, and `OSError` where its commands are missing."""
    release = parse_release(await run_slurm(["sinfo", "--version"], _TIMEOUT_S))
    config = parse_config(await run_slurm(["scontrol", "show", "config"], _TIMEOUT_S))
    nodes = await run_slurm(["scontrol", "--oneliner", "show", "nodes"], _TIMEOUT_S)
    partitions = await run_slurm(["scontrol", "--oneliner", "--all", "show", "partition"], _TIMEOUT_S)
    conf = Path((config.get("SLURM_CONF") or ("/etc/slurm/slurm.conf",))[0])
    plugstack = Path((config.get("PlugStackConfig") or (str(conf.parent / "plugstack.conf"),))[0])
    folder = Path((config.get("PluginDir") or ("/",))[0].partition(":")[0])
    found = {option: tuple(scripts(config.get(option, ()))) for option in SCRIPTS}
    folders = {script.path.parent for some in found.values() for script in some}
    return SlurmFacts(
        release,
        config,
        plugstack,
        tuple(plugins(plugstack, folder)),
        read_script(conf.parent / "job_submit.lua"),
        found,
        frozenset(folder for folder in folders if lacks_hook(folder)),
        parse_partition(partitions, partition),
        {name: words.get("Gres", "") for name, words in _named(nodes, "NodeName").items()},
    )


def parse_config(text: str) -> dict[str, tuple[str, ...]]:
    """Return what `scontrol show config` prints; it numbers what may be there twice, as in `Prolog[0]`."""
    found: dict[str, tuple[str, ...]] = {}
    for line in text.splitlines():
        if setting := _SETTING.fullmatch(line.rstrip()):
            found[setting[1]] = (*found.get(setting[1], ()), setting[2].strip())
    return found


def parse_partition(text: str, name: str) -> tuple[str, ...] | None:
    """Return the nodes of partition *name* in `scontrol --oneliner show partition`; None without one."""
    words = _named(text, "PartitionName").get(name)
    return None if words is None else expand(words.get("Nodes", "").replace("(null)", ""))


def plugins(plugstack: Path, folder: Path, depth: int = 3) -> Iterator[Plugin]:
    """Yield ours of what a plugstack.conf and the files that it includes name; *folder*: PluginDir."""
    script = read_script(plugstack)
    for line in script.text.splitlines() if script else ():
        words = line.partition("#")[0].split()
        if len(words) > 1 and words[0] == "include" and depth:
            parent, pattern = (
                (Path("/"), words[1][1:]) if words[1][0] == "/" else (plugstack.parent, words[1])
            )
            for path in sorted(parent.glob(pattern)):
                yield from plugins(path, folder, depth - 1)
        elif (
            len(words) > 1 and words[0] in ("optional", "required") and Path(words[1]).name == "interleave.so"
        ):
            yield _plugin(folder / words[1], required=words[0] == "required")


def _plugin(path: Path, *, required: bool) -> Plugin:
    try:
        return Plugin(path, required, plugin_release(path.read_bytes()))
    except (OSError, ValueError) as problem:
        return Plugin(path, required, problem=str(problem))


def scripts(values: tuple[str, ...], depth: int = 2) -> Iterator[Script]:
    """Yield the scripts that *values* name (`/etc/slurm/prolog.d/*` too), and the files that those name."""
    for value in values:
        for path in _files(value):
            if script := read_script(path):
                yield script
                if depth:
                    yield from scripts(tuple(sorted(set(_PATH.findall(script.text)))), depth - 1)


def lacks_hook(folder: Path) -> bool:
    """Tell of a folder with scripts of ours that these find no interleave-hook from there."""
    common, settings = read_script(folder / "common.sh"), read_script(folder / "interleave-hooks.conf")
    searched = _SEARCHED.search(common.text) if common else None
    if searched is None:
        return False
    named = _BIN_DIR.findall(settings.text) if settings else []
    return shutil.which("interleave-hook", path=":".join([*named[-1:], searched[1]])) is None


def _files(value: str) -> list[Path]:
    if not value.startswith("/"):
        return []
    found = sorted(_matching(Path(value)))
    # Of a folder such as prolog.d all that a loop or run-parts(8) over it would run.
    folders = [path for path in found if path.suffix == ".d" and path.is_dir()]
    inside = [path for folder in folders for path in sorted(folder.iterdir())]
    return [path for path in (*found, *inside) if path.is_file()]


def _matching(path: Path) -> Iterator[Path]:
    return path.parent.glob(path.name)


def read_script(path: Path) -> Script | None:
    """Return a file's text; None where it is no readable file, or larger or other than a script."""
    try:
        if path.is_file() and path.stat().st_size <= _TEXT_MAX:
            return Script(path, path.read_text())
    except (OSError, UnicodeDecodeError):
        pass
    return None


def _named(text: str, key: str) -> dict[str, dict[str, str]]:
    """Return the words of each line of `scontrol --oneliner show`, by the value of *key*."""
    lines = [dict(_WORD.findall(line)) for line in text.splitlines()]
    return {words[key]: words for words in lines if key in words}
