"""Pre-training with accelerate. Kill it at any time, and start it again with --resume.

python examples/trainers/accelerate_loop.py --tiny
torchrun --standalone --nproc_per_node=2 examples/trainers/accelerate_loop.py --corpus data/corpus
"""

from __future__ import annotations

import argparse
import sysconfig
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch.nn.functional import cross_entropy
from transformers import ByT5Tokenizer, LlamaConfig, LlamaForCausalLM

import tdstream


def parse_arguments() -> argparse.Namespace:
    """Return the flags."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="a minute on a CPU, text that every machine has")
    parser.add_argument("--corpus", default="data/corpus", help="made by tdstream prepare")
    parser.add_argument("--output_dir", type=Path, default=Path("runs/accelerate"))
    parser.add_argument("--seq_len", type=int, default=1024)
    parser.add_argument("--batch_size", type=int, default=8, help="samples of a rank in a step")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--resume", action="store_true", help="resume the last checkpoint, if there is one")
    return parser.parse_args()


def main() -> None:
    """Train; save the model, the optimizer and the loader's place every 40 batches."""
    options = parse_arguments()
    accelerator = Accelerator(cpu=options.tiny, gradient_accumulation_steps=4)
    source: Any = options.corpus
    shape: dict[str, Any] = {"seq_len": options.seq_len, "batch_size": options.batch_size}
    width = 512
    if options.tiny:  # sources of Python's standard library, as bytes
        files = sorted(Path(sysconfig.get_path("stdlib")).glob("[a-c]*.py"))
        source = [file.read_text(encoding="utf-8", errors="ignore")[:20_000] for file in files]
        shape |= {"seq_len": 64, "tokenizer": ByT5Tokenizer(extra_ids=0)}
        width = 32
    loader = tdstream.loader(source, shuffle=True, seed=42, **shape)
    torch.manual_seed(42)
    config = LlamaConfig(
        vocab_size=loader.vocab_size or 384, hidden_size=width, intermediate_size=2 * width,
        num_hidden_layers=2, num_attention_heads=4,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), 1e-3), loader)
    last = max(options.output_dir.glob("step-*"), key=lambda path: int(path.name[5:]), default=None)
    if options.resume and last is not None:
        accelerator.load_state(str(last))  # the loader too: nothing is skipped
    saved = loader.step
    while loader.epoch < options.epochs - 1 or loader.batches_done < len(loader):
        for batch in loader:
            with accelerator.accumulate(model):
                logits = model(batch["input_ids"]).logits
                loss = cross_entropy(logits.flatten(0, 1), batch["labels"].flatten())
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients and loader.step - saved >= 40:
                saved = loader.step
                accelerator.save_state(str(options.output_dir / "unfinished"))
                accelerator.wait_for_everyone()
                if accelerator.is_main_process:  # complete: a kill cannot leave a part of it
                    (options.output_dir / "unfinished").rename(options.output_dir / f"step-{saved}")
                accelerator.print(f"step {saved}, epoch {loader.epoch}, loss {loss.item():.4f}")
                accelerator.wait_for_everyone()
    accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()
