"""What is read of Slurm's files and of what its commands print."""

from __future__ import annotations

import re
import shutil
import struct
from pathlib import Path

import pytest

from slurm_interleave.orchestrator.doctor.elf import plugin_release
from slurm_interleave.orchestrator.doctor.facts import (
    lacks_hook,
    parse_config,
    parse_partition,
    plugins,
    scripts,
)

PLUGIN = Path(__file__).parents[2] / "slurm_plugin" / "build" / "interleave.so"


def library(order: str = "<", name: bytes = b"plugin_version", number: int = 0x180B05) -> bytes:
    """A shared object with one symbol and nothing else, in either order of bytes."""
    names, value, at = b"\0" + name + b"\0", 0x2000, 64
    symbols = bytes(24) + struct.pack(order + "IBBHQQ", 1, 0x11, 0, 3, value, 4)
    parts = [symbols, names, struct.pack(order + "I", number)]
    places = [at, at + len(symbols), at + len(symbols) + len(names)]

    def section(kind: int, address: int, offset: int, size: int, link: int) -> bytes:
        return struct.pack(order + "IIQQQQIIQQ", 0, kind, 0, address, offset, size, link, 0, 1, 0)

    table = bytes(64) + section(11, 0, places[0], len(symbols), 2)
    table += section(3, 0, places[1], len(names), 0) + section(1, value, places[2], 4, 0)
    head = b"\x7fELF\x02" + (b"\x01" if order == "<" else b"\x02")
    start = places[2] + 4
    header = struct.pack(order + "HHIQQQIHHHHHH", 3, 62, 1, 0, 0, start, 0, 64, 0, 0, 64, 4, 0)
    return head + bytes(10) + header + b"".join(parts) + table


@pytest.mark.parametrize("order", ["<", ">"])
def test_the_release_that_a_plugin_was_built_for_is_read_from_its_file(order: str) -> None:
    assert plugin_release(library(order)) == (24, 11)


def test_what_our_own_plugin_was_built_for_is_the_slurm_of_its_headers() -> None:
    headers = Path("/usr/include/slurm/slurm_version.h")
    if not (PLUGIN.exists() and headers.exists()):
        pytest.skip("the plugin is not built here; run: make plugin")
    number = next(line.split()[2] for line in headers.read_text().splitlines() if "VERSION_NUMBER" in line)

    assert plugin_release(PLUGIN.read_bytes()) == (int(number, 16) >> 16, int(number, 16) >> 8 & 0xFF)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "no ELF file of 64 bits"),
        (b"#!/bin/sh\n" * 20, "no ELF file of 64 bits"),
        (library(name=b"plugin_name"), "exports no plugin_version"),
        *((library()[:length], "cut off|exports no") for length in range(64, len(library()) - 16, 7)),
    ],
)
def test_another_file_is_refused_with_what_is_wrong(data: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        plugin_release(data)


def test_the_configuration_has_all_values_of_a_key_that_may_be_there_twice() -> None:
    text = (
        "Configuration data as of 2026-11-29T23:00:00\n"
        "AuthType                = auth/munge\n"
        "Prolog[0]               = /etc/slurm/a.sh\n"
        "Prolog[1]               = /etc/slurm/b.sh\n"
        "Epilog                  = (null)\n"
        "SlurmctldHost[0]        = head(10.0.0.1)\n"
        "PriorityParameters      = \n\n"
        "Slurmctld(primary) at head is UP\n"
    )

    assert parse_config(text) == {
        "AuthType": ("auth/munge",),
        "Prolog": ("/etc/slurm/a.sh", "/etc/slurm/b.sh"),
        "Epilog": ("(null)",),
        "SlurmctldHost": ("head(10.0.0.1)",),
        "PriorityParameters": ("",),
    }


def test_the_nodes_of_a_partition_are_listed_and_no_partition_is_not_an_empty_one() -> None:
    text = "PartitionName=a Nodes=n[1-2],m7 State=UP\nPartitionName=b AllowGroups=ALL Nodes=(null)\n"

    assert parse_partition(text, "a") == ("n1", "n2", "m7")
    assert parse_partition(text, "b") == ()
    assert parse_partition(text, "c") is None


def test_our_plugin_is_found_in_what_plugstack_includes(tmp_path: Path) -> None:
    folder = tmp_path / "plugstack.conf.d"
    folder.mkdir()
    (tmp_path / "interleave.so").write_bytes(library())
    (tmp_path / "plugstack.conf").write_text(
        "# optional /old/interleave.so\nrequired pyxis.so\n"
        "include plugstack.conf.d/*.conf\ninclude plugstack.conf\n"
    )
    (folder / "a.conf").write_text("optional interleave.so run_dir=/run/interleave\n")
    (folder / "b.conf").write_text("required /nowhere/interleave.so\n")

    first, second = list(plugins(tmp_path / "plugstack.conf", tmp_path, depth=1))

    assert (first.path, first.required, first.release) == (tmp_path / "interleave.so", False, (24, 11))
    assert (second.path, second.required, second.release) == (Path("/nowhere/interleave.so"), True, None)
    assert "No such file" in second.problem
    assert list(plugins(tmp_path / "none.conf", tmp_path)) == []


def test_a_script_is_read_with_what_it_names_and_a_pattern_with_all_that_it_matches(tmp_path: Path) -> None:
    folder = tmp_path / "epilog.d"
    folder.mkdir()
    (folder / "40-lastuserjob").write_text("exit 0\n")
    (tmp_path / "inner.sh").write_text(f"exec {tmp_path}/main.sh {tmp_path}/binary\n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\0")
    (tmp_path / "main.sh").write_text(
        f"for x in {folder}/*; do $x; done\n. {tmp_path}/inner.sh\nrun-parts {folder}\n"
    )

    found = {script.path.name for script in scripts((f"{tmp_path}/main.sh",))}

    assert found == {"main.sh", "inner.sh", "40-lastuserjob"}
    assert [one.path.name for one in scripts((f"{tmp_path}/epilog.d/*",))] == ["40-lastuserjob"]
    assert list(scripts(("(null)", f"{tmp_path}/missing"))) == []


@pytest.fixture
def hooks(tmp_path: Path) -> Path:
    """Our own scripts, but for one that searches a folder of the test instead of the system's."""
    folder = tmp_path / "hooks"
    shutil.copytree(PLUGIN.parents[2] / "prolog_epilog", folder)
    common = folder / "common.sh"
    found = re.sub(r"^PATH=.*$", f"PATH={tmp_path}/system", common.read_text(), flags=re.MULTILINE)
    common.write_text(found)
    return folder


@pytest.mark.parametrize(
    ("place", "bin_dir", "lacks"),
    [("system", "", False), ("mine", "mine", False), ("mine", "", True), ("mine", "other", True)],
)
def test_where_our_scripts_look_for_their_program_is_looked_too(
    hooks: Path, place: str, bin_dir: str, lacks: bool
) -> None:
    program = hooks.parent / place / "interleave-hook"
    program.parent.mkdir()
    program.touch(mode=0o755)
    if bin_dir:
        with (hooks / "interleave-hooks.conf").open("a") as settings:
            settings.write(f"bin_dir={hooks.parent / bin_dir}\n")

    assert lacks_hook(hooks) is lacks


def test_of_a_folder_without_scripts_of_ours_nothing_is_missed(tmp_path: Path) -> None:
    assert not lacks_hook(tmp_path)
