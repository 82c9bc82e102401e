"""The example of attention within documents: equal losses, and others where documents see each other."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_all_kinds_of_attention_give_the_same_losses(monkeypatch, capsys):
    """What is not here is left out with its reason; attention across documents would show in every loss."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import document_attention as example

    example.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "equal losses"
    assert {line.split()[0] for line in lines[:-1]} == {"dense", "flex", "varlen", "segments"}
    assert torch.cuda.is_available() or any("skipped: " in line for line in lines)

    def causal(queries, keys, values, _batch):
        return torch.nn.functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)

    with example.corpus() as directory:
        apart = example.losses(directory, example.dense, "cpu")
        across = example.losses(directory, causal, "cpu")
    if not torch.cuda.is_available():  # where the example trains
        assert apart == pytest.approx([float(loss) for loss in lines[0].split()[1:]], abs=1e-5)
    assert all(abs(one - other) > 1e-3 for one, other in zip(across, apart, strict=True))
