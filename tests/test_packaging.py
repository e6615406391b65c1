"""What is installed: every package, and a client without extras, at both ends of what it allows."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_interleave.client.core.config import read_toml

ROOT = Path(__file__).parents[1]
PARTS = ("client", "orchestrator", "sql", "node_agent")
# Of modules that the client needs nothing else may be there.
BASE = ("grpc", "google", "typing_extensions")
PYTHONS = range(10, 15)  # 3.10 to 3.14
# The oldest that are not yanked, and of grpcio the oldest that is built for this Python.
OLDEST_PROTOBUF = "5.29.1"
OLDEST_GRPCIO = {13: "1.66.2", 14: "1.75.1"}
ANY_OLDEST_GRPCIO = "1.62.0"
TOOLS = ("hypothesis", "pytest", "pytest-asyncio", "pytest-timeout", "typing_extensions")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of a copy of this tree, so that no build folder is left in it."""
    folder, out = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("wheel")
    for name in PARTS:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    argv = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet", f"--wheel-dir={out}", "."]
    built = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=100)
    if built.returncode and "No matching distribution" in built.stderr:
        pytest.skip("the build's own requirements cannot be had: no network")
    assert built.returncode == 0, built.stderr
    [made] = out.glob("*.whl")
    return made


def test_every_package_is_listed() -> None:
    listed = set(read_toml(ROOT / "pyproject.toml")["tool"]["setuptools"]["packages"])

    found = {
        "slurm_interleave." + ".".join(path.parent.relative_to(ROOT).parts)
        for part in PARTS
        for path in (ROOT / part).rglob("*.py")
        if "__pycache__" not in path.parts
    }

    assert found == listed


def test_every_package_has_its_marker() -> None:
    without = [
        str(path.parent.relative_to(ROOT))
        for part in PARTS
        for path in (ROOT / part).rglob("*.py")
        if not (path.parent / "__init__.py").exists()
    ]

    assert without == []


def test_the_base_requirements_are_grpc_and_protobuf_alone() -> None:
    needed = read_toml(ROOT / "pyproject.toml")["project"]["dependencies"]

    assert sorted(text.split(">")[0] for text in needed) == ["grpcio", "protobuf"]


def test_the_wheel_holds_the_four_parts_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()

    tops = {name.split("/")[0] for name in names}
    assert len(tops) == 2
    parts = {name.split("/")[1] for name in names if name.startswith("slurm_interleave/")}
    assert parts == set(PARTS)
    for needed in ("client/wire/interleave_v1.proto", "client/wire/interleave_v1_pb2.pyi"):
        assert f"slurm_interleave/{needed}" in names
    assert any(name.startswith("slurm_interleave/sql/migrations/versions/0001") for name in names)


def test_a_client_without_extras_runs(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    # As an environment that has the wheel and the base requirements: whatever else is asked for is missing.
    script = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
import grpc, google.protobuf
class Nothing:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in {(*BASE, "slurm_interleave")!r} and top not in sys.stdlib_module_names:
            raise ModuleNotFoundError(name)
sys.meta_path[:] = [Nothing(), *(f for f in sys.meta_path if "editable" not in repr(f).lower())]
import slurm_interleave.client as client
assert client.__file__.startswith({str(tmp_path)!r}), client.__file__
with client.Interleaver.from_env({{}}).turn("train") as lease:
    assert lease.epoch == 0
import slurm_interleave.node_agent.hook
"""

    done = subprocess.run(
        [sys.executable, "-I", "-c", script], capture_output=True, text=True, timeout=60, cwd="/"
    )

    assert done.returncode == 0, done.stderr
    assert done.stderr == "[interleave] not in an interleaved job: acquire and yield do nothing\n"


def pythons() -> list[tuple[int, str]]:
    """Return the Pythons here that can make an environment, oldest first: minor version and program."""
    found = {sys.version_info.minor: sys.executable}
    for minor in PYTHONS:
        beside = sorted((Path.home() / ".pyenv" / "versions").glob(f"3.{minor}.*/bin/python3"))
        for program in [shutil.which(f"python3.{minor}"), *map(str, beside)]:
            if program and minor not in found and _usable(program, minor):
                found[minor] = program
    return sorted(found.items())


def _usable(program: str, minor: int) -> bool:
    check = f"import ensurepip, sys, venv; sys.exit(sys.version_info[:2] != (3, {minor}))"
    return subprocess.run([program, "-I", "-c", check], capture_output=True, check=False).returncode == 0


def _pip(python: Path, *arguments: str) -> str:
    """Run our own pip on the environment of *python*: to put one into each takes longer than its tests."""
    argv = [sys.executable, "-m", "pip", f"--python={python}", *arguments]
    environ = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    done = subprocess.run(argv, capture_output=True, text=True, timeout=200, env=environ, check=False)
    if done.returncode and "No matching distribution" in done.stderr and os.environ.get("CI") != "true":
        pytest.skip(f"nothing can be installed here: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module", params=["oldest", "newest"])
def end(
    request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """The Python of an environment of the wheel and what it needs: the oldest or the newest of everything."""
    minor, program = pythons()[0 if request.param == "oldest" else -1]
    folder = tmp_path_factory.mktemp(request.param)
    subprocess.run(
        [program, "-m", "venv", "--without-pip", str(folder / "venv")], check=True, capture_output=True
    )
    python, limits = folder / "venv" / "bin" / "python", folder / "limits"
    oldest = f"grpcio=={OLDEST_GRPCIO.get(minor, ANY_OLDEST_GRPCIO)}\nprotobuf=={OLDEST_PROTOBUF}\n"
    limits.write_text(oldest if request.param == "oldest" else "")
    _pip(python, "install", "--quiet", f"--constraint={limits}", str(wheel))
    yield python
    shutil.rmtree(folder)


@pytest.mark.timeout(400)
def test_at_both_ends_the_client_needs_grpc_and_protobuf_alone_and_passes_its_tests(end: Path) -> None:
    there = {line.partition("==")[0].lower() for line in _pip(end, "freeze").splitlines() if "==" in line}
    assert there - {"typing_extensions"} == {"grpcio", "protobuf"}  # newer grpcio brings the first

    _pip(end, "install", "--quiet", *TOOLS)
    argv = [str(end), "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/client", "tests/test_wire.py"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)

    assert done.returncode == 0, done.stdout[-5000:] + done.stderr
