"""The text that job_submit and the placement helper keep in a job's AdminComment, which users cannot set.

`interleave:v1;group=NAME;nodes=N;devices=K;role=R;state=held`, and once placed
`interleave:v1;group=NAME;nodes=N;devices=K;role=R;lane=ilva;indices=0,1;state=placed`, which becomes
`state=released` after its release: from then on, a hold is its user's. After the role come `backend=` and
`max_wait=` (seconds), `profile=`, `gpu_type=` and `max_slowdown=` (percent) where the job was submitted with
them, and before the state of a held one `why=`, what keeps it from a place. In Slurm's accounting it ends
with `state=ended` and what the job had of its turns (`figures.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from slurm_interleave.client.core.errors import BadName
from slurm_interleave.client.core.names import GroupName, parse_group_name
from slurm_interleave.orchestrator.placement.plan import Placement

_PREFIX = "interleave:v1;"
HELD, PLACED, RELEASED, ENDED = "held", "placed", "released", "ended"


@dataclass(frozen=True)
class AdminComment:
    """What a job asked for, and what it was given."""

    group: GroupName
    nodes: int
    devices: int
    """On each node."""
    role: str = ""
    backend: str = ""
    max_wait_s: int = 0
    profile: str = ""
    """The name under which its workload is learned; empty: by account, name and devices."""
    gpu_type: str = ""
    """The type of GPU that it asked for; empty: any."""
    max_slowdown: int | None = None
    """Percent that it may become slower by sharing; None: as the site says."""
    state: str = HELD
    lane: str = ""
    indices: tuple[int, ...] = ()
    why: str = ""
    """Which rule keeps it from a place."""
    figures: str = ""
    """What it had of its turns, once it is over."""

    def placed(self, placement: Placement) -> AdminComment:
        """Return the comment of the job once it has its place, and a group if it left that open."""
        group = parse_group_name(placement.group)
        return replace(
            self, group=group, state=PLACED, lane=placement.lane, indices=placement.devices, why=""
        )

    def released(self, placement: Placement) -> AdminComment:
        """Return the comment of the job once it may start in its place."""
        return replace(self.placed(placement), state=RELEASED)

    def refused(self, why: str) -> AdminComment:
        """Return the comment of the held job with the rule that keeps it from a place; empty: none does."""
        return replace(self, why=why.replace(";", ","))

    def ended(self, figures: str) -> AdminComment:
        """Return the comment of the job once it is over, with what it had of its turns."""
        return replace(self, state=ENDED, why="", figures=figures)

    def held_again(self) -> AdminComment:
        """Return the comment of the job as it was submitted, in the group that it came into."""
        return replace(self, state=HELD, lane="", indices=(), why="")


def format_comment(comment: AdminComment) -> str:
    """Return *comment* as the text for Slurm."""
    fields = [
        ("group", comment.group),
        ("nodes", str(comment.nodes)),
        ("devices", str(comment.devices)),
        ("role", comment.role),
    ]
    if comment.backend:
        fields.append(("backend", comment.backend))
    if comment.max_wait_s:
        fields.append(("max_wait", str(comment.max_wait_s)))
    if comment.profile:
        fields.append(("profile", comment.profile))
    if comment.gpu_type:
        fields.append(("gpu_type", comment.gpu_type))
    if comment.max_slowdown is not None:
        fields.append(("max_slowdown", str(comment.max_slowdown)))
    if comment.lane:
        fields += [("lane", comment.lane), ("indices", ",".join(map(str, comment.indices)))]
    if comment.why:
        fields.append(("why", comment.why))
    fields.append(("state", comment.state))
    text = ";".join(f"{key}={value}" for key, value in fields)
    return f"{_PREFIX}{text};{comment.figures}" if comment.figures else _PREFIX + text


def parse_comment(text: str) -> AdminComment | None:
    """Return what *text* says, or None if it is not ours. Raises `BadName` if it is ours but unusable."""
    if not text.startswith(_PREFIX):
        return None
    fields = dict(part.partition("=")[::2] for part in text[len(_PREFIX) :].split(";"))
    try:
        nodes, devices = int(fields["nodes"]), int(fields["devices"])
        indices = tuple(int(index) for index in fields.get("indices", "").split(",") if index)
        group, max_wait_s = parse_group_name(fields["group"]), int(fields.get("max_wait", 0))
        state, slowdown = fields["state"], fields.get("max_slowdown")
        max_slowdown = None if slowdown is None else int(slowdown)
    except (KeyError, ValueError, BadName) as error:
        raise BadName(f"AdminComment {text!r} cannot be used: {error}") from error
    if nodes < 1 or devices < 1:
        raise BadName(f"AdminComment {text!r} cannot be used: nodes and devices must be 1 or more")
    return AdminComment(
        group,
        nodes,
        devices,
        role=fields.get("role", ""),
        backend=fields.get("backend", ""),
        max_wait_s=max_wait_s,
        profile=fields.get("profile", ""),
        gpu_type=fields.get("gpu_type", ""),
        max_slowdown=max_slowdown,
        state=state,
        lane=fields.get("lane", ""),
        indices=indices,
        why=fields.get("why", ""),
    )
