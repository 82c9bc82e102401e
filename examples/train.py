"""Training of a small GPT: a complete trainer in one file to copy from; in one process or under torchrun.

python examples/train.py --tiny
torchrun --standalone --nproc_per_node=2 examples/train.py --data data/corpus --epochs 2
python examples/train.py --data texts.jsonl --streaming --tokenizer gpt2 --max_steps 1000

Kill it at any time and start it again: with --resume auto, the default, it resumes after its last checkpoint,
and its losses are those of a run that was never interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import sys
import sysconfig
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from datasets import load_dataset
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from transformers import ByT5Tokenizer, get_cosine_schedule_with_warmup

import tdstream

RANK, WORLD_SIZE = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
NUMBERS = {  # batch_size is per rank, a step takes grad_accum batches, max_steps above 0 replaces epochs
    "seq_len": 1024, "batch_size": 8, "grad_accum": 1, "epochs": 1, "max_steps": 0, "lr": 6e-4,
    "warmup_ratio": 0.03, "width": 384, "depth": 6, "num_workers": 0, "save_every": 200, "val_every": 200,
    "val_batches": 50, "val_share": 0.01, "val_documents": 1000, "seed": 42,
}  # fmt: skip
FORMATS = {".jsonl": "json", ".json": "json", ".parquet": "parquet", ".csv": "csv", ".txt": "text"}
TINY = {
    "seq_len": 64, "batch_size": 16, "grad_accum": 2, "max_steps": 150, "lr": 4e-3, "width": 64, "depth": 2,
    "save_every": 25, "val_every": 75, "val_batches": 20, "val_share": 0.1,
}  # fmt: skip


def parse_arguments() -> argparse.Namespace:
    """Return the flags; --tiny has its own defaults."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--tiny", action="store_true", help="a minute on a CPU, with text that every machine has"
    )
    what.add_argument("--data", help="a corpus, a text file (jsonl, parquet, ...), or a dataset's name")
    parser.add_argument("--streaming", action="store_true", help="tokenize while reading; .txt by lines")
    parser.add_argument("--tokenizer", help="a name or a directory; a corpus needs none")
    parser.add_argument("--text_field", default="text", help="the text field of a record")
    parser.add_argument("--output_dir", type=Path, help="checkpoint, losses; default runs/train or runs/tiny")
    parser.add_argument("--resume", choices=["auto", "never"], default="auto")
    for name, default in NUMBERS.items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    if parser.parse_known_args()[0].tiny:
        parser.set_defaults(**TINY)
    options = parser.parse_args()
    if options.streaming and (options.tiny or Path(options.data, "meta.json").exists()):
        parser.error("--streaming reads text with --data; a corpus, or --tiny, does without it")
    options.output_dir = options.output_dir or Path("runs/tiny" if options.tiny else "runs/train")
    return options


