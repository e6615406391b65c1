"""slime: python -m slurm_interleave.client.integrations.slime, with the options of its own train.py.

With --colocate all devices are shared, and the boundary comes once a rollout, after training, when trainer
and engines are off them. Without it the trainer's devices are shared: held to make the models, to train,
to save and to update the engines' weights; rollout has its own, beside training with --interleave-async.

Source: slime 624b824a8 `train.py`, `train_async.py`, `ray/placement_group.py`, `ray/actor_group.py`,
`ray/rollout.py`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from slurm_interleave.client.core.errors import BadArgument
from slurm_interleave.client.integrations.turns import Turns
from slurm_interleave.client.interleaver import Interleaver

_ASYNC = "--interleave-async"


@dataclass
class Run:
    """One training run; `make` first. *get* is `ray.get`, *due* slime's `should_run_periodic_action`."""

    args: Any
    turns: Turns
    get: Any
    due: Any

    def __post_init__(self) -> None:
        self.engines: Any = None
        self.actor: Any = None
        self.critic: Any = None
        self.per_epoch: Any = None

    def make(self, groups: Any, rollout: Any, training: Any) -> None:
        """Make engines and models by slime's three create functions, and give the engines the weights."""
        pgs = groups(self.args)
        self.engines, self.per_epoch = rollout(self.args, pgs["rollout"])
        self.actor, self.critic = training(self.args, pgs, self.engines)
        self._update_weights(check=self.args.check_weight_update_equal)

    def synchronous(self) -> None:
        """Generate, then train, again and again."""
        args = self.args
        if args.num_rollout == 0 and args.eval_interval is not None:
            self._evaluate(0)
        for step in range(args.start_rollout_id, args.num_rollout):
            self._leave()
            if args.eval_interval is not None and step == 0 and not args.skip_eval_before_train:
                self._evaluate(step)
            data = self.get(self.engines.generate.remote(step))
            if args.offload_rollout:
                self.get(self.engines.offload.remote())
            self.turns.start("train")
            self._train(step, data)
            if not args.offload_train:
                (self.actor if self._actor_trains(step) else self.critic).clear_memory()
            if args.colocate:
                self.turns.boundary("step", at_end=True)
            self._update_weights()
            self._leave()
            self._evaluate_if_due(step)

    def overlapped(self) -> None:
        """Generate for the next step while this one is trained."""
        args = self.args
        self._leave()
        coming = self.engines.generate.remote(args.start_rollout_id)
        for step in range(args.start_rollout_id, args.num_rollout):
            data = self.get(coming)
            last = step + 1 == args.num_rollout
            coming = None if last else self.engines.generate.remote(step + 1)
            self.turns.start("train")
            self._train(step, data)
            if args.release_train or (step + 1) % args.update_weights_interval == 0:
                if coming is not None:  # no weights in the middle of a generation; the wait is another's turn
                    self._leave()
                    self.get([coming])
                    self.turns.start("weight sync")
                self.actor.update_weights()
            self._leave()
            self._evaluate_if_due(step)

    def _leave(self) -> None:
        if not self.args.colocate:
            self.turns.leave()

    def _actor_trains(self, step: int) -> bool:
        return not self.args.use_critic or step >= self.args.num_critic_only_steps

    def _train(self, step: int, data: Any) -> None:
        if self.args.release_train:
            self.actor.create()
        trains = self._actor_trains(step)
        waited = values = self.critic.async_train(step, data) if self.args.use_critic else None
        if trains:
            more = {"external_data": values} if self.args.use_critic else {}
            waited = self.actor.async_train(step, data, **more)
        self.get(waited)
        if self.args.release_train or self.due(
            step, self.args.save_interval, self.per_epoch, self.args.num_rollout
        ):
            self._save(step, trains)

    def _save(self, step: int, actor_trained: bool) -> None:
        now = self.args.release_train or step == self.args.num_rollout - 1
        if actor_trained:
            self.actor.save_model(step, force_sync=now)
        if self.args.use_critic:
            self.critic.save_model(step, force_sync=now)
        if self.args.rollout_global_dataset:
            self.get(self.engines.save.remote(step))

    def _update_weights(self, *, check: bool = False) -> None:
        offloaded = self.args.offload_rollout
        if offloaded and not self.args.release_train:
            self.get(self.engines.onload_weights.remote())
        self.actor.update_weights()
        if check:
            self.get(self.engines.check_weights.remote(action="compare"))
        if offloaded:
            self.get(self.engines.onload_kv.remote())

    def _evaluate_if_due(self, step: int) -> None:
        if self.due(step, self.args.eval_interval, self.per_epoch):
            self._evaluate(step)

    def _evaluate(self, step: int) -> None:
        self.get(self.engines.eval.remote(step))


def train(args: Any, turns: Turns, *, overlapped: bool = False) -> None:
    """Train as slime's own drivers do, in turns. Raises `BadArgument` for --colocate with *overlapped*."""
    import ray
    from slime.observability.logging_utils import configure_logger, finish_tracking, init_tracking
    from slime.ray.placement_group import (
        create_placement_groups,
        create_rollout_manager,
        create_training_models,
    )
    from slime.utils.misc import should_run_periodic_action

    if overlapped and args.colocate:
        raise BadArgument(
            f"{_ASYNC} with --colocate: rollout and training have the same devices; leave one out"
        )
    run = Run(args, turns, ray.get, should_run_periodic_action)
    configure_logger()

    def tracked(args: Any) -> Any:
        groups = create_placement_groups(args)
        init_tracking(args)
        return groups

    with turns.session("init"):
        run.make(tracked, create_rollout_manager, create_training_models)
        (run.overlapped if overlapped else run.synchronous)()
        ray.get(run.engines.dispose.remote())
    finish_tracking(args)


def main() -> None:
    """Parse slime's options and train."""
    from slime.utils.arguments import parse_args

    overlapped = _ASYNC in sys.argv
    sys.argv = [word for word in sys.argv if word != _ASYNC]
    train(parse_args(), Turns(Interleaver.from_env()), overlapped=overlapped)


if __name__ == "__main__":
    main()
