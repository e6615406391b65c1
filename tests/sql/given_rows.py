"""Any rows, for property tests."""

from __future__ import annotations

import typing
from dataclasses import fields
from typing import Any

from hypothesis import strategies as st

from slurm_interleave.client.core.states import Context, SliceState
from slurm_interleave.sql import rows

KINDS: tuple[type[rows.Row], ...] = typing.get_args(rows.Row)
names = st.text(st.sampled_from("abcXYZ019._-+"), min_size=1, max_size=30)
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=100)
numbers = st.integers(0, 2**62)
times = st.floats(0, 4e9)
_BY_TYPE: dict[Any, st.SearchStrategy[Any]] = {
    "str": texts,
    "int": numbers,
    "float": times,
    "bool": st.booleans(),
    "Context": st.sampled_from(Context),
    "SliceState": st.sampled_from(SliceState),
    "tuple[str, ...]": st.lists(names, max_size=4).map(tuple),
    "tuple[int, ...]": st.lists(st.integers(0, 127), max_size=8).map(tuple),
}


def any_row(kind: type[rows.Row], **known: Any) -> st.SearchStrategy[Any]:
    """Return rows of *kind*: names where it is a key, any text elsewhere."""
    parts = {
        field.name: names if field.name in kind.KEY and field.type == "str" else _BY_TYPE[field.type]
        for field in fields(kind)
    }
    return st.builds(kind, **{**parts, **known})


any_rows = st.lists(st.sampled_from(KINDS).flatmap(any_row), max_size=12)


def ended_slice(epoch: int, **more: Any) -> rows.Slice:
    """Return one slice; what the test does not say is plain."""
    known: dict[str, Any] = {
        **dict.fromkeys(("role", "account", "partition", "name", "backend", "phase"), ""),
        **dict.fromkeys(("switch_s", "snapshot_s", "restore_s"), 0.0),
        "job_id": "17",
        "group": "demo",
        "user": "alice",
        "uid": 1000,
        "state": SliceState.YIELDED,
        "nodes": ("n1",),
        "devices": ("n1/0",),
        "switched": False,
        "switch_bytes": 0,
        "requested": float(epoch),
        "granted": epoch + 0.1,
        "ended": epoch + 0.5,
    }
    return rows.Slice(epoch=epoch, **{**known, **more})
