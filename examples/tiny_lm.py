"""A causal language model, just large enough that its losses are worth comparing."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812  # the name that PyTorch's own documentation uses
from torch import Tensor, nn


class TinyLM(nn.Module):
    """A decoder-only transformer.

    Args:
        vocab_size: Token ids that the embedding knows.
        seq_len: The longest input, in tokens.
        width: Features of a token.
        depth: Number of blocks.
    """

    def __init__(self, *, vocab_size: int, seq_len: int, width: int = 64, depth: int = 2) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, width)
        self.places = nn.Embedding(seq_len, width)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab_size, bias=False)

    def forward(self, input_ids: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss.

        Args:
            input_ids: Token ids, [batch, time].
            labels: The tokens one later, [batch, time].
        """
        places = torch.arange(input_ids.shape[1], device=input_ids.device)
        hidden = self.tokens(input_ids) + self.places(places)  # [batch, time, width]
        logits = self.head(self.norm(self.blocks(hidden)))  # [batch, time, vocab_size]
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


class Block(nn.Module):
    """Attention, then a small MLP, both residual."""

    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention, self.norm_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query_key_value, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the tokens' features after this block, [batch, time, width]."""
        hidden = hidden + self.attend(self.norm_attention(hidden))
        mixed: Tensor = hidden + self.mlp(self.norm_mlp(hidden))
        return mixed

    def attend(self, hidden: Tensor) -> Tensor:
        """Return each token's view of the tokens before it, [batch, time, width]."""
        parts = self.query_key_value(hidden).unflatten(-1, (3, self.heads, -1))
        query, key, value = parts.permute(2, 0, 3, 1, 4)  # each [batch, heads, time, width / heads]
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        projected: Tensor = self.project(seen.transpose(1, 2).flatten(-2))
        return projected
