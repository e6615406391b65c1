"""Finds in the source what is logged: the events, with the names of their fields."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from slurm_interleave.node_agent.contexts import Verb

_LEVELS = frozenset({"debug", "info", "warning", "error", "exception", "critical"})
_WORDS = {"verb.value": [verb.value for verb in Verb]}  # what may stand in an event's name
_CORES = frozenset({"Note"})  # what a core makes instead of a line; its event is the first argument
_Function = (ast.FunctionDef, ast.AsyncFunctionDef)


class Unclear(Exception):
    """An event whose name cannot be read from the source."""


@dataclass(frozen=True)
class Logged:
    """One event, where it is logged, and its fields as far as they stand there."""

    event: str
    file: Path
    line: int
    fields: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Call:
    node: ast.Call
    name: str
    inside: ast.FunctionDef | ast.AsyncFunctionDef | None
    file: Path


def logged(files: list[Path]) -> Iterator[Logged]:
    """Yield all events that *files* log. Raises `Unclear`."""
    calls = [call for file in files for call in _calls(file)]
    for call in calls:
        if _is_log(call) or call.name in _CORES:
            yield from _events(call, 0, _fields(call), calls)


def _calls(file: Path) -> Iterator[_Call]:
    def walk(node: ast.AST, inside: ast.FunctionDef | ast.AsyncFunctionDef | None) -> Iterator[_Call]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Call):
                function = child.func
                name = getattr(function, "attr", getattr(function, "id", ""))
                yield _Call(child, name, inside, file)
            yield from walk(child, child if isinstance(child, _Function) else inside)

    yield from walk(ast.parse(file.read_text()), None)


def _is_log(call: _Call) -> bool:
    function = call.node.func
    on_log = isinstance(function, ast.Attribute) and ast.unparse(function.value) in ("log", "logging")
    return on_log and call.name in _LEVELS


def _events(call: _Call, position: int, fields: tuple[str, ...], calls: list[_Call]) -> Iterator[Logged]:
    """Yield what the argument at *position* may be; of a parameter, what the function's callers give."""
    where = f"{call.file}:{call.node.lineno}"
    if len(call.node.args) <= position:
        raise Unclear(f"{where}: the event is not argument {position + 1}")
    match call.node.args[position]:
        case ast.Constant(value=str() as event):
            yield Logged(event, call.file, call.node.lineno, fields)
        case ast.JoinedStr() as text:
            yield from (Logged(each, call.file, call.node.lineno, fields) for each in _filled(text, where))
        case ast.Name(id=name) if call.inside and name in _parameters(call.inside):
            place = _parameters(call.inside).index(name)
            for caller in _callers(call.inside.name, call.file, calls):
                yield from _events(caller, place, fields, calls)
        case ast.Attribute(attr="event"):
            pass  # of a core's note, which is looked at where it is made
        case other:
            raise Unclear(f"{where}: {ast.unparse(other)} is no event's name")


def _callers(function: str, file: Path, calls: list[_Call]) -> list[_Call]:
    """Return the calls of *function* in the folder where it is; elsewhere another may have its name."""
    return [call for call in calls if call.name == function and call.file.parent == file.parent]


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    return [argument.arg for argument in function.args.args if argument.arg != "self"]


def _filled(text: ast.JoinedStr, where: str) -> list[str]:
    events = [""]
    for part in text.values:
        if isinstance(part, ast.Constant):
            words = [str(part.value)]
        else:
            words = _WORDS.get(ast.unparse(part).strip("{}f'\""), [])
        if not words:
            raise Unclear(f"{where}: {ast.unparse(part)} may be anything; name the events in full")
        events = [event + word for event in events for word in words]
    return events


def _fields(call: _Call) -> tuple[str, ...]:
    extra = next((word.value for word in call.node.keywords if word.arg == "extra"), None)
    keys = extra.keys if isinstance(extra, ast.Dict) else []
    return tuple(str(key.value) for key in keys if isinstance(key, ast.Constant))
