"""A GRPO of TRL on a language model of 22 000 random weights, in turns: python trl_grpo.py --out DIR.

No network, no accelerator; the same seed gives the same bits on one kind of processor.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from pathlib import Path
from typing import Any

os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", HF_HUB_DISABLE_TELEMETRY="1")

# Before the devices are held: that takes seconds, and no device.
import torch
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from trl import GRPOConfig, GRPOTrainer

from slurm_interleave.client.integrations import trl as interleave


def tokenizer() -> Any:
    """Return one that knows the printable characters of ASCII."""
    words = ["<pad>", "<eos>", "<unk>", *map(chr, range(32, 127))]
    raw = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
    raw.pre_tokenizer, raw.decoder = pre_tokenizers.Split("", "isolated"), decoders.Fuse()
    named = {"pad_token": "<pad>", "eos_token": "<eos>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=raw, padding_side="left", **named)


def model(words: int, seed: int) -> Any:
    """Return a tiny Qwen2."""
    torch.manual_seed(seed)
    tokens = {"bos_token_id": 1, "eos_token_id": 1, "pad_token_id": 0, "vocab_size": words}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "num_hidden_layers": 2}
    sizes = {"hidden_size": 32, "intermediate_size": 64, "max_position_embeddings": 64}
    return Qwen2ForCausalLM(Qwen2Config(**tokens, **heads, **sizes, tie_word_embeddings=True))


def reward(completions: list[str], **_: Any) -> list[float]:
    """Like small letters."""
    return [sum(map(str.islower, text)) / 8 for text in completions]


def make_trainer(out: Path, seed: int, steps: int, callbacks: list[Any]) -> Any:
    """Return the trainer; from here on the device is touched."""
    sizes = {"per_device_train_batch_size": 4, "num_generations": 4, "gradient_accumulation_steps": 2}
    quiet = {"report_to": [], "disable_tqdm": True, "logging_steps": 1, "save_strategy": "no"}
    args = GRPOConfig(
        output_dir=str(out / "trl"),
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        ddp_backend="gloo" if "WORLD_SIZE" in os.environ else None,
        max_steps=steps,
        max_completion_length=8,
        beta=0.0,
        learning_rate=1e-2,
        seed=seed,
        **sizes,
        **quiet,
    )
    words = tokenizer()
    return GRPOTrainer(
        model(len(words), seed),
        reward_funcs=reward,
        args=args,
        train_dataset=Dataset.from_dict({"prompt": ["1+1=", "2+2="]}),
        processing_class=words,
        callbacks=callbacks,
    )


def digest(module: Any) -> str:
    """Return a hash of all weights."""
    sha = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        sha.update(name.encode() + tensor.detach().clone().numpy().tobytes())
    return sha.hexdigest()


def write_results(trainer: Any, out: Path) -> None:
    """Write losses and rewards of each step, and the hash of the weights."""
    steps = [
        {name: entry[name] for name in ("step", "loss", "reward", "grad_norm")}
        for entry in trainer.state.log_history
        if "loss" in entry
    ]
    results = {"steps": steps, "weights": digest(trainer.model)}
    (out / f"results-{trainer.args.process_index}.json").write_text(json.dumps(results, indent=1) + "\n")


def main() -> None:
    """Train; each step is a turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=8)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    with interleave.session() as turns:
        trainer = make_trainer(args.out, args.seed, args.steps, [interleave.callback(turns)])
        trainer.train()
    with turns.session("save"):  # the weights are on the device
        write_results(trainer, args.out)


if __name__ == "__main__":
    main()
