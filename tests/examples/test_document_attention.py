"""The example of attention within documents: equal losses, and others where documents see each other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

EXAMPLE = Path(__file__).parents[2] / "examples" / "document_attention.py"


def test_all_kinds_of_attention_give_the_same_losses():
    """What is not here is left out with its reason."""
    done = subprocess.run([sys.executable, EXAMPLE], check=True, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert lines[-1] == "equal losses"
    assert {line.split()[0] for line in lines[:-1]} == {"dense", "flex", "varlen", "segments"}
    assert torch.cuda.is_available() or "left out: " in done.stdout


def test_the_losses_tell_attention_across_documents(monkeypatch):
    """Else equal losses would say nothing."""
    monkeypatch.syspath_prepend(str(EXAMPLE.parent))
    import document_attention as example

    def causal(queries, keys, values, _batch):
        return torch.nn.functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)

    with example.corpus() as directory:
        apart = example.losses(directory, example.dense, "cpu")
        assert example.losses(directory, example.segments, "cpu") == pytest.approx(apart, rel=1e-6)
        across = example.losses(directory, causal, "cpu")
    assert all(abs(one - other) > 1e-3 for one, other in zip(across, apart, strict=True))
