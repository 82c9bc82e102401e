"""Rows as they travel from the reader to the collation: tokens in storage type, and what is known of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.unsignedinteger[Any]]
"""Token ids in the type they are stored in, uint16 or uint32."""


@dataclass(frozen=True, slots=True)
class MarkedRows:
    """Rows of which some places are padding, made by cuts that respect documents.

    A row has T + 1 places: T inputs, and one more for the label of the last input.
    """

    tokens: Tokens
    """Shape [B, T + 1]; places behind a row's length hold the pad id."""
    lengths: NDArray[np.int32]
    """Shape [B]: how many of a row's T + 1 places are tokens, counted, never told from ids. T + 1 where the
    document goes on behind the inputs; at most T where it ends with them."""
    overlaps: NDArray[np.int32]
    """Shape [B]: how many of a row's first labels an earlier row of the document has already."""
    stops: NDArray[np.bool_]
    """Shape [B]: whether the row is its document's last."""

    def __len__(self) -> int:
        """Rows."""
        return len(self.tokens)
