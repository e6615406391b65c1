"""Configuration: one frozen dataclass a section, one loader for all.

Precedence, lowest first: the default in the class, `/etc/slurm/interleave.toml` (or `$INTERLEAVE_CONFIG`),
`INTERLEAVE_<SECTION>_<KEY>` in the environment, a command-line flag.
"""

from __future__ import annotations

import os
import sys
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, TypeVar

from slurm_interleave.client.core.errors import ConfigError
from slurm_interleave.client.core.names import excerpt
from slurm_interleave.client.core.near import hint

DEFAULT_PATH = Path("/etc/slurm/interleave.toml")
_LARGEST = 1_000_000_000
_TRUE, _FALSE = frozenset({"1", "true", "yes", "on"}), frozenset({"0", "false", "no", "off"})

Section = TypeVar("Section")


def read_toml(path: Path) -> dict[str, Any]:
    """Return the tables of *path*. Raises `ConfigError` if it is there but cannot be read."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; name another with --config or INTERLEAVE_CONFIG") from None
    except (OSError, ValueError, RecursionError) as error:  # of numbers and of brackets without end, too
        raise ConfigError(f"{path}: cannot be read as TOML: {error}") from error


def config_path(flag: str | None, environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return the file to read: the flag's, the environment's, or the default one if it exists."""
    named = flag or environ.get("INTERLEAVE_CONFIG")
    if named:
        return Path(named)
    try:
        return DEFAULT_PATH if DEFAULT_PATH.exists() else None
    except OSError:  # it cannot be looked at; who reads it says why
        return DEFAULT_PATH


def load_section(
    cls: type[Section],
    name: str,
    path: Path | None,
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Section:
    """Return section *name* as a *cls*.

    Flags that are None count as not given. Raises `ConfigError` for an unknown key (with the nearest known
    one) and for a value of the wrong type.
    """
    table = _table(read_toml(path).get(name, {}) if path else {}, f"{path}: {name!r}", name)
    values = _values(cls, table, f"{path}: [{name}]")
    types = typing.get_type_hints(cls)
    known = [field.name for field in fields(cls)]  # type: ignore[arg-type]
    for key in known:
        variable = f"INTERLEAVE_{name}_{key}".upper()
        if variable in environ:
            values[key] = _convert(environ[variable], types[key], variable)
    values.update({key: value for key, value in (flags or {}).items() if value is not None})
    return cls(**values)


def load_tables(cls: type[Section], name: str, path: Path | None) -> dict[str, Section]:
    """Return each table [*name*.KEY] as a *cls*, by KEY. Raises `ConfigError` as `load_section` does."""
    tables = _table(read_toml(path).get(name, {}) if path else {}, f"{path}: {name!r}", f"{name}.NAME")
    loaded = {}
    for key, raw in tables.items():
        where = f"{path}: [{name}.{key}]"
        values = _values(cls, _table(raw, where, f"{name}.{key}"), where)
        try:
            loaded[key] = cls(**values)
        except TypeError:
            needed = [f.name for f in fields(cls) if f.default is f.default_factory is MISSING]  # type: ignore[arg-type]
            raise ConfigError(f"{where}: needs the keys {', '.join(needed)}") from None
        except ConfigError as error:
            raise ConfigError(f"{where} {error}") from None
    return loaded


def _table(raw: Any, where: str, name: str) -> dict[str, Any]:
    if not isinstance(raw, dict):
        raise ConfigError(f"{where} must be a table, as in [{name}]")
    return raw


def _values(cls: type[Section], table: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return what *table* holds, each value as the type of its field."""
    types = typing.get_type_hints(cls)
    known = [field.name for field in fields(cls)]  # type: ignore[arg-type]
    values = {}
    for key, value in table.items():
        if key not in known:
            meant = hint(key, known) or f"; known are {', '.join(known)}"
            raise ConfigError(f"{where} has no key {key!r}{meant}")
        values[key] = _convert(value, types[key], f"{where} {key}")
    return values


def _convert(value: Any, wanted: Any, where: str) -> Any:
    """Return *value*, from TOML or from text, as type *wanted*."""
    try:
        return _reader(wanted)(value)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{where}: {excerpt(value)} cannot be used: {error}") from error


def _reader(wanted: Any) -> Callable[[Any], Any]:
    """Return the function that turns a raw value into type *wanted*."""
    origin = typing.get_origin(wanted)
    if origin is tuple:
        return _as_numbers if typing.get_args(wanted)[0] is int else _as_words
    if origin is dict:
        return _as_table
    return _READERS[wanted]


def _as_words(raw: Any) -> tuple[str, ...]:
    return tuple(_as_text(item).strip() for item in _as_items(raw))


def _as_numbers(raw: Any) -> tuple[int, ...]:
    return tuple(_as_int(item) for item in _as_items(raw))


def _as_items(raw: Any) -> list[Any]:
    if isinstance(raw, str):
        return list(raw.split(","))
    if not isinstance(raw, list):
        raise TypeError("a list is needed")
    return raw


def _as_table(raw: Any) -> dict[str, Any]:
    if not isinstance(raw, dict):
        raise TypeError("a table is needed")
    return raw


def _as_text(raw: Any) -> str:
    if not isinstance(raw, str):
        raise TypeError("text is needed")
    if not raw.isprintable():
        raise ValueError("printable text is needed")
    return raw


def _as_int(raw: Any) -> int:
    if isinstance(raw, (bool, float)):
        raise TypeError("a whole number is needed")
    return int(_as_size(int(raw)))


def _as_float(raw: Any) -> float:
    if isinstance(raw, bool):
        raise TypeError("a number is needed")
    return float(_as_size(raw if isinstance(raw, int) else float(raw)))


def _as_size(number: float) -> float:
    """Return *number* if one can count with it, as one cannot with NaN."""
    if not -_LARGEST <= number <= _LARGEST:
        raise ValueError(f"a number between -{_LARGEST} and {_LARGEST} is needed")
    return number


def _as_bool(raw: Any) -> bool:
    text = str(raw).lower()
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ValueError("one of true, false, yes, no, on, off, 1, 0 is needed")


_READERS: dict[Any, Callable[[Any], Any]] = {
    bool: _as_bool,
    int: _as_int,
    float: _as_float,
    str: _as_text,
    Path: lambda raw: Path(_as_text(raw)),
}
