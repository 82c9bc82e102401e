"""Three ways to keep attention inside documents, with equal losses.

    python examples/document_attention.py

Runs the same tiny model on the same batches of a small generated corpus, whose rows hold several documents
(trained with CUDA only: FlexAttention has no backward on the CPU). Attention is computed

dense      with a matrix of zeros and ones, from document_ids,
flex       with a FlexAttention block mask, from document_ids,
varlen     with torch's kernel for sequences of different lengths, from cu_seqlens; CUDA only,
segments   as that kernel does, one segment of cu_seqlens after the other.
"""

from __future__ import annotations

import json
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

import tdstream
from tdstream import Batch

SEQ_LEN, BATCH_SIZE, STEPS, WIDTH, HEADS, VOCABULARY = 128, 4, 5, 64, 4, 96
Attention = Callable[[Tensor, Tensor, Tensor, Batch], Tensor]
"""Queries, keys and values [B, heads, T, width / heads], and the batch, to values of the same shape."""


def flex(queries: Tensor, keys: Tensor, values: Tensor, batch: Batch) -> Tensor:
    """Attend with a rule for which pairs see each other."""
    ids = batch["document_ids"]

    def sees(row: Tensor, _head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        same: Tensor = ids[row, query] == ids[row, key]
        return same & (query >= key)

    mask = create_block_mask(sees, len(ids), None, SEQ_LEN, SEQ_LEN, device=str(ids.device))
    attend: Any = flex_attention  # in training: torch.compile(flex_attention)
    attended: Tensor = attend(queries, keys, values, block_mask=mask)
    return attended


def varlen(queries: Tensor, keys: Tensor, values: Tensor, batch: Batch) -> Tensor:
    """Attend in the flattened batch, with one sequence for each document in each row."""
    from torch.nn.attention.varlen import varlen_attn  # noqa: PLC0415 - not in every torch

    flat = [part.transpose(1, 2).flatten(0, 1).bfloat16() for part in (queries, keys, values)]  # [B * T, ...]
    borders, longest = batch["cu_seqlens"], batch["max_seqlen"]
    attend: Any = varlen_attn
    attended: Tensor = attend(*flat, borders, borders, longest, longest, window_size=(-1, 0))
    return attended.to(queries.dtype).reshape(len(queries), SEQ_LEN, HEADS, -1).transpose(1, 2)


def segments(queries: Tensor, keys: Tensor, values: Tensor, batch: Batch) -> Tensor:
    """Attend in the flattened batch, segment by segment."""
    flat = [part.transpose(1, 2).flatten(0, 1).transpose(0, 1) for part in (queries, keys, values)]
    attended = []  # of [heads, segment, width / heads]
    for first, last in pairwise(batch["cu_seqlens"].tolist()):
        query, key, value = (part[:, first:last] for part in flat)
        attended.append(scaled_dot_product_attention(query, key, value, is_causal=True))
    joined = torch.cat(attended, dim=1).transpose(0, 1)
    return joined.reshape(len(queries), SEQ_LEN, HEADS, -1).transpose(1, 2)


def dense(queries: Tensor, keys: Tensor, values: Tensor, batch: Batch) -> Tensor:
    """Attend with a matrix [B, 1, T, T]."""
    ids = batch["document_ids"]
    same = ids[:, :, None] == ids[:, None, :]
    return scaled_dot_product_attention(queries, keys, values, attn_mask=(same.tril())[:, None])


class TinyModel(nn.Module):
    """One layer of attention over embeddings of tokens and of their positions in their documents."""

    def __init__(self, attention: Attention) -> None:
        super().__init__()
        self.attention = attention
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(SEQ_LEN, WIDTH)
        self.project, self.head = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, VOCABULARY)

    def forward(self, batch: Batch) -> Tensor:
        """Return the loss."""
        hidden = self.tokens(batch["input_ids"]) + self.places(batch["position_ids"])  # [B, T, width]
        split = self.project(hidden).unflatten(2, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        attended = self.attention(split[0], split[1], split[2], batch).transpose(1, 2).flatten(2)
        return cross_entropy(self.head(hidden + attended).flatten(0, 1), batch["labels"].flatten())


@contextmanager
def corpus() -> Iterator[Path]:
    """Make a corpus of documents that count up from a random token, so that the next token can be learned."""
    generator, documents = np.random.default_rng(0), []
    for length in generator.integers(3, 90, 200):
        documents.append((generator.integers(1, VOCABULARY) + np.arange(length)) % (VOCABULARY - 1) + 1)
    tokens = np.concatenate([np.append(document, 0) for document in documents]).astype("<u2")
    with tempfile.TemporaryDirectory() as name:
        tokens.tofile(Path(name) / "chunk_000000.bin")
        chunks = [{"file": "chunk_000000.bin", "tokens": len(tokens)}]
        (Path(name) / "meta.json").write_text(
            json.dumps({"dtype": "uint16", "eos_token_id": 0, "chunks": chunks})
        )
        yield Path(name)


def losses(directory: Path, attention: Attention, device: str) -> list[float]:
    """Return the losses of some steps."""
    torch.manual_seed(0)
    model = TinyModel(attention).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    loader = tdstream.loader(
        directory, seq_len=SEQ_LEN, batch_size=BATCH_SIZE, shuffle=True, documents=True, device=device
    )
    found = []
    for _, batch in zip(range(STEPS), loader, strict=False):
        with torch.set_grad_enabled(device == "cuda"):
            loss = model(batch)
        if loss.requires_grad:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        found.append(loss.item())
    return found


def why_not_varlen(device: str) -> str | None:
    """Return why the kernel for sequences of different lengths is not available; None if it is."""
    try:
        import torch.nn.attention.varlen  # noqa: PLC0415
    except ImportError:
        return f"torch {torch.__version__} has no torch.nn.attention.varlen"
    return None if device == "cuda" else "torch's varlen_attn runs on CUDA only"


def main() -> None:
    """Run each variant, and compare the losses."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    warnings.filterwarnings("ignore", "flex_attention called without torch.compile")
    found = {}
    with corpus() as directory:
        for attention in (dense, flex, varlen, segments):
            reason = why_not_varlen(device) if attention is varlen else None
            if reason:
                print(f"varlen   skipped: {reason}")
                continue
            found[attention.__name__] = losses(directory, attention, device)
            print(f"{attention.__name__:8} {' '.join(f'{loss:.6f}' for loss in found[attention.__name__])}")
    for name, own in found.items():
        tolerance = 2e-2 if name == "varlen" else 1e-5  # the kernel computes in bfloat16
        torch.testing.assert_close(own, found["dense"], rtol=tolerance, atol=tolerance)
    print("equal losses")


if __name__ == "__main__":
    main()
