"""OpenRLHF: python -m slurm_interleave.client.integrations.openrlhf, with the options of its train_ppo_ray.

Its script names its trainers itself and has no callbacks, so this is a script of our own on its public
classes; it makes the same calls (tested against these), with trainers that are subclasses of OpenRLHF's.

Source: OpenRLHF 0.11.2 `cli/train_ppo_ray.py`, `trainer/ppo_trainer.py`, `trainer/ppo_trainer_async.py`.
After `ppo_train` the optimizers are off the devices and the engines sleep, where they are told to; the weight
sync that follows wakes the engines' weights, which stay awake until the next generation: so the boundary is
there. With --train.async_enable the trainers' devices are shared: from the samples to the end of the weight
sync and of saving, but not while it waits for a generation to end. The engines have devices of their own.
"""

from __future__ import annotations

import ast
import copy
import importlib
import os
from pathlib import Path
from typing import Any

from slurm_interleave.client.core.errors import BadArgument, WrongState
from slurm_interleave.client.integrations.openrlhf_models import Models
from slurm_interleave.client.integrations.turns import Turns
from slurm_interleave.client.interleaver import Interleaver

_SCRIPT = "openrlhf.cli.train_ppo_ray"
_ENVIRONMENT = {
    "TOKENIZERS_PARALLELISM": "true",
    "NCCL_DEBUG": "WARN",
    "RAY_ENABLE_ZERO_COPY_TORCH_TENSORS": "1",
}


def sync_trainer(base: Any, turns: Turns) -> Any:
    """Return *base* (`PPOTrainer`) with a boundary between each training and its weight sync."""

    class InterleavePPO(plain(base)):  # type: ignore[misc]
        """All devices of the job are shared."""

        def ppo_train(self, global_steps: int) -> Any:
            status = super().ppo_train(global_steps)
            turns.boundary("step", at_end=True)
            return status

    return InterleavePPO


def async_trainer(base: Any, turns: Turns) -> Any:
    """Return *base* (`TrainingActor`) that holds its devices while it trains, syncs and saves."""

    class InterleaveTraining(plain(base)):  # type: ignore[misc]
        """The engines have devices of their own."""

        def __init__(self, *args: Any, vllm_lock: Any, **kwargs: Any) -> None:
            super().__init__(*args, vllm_lock=TurnLock(vllm_lock, turns), **kwargs)

        def fit(self, *args: Any, **kwargs: Any) -> None:
            turns.leave()
            super().fit(*args, **kwargs)

        def train_step(self, *args: Any, **kwargs: Any) -> Any:
            turns.start("train")
            return super().train_step(*args, **kwargs)

        def save_logs_and_checkpoints(self, *args: Any, **kwargs: Any) -> None:
            super().save_logs_and_checkpoints(*args, **kwargs)
            turns.leave()

        def save_best_checkpoint(self, *args: Any, **kwargs: Any) -> None:
            with turns.session("save"):
                super().save_best_checkpoint(*args, **kwargs)

    return InterleaveTraining


class TurnLock:
    """OpenRLHF's lock of its engines: to wait for a generation's end is another job's turn."""

    def __init__(self, lock: Any, turns: Turns) -> None:
        self._lock = lock
        self._turns = turns
        self.release = lock.release

    @property
    def acquire(self) -> TurnLock:
        """What has `remote`."""
        return self

    def remote(self) -> Any:
        """Acquire; the engines' lock comes first, as whoever generates needs no turn to end."""
        import ray

        self._turns.leave()
        acquired = self._lock.acquire.remote()
        ray.get(acquired)
        self._turns.start("weight sync")
        return acquired


def plain(actor: Any) -> Any:
    """Return the class of a `ray.remote` class, from which Ray lets nobody inherit."""
    return getattr(actor, "__ray_actor_class__", actor)


