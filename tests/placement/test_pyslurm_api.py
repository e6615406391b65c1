"""What the stand-in of pyslurm has, pyslurm has: held against the names in its source (pyslurm_api.py)."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import json
from pathlib import Path
from typing import Any

import pytest

from slurm_interleave.orchestrator.placement import pyslurm_worker

HERE = Path(__file__).parent
API = json.loads((HERE / "pyslurm_api.json").read_text())


def standin() -> Any:
    spec = importlib.util.spec_from_file_location("standin_pyslurm", HERE / "standin" / "pyslurm.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shape(function: Any) -> list[list[str]]:
    found = []
    for parameter in list(inspect.signature(function).parameters.values()):
        default = "" if parameter.default is parameter.empty else repr(parameter.default)
        if parameter.name != "self":
            found.append([parameter.name, default])
    return found


def public_classes(module: Any) -> dict[str, Any]:
    return {
        name: kind
        for name, kind in vars(module).items()
        if getattr(kind, "__module__", "") == module.__name__ and name[0] != "_"
    }


def test_the_stand_in_has_no_class_that_pyslurm_has_not() -> None:
    classes = public_classes(standin())

    errors = {name for name, kind in classes.items() if issubclass(kind, Exception)}
    assert {name: classes[name].__bases__[0].__name__ for name in errors} == API["errors"]
    assert classes.keys() - errors == API["classes"].keys()
    assert classes.keys() - {"MultiClusterMap"} == set(API["exported"])


@pytest.mark.parametrize("name", API["classes"])
def test_each_attribute_of_the_stand_in_is_one_of_pyslurm_and_each_method_takes_the_same(name: str) -> None:
    real, ours = API["classes"][name], getattr(standin(), name)

    assert set(getattr(ours, "_known", ())) <= set(real["properties"])
    methods = {key: value for key, value in vars(ours).items() if key[0] != "_" and key != "values"}
    assert {key: shape(method) for key, method in methods.items()} == {
        key: real["methods"].get(key) for key in methods
    }
    if hasattr(ours, "values"):
        assert API["classes"]["MultiClusterMap"]["methods"]["values"] == []
        assert real["base"] in ("", "MultiClusterMap")


def test_what_is_read_of_a_job_is_what_the_stand_in_has() -> None:
    """Else an attribute that a test never reaches could be one that pyslurm has not."""
    tree = ast.parse(inspect.getsource(pyslurm_worker.slurm_job))
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "job"
    }

    assert used == set(standin().Job._known)
