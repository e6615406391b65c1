"""Text from outside becomes a name here, once; inside, nobody checks again."""

from __future__ import annotations

import re
from typing import NewType

from slurm_interleave.client.core.errors import BadName

JobId = NewType("JobId", str)
GroupName = NewType("GroupName", str)

# slurm_plugin/ has the same pattern in C and Lua; tests/slurm_plugin/test_names.py holds the three together.
GROUP_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
GROUP_NAME_RULE = (
    "1 to 63 characters: letters, digits, dot, underscore and dash, beginning with a letter or a digit"
)
_JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,127}")
PHASE_MAX = 128
_EXCERPT = 80


def excerpt(value: object) -> str:
    """Return *value* for an error, whose text stays short whoever wrote the value."""
    text = repr(value)
    return text if len(text) <= _EXCERPT else f"{text[:_EXCERPT]}..."


def parse_group_name(text: str) -> GroupName:
    """Return *text* as a group name. Raises `BadName` with what is allowed."""
    if not GROUP_NAME.fullmatch(text):
        raise BadName(f"group name {excerpt(text)} is not allowed; allowed are {GROUP_NAME_RULE}")
    return GroupName(text)


def parse_profile_name(text: str) -> str:
    """Return *text* as the name of a profile, or empty for none: the rule of groups. Raises `BadName`."""
    if text and not GROUP_NAME.fullmatch(text):
        raise BadName(f"profile name {excerpt(text)} is not allowed; allowed are {GROUP_NAME_RULE}")
    return text


def parse_job_id(text: str) -> JobId:
    """Return *text* as a job id (Slurm's number, or any name outside Slurm). Raises `BadName`."""
    if not _JOB_ID.fullmatch(text):
        raise BadName(
            f"job id {excerpt(text)} is not allowed; allowed are 1 to 128 letters, digits, dots, "
            "underscores, plus signs and dashes, beginning with a letter or a digit"
        )
    return JobId(text)


def parse_phase(text: str) -> str:
    """Return *text* as the name of a phase: any printable text, cut to 128 characters."""
    return "".join(c if c.isprintable() else " " for c in text[:PHASE_MAX])
