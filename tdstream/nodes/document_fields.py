"""The fields of documents in a batch: ids, positions, and borders for variable-length attention.

The process that reads rows finds the borders of segments (see `rows`), `cu_seqlens`, and the few labels to
leave out. Ids and positions, which are as large as the batch, are made where it arrives.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tdstream.core.checks import check_bool, check_int
from tdstream.core.errors import ConfigError
from tdstream.nodes.rows import RowEnds, RowSegments

IGNORED = -100
"""The label that torch's cross entropy leaves out."""


class Split(NamedTuple):
    """The segments of a batch."""

    borders: NDArray[np.int32]
    """cu_seqlens, ascending from 0, [segments + 1] or [capacity]."""
    left_out: NDArray[np.int64]
    """Places in the flattened labels whose target belongs to the next document, [n]."""
    longest: int
    """max_seqlen: tokens of the longest segment; T if there is a capacity, the same for all batches."""
    segments: RowSegments


@dataclass(frozen=True, kw_only=True, slots=True)
class DocumentFields:
    """The options for the fields of documents."""

    cross_labels: bool = False
    """Whether to keep labels whose target belongs to the next document."""
    capacity: int | None = None
    """The length to which cu_seqlens is padded, with its last value; None: no padding."""

    def __post_init__(self) -> None:
        if self.capacity is not None:
            check_int("cu_seqlens_capacity", self.capacity, at_least=2)

    def split(self, ends: RowEnds, seq_len: int, shift: int) -> Split:
        """Return the segments of rows; shift is 1 if labels are the next tokens, 0 if they are the inputs.

        Raises ConfigError if cu_seqlens is longer than the capacity.
        """
        segments = ends.segments(seq_len)
        borders, left_out, longest = segments.borders, segments.lasts, segments.longest
        if not shift:
            left_out = segments.starts[segments.numbers > 0]
        if self.cross_labels:
            left_out = left_out[:0]
        if self.capacity is not None:
            borders, longest = _padded(borders, self.capacity), seq_len
        return Split(borders, left_out, longest, segments)


def _padded(borders: NDArray[np.int32], capacity: int) -> NDArray[np.int32]:
    if len(borders) > capacity:
        raise ConfigError(
            f"a batch has {len(borders) - 1:,} documents and parts of documents, whose borders take "
            f"{len(borders):,} places, more than cu_seqlens_capacity={capacity:,}. Build with a "
            f"larger one; saved states load with it."
        )
    padded = np.full(capacity, borders[-1], np.int32)
    padded[: len(borders)] = borders
    return padded


def make_document_fields(
    wanted: bool, *, batched: bool, cross_labels: bool = False, capacity: int | None = None
) -> DocumentFields | None:
    """Return the options from `build`'s arguments; None if items have no fields of documents."""
    cross_labels = check_bool("cross_document_labels", cross_labels)
    if not wanted and (cross_labels or capacity is not None):
        asked = "cross_document_labels" if cross_labels else "cu_seqlens_capacity"
        raise ConfigError(f'{asked} needs documents=True or cut="pack".')
    if capacity is not None and not batched:
        raise ConfigError(
            "cu_seqlens_capacity needs batch_size: single samples have no cu_seqlens, since a loader could "
            "not stack them."
        )
    return DocumentFields(cross_labels=cross_labels, capacity=capacity) if wanted else None


def document_tensors(
    borders: Any, longest: int, rows: int, seq_len: int, segments: RowSegments | None = None
) -> dict[str, Any]:
    """Return {"document_ids" [B, T], "position_ids" [B, T], "cu_seqlens" [n], "max_seqlen"}.

    Borders are cu_seqlens, an array or a tensor on any device; segments may be known for an array.
    """
    if isinstance(borders, Tensor):
        ids, positions = _on_device(borders, rows, seq_len)
    else:
        ids, positions = _on_cpu(segments or RowSegments.from_borders(borders, seq_len), rows, seq_len)
        borders = torch.from_numpy(borders.copy())
    return {"document_ids": ids, "position_ids": positions, "cu_seqlens": borders, "max_seqlen": longest}


def _on_cpu(segments: RowSegments, rows: int, seq_len: int) -> tuple[Tensor, Tensor]:
    """Return ids and positions; numpy's repeat is several times faster than torch's or filling slices.

    With T = 4 and segments 0-1 2-3 | 4-7, ids are 0 0 1 1 | 0 0 0 0, and positions are 0 1 2 3 | 4 5 6 7
    minus the starts 0 0 2 2 | 4 4 4 4.
    """
    ids = segments.numbers.repeat(segments.lengths).reshape(rows, seq_len)
    positions = segments.starts.repeat(segments.lengths)
    np.subtract(_counted(rows * seq_len), positions, out=positions)
    return torch.from_numpy(ids), torch.from_numpy(positions.reshape(rows, seq_len))


@lru_cache(maxsize=4)
def _counted(number: int) -> NDArray[np.int64]:
    """Return 0, 1, 2, ...; making it for each batch would take as long as all the rest."""
    return np.arange(number)


def _on_device(borders: Tensor, rows: int, seq_len: int) -> tuple[Tensor, Tensor]:
    """Return the same as tensors on the borders' device, without waiting for it."""
    begins = torch.zeros(rows * seq_len + 1, dtype=torch.int32, device=borders.device)
    begins[borders.long()] = 1
    begins = begins[:-1].view(rows, seq_len)
    begins[:, 0] = 0
    places = torch.arange(seq_len, device=borders.device)
    starts = torch.where(begins == 1, places, 0).cummax(dim=1).values
    return begins.cumsum(dim=1, dtype=torch.int32), places - starts
