r"""Rollouts with vLLM in the job's own process, in turns: vllm_rollout.py MODEL OUT [STEPS].

The answers are graded on the CPU, in another job's turn; the engine sleeps then, and what sleep leaves on the
device is the cuda backend's:

    sbatch --interleave-group=rl --interleave-backend=app_channel,cuda --gres=gpu:1 \
        --wrap 'python vllm_rollout.py MODEL OUT'
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from vllm import LLM, SamplingParams

from slurm_interleave.client import Interleaver
from slurm_interleave.client.integrations import vllm as interleave

PROMPTS = ["1+1=", "2+2=", "3+5="]


def grade(texts: list[str]) -> float:
    """Return the share of digits."""
    return sum(map(str.isdigit, "".join(texts))) / max(1, len("".join(texts)))


def main(model: str, out: Path, steps: int = 4) -> None:
    """Sample, grade, and write the grades."""
    turns = Interleaver.from_env()
    with turns.turn("load"):  # the whole start: it looks at all of the device's memory
        llm = LLM(model, enable_sleep_mode=True)
    engine = interleave.attach(llm, turns)
    grades = []
    for step in range(steps):
        with turns.turn("rollout"):
            answers = llm.generate(PROMPTS, SamplingParams(max_tokens=8, seed=step))
        grades.append(grade([answer.outputs[0].text for answer in answers]))
    engine.close()
    turns.close()
    out.write_text(json.dumps(grades))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:]))
