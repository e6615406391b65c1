"""`make gpu-check`: the cuda backend on a machine with NVIDIA devices. PyTorch images have all that it needs.

Writes benchmarks/results/DATE-CARD-DRIVER.json. Exits with 0 if all is well, 1 if a case failed, 2 where
there is no GPU.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import platform
import re
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from gpu_cases import CASES, Figures
from gpu_stand import Skipped, Stand, Wrong

from slurm_interleave.client.core.errors import ConfigError
from slurm_interleave.node_agent.backends.cuda.probe import find
from slurm_interleave.node_agent.backends.cuda.requirements import Facts, cautions, refusals
from slurm_interleave.node_agent.backends.cuda.sight import Gpu

HERE = Path(__file__).resolve().parent
FATAL = {"no_driver", "driver_too_old"}


def main() -> None:
    args = _parser().parse_args()
    try:
        facts, gpus = find("cuda-checkpoint")
    except ConfigError as error:
        sys.exit(_without(str(error)))
    reasons = refusals(facts)
    if not gpus or any(reason.name in FATAL for reason in reasons):
        sys.exit(_without("; ".join(map(str, reasons)) or "NVML knows no device"))
    for reason in (*reasons, *cautions(facts)):
        print(f"note: {reason}")
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - for the copies of own_store
    with tempfile.TemporaryDirectory(prefix="gpu-check-", dir=memory) as folder:
        shares = args.share, args.host_share
        stand = Stand(facts, gpus, args.job, Path(folder), args.headroom_mib, *shares, args.answer_s)
        cases = asyncio.run(_run_all(stand, args.only, partial(_write, _about(facts, gpus), args.results)))
    sys.exit(1 if any(case["result"] == "failed" for case in cases) else 0)


def _about(facts: Facts, gpus: Mapping[str, Gpu]) -> dict[str, Any]:
    """Return what the figures are of."""
    card = next(iter(gpus.values()))
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "card": card.name,
        "devices": len(gpus),
        "memory_bytes": card.total,
        "driver": facts.driver,
        "cuda": facts.cuda_version,
        "kernel": platform.release(),
        "constrain_devices": facts.constrained,
        "reasons": [str(reason) for reason in (*refusals(facts), *cautions(facts))],
    }


async def _run_all(
    stand: Stand, only: str, write: Callable[[list[dict[str, Any]]], Path]
) -> list[dict[str, Any]]:
    """Run the cases; what is known is written after each, since the next may cost the machine."""
    done: list[dict[str, Any]] = []
    try:
        for case in CASES:
            if only in case.__name__:
                done.append(await _run(stand, case))
                path = write(done)
    finally:
        await stand.helpers.close()
    if done:
        print(f"written: {path}")
    return done


async def _run(stand: Stand, case: Callable[[Stand], Coroutine[Any, Any, Figures]]) -> dict[str, Any]:
    name, start, figures = case.__name__, time.monotonic(), {}
    try:
        figures, result, text = await case(stand), "ok", ""
    except Skipped as reason:
        result, text = "skipped", str(reason)
    except Wrong as error:
        result, text = "failed", str(error)
    except Exception as error:  # noqa: BLE001 - the cases to come are worth as much
        result, text = "failed", repr(error)
    finally:
        await stand.end()
    seconds = round(time.monotonic() - start, 3)
    print(f"{result:8}{name:32}{seconds:9.3f} s  {text}", flush=True)
    return {"name": name, "result": result, "seconds": seconds, "text": text, "figures": figures}


def _write(about: dict[str, Any], folder: Path, cases: list[dict[str, Any]]) -> Path:
    card = re.sub(r"[^a-z0-9]+", "-", about["card"].lower()).strip("-")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{about['date'][:10]}-{card}-{about['driver']}.json"
    path.write_text(json.dumps({**about, "cases": cases}, indent=1) + "\n")
    return path


def _without(reason: str) -> int:
    print(f"gpu-check: it needs a machine with an NVIDIA GPU: {reason}", file=sys.stderr)
    return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="The cuda backend on real devices.")
    parser.add_argument("--results", type=Path, default=HERE / "results", help="folder of the JSON file")
    parser.add_argument("--job", type=Path, default=HERE / "gpu_job.py", help="program of the processes")
    parser.add_argument("--only", default="", help="only cases with this in their name")
    parser.add_argument("--share", type=float, default=0.8, help="of a device's memory in the large case")
    parser.add_argument("--host-share", type=float, default=0.8, help="of free host memory for its copy")
    parser.add_argument("--answer-s", type=float, default=300.0, help="seconds for a process to answer")
    parser.add_argument("--headroom-mib", type=int, default=1024, help="as in [cuda]")
    return parser


if __name__ == "__main__":
    main()
