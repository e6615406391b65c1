"""Makes docs/settings.md: each key of interleave.toml with its default, from the classes that read it.

Usage: python deploy/settings_page.py [--check]. With --check nothing is written: exit code 1 if the page is
old.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any, cast

from slurm_interleave.client.connect import ClientConfig
from slurm_interleave.client.core.groups import DeclaredGroup
from slurm_interleave.client.core.tracing import TracingConfig
from slurm_interleave.client.sim.settings import SimConfig
from slurm_interleave.node_agent.backends.cuda.settings import CudaConfig
from slurm_interleave.node_agent.config import AgentConfig
from slurm_interleave.orchestrator.config import OrchestratorConfig
from slurm_interleave.orchestrator.core.rules import Rules
from slurm_interleave.orchestrator.pairing.config import PairingConfig
from slurm_interleave.orchestrator.placement.config import PlacementConfig
from slurm_interleave.orchestrator.placement.sharing import NodeClass
from slurm_interleave.orchestrator.web.config import WebConfig

PAGE = Path(__file__).parents[1] / "docs" / "settings.md"
SECTIONS: dict[str, tuple[type, str]] = {
    "orchestrator": (OrchestratorConfig, "read by `interleaved`"),
    "turns": (Rules, "read by `interleaved`"),
    "placement": (PlacementConfig, "read by `interleaved`"),
    "node_classes.NAME": (NodeClass, "read by `interleaved`; nodes that are shared in another way"),
    "groups.NAME": (
        DeclaredGroup,
        "read by `interleaved` and agents; groups without Slurm ([how](without-slurm.md))",
    ),
    "pairing": (PairingConfig, "read by `interleaved`, and by `interleave pair` for the jobs of files"),
    "web": (WebConfig, "read by `interleaved`"),
    "agent": (AgentConfig, "read by `interleave-agent`; in paths %n is the node's name"),
    "cuda": (CudaConfig, "read by `interleave-agent`"),
    "sim": (SimConfig, "read by `interleave-agent` and by jobs on simulated devices"),
    "client": (ClientConfig, "read by jobs and commands"),
    "tracing": (TracingConfig, "read by both daemons"),
}
HEAD = """# Settings

<!-- Made by `python deploy/settings_page.py` from the classes that read them. -->

`/etc/slurm/interleave.toml`, or the file that `INTERLEAVE_CONFIG` or `--config` names.
`INTERLEAVE_SECTION_KEY` in the environment comes before the file (`INTERLEAVE_AGENT_WATCH_S`), an option of
the command line before both. An unknown key is refused, with the nearest known one.
"""


def said(cls: type) -> dict[str, str]:
    """Return what the source of *cls* says of each field: the comment above it, or the text below."""
    source = inspect.getsource(cls)
    lines, body = source.splitlines(), cast("ast.ClassDef", ast.parse(source).body[0]).body
    found: dict[str, str] = {}
    for node, after in zip(body, [*body[1:], None], strict=True):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        above: list[str] = []
        for line in reversed(lines[: node.lineno - 1]):
            if not line.strip().startswith("#"):
                break
            above.insert(0, line.strip().lstrip("# "))
        below = ast.get_docstring(ast.Module([after], [])) if isinstance(after, ast.Expr) else ""
        found[node.target.id] = " ".join(" ".join(above).split() or (below or "").split())
    return found


def default(field: Field[Any]) -> str:
    """Return the default of *field* as one writes it in TOML."""
    if field.default is not MISSING:
        value = field.default
    elif field.default_factory is not MISSING:
        value = field.default_factory()
    else:
        return "needed"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, str | Path):
        return f'`"{value}"`'
    if isinstance(value, tuple):
        return f"`{json.dumps(value)}`"
    if isinstance(value, dict):
        return "`{}`"
    return f"`{value:g}`"


def page() -> str:
    """Return the page."""
    text = HEAD
    for name, (cls, reader) in SECTIONS.items():
        text += f"\n## [{name}]\n\n{reader[0].upper()}{reader[1:]}.\n\n| key | default | |\n|---|---|---|\n"
        notes = said(cls)
        for field in fields(cls):
            if name == "placement" and field.name == "classes":
                continue
            note = re.sub(r"\|", r"\\|", notes[field.name])
            text += f"| `{field.name}` | {default(field)} | {note} |\n"
    return text


def main(arguments: list[str]) -> int:
    """Write the page, or tell whether it is as it would be written."""
    if arguments == ["--check"]:
        if PAGE.exists() and PAGE.read_text() == page():
            return 0
        sys.stderr.write(f"{PAGE}: is old; run: python deploy/settings_page.py\n")
        return 1
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
