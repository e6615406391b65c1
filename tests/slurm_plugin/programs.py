"""Small programs around our C and Lua sources, so that they can be tested without Slurm."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

TESTS = Path(__file__).parent
REPOSITORY = TESTS.parents[1]
PLUGIN = REPOSITORY / "slurm_plugin"
HOOKS = REPOSITORY / "prolog_epilog"

# Each reads names that end with a NUL, and writes a line for each: is it a group's name, is it `none`.
NAMES_C = r"""
#include <stdio.h>
#include "names.h"

int main(void)
{
	static char name[65536], value[VALUE_MAX + 1];
	size_t used = 0;
	int c, none;

	while ((c = getchar()) != EOF) {
		name[used++] = (char)c;
		if (c != 0)
			continue;
		none = name_read(name, value) && value[0] == '\0';
		printf("%d %d\n", group_name_ok(name), none);
		used = 0;
	}
	return 0;
}
"""
# Prints what each of its arguments becomes, or "-" where it is not allowed; the first names what they are.
VALUES_C = r"""
#include <stdio.h>
#include <string.h>
#include "names.h"

int main(int argc, char **argv)
{
	bool (*read)(const char *, char *) = wait_read;

	if (strcmp(argv[1], "gpus") == 0)
		read = gpu_count_read;
	if (strcmp(argv[1], "backend") == 0)
		read = backend_read;
	if (strcmp(argv[1], "percent") == 0)
		read = percent_read;
	for (int i = 2; i < argc; i++) {
		char value[VALUE_MAX + 1];

		puts(read(argv[i], value) ? value : "-");
	}
	return 0;
}
"""
NAMES_LUA = r"""
local rules = require("interleave_rules")
for name in io.read("*a"):gmatch("([^%z]*)%z") do
    local none = rules.asked({ [0] = "INTERLEAVE_GROUP=" .. name }) == nil
    print((rules.group_name_ok(name) and 1 or 0) .. " " .. (none and 1 or 0))
end
"""
# Prints what a job would get from the file, or why nothing.
ENVIRONMENT_C = r"""
#include <errno.h>
#include <stdio.h>
#include "environment.h"

int main(int argc, char **argv)
{
	struct environment environment;

	if (argc != 2 || environment_read(&environment, argv[1]) < 0) {
		printf("errno %d\n", errno);
		return 1;
	}
	for (size_t i = 0; i < environment.count; i++)
		printf("%s=%s\n", environment.variables[i].name, environment.variables[i].value);
	environment_free(&environment);
	return 0;
}
"""


def lua() -> str:
    """Return the path of a Lua."""
    found = shutil.which("lua5.3") or shutil.which("lua")
    assert found, "no Lua here (Debian package lua5.3)"
    return found


def compile_c(folder: Path, main: str, *sources: str, flags: Sequence[str] = ()) -> Path:
    """Compile *main* with the named sources of the plugin; return the program."""
    (folder / "main.c").write_text(main)
    program = folder / "program"
    warnings = ("-D_GNU_SOURCE", "-std=gnu11", "-Wall", "-Wextra", "-Werror")
    files = [str(PLUGIN / name) for name in sources]
    argv = ["gcc", *warnings, "-g", *flags, f"-I{PLUGIN}", "-o", str(program), str(folder / "main.c"), *files]
    subprocess.run(argv, check=True, timeout=60)
    return program


SANITIZED = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
