"""What the demo prints at its end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from demo.jobs import DemoJob, Outcome
from demo.measure import Alone, Interleaved


def comparison(alone: Alone, shared: Interleaved) -> Table:
    """Return the table: one after the other against interleaved."""
    table = Table(title="The same two jobs on one device")
    table.add_column("")
    table.add_column("one after the other", justify="right")
    table.add_column("interleaved", justify="right")
    saved = 1 - shared.makespan_s / alone.makespan_s
    table.add_row("makespan", f"{alone.makespan_s:.1f} s", f"{shared.makespan_s:.1f} s ({-saved:+.0%})")
    table.add_row("device duty cycle", f"{alone.duty:.0%}", f"{shared.duty:.0%}")
    table.add_row("device computed", f"{alone.busy_s:.1f} s", f"{shared.busy_s:.1f} s")
    table.add_row("switches", "0", str(shared.switches))
    table.add_row("in snapshots", "0", f"{shared.snapshot_s:.2f} s")
    table.add_row("in restores", "0", f"{shared.restore_s:.2f} s")
    ours = f"{shared.overhead_s * 1000:.1f} ms (median of {shared.handovers})"
    table.add_row("handover overhead, ours", "-", ours)
    return table


def proof(jobs: Sequence[DemoJob], alone: Sequence[Outcome], shared: Sequence[Outcome]) -> Table:
    """Return the table that compares each job's results with those of its solo run."""
    table = Table(title="Nothing changed: interleaved against solo, bit for bit")
    for heading in ("job", "final parameters (SHA-256)", "rewards", "first to last reward", "identical"):
        table.add_column(heading)
    for job, one, two in zip(jobs, alone, shared, strict=True):
        rewards = [float(line.rpartition(",")[2]) for line in two.rewards]
        table.add_row(
            job.label,
            two.params_sha256[:16] + "...",
            f"{len(rewards)} steps",
            f"{rewards[0]:.3f} to {rewards[-1]:.3f}",
            "yes" if identical(one, two) else "NO",
        )
    return table


def identical(one: Outcome, two: Outcome) -> bool:
    """Tell whether two runs ended with the same parameters and had the same rewards, to the bit."""
    return (one.params_sha256, one.rewards) == (two.params_sha256, two.rewards)


def say_where(console: Console, path: Path) -> None:
    """Print the path of the timeline."""
    console.print(f"Timeline (a web page that needs no network): {path}", soft_wrap=True, highlight=False)
