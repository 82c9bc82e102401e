"""A training job with a real trainer, on the CPU, alone or under torchrun, which logs all that it trains on.

Run by the tests of this folder, once for each attempt: `python trainer_job.py transformers DIRECTORY ...`.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

import tdstream

SEQ_LEN, SAMPLES, SEED = 16, 203, 5
ROW = SEQ_LEN + 1  # tokens stored for a sample


def arguments() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser()
    parser.add_argument("trainer", choices=["transformers", "accelerate"])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--kill", type=int, default=-1, help="batch of this attempt after which it is killed")
    parser.add_argument("--resume", default="", help="a checkpoint")
    parser.add_argument("--evaluate", action="store_true", help="every 10 steps")
    parser.add_argument("--evaluate_first", action="store_true", help="also before the first step")
    return parser.parse_args()


def corpus_loader(options: argparse.Namespace, **changes: Any) -> tdstream.Loader:
    """Return the loader of a corpus whose tokens are all different."""
    settings = {"seq_len": SEQ_LEN, "batch_size": options.batch_size, "shuffle": True, "seed": SEED}
    settings |= {"num_workers": options.workers, **changes}
    return tdstream.loader(options.directory / "corpus", **settings)


class Log:
    """What this rank trained on: a line for each batch, and one for each optimizer step."""

    def __init__(self, options: argparse.Namespace) -> None:
        rank = os.environ.get("RANK", "0")
        self._file = (options.directory / f"log-{time.time_ns()}-{rank}.jsonl").open("w")
        self._kill, self._batches = options.kill, 0

    def write(self, **entry: Any) -> None:
        """Write a line, which survives a kill."""
        self._file.write(json.dumps(entry) + "\n")
        self._file.flush()

    def batch(self, input_ids: torch.Tensor, loss: float) -> None:
        """Note a batch, by the first tokens of its rows; kill this process if it is due."""
        self._batches += 1
        self.write(rows=[int(row[0]) // ROW for row in input_ids], loss=loss)
        if self._batches == self._kill:
            os.kill(os.getpid(), signal.SIGKILL)


def train_with_transformers(options: argparse.Namespace) -> None:
    """Train a tiny Llama with dropout, so that its losses show the random state too."""
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments

    from tdstream.integrations.transformers import TdstreamTrainerMixin

    log = Log(options)

    class Logged(TdstreamTrainerMixin, Trainer):
        def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
            loss = super().training_step(model, inputs, num_items_in_batch)
            log.write(items=float(num_items_in_batch))
            log.batch(inputs["input_ids"], float(loss.detach()))
            return loss

    class Steps(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            log.write(step=state.global_step, epoch=state.epoch)

        def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any, **_: Any) -> None:
            log.write(evaluation=metrics)

    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=SAMPLES * ROW, hidden_size=8, intermediate_size=8, num_hidden_layers=1,
        num_attention_heads=1, attention_dropout=0.1, initializer_range=0.5,
    ))  # fmt: skip
    if options.evaluate_first:
        alone = {"samples": slice(0, 13), "batch_size": 13, "dp_rank": 0, "dp_world_size": 1}
        (batch,) = corpus_loader(options, **alone)
        logits = model.eval()(batch["input_ids"]).logits.flatten(0, 1)
        log.write(expected=float(nn.functional.cross_entropy(logits, batch["labels"].flatten()).detach()))
    args = TrainingArguments(
        str(options.directory / "runs"), use_cpu=True, save_steps=1, logging_steps=5, report_to=[],
        num_train_epochs=options.epochs, gradient_accumulation_steps=options.accumulate, disable_tqdm=True,
        eval_strategy="steps" if options.evaluate else "no", eval_steps=10, learning_rate=1e-2,
        eval_on_start=options.evaluate_first,
    )  # fmt: skip
    evaluation = corpus_loader(options, samples=slice(0, 13), tail="keep") if options.evaluate else None
    trainer = Logged(
        model=model, args=args, train_dataset=corpus_loader(options), eval_dataset=evaluation,
        callbacks=[Steps()],
    )  # fmt: skip
    result = trainer.train(resume_from_checkpoint=options.resume or None)
    log.write(result=result.metrics, steps=trainer.state.global_step)


def train_with_accelerate(options: argparse.Namespace) -> None:
    """Train a tiny model as accelerate's examples do."""
    from accelerate import Accelerator
    from accelerate.state import GradientState

    log = Log(options)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=options.accumulate)
    torch.manual_seed(0)
    model = nn.Embedding(SAMPLES * ROW, 8)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    model, optimizer, loader = accelerator.prepare(model, optimizer, corpus_loader(options))
    if options.resume:
        accelerator.load_state(options.resume)
    batches = loader.step
    for _ in range(loader.epoch, options.epochs):
        for batch in loader:
            with accelerator.accumulate(model):
                loss = model(batch["input_ids"]).square().mean() + model(batch["labels"]).mean()
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            batches += 1
            if accelerator.sync_gradients:
                log.write(step=batches)
            if batches in (10, 30):
                accelerator.save_state(str(options.directory / "runs" / f"checkpoint-{batches}"))
            log.batch(batch["input_ids"], float(loss.detach()))
        assert GradientState().active_dataloader is None
    accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    chosen = arguments()
    torch.set_num_threads(1)
    train_with_transformers(chosen) if chosen.trainer == "transformers" else train_with_accelerate(chosen)
