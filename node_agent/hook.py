"""`interleave-hook`: what prolog and epilog call. Standard library alone, one request, 2 s at most."""

from __future__ import annotations

import argparse
import json
import re
import socket
import sys
import time

_LIMIT_S = 2.0
_DEFAULT_SOCKET = {"job-over": "/run/interleave/interleaved.sock"}
_NUMBERS = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?", re.ASCII)
_AGENT_SOCKET = "/run/interleave/agent.sock"


def main() -> None:
    """Send the request; exit 0 if it was taken, 1 with a line on stderr if not."""
    args = _parser().parse_args()
    path = args.socket or _DEFAULT_SOCKET.get(args.verb, _AGENT_SOCKET)
    try:
        reply = ask(path, request_of(args))
    except (OSError, ValueError) as error:
        sys.exit(
            f"interleave-hook: {args.verb} of job {args.job}: {path}: no answer: {error or 'time is up'}"
        )
    if not reply.get("ok"):
        sys.exit(f"interleave-hook: {args.verb} of job {args.job}: refused: {reply.get('error')}")


def request_of(args: argparse.Namespace) -> dict[str, object]:
    """Return the request that the arguments mean."""
    request: dict[str, object] = {"verb": args.verb, "job": args.job}
    if args.verb == "job-start":
        for key in (
            *("uid", "gid", "user", "account", "partition"),
            *("group", "role", "backend", "restarts", "max_wait", "profile", "max_slowdown"),
        ):
            request[key] = getattr(args, key)
        request["devices"] = devices(args.devices) if args.devices else None
    if args.verb == "job-over":
        request["ended"] = args.ended or int(time.time())
    return request


def devices(text: str) -> list[int | str]:
    """Return what a list like 0,2-3 or GPU-8932f937,GPU-20bd9fae names: numbers, and names as they are."""
    named: list[int | str] = []
    for part in text.split(","):
        if numbers := _NUMBERS.fullmatch(part.strip()):
            first, last = numbers.groups()
            named += range(int(first), int(last or first) + 1)
        else:
            named.append(part.strip())
    return named


def ask(path: str, request: dict[str, object]) -> dict[str, object]:
    """Return the daemon's reply. Raises `OSError` and `ValueError` if there is none."""
    until, line = time.monotonic() + _LIMIT_S, b""
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(_left(until))
        link.connect(path)
        link.settimeout(_left(until))
        link.sendall(json.dumps(request).encode() + b"\n")
        while not line.endswith(b"\n"):
            link.settimeout(_left(until))
            if not (data := link.recv(65_536)):
                break
            line += data
    return dict(json.loads(line))


def _left(until: float) -> float:
    """Return the seconds until then: the limit is one for all, and not for each operation."""
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError("time is up")
    return left


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="interleave-hook", description="Tells the daemons of slurm-interleave of a job's start and end."
    )
    parser.add_argument("verb", choices=("job-start", "job-end", "job-over"))
    parser.add_argument("--job", required=True, help="job id")
    for name in ("uid", "gid", "user", "account", "partition", "group", "role"):
        parser.add_argument(f"--{name}", default="", help=f"the job's {name}")
    parser.add_argument("--restarts", default="", help="how often Slurm has put the job back into its queue")
    parser.add_argument(
        "--backend",
        default="",
        help="what moves the job's device state; empty: what it registers, or the node's",
    )
    parser.add_argument(
        "--max-wait", default="", help="seconds that the job waits for a turn, at most; empty: no limit"
    )
    parser.add_argument("--profile", default="", help="what is learned of it goes by this name")
    parser.add_argument("--max-slowdown", default="", help="percent; empty: as the site says")
    parser.add_argument(
        "--devices",
        default="",
        help="device indices or UUIDs, as 0,2-3 or GPU-8932f937; empty: those reserved for the job",
    )
    parser.add_argument(
        "--ended", default="", help="when the job ended, in seconds since the Unix epoch; empty: now"
    )
    parser.add_argument(
        "--socket", default="", help="socket of the daemon, in place of the one in /run/interleave"
    )
    return parser


if __name__ == "__main__":
    main()
