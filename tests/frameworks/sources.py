"""The published source of frameworks that are too large to be installed here, read and never run.

Kept in build/sources. INTERLEAVE_TEST_LATEST=1 takes the newest release of each in place of the one below.
"""

from __future__ import annotations

import ast
import builtins
import io
import os
import re
import subprocess
import sys
import tarfile
import urllib.error
import urllib.request
import zipfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

FOLDER = Path(__file__).parents[2] / "build" / "sources"
LIMIT_S = 40
RELEASES = {"verl": "0.9.1", "skyrl": "0.3.0", "openrlhf": "0.11.2"}
COMMITS = {
    "slime": ("THUDM/slime", "624b824a8"),
    "nemo-rl": ("NVIDIA-NeMo/RL", "7ea279abf"),
    "timeslice": ("llm-d-incubation/llm-d-rl-time-slicing", "6cf8e9b"),
}
# Where in its archive a project keeps its packages.
_ROOTS = {"slime": "slime/", "nemo-rl": "nemo_rl/", "timeslice": "pkg/"}


@dataclass(frozen=True)
class Source:
    """The files of one project, by their path from the folder that is on Python's path."""

    files: dict[str, str]

    def module(self, path: str) -> ast.Module:
        assert path in self.files, f"there is no {path} any more"
        return ast.parse(self.files[path])

    def function(self, path: str, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef:
        """Return the function, or the method as `Class.method`."""
        body: list[ast.stmt] = self.module(path).body
        *classes, last = name.split(".")
        for each in classes:
            body = next(s for s in body if isinstance(s, ast.ClassDef) and s.name == each).body
        found = [s for s in body if isinstance(s, (ast.FunctionDef, ast.AsyncFunctionDef)) and s.name == last]
        assert found, f"{path} has no {name} any more"
        return found[-1]

    def parameters(self, path: str, name: str) -> list[str]:
        arguments = self.function(path, name).args
        return [each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]

    def calls(self, path: str, name: str) -> list[str]:
        """Return the names that the function calls, in the order of the text: `x.y.z()` is `z`."""
        found = [node for node in ast.walk(self.function(path, name)) if isinstance(node, ast.Call)]
        found.sort(key=lambda node: (node.func.end_lineno or 0, node.func.end_col_offset or 0))
        return [
            node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            for node in found
        ]

    def built(self, path: str, name: str, base: type, **names: Any) -> type:
        """Return a class of *base* with the real methods of class *name*, without decorators.

        What they name and *names* do not have is a mock.
        """
        found = next(s for s in self.module(path).body if isinstance(s, ast.ClassDef) and s.name == name)
        found.bases, found.keywords, found.decorator_list = [ast.Name("base", ast.Load())], [], []
        module = ast.Module([found], [])
        return _executed(module, {"base": base, **names})[name]

    def executed(self, path: str, name: str, **names: Any) -> Any:
        """Return the real function *name*; what it names and *names* do not have is a mock."""
        function = self.function(path, name)
        function.decorator_list = []
        return _executed(ast.Module([function], []), names)[name]

    def methods(self, path: str, name: str) -> set[str]:
        found = [s for s in self.module(path).body if isinstance(s, ast.ClassDef) and s.name == name]
        assert found, f"{path} has no class {name} any more"
        return {s.name for s in found[0].body if isinstance(s, (ast.FunctionDef, ast.AsyncFunctionDef))}


def _executed(module: ast.Module, names: dict[str, Any]) -> dict[str, Any]:
    used = {node.id for node in ast.walk(module) if isinstance(node, ast.Name)} - set(dir(builtins))
    space = {**{name: MagicMock(name=name) for name in used}, **names, "__name__": "real"}
    exec(compile(ast.fix_missing_locations(module), "real", "exec"), space)  # noqa: S102 - the release under test
    return space


@cache
def source(project: str) -> Source:
    """Return the source of *project*; skip the test where it cannot be had."""
    why = _fetched(project)
    archive = next(iter(FOLDER.glob(f"{project}-*")), None)
    if archive is None:
        pytest.skip(f"the source of {project} cannot be fetched: {why}")
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            names = [name for name in wheel.namelist() if name.endswith((".py", ".yaml"))]
            # What is not code of this platform alone may lie in a folder NAME.data/purelib.
            return Source(
                {re.sub(r"^[^/]*\.data/purelib/", "", name): wheel.read(name).decode() for name in names}
            )
    with tarfile.open(archive) as tar:
        members = [(each.name.partition("/")[2], each) for each in tar if each.name.endswith(".py")]
        wanted = [
            (name, each) for name, each in members if name.startswith(_ROOTS[project]) or "/" not in name
        ]
        read = {name: tar.extractfile(each) for name, each in wanted}
        return Source({name: file.read().decode() for name, file in read.items() if file is not None})


def _fetched(project: str) -> str:
    """Fetch it unless it is there; return why it could not be, or empty text."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    if any(FOLDER.glob(f"{project}-*")):
        return ""
    return _from_index(project) if project in RELEASES else _from_github(project)


def _from_index(project: str) -> str:
    latest = os.environ.get("INTERLEAVE_TEST_LATEST")
    wanted = project if latest else f"{project}=={RELEASES[project]}"
    argv = [sys.executable, "-m", "pip", "download", "-qq", "--no-deps", "-d", FOLDER]
    try:
        done = subprocess.run([*argv, wanted], timeout=LIMIT_S, capture_output=True, text=True, check=False)
    except subprocess.TimeoutExpired:
        return f"pip took longer than {LIMIT_S} s"
    return done.stderr[-300:] if done.returncode else ""


def _from_github(project: str) -> str:
    repository, commit = COMMITS[project]
    commit = "HEAD" if os.environ.get("INTERLEAVE_TEST_LATEST") else commit
    url = f"https://codeload.github.com/{repository}/tar.gz/{commit}"
    try:
        with urllib.request.urlopen(url, timeout=LIMIT_S / 4) as answer:
            data = io.BytesIO(answer.read())
    except (urllib.error.URLError, OSError) as error:
        return f"{url}: {error}"
    (FOLDER / f"{project}-{commit}.tar.gz").write_bytes(data.getvalue())
    return ""