class GPT(nn.Module):
    """A decoder-only transformer."""

    def __init__(self, vocab_size: int, seq_len: int, width: int, depth: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocab_size, width), nn.Embedding(seq_len, width)
        block = nn.TransformerEncoderLayer(
            width, max(width // 64, 1), 4 * width, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(block, depth, nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, vocab_size, bias=False)
        for embedding in (self.tokens, self.places):
            nn.init.normal_(embedding.weight, std=0.02)

    def forward(self, input_ids: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss of [batch, time] labels; those of -100 do not count."""
        time, device = input_ids.shape[1], input_ids.device
        mask = nn.Transformer.generate_square_subsequent_mask(time, device=device)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            hidden = self.blocks(self.tokens(input_ids) + self.places.weight[:time], mask, is_causal=True)
            logits = self.head(hidden)  # [batch, time, vocab_size]
        return nn.functional.cross_entropy(logits.float().flatten(0, 1), labels.flatten())


class Trainer:
    """Model, data, optimizer and progress of a run."""

    def __init__(self, options: argparse.Namespace, device: torch.device) -> None:
        self.options, self.device = options, device
        self.loader, self.val_loader, vocab_size = open_data(options, device)
        batches = options.max_steps * options.grad_accum if options.max_steps else self.loader
        try:
            self.steps = tdstream.steps(
                batches, 1 if options.max_steps else options.epochs, options.grad_accum
            )
        except TypeError as error:  # a live stream that was not counted
            sys.exit(f"train: {error} Here: --max_steps.")
        shape = {"seq_len": options.seq_len, "width": options.width, "depth": options.depth}
        self.shape = {"vocab_size": vocab_size, **shape}
        self.gpt = GPT(**self.shape).to(device)
        # Without find_unused_parameters, three or more ranks add gradients in another order after a restart.
        ranks = DistributedDataParallel(self.gpt, find_unused_parameters=True) if WORLD_SIZE > 1 else None
        self.model, self.no_sync = ranks or self.gpt, ranks.no_sync if ranks else contextlib.nullcontext
        self.optimizer = torch.optim.AdamW(self.gpt.parameters(), lr=options.lr, weight_decay=0.1)
        warmup = self.steps.warmup_steps(options.warmup_ratio)
        self.schedule = get_cosine_schedule_with_warmup(self.optimizer, warmup, self.steps.total)
        self.meter, self.epoch, self.step = tdstream.DataMeter(), 0, 0
        self.checkpoint: Path = options.output_dir / "checkpoint.pt"

    def run(self) -> None:
        """Train to the end, from the last checkpoint if there is one."""
        if self.options.resume == "auto" and self.checkpoint.exists():
            self.load()
        if RANK == 0 and self.step >= self.steps.total:
            print("this run is complete; --resume never starts it again, --output_dir starts another")
        while self.step < self.steps.total:
            self.run_epoch()
            self.epoch += 1
        loss, entropy = self.validate()
        if RANK == 0:
            print(f"validation loss {loss:.4f}; guessing by frequency alone would reach {entropy:.4f}")
            if (measured := self.meter.report()).steps:
                print(measured)

    def run_epoch(self) -> None:
        """Train on an epoch, or on the rest of it."""
        self.loader.set_epoch(self.epoch)  # the epoch of a loaded state, whose position is kept
        bar = tdstream.progress(self.loader, epoch=self.epoch, meter=self.meter, total=self.batches_of_pass())
        losses = torch.zeros((), device=self.device)  # of the batches since the last step
        keys: dict[str, str] = {}
        for batch in bar:
            loss, is_step = self.learn(batch)
            losses += loss
            if not is_step:
                continue
            shown, lr = mean_over_ranks(losses), self.schedule.get_last_lr()[0]
            losses.zero_()
            if RANK == 0:  # after a kill, steps after the checkpoint are logged again
                with (self.options.output_dir / "losses.jsonl").open("a") as log:
                    log.write(json.dumps({"step": self.step, "epoch": self.epoch, "loss": shown}) + "\n")
            keys |= {"loss": f"{shown:.4f}", "ppl": f"{math.exp(shown):.2f}", "lr": f"{lr:.2e}"}
            if self.step % self.options.val_every == 0:
                keys["val_loss"] = f"{self.validate()[0]:.4f}"
            bar.set_postfix(keys, refresh=False)
            if self.step % self.options.save_every == 0 or self.step == self.steps.total:
                self.save()
            if self.step == self.steps.total:
                return

    def batches_of_pass(self) -> int | None:
        """Return the batches up to the end of the epoch or of the run; None if only the loader knows them."""
        accum, done = self.options.grad_accum, int(self.loader.batches_done)
        last: int = done + (self.steps.total - self.step) * accum
        if not self.options.streaming:
            return min(last, len(self.loader))
        waiting = self.loader.step % accum  # batches of the last epoch that no step has taken
        return last - waiting if self.options.max_steps else None  # a stream may end earlier

    def learn(self, batch: dict[str, Tensor]) -> tuple[Tensor, bool]:
        """Add a batch's gradients; return its share of the step's loss, and whether the step is complete."""
        accum, streams = self.options.grad_accum, self.options.streaming
        number = (self.loader.step if streams else self.loader.batches_done) - 1
        left = accum if streams else len(self.loader) - number // accum * accum
        group = min(accum, left)  # the last step of an epoch may have fewer; that of a stream takes more
        is_step = number % accum == group - 1
        with contextlib.nullcontext() if is_step else self.no_sync():
            loss = self.model(batch["input_ids"], batch["labels"]) / group
            loss.backward()
        if is_step:
            nn.utils.clip_grad_norm_(self.gpt.parameters(), 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.schedule.step()
            self.step += 1
        return loss.detach(), is_step

    @torch.no_grad()
    def validate(self) -> tuple[float, float]:
        """Return the loss on the first batches, and the entropy of their token frequencies."""
        losses, counts = [], torch.zeros(self.gpt.tokens.num_embeddings, device=self.device)
        for batch in islice(self.val_loader, self.options.val_batches):
            losses.append(self.model(batch["input_ids"], batch["labels"]))
            counts += batch["labels"][batch["labels"] >= 0].bincount(minlength=len(counts))
        shares = counts[counts > 0] / counts.sum()
        return mean_over_ranks(torch.stack(losses).mean()), mean_over_ranks(-(shares * shares.log()).sum())

    def save(self) -> None:
        """Write the checkpoint on rank 0; a kill leaves the old one or the new one, never a part."""
        states = [self.loader.state_dict()] * WORLD_SIZE
        if WORLD_SIZE > 1:
            dist.all_gather_object(states, states[RANK])
        if RANK == 0:
            parts = {name: getattr(self, name).state_dict() for name in ("gpt", "optimizer", "schedule")}
            with (unfinished := self.checkpoint.with_suffix(".tmp")).open("wb") as file:
                torch.save(
                    {**parts, "shape": self.shape, "loaders": states, "epoch": self.epoch, "step": self.step},
                    file,
                )
                file.flush()
                os.fsync(file.fileno())  # before the rename: no name without its bytes
            unfinished.replace(self.checkpoint)

    def load(self) -> None:
        """Resume after the checkpoint. A model with dropout would also save torch.get_rng_state()."""
        saved = torch.load(self.checkpoint, map_location="cpu", weights_only=True)
        if saved["shape"] != self.shape:
            sys.exit(
                f"train: {self.checkpoint} is of another model: {saved['shape']}, not {self.shape}. "
                f"Pass another --output_dir, or --resume never to replace it."
            )
        for name in ("gpt", "optimizer", "schedule"):
            getattr(self, name).load_state_dict(saved[name])
        self.loader.load_state_dict(saved["loaders"][RANK % len(saved["loaders"])])
        self.epoch, self.step = saved["epoch"], saved["step"]
        if RANK == 0:
            print(f"resuming after step {self.step:,} of {self.steps.total:,}")


def open_data(options: argparse.Namespace, device: torch.device) -> tuple[Any, Any, int]:
    """Return the loaders for training and validation, and the number of token ids."""
    if options.streaming:  # the first documents are held out
        data, kind = options.data, FORMATS.get(Path(options.data.removesuffix(".gz")).suffix)
        try:
            stream = load_dataset(kind or data, data_files=kind and data, split="train", streaming=True)
        except (OSError, ValueError) as error:
            sys.exit(f"train: --data {data} cannot be opened: {error}")
        corpus = prepared(options, stream.take(options.val_documents))
        train, held_out = stream.skip(options.val_documents), corpus
    else:
        corpus = prepared(options, options.data)
        train, held_out = tdstream.split(corpus, [1 - options.val_share, options.val_share])
    vocab_size = json.loads((corpus / "meta.json").read_text())["vocab_size"]
    text = {name: getattr(options, name) for name in ("tokenizer", "text_field") if options.streaming}
    how = {name: getattr(options, name) for name in ("seq_len", "batch_size", "num_workers")}
    loader = tdstream.loader(train, shuffle=True, seed=options.seed, device=device, **text, **how)
    return loader, tdstream.loader(held_out, device=device, **how), vocab_size


def prepared(options: argparse.Namespace, text: Any) -> Any:
    """Return the corpus of a text, which rank 0 prepares unless it is a corpus already."""
    if isinstance(text, str) and (Path(text) / "meta.json").exists():
        return Path(text)
    if not (options.tiny or options.tokenizer):
        sys.exit(f"train: --data {options.data} is no corpus: to read it as text, pass --tokenizer.")
    tokenizer, corpus = options.tokenizer, options.output_dir / "corpus"
    if options.tiny:  # sources of Python's standard library, as bytes
        files = sorted(Path(sysconfig.get_path("stdlib")).glob("[a-e]*.py"))
        text = [file.read_text(encoding="utf-8", errors="ignore")[:20_000] for file in files]
        tokenizer = ByT5Tokenizer(extra_ids=0)
    if RANK == 0:
        how: dict[str, Any] = {"text_field": options.text_field, "progress": True}
        how["resume" if options.resume == "auto" else "overwrite"] = True
        tdstream.prepare(text, tokenizer, corpus, **how)
    if WORLD_SIZE > 1:
        dist.barrier()
    return corpus


def mean_over_ranks(value: Tensor) -> float:
    """Return the mean of all ranks' values; may overwrite this rank's."""
    if WORLD_SIZE > 1:
        dist.all_reduce(value)
    return float(value) / WORLD_SIZE


def main() -> None:
    """Join the other ranks and train."""
    options, device = parse_arguments(), torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    if WORLD_SIZE > 1:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    options.output_dir.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(options.seed)
    try:
        Trainer(options, device).run()
    except tdstream.TdstreamError as error:  # of the data: a name, a corpus, a state
        sys.exit(f"train: {error}")
    if WORLD_SIZE > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
