"""Ray: tasks and actors that use devices take turns under the hood; only the driver acquires.

    turns = RayTurns.from_env()

    @turns.task
    @ray.remote(num_gpus=1)
    def sample(prompts): ...

    @turns.actor
    @ray.remote(num_gpus=1)
    class Trainer: ...

`.remote()` waits for the devices; when nothing that was called so is under way any more, they are yielded.
A call from within a worker is not seen. In an asyncio driver:
`await asyncio.to_thread(trainer.step.remote, batch)`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from typing import Any

from slurm_interleave.client.core.errors import InterleaveError
from slurm_interleave.client.interleaver import Interleaver


class RayTurns:
    """The turns of one driver. Safe for threads."""

    def __init__(self, interleaver: Interleaver, wait: Callable[[list[Any]], object] | None = None) -> None:
        """*wait* returns when all the references are ready (default: Ray's own)."""
        self._interleaver = interleaver
        self._wait = wait or _wait
        self._lock = threading.Lock()
        self._pending: list[Any] = []
        self._watcher: threading.Thread | None = None
        self._error: InterleaveError | None = None  # of a yield; the next call raises it

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ) -> RayTurns:
        """Return the turns of the job that this driver belongs to."""
        return cls(Interleaver.from_env(environ))

    def task(self, function: Any, phase: str = "") -> Remote:
        """Return the remote *function* with turns; *phase* is for the report (default: its name)."""
        return Remote(self, function, phase or _name(function, "_function_name"))

    def actor(self, actor_class: Any, phase: str = "") -> ActorClass:
        """Return the *actor_class* with turns, for its making and each of its methods."""
        return ActorClass(self, actor_class, phase or _name(actor_class, "__name__"))

    def call(self, phase: str, submit: Callable[[], tuple[Any, list[Any]]]) -> Any:
        """Hold the devices, *submit*, and yield when the references beside its result are ready.

        Raises what `Interleaver.acquire` does, and what an earlier yield did.
        """
        with self._lock:
            self._raise_error()
            self._interleaver.acquire(phase)
            try:
                result, references = submit()
                self._pending += references
            finally:
                if self._watcher is None:
                    self._watcher = threading.Thread(target=self._watch, name="interleave-ray", daemon=True)
                    self._watcher.start()
        return result

    def close(self) -> None:
        """Return when nothing is under way and the devices are yielded. Raises what the yield did."""
        watcher = self._watcher
        if watcher is not None:
            watcher.join()
        with self._lock:
            self._raise_error()
        self._interleaver.close()

    def _watch(self) -> None:
        while True:
            with self._lock:
                waited_for, self._pending = self._pending, []
                if not waited_for:
                    self._watcher = None
                    self._yield()
                    return
            try:
                self._wait(waited_for)
            except Exception as error:  # noqa: BLE001 - Ray is gone, and what it ran with it
                self._error = InterleaveError(f"Ray did not say when its calls ended: {error}")

    def _yield(self) -> None:
        try:
            self._interleaver.yield_()
        except InterleaveError as error:
            self._error = error

    def _raise_error(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error


class Remote:
    """A remote function, or a method of an actor, whose `.remote()` waits for the devices."""

    def __init__(self, turns: RayTurns, remote: Any, phase: str) -> None:
        """Made by `RayTurns.task`."""
        self._turns, self._remote, self._phase = turns, remote, phase

    def options(self, **options: Any) -> Remote:
        """Return the same with Ray's *options*."""
        return Remote(self._turns, self._remote.options(**options), self._phase)

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        """Call it, once the devices are there; return what Ray does."""

        def submit() -> tuple[Any, list[Any]]:
            result = self._remote.remote(*args, **kwargs)
            return result, _references(result)

        return self._turns.call(self._phase, submit)


class ActorClass:
    """A class of actors whose `.remote()` waits for the devices."""

    def __init__(self, turns: RayTurns, actor_class: Any, phase: str) -> None:
        """Made by `RayTurns.actor`."""
        self._turns, self._class, self._phase = turns, actor_class, phase

    def options(self, **options: Any) -> ActorClass:
        """Return the same with Ray's *options*."""
        return ActorClass(self._turns, self._class.options(**options), self._phase)

    def remote(self, *args: Any, **kwargs: Any) -> Actor:
        """Make an actor, once the devices are there; they are held until it has been made."""

        def submit() -> tuple[Any, list[Any]]:
            handle = self._class.remote(*args, **kwargs)
            return handle, [handle.__ray_ready__.remote()]

        return Actor(self._turns, self._turns.call(f"{self._phase} init", submit), self._phase)


class Actor:
    """An actor whose methods wait for the devices. `handle` is Ray's own, without turns, to be passed on."""

    def __init__(self, turns: RayTurns, handle: Any, phase: str) -> None:
        """Made by `ActorClass.remote`."""
        self.handle = handle
        self._turns, self._phase = turns, phase

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.handle, name)
        if name.startswith("_") or not hasattr(method, "remote"):
            return method
        return Remote(self._turns, method, f"{self._phase}.{name}")


def _references(result: Any) -> list[Any]:
    """Return what is ready when the call has ended: for a stream of results, that is its end."""
    if hasattr(result, "completed"):
        return [result.completed()]
    if result is None:
        return []
    return list(result) if isinstance(result, (list, tuple)) else [result]


def _name(remote: Any, attribute: str) -> str:
    return str(getattr(remote, attribute, "") or type(remote).__name__).rpartition(".")[2]


def _wait(references: list[Any]) -> object:
    import ray

    unique = list(dict.fromkeys(references))
    return ray.wait(unique, num_returns=len(unique), fetch_local=False)
