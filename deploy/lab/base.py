"""What a lab with Slurm and one without share: named daemons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from lab.processes import Daemon, LabError
from lab.scratch import Scratch

# A slurmd that is just starting a job waits for it; nothing is worth that at the end.
_LAST_STOP_S = 1.0
_STOP_ORDER = ("agent", "interleaved", "slurmd", "slurmctld", "munged")


class Lab:
    """Daemons in a scratch folder."""

    def __init__(self, scratch: Scratch, env: Mapping[str, str]) -> None:
        self.scratch, self.env = scratch, dict(env)
        self.daemons: dict[str, Daemon] = {}

    @property
    def root(self) -> Path:
        """The folder of everything."""
        return self.scratch.root

    @property
    def config(self) -> Path:
        """The interleave.toml of this lab."""
        return self.root / "etc" / "interleave.toml"

    def logs(self, name: str, lines: int = 50) -> str:
        """Return the end of the logs of daemon *name*."""
        return self._daemon(name).logs(lines)

    def stop(self, name: str) -> None:
        """End daemon *name* (`slurmctld`, `slurmd-n1`, `munged`, `interleaved`, `agent-n1`) in order."""
        self._daemon(name).stop()

    def kill9(self, name: str) -> None:
        """End daemon *name* as a crash would."""
        self._daemon(name).kill9()

    def start_again(self, name: str) -> None:
        """Start daemon *name*, which was stopped or killed, and wait until it serves."""
        daemon = self._daemon(name)
        daemon.spawn()
        daemon.wait_ready()

    def restart(self, name: str) -> None:
        """Stop daemon *name* in order and start it again."""
        self.stop(name)
        self.start_again(name)

    def launch(self, daemons: Sequence[Daemon]) -> None:
        """Start *daemons* side by side and wait until all serve. Raises `LabError`."""
        self.daemons.update((daemon.name, daemon) for daemon in daemons)
        for daemon in daemons:
            daemon.spawn()
        for daemon in daemons:
            daemon.wait_ready()

    def stop_all(self) -> None:
        """End ours and Slurm's daemons, munged last; what else there is, the watchdog ends."""
        for prefix in _STOP_ORDER:
            chosen = [daemon for name, daemon in self.daemons.items() if name.startswith(prefix)]
            for daemon in chosen:
                daemon.terminate()
            for daemon in chosen:
                daemon.stop(_LAST_STOP_S)

    def _daemon(self, name: str) -> Daemon:
        try:
            return self.daemons[name]
        except KeyError:
            raise LabError(f"no daemon {name!r} here; there are {', '.join(self.daemons)}") from None
