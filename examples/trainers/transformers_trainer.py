"""Pre-training with transformers' Trainer. Kill it at any time, and start it again with --resume.

python examples/trainers/transformers_trainer.py --tiny
torchrun --standalone --nproc_per_node=2 examples/trainers/transformers_trainer.py --corpus data/corpus
"""

from __future__ import annotations

import argparse
import sysconfig
from pathlib import Path
from typing import Any

from transformers import ByT5Tokenizer, LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

import tdstream
from tdstream.integrations.transformers import TdstreamTrainerMixin


class TokenTrainer(TdstreamTrainerMixin, Trainer):
    """A Trainer whose datasets are loaders of tdstream."""


def parse_arguments() -> argparse.Namespace:
    """Return the flags."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="a minute on a CPU, text that every machine has")
    parser.add_argument("--corpus", default="data/corpus", help="made by tdstream prepare")
    parser.add_argument("--output_dir", default="runs/transformers")
    parser.add_argument("--seq_len", type=int, default=1024)
    parser.add_argument("--batch_size", type=int, default=8, help="samples of a rank in a step")
    parser.add_argument("--resume", action="store_true", help="resume the last checkpoint, if there is one")
    return parser.parse_args()


def main() -> None:
    """Train for two epochs, and evaluate on a held-out part."""
    options = parse_arguments()
    source: Any = options.corpus
    shape: dict[str, Any] = {"seq_len": options.seq_len, "batch_size": options.batch_size}
    width = 512
    if options.tiny:  # sources of Python's standard library, as bytes
        files = sorted(Path(sysconfig.get_path("stdlib")).glob("[a-c]*.py"))
        source = [file.read_text(encoding="utf-8", errors="ignore")[:20_000] for file in files]
        shape |= {"seq_len": 64, "tokenizer": ByT5Tokenizer(extra_ids=0)}
        width = 32
    args = TrainingArguments(
        options.output_dir, num_train_epochs=2, gradient_accumulation_steps=4, logging_steps=10,
        save_steps=10, save_total_limit=2, eval_strategy="epoch", learning_rate=1e-3, seed=42,
        report_to=[], use_cpu=options.tiny,
    )  # fmt: skip
    # After TrainingArguments, which join the ranks.
    loader = tdstream.loader(source, shuffle=True, seed=42, samples=slice(64, None), **shape)
    held_out = tdstream.loader(source, samples=slice(0, 64), tail="keep", **shape)
    config = LlamaConfig(
        vocab_size=loader.vocab_size or 384, hidden_size=width, intermediate_size=2 * width,
        num_hidden_layers=2, num_attention_heads=4,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    trainer = TokenTrainer(model=model, args=args, train_dataset=loader, eval_dataset=held_out)
    # transformers leaves it unannotated
    last = get_last_checkpoint(options.output_dir) if options.resume else None  # type: ignore[no-untyped-call]
    trainer.train(resume_from_checkpoint=last)
    print(f"step {trainer.state.global_step}, epoch {trainer.state.epoch:g}")


if __name__ == "__main__":
    main()
