"""The built SPANK plugin: what it exports, and its words in plugstack.conf."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.slurm_plugin.programs import PLUGIN, REPOSITORY, compile_c

pytestmark = pytest.mark.slurm

ARGS_C = r"""
#include <stdarg.h>
#include <stdio.h>
#include "interleave.h"

void slurm_error(const char *format, ...)
{
	va_list list;

	va_start(list, format);
	vprintf(format, list);
	va_end(list);
}

int main(int argc, char **argv)
{
	struct args args;
	char path[300];

	if (args_parse(&args, argc - 1, argv + 1) < 0)
		return 1;
	if (args_run_dir(&args, "n7", path, sizeof(path)) < 0)
		return 2;
	printf("%s", path);
	return 0;
}
"""


@pytest.fixture(scope="module")
def args(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prints the run_dir of node n7, or what is wrong with the words."""
    return compile_c(tmp_path_factory.mktemp("c"), ARGS_C, "args.c")


def parse(program: Path, *words: str) -> tuple[int, str]:
    done = subprocess.run([program, *words], capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stdout


@pytest.fixture(scope="module")
def symbols(tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    """The dynamic symbols of a plugin that was built from nothing, as the words of nm."""
    build = tmp_path_factory.mktemp("build")
    subprocess.run(["make", "-C", PLUGIN, f"BUILD={build}"], check=True, capture_output=True, timeout=100)
    listed = subprocess.run(
        ["nm", "-D", build / "interleave.so"], check=True, capture_output=True, text=True, timeout=10
    )
    return [line.split() for line in listed.stdout.splitlines()]


def test_the_plugin_exports_what_slurm_looks_for_and_nothing_else(symbols: list[list[str]]) -> None:
    exported = {words[2] for words in symbols if len(words) == 3}

    assert exported == {
        *("plugin_name", "plugin_type", "plugin_version"),
        *("slurm_spank_init", "slurm_spank_init_post_opt", "slurm_spank_task_init"),
    }


def test_the_plugin_needs_of_slurm_only_what_every_release_has(symbols: list[list[str]]) -> None:
    needed = {words[1] for words in symbols if words[0] == "U" and "@" not in words[1]}

    assert needed == {
        *("slurm_error", "spank_context", "spank_get_item", "spank_job_control_setenv"),
        *("spank_job_control_unsetenv", "spank_option_register", "spank_setenv", "spank_strerror"),
        "spank_getenv",
        "spank_unsetenv",
    }


def test_run_dir_has_a_default_and_takes_the_nodes_name(args: Path) -> None:
    assert parse(args) == (0, "/run/interleave")
    assert parse(args, "run_dir=/x/%n/run") == (0, "/x/n7/run")
    assert parse(args, "run_dir=/x/%n") == (0, "/x/n7")


def test_a_mistake_in_plugstack_conf_is_named(args: Path) -> None:
    for words, part in (
        (["rundir=/x"], 'unknown word "rundir=/x"; known are run_dir=DIRECTORY and hook=PATH'),
        (["run_dir=/x", "debug"], 'unknown word "debug"'),
        (["hook=bin/x"], "hook=bin/x: couldn't use it: must begin with /"),
        (["run_dir=x"], "run_dir=x: couldn't use it: must begin with /"),
        (["run_dir=/" + "x" * 300], "longer than 255 characters"),
    ):
        status, text = parse(args, *words)
        assert status == 1
        assert part in text


def test_percent_signs_in_run_dir_are_text(args: Path) -> None:
    assert parse(args, "run_dir=/%s%d/%n/%n") == (0, "/%s%d/n7/%n")


def test_all_that_an_agent_tells_one_job_is_forgotten_in_a_job_that_this_one_submits() -> None:
    written = (REPOSITORY / "node_agent" / "environment.py").read_text()
    told = set(re.findall(r'"([A-Z][A-Z_]+)"', written))
    forgotten = set(re.findall(r'"([A-Z_]+)"', (PLUGIN / "jobvars.c").read_text()))

    # One address for all jobs, and two that Slurm sets again for each.
    assert told - forgotten == {"INTERLEAVE_ORCHESTRATOR", "CUDA_VISIBLE_DEVICES", "SLURM_GPUS_ON_NODE"}
    assert forgotten <= told
