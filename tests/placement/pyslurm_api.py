"""Makes pyslurm_api.json: names and signatures of pyslurm's classes, read from its source distribution.

    pip install setuptools wheel cython
    pip download --no-deps --no-binary :all: --no-build-isolation pyslurm==25.11.2
    python tests/placement/pyslurm_api.py pyslurm-25.11.2.tar.gz > tests/placement/pyslurm_api.json

Names alone, no source: pyslurm is GPL.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import tarfile
from collections.abc import Iterator

_FILES = ("core/job/job", "core/job/submission", "core/node", "core/reservation", "xcollections")
_CLASSES = {
    "Job", "Jobs", "JobSubmitDescription", "Node", "Nodes", "Reservation", "Reservations", "MultiClusterMap",
}  # fmt: skip
_CLASS = re.compile(r"(?:cdef )?class (\w+)(?:\((\w+)\))?:")
_METHOD = re.compile(r"    def (\w+)\((.*)\):")
_PLAIN = re.compile(r"        (\w+)$")


def classes(text: str) -> Iterator[tuple[str, str, list[str]]]:
    """Yield name, base and lines of each class of a .pyx or .pxd file; a comment is no line of it."""
    name, base, body = "", "", []
    for line in text.splitlines():
        if found := _CLASS.match(line):
            if name:
                yield name, base, body
            name, base, body = found[1], found[2] or "", []
        elif line.strip().startswith("#"):
            continue
        elif line and not line[0].isspace() and name:
            yield name, base, body
            name = ""
        else:
            body.append(line)
    if name:
        yield name, base, body


def parameters(text: str) -> list[list[str]]:
    """Return name and default of each parameter; Cython's types are left out."""
    plain = re.sub(r"\b[A-Z]\w+ (\w+)", r"\1", text)
    args = ast.parse(f"def f({plain}): ...").body[0].args  # type: ignore[attr-defined]
    names = [arg.arg for arg in args.args]
    defaults = [""] * (len(names) - len(args.defaults)) + [ast.unparse(d) for d in args.defaults]
    found = [list(pair) for pair in zip(names, defaults, strict=True) if pair[0] != "self"]
    return found + ([["**" + args.kwarg.arg, ""]] if args.kwarg else [])


def members(lines: list[str]) -> tuple[list[str], dict[str, list[list[str]]]]:
    """Return the properties and the methods of a class."""
    properties, methods, before = [], {}, ""
    for line in lines:
        if found := _METHOD.match(line):
            if before == "    @property":
                properties.append(found[1])
            elif not before.endswith(".setter") and (found[1] == "__init__" or found[1][0] != "_"):
                methods[found[1]] = parameters(found[2])
        before = line
    return properties, methods


def public(lines: list[str]) -> list[str]:
    """Return the names below `cdef public:`."""
    text = "\n".join(lines).partition("    cdef public:\n")[2]
    return [found[1] for line in text.split("\n") if (found := _PLAIN.match(line))]


def api(archive: tarfile.TarFile) -> dict[str, object]:
    """Return what the source distribution says."""
    top = archive.getnames()[0].partition("/")[0]

    def read(name: str) -> str:
        file = archive.extractfile(f"{top}/pyslurm/{name}")
        assert file is not None
        return file.read().decode()

    found: dict[str, dict[str, object]] = {}
    for name, base, lines in (one for file in _FILES for one in classes(read(file + ".pyx"))):
        if name in _CLASSES:
            properties, methods = members(lines)
            found[name] = {"base": base, "properties": sorted(properties), "methods": methods}
    for name, _, lines in classes(read("core/job/submission.pxd")):
        found[name]["properties"] = sorted(public(lines))
    exported = re.findall(r"\b[A-Z]\w+", read("__init__.py"))
    errors = re.findall(r"^class (\w+)\((\w+)\)", read("core/error.pyx"), re.MULTILINE)
    version = re.search(r'__version__ = "(.*)"', read("version.py"))
    assert version is not None
    return {
        "version": version[1],
        "made_by": "tests/placement/pyslurm_api.py",
        "exported": sorted(set(exported) & {*_CLASSES, *dict(errors)}),
        "errors": dict(errors),
        "classes": found,
    }


if __name__ == "__main__":
    with tarfile.open(sys.argv[1]) as opened:
        print(json.dumps(api(opened), indent=1))
