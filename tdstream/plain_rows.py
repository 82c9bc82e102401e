"""Samples of several sources that are windows of one stream of tokens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tdstream.node import TokenMaps


@dataclass(frozen=True, kw_only=True)
class PlainRows:
    """Sources whose samples are windows of one stream, in which their tokens lie one after the other's."""

    maps: TokenMaps
    """The stream."""
    firsts: NDArray[np.int64]
    """Of each source, where its sample 0 begins."""
    stride: int
    seq_len: int
