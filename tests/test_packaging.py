"""What is installed: every package, and a client without extras."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from slurm_interleave.client.core.config import read_toml

ROOT = Path(__file__).parents[1]
PARTS = ("client", "orchestrator", "sql", "node_agent")
# Of modules that the client needs nothing else may be there.
BASE = ("grpc", "google", "typing_extensions")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of a copy of this tree, so that no build folder is left in it."""
    folder, out = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("wheel")
    tracked = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    for name in filter(None, tracked.stdout.split("\0")):
        if name.partition("/")[0] in (*PARTS, "pyproject.toml", "README.md", "LICENSE"):
            source, target = ROOT / name, folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_file():
                target.write_bytes(source.read_bytes())
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
