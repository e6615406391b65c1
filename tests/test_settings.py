"""The page of settings, and what is said of wrong ones."""

from __future__ import annotations

import dataclasses
import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from settings_page import SECTIONS

from slurm_interleave.client.core import config
from slurm_interleave.client.core.config import load_section, load_tables
from slurm_interleave.client.core.errors import ConfigError

ROOT = Path(__file__).parents[1]


def test_the_page_of_settings_is_what_the_classes_say() -> None:
    check = [sys.executable, "deploy/settings_page.py", "--check"]
    run = subprocess.run(check, cwd=ROOT, capture_output=True, text=True, env=os.environ, timeout=60)

    assert run.returncode == 0, run.stderr


NESTED = b"a=" + b"[" * 20_000
FILES = [
    b"\xff\xfe",
    b"\0",
    NESTED,
    NESTED.replace(b"[", b"{a="),
    b"a=" + b"9" * 5_000,
    b"[client",
    b"client=1",
]
VALUES = [
    *("true", "-1", "0", "1.5", "nan", "inf", "-inf", "1e400", "9" * 30, "9" * 400, "0x" + "f" * 300),
    *(
        '""',
        '"x"',
        '"nan"',
        '"inf"',
        '"\\u0000"',
        '"a\\u0000b"',
        '"a\\nb"',
        '"\\u202e"',
        '"' + "9" * 5_000 + '"',
    ),
    *("[]", "[1]", "[[1]]", '["a\\u0000"]', "{}", "{a=1}", "{a=nan}", '{a="x"}', "1979-05-27"),
]


def load(section: str, path: Path) -> object:
    cls, name, named = SECTIONS[section][0], section.partition(".")[0], section.endswith(".NAME")
    return load_tables(cls, name, path) if named else load_section(cls, name, path, environ={})


@pytest.mark.parametrize("raw", FILES, ids=lambda raw: repr(raw[:8]))
def test_a_file_that_is_none_is_refused_with_its_name(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "interleave.toml"
    path.write_bytes(raw)

    with pytest.raises(ConfigError, match=re.escape(str(path))):
        load("client", path)


@pytest.mark.parametrize("section", SECTIONS)
def test_each_key_takes_a_value_that_can_be_used_or_says_what_it_needs(tmp_path: Path, section: str) -> None:
    path, table = tmp_path / "interleave.toml", section.replace("NAME", "x")
    for field, value in itertools.product(dataclasses.fields(SECTIONS[section][0]), VALUES):
        path.write_text(f"[{table}]\n{field.name} = {value}\n")
        try:
            loaded = load(section, path)
        except ConfigError:
            continue
        kept = getattr(loaded, field.name) if not isinstance(loaded, dict) else 0
        assert str(kept).isprintable(), (field.name, value)
        assert not isinstance(kept, (int, float)) or abs(kept) <= 1e9, (field.name, value)


def test_a_file_is_utf_8_whatever_the_locale_and_editor(tmp_path: Path) -> None:
    path = tmp_path / "interleave.toml"
    path.write_bytes(b"\xef\xbb\xbf[client]\nmunge_socket = '/\xc3\xa9'\n")
    code = "import sys; from pathlib import Path; from slurm_interleave.client.core.config import read_toml\n"
    code += "print(ascii(read_toml(Path(sys.argv[1]))))"
    env = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    call = [sys.executable, "-c", code, str(path)]
    run = subprocess.run(call, capture_output=True, text=True, env=env, timeout=60)

    assert run.stdout == "{'client': {'munge_socket': '/\\xe9'}}\n", run.stderr


def test_a_default_file_that_may_not_be_looked_at_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(config, "DEFAULT_PATH", tmp_path)
    monkeypatch.setattr(Path, "exists", refuse)

    assert config.config_path(None, {}) == tmp_path
    with pytest.raises(ConfigError, match=re.escape(f"{tmp_path}: cannot be read")):
        load("client", tmp_path)


def test_a_wrong_key_of_a_named_table_is_said_with_its_file_once(tmp_path: Path) -> None:
    path = tmp_path / "interleave.toml"
    path.write_text("[node_classes.old]\nmembrs = 3\n")

    with pytest.raises(ConfigError) as caught:
        load_tables(SECTIONS["node_classes.NAME"][0], "node_classes", path)

    assert str(caught.value).count(str(path)) == 1
    assert "did you mean 'members'" in str(caught.value)