class Overlapped:
    """Generation beside training, as `PPOTrainerAsync`, which names its training actor itself."""

    def __init__(self, models: Models, strategy: Any, turns: Turns, **generation: Any) -> None:
        import ray
        from openrlhf.trainer import ppo_trainer_async as theirs
        from ray.util.queue import Queue

        args = strategy.args
        for steps, name in ((args.eval, "steps"), (args.ckpt, "save_steps")):
            if getattr(steps, name) == -1:
                setattr(steps, name, float("inf"))
        size = getattr(args.train, "async_queue_size", 1)
        if size <= 0:
            raise BadArgument(f"--train.async_queue_size {size}: it has to be positive")
        queue, slots = Queue(maxsize=size), Queue(maxsize=size)
        for _ in range(size):
            slots.put(0, block=True)
        shared = {"vllm_lock": theirs.VLLMLock.remote(), "rollout_queue": queue, "rollout_slots": slots}
        self.generator = theirs.GenerateSamplesActor.remote(
            pretrain=args.actor.model_name_or_path,
            strategy=strategy,
            vllm_engines=models.engines,
            **shared,
            **generation,
        )
        # In a process of its own, so with turns of its own.
        training = ray.remote(async_trainer(theirs.TrainingActor, Turns(turns.interleaver)))
        self.training = models.trainer(training.remote, strategy, **shared)
        self._turns = turns

    def get_max_steps(self) -> int:
        """Return how often the optimizers step."""
        import ray

        return int(ray.get(self.generator.get_max_steps.remote()))

    def fit(self) -> None:
        """Train; the devices are left to the training actor."""
        import ray

        self._turns.leave()
        states = ray.get(self.training.init_checkpoint_states.remote())
        ray.get(self.training.restore_best_checkpoint_state.remote(states))
        step, consumed = states["global_step"], states.get("total_consumed_prompts", 0)
        if step > 0:
            loaded = self.generator.load_state_dict.remote(states["data_loader_state_dict"])
            ray.get([loaded, self.training.broadcast_to_vllm.remote()])
        generates = self.generator.fit.remote(episode=states["episode"], total_consumed_prompts=consumed)
        ray.get([generates, self.training.fit.remote(global_step=step)])


def train(args: Any, turns: Turns) -> None:
    """Train as OpenRLHF's script does, in turns."""
    from openrlhf.trainer.ppo_trainer import PPOTrainer
    from openrlhf.utils import get_strategy

    strategy = get_strategy(args)
    strategy.print(args)
    generation = {
        "do_sample": True,
        "max_len": args.data.max_len,
        "max_new_tokens": args.rollout.max_new_tokens,
        "temperature": args.rollout.temperature,
        "top_p": args.rollout.top_p,
    }
    with turns.session("init"):
        models = Models(args)
        # Trainers change it; OpenRLHF's have a copy, in their process.
        its = copy.deepcopy(strategy)
        if args.train.async_enable:
            trainer: Any = Overlapped(models, its, turns, **generation)
        else:
            trainer = models.trainer(sync_trainer(PPOTrainer, turns), its, **generation)
        models.load(strategy, trainer.get_max_steps())
        trainer.fit()
        turns.start("save")
        models.save()


def options() -> Any:
    """Return what OpenRLHF's own script makes of sys.argv: that part of it is in no function.

    Raises `WrongState` for a release whose script ends otherwise.
    """
    module = importlib.import_module(_SCRIPT)
    last = ast.parse(Path(str(module.__file__)).read_text()).body[-1]
    if not isinstance(last, ast.If) or ast.unparse(last.body[-1]) != "train(args)":
        raise WrongState(f"{_SCRIPT} does not end with train(args): it is known of release 0.11.2")
    space = dict(vars(module))
    exec(compile(ast.Module(last.body[:-1], []), str(module.__file__), "exec"), space)  # noqa: S102
    return space["args"]


def main() -> None:
    """Run as OpenRLHF's script does; the driver of the turns is a task, which sees no device."""
    import ray

    args = options()
    if not ray.is_initialized():
        environment = {name: os.environ.get(name, value) for name, value in _ENVIRONMENT.items()}
        ray.init(runtime_env={"env_vars": environment})

    @ray.remote  # type: ignore[untyped-decorator]
    def entry() -> None:
        train(args, Turns(Interleaver.from_env()))

    ray.get(entry.remote())


if __name__ == "__main__":
    main()
