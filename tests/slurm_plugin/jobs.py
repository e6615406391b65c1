"""What jobs on a real Slurm are given, and what is read of them."""

from __future__ import annotations

TOKEN = "INTERLEAVE_TOKEN"
CHOSEN = ("--interleave-role=trainer", "--interleave-backend=app_channel,sim", "--interleave-max-wait=1:30")


def variables(text: str) -> dict[str, str]:
    return dict(line.partition("=")[::2] for line in text.splitlines())


def script(text: str) -> list[str]:
    return ["sh", "-c", text]


def group_in(comment: str) -> str:
    return comment.partition("group=")[2].partition(";")[0]
