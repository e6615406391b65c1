"""NeMo-RL: a policy with a boundary before each refit, for a launcher (examples/run_grpo.py).

    turns = nemo_rl.turns()  # at the top: init_ray() deletes every SLURM_* variable
    with turns.session("setup"):
        ... = setup(config, tokenizer, dataset, val_dataset, policy_factory=nemo_rl.policy_factory(turns))
        trainer(...)

Source: NeMo-RL 7ea279abf `algorithms/grpo.py`, `models/policy/lm_policy.py`: `offload_before_refit` comes
once a step, after training; optimizer and generation are off the device then.
For the synchronous, colocated trainers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from slurm_interleave.client.integrations.turns import Turns
from slurm_interleave.client.interleaver import Interleaver


def turns() -> Turns:
    """Return the driver's turns; make them before `init_ray`, as what they know is in the environment."""
    return Turns(Interleaver.from_env())


def policy_factory(turns: Turns, base: Any = None) -> Callable[..., Any]:
    """Return what `setup` takes as *policy_factory*; *base*: `TQPolicy` with a data plane."""

    def make(**kwargs: Any) -> Any:
        return with_turns(base or _policy(), turns)(**kwargs)

    return make


def with_turns(base: Any, turns: Turns) -> Any:
    """Return the class *base* with the boundary. It stays a subclass: NeMo-RL looks at what a policy is."""

    class TurnPolicy(base):  # type: ignore[misc]
        """Lets others have their turn where the least is on the device."""

        def offload_before_refit(self) -> None:
            super().offload_before_refit()
            turns.boundary("step", at_end=True)

    return TurnPolicy


def _policy() -> Any:
    from nemo_rl.models.policy.lm_policy import Policy

    return Policy
