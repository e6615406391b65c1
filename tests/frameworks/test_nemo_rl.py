"""The policy for NeMo-RL, and the source that says where its boundary is."""

from __future__ import annotations

from slurm_interleave.client.integrations import nemo_rl
from tests.frameworks.sources import source
from tests.frameworks.traces import Traced, traced

GRPO, POLICY = "nemo_rl/algorithms/grpo.py", "nemo_rl/models/policy/lm_policy.py"


class Policy:
    def __init__(self, interleaver: Traced) -> None:
        self.interleaver = interleaver

    def offload_before_refit(self) -> None:
        self.interleaver.work("offload")


def test_the_boundary_comes_when_the_optimizer_is_off_the_device() -> None:
    turns, interleaver = traced()

    with turns.session("setup"):
        policy = nemo_rl.policy_factory(turns, Policy)(interleaver=interleaver)
        policy.offload_before_refit()
        interleaver.work("refit")

    assert isinstance(policy, Policy)
    assert interleaver.trace == ["acquire setup", "offload", "yield", "acquire step", "refit", "yield"]


def test_nemo_rl_has_what_we_override_and_calls_it_where_we_think() -> None:
    code = source("nemo-rl")
    assert "policy_factory" in code.parameters(GRPO, "setup")
    assert code.parameters(POLICY, "Policy.offload_before_refit") == ["self"]
    refit = code.calls(GRPO, "refit_policy_generation")
    assert refit.index("offload_before_refit") < refit.index("prepare_for_generation")
    assert "refit_policy_generation" in code.calls(GRPO, "grpo_train")
    assert '"SLURM_"' in code.files["nemo_rl/distributed/virtual_cluster.py"]
