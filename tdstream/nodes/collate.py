"""The tensors for the model, made from stored rows."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tdstream.core.errors import ConfigError
from tdstream.core.state import IdentityState
from tdstream.corpus.shard_reader import Tokens
from tdstream.nodes.batch import Batch, PackedBatch, keep_freed_memory
from tdstream.nodes.document_fields import IGNORED, DocumentFields, document_tensors
from tdstream.nodes.rows import AnyRows, DocumentRows, FilledRows, MarkedRows, RowSegments, SourcedRows

LABELS = ("next", "same")


class Collate(IdentityState):
    """Makes tensors from rows: inputs, labels, and fields for documents and mixtures.

    Args:
        batched: Whether an item is a batch. If not, an item is one sample, returned as a plain dict that your
            loader can stack.
        labels: "next": labels are the inputs shifted by one token. "same": labels are the inputs, for models
            that shift them.
        documents: The fields of documents to add, which need rows with the ends of documents; None adds none.

    Raises:
        ConfigError: If labels is neither "next" nor "same".
    """

    name = "collate"

    def __init__(
        self, *, batched: bool, labels: str = "next", documents: DocumentFields | None = None
    ) -> None:
        if labels not in LABELS:
            raise ConfigError(f'labels must be "next" or "same", got {labels!r}.')
        self.batched, self.labels, self.documents = batched, labels, documents
        keep_freed_memory()  # for this process and its forked workers

    def __repr__(self) -> str:
        return f"Collate({'batches' if self.batched else 'samples'})"

    stays_packed = False
    """Whether batches from workers arrive as rows, to be unpacked on a device; set by the loader."""

    def __call__(self, rows: AnyRows, *, travels: bool = False) -> dict[str, Tensor]:
        """Return the tensors of rows [B, T + 1]: [B, T] or [B] for a batch, [T] or a scalar for a sample.

        Plain rows give {"input_ids", "labels"}, int64 and contiguous. Marked rows add "attention_mask",
        int64, 1 at tokens and 0 at padding, and "is_natural_stop", bool, whether the row is its document's
        last; labels are -100 at padding and where an earlier row has them. A mixture with source_id=True
        adds "source_id", int32.

        With documents: "document_ids", int32, 0, 1, 2, ... in each row; "position_ids", int64, 0 at each
        document's first token in the row; for a batch also "cu_seqlens", int32 [segments + 1], and the int
        "max_seqlen"; labels are -100 where the target belongs to the next document.

        `travels` tells that the item is sent to another process; a batch is then sent as its rows.
        """
        travels = travels and self.batched
        unpack, parts = self._plan(rows, travels)
        if travels:
            return PackedBatch(unpack, *parts, stays_packed=self.stays_packed)
        tensors = unpack(*parts)
        return Batch(tensors) if self.batched else _sample(tensors)

    def state_dict(self) -> dict[str, Any]:
        """Return the options that decide the fields and labels of an item."""
        if self.documents is None:
            return {"labels": self.labels}
        cross = self.documents.cross_labels
        return {"labels": self.labels, "documents": True, "cross_document_labels": cross}

    def _plan(self, rows: AnyRows, travels: bool) -> tuple[Any, tuple[Any, ...]]:
        """Return a function that makes the tensors, and its arguments."""
        unpack: Any
        parts: tuple[Any, ...]
        if isinstance(rows, FilledRows):
            unpack, parts = self._plan(rows.rows, travels)
            return partial(with_fillers, unpack, rows.fillers), parts
        if isinstance(rows, SourcedRows):
            unpack, parts = self._plan(rows.rows, travels)
            return partial(with_source, unpack), (rows.source_ids, *parts)
        shift = 1 if self.labels == "next" else 0
        if isinstance(rows, MarkedRows):
            unpack = partial(marked_inputs_and_labels, shift)
            parts = (rows.tokens, rows.lengths, rows.overlaps, rows.stops)
        else:
            unpack = inputs_and_labels if shift else partial(inputs_and_labels, shift=0)
            parts = (rows.tokens if isinstance(rows, DocumentRows) else rows,)
        return (
            (unpack, parts)
            if self.documents is None
            else _add_documents(self.documents, rows, shift, unpack, parts, travels=travels)
        )


def _add_documents(
    fields: DocumentFields, rows: AnyRows, shift: int, unpack: Any, parts: tuple[Any, ...], *, travels: bool
) -> tuple[Any, tuple[Any, ...]]:
    """Return a function that adds the fields of documents to `unpack`'s tensors, and its arguments."""
    if not isinstance(rows, (DocumentRows, MarkedRows)) or rows.ends is None:
        raise ConfigError("documents=True needs a source that knows where documents end; this one does not.")
    seq_len = rows.tokens.shape[1] - 1
    split = fields.split(rows.ends, seq_len, shift)
    segments = None if travels else split.segments  # computing them on arrival is cheaper than sending them
    unpack = partial(with_documents, unpack, split.longest, segments)
    return unpack, (split.borders, split.left_out, *parts)


def _sample(tensors: dict[str, Any]) -> dict[str, Tensor]:
    """Return the only row of a batch, without the fields that cannot be stacked."""
    return {name: tensors[name][0] for name in tensors if name not in ("cu_seqlens", "max_seqlen")}


def with_documents(
    unpack: Any, longest: int, segments: RowSegments | None, borders: Any, left_out: Any, *parts: Any
) -> dict[str, Any]:
    """Return the tensors that `unpack` makes from `parts`, with the fields of documents.

    Borders are cu_seqlens, [n]; labels at places `left_out` of the flattened batch, [m], become -100. Both
    are arrays, or tensors on a device.
    """
    tensors = unpack(*parts)
    if isinstance(left_out, Tensor):
        tensors["labels"].view(-1)[left_out] = IGNORED
    else:
        tensors["labels"].numpy().put(left_out, IGNORED)  # the same memory
    rows, seq_len = tensors["input_ids"].shape
    return {**tensors, **document_tensors(borders, longest, rows, seq_len, segments)}


def inputs_and_labels(rows: Tokens | Tensor, *, shift: int = 1) -> dict[str, Tensor]:
    """Return the int64 tensors [B, T] of rows [B, T + 1]: T tokens from the first, and T from `shift`."""
    labels = rows[:, shift : shift + rows.shape[1] - 1]
    return {"input_ids": _as_tensor(rows[:, :-1]), "labels": _as_tensor(labels)}


def marked_inputs_and_labels(
    shift: int, tokens: Any, lengths: Any, overlaps: Any, stops: Any
) -> dict[str, Tensor]:
    """Return the tensors of marked rows, from MarkedRows' fields as arrays or tensors.

    Shift is 1 if labels are the next tokens, 0 if they are the inputs.
    """
    if isinstance(tokens, Tensor):
        return _marked_tensors(shift, tokens, lengths, overlaps, stops)
    seq_len = tokens.shape[1] - 1
    labels = tokens[:, shift : shift + seq_len].astype(np.int64, order="C")
    if overlaps.any():
        for row in np.flatnonzero(overlaps).tolist():
            labels[row, : overlaps[row]] = IGNORED
    if shift:
        labels[lengths <= seq_len, -1] = IGNORED  # the document ends: its last token predicts none
    for row, length in enumerate(lengths.tolist()):
        if length < seq_len:
            labels[row, length - shift :] = IGNORED
    return {
        "input_ids": _as_tensor(tokens[:, :-1]),
        "labels": torch.from_numpy(labels),
        "attention_mask": torch.from_numpy(_mask(lengths, seq_len)),
        "is_natural_stop": torch.from_numpy(np.array(stops)),
    }


def _mask(lengths: NDArray[np.int32], seq_len: int) -> NDArray[np.int64]:
    """Return 1 at the first `lengths` places of each row and 0 after them, [B, T].

    For lengths 2 4 and T = 3, repeating 1 0 | 1 0 by stretches 2 1 | 3 0 gives 1 1 0 | 1 1 1.
    """
    stretches = np.empty((len(lengths), 2), np.int64)
    np.minimum(lengths, seq_len, out=stretches[:, 0])
    np.subtract(seq_len, stretches[:, 0], out=stretches[:, 1])
    # Repeating bytes and widening them is faster than filling rows one by one.
    mask = _ones_and_zeros(len(lengths)).repeat(stretches.ravel()).astype(np.int64)
    return mask.reshape(len(lengths), seq_len)


@lru_cache(maxsize=4)
def _ones_and_zeros(number: int) -> NDArray[np.int8]:
    return np.array([1, 0] * number, np.int8)


def _marked_tensors(
    shift: int, tokens: Tensor, lengths: Tensor, overlaps: Tensor, stops: Tensor
) -> dict[str, Tensor]:
    """Return the same from tensors on a device, without waiting for it."""
    inputs, ends = tokens[:, :-1].to(torch.int64).contiguous(), lengths[:, None]
    places = torch.arange(inputs.shape[1], device=inputs.device)
    has_label = (places >= overlaps[:, None]) & (places + shift < ends)
    labels = tokens[:, shift : shift + inputs.shape[1]].to(torch.int64).masked_fill(~has_label, IGNORED)
    return {
        "input_ids": inputs,
        "labels": labels,
        "attention_mask": (places < ends).to(torch.int64),
        "is_natural_stop": stops,
    }


def with_fillers(unpack: Any, fillers: int, *parts: Any) -> dict[str, Any]:
    """Return the tensors that `unpack` makes from `parts`, without labels in the last rows."""
    tensors: dict[str, Any] = unpack(*parts)
    tensors["labels"][-fillers:] = IGNORED
    if "is_natural_stop" in tensors:
        tensors["is_natural_stop"][-fillers:] = False
    return tensors


def with_source(unpack: Any, source_ids: Any, *parts: Any) -> dict[str, Any]:
    """Return the tensors that `unpack` makes from `parts`, and "source_id", int32 [B]."""
    ids = source_ids if isinstance(source_ids, Tensor) else torch.from_numpy(np.array(source_ids))
    return {**unpack(*parts), "source_id": ids}


def _as_tensor(tokens: Any) -> Tensor:
    if isinstance(tokens, Tensor):
        return tokens.to(torch.int64).contiguous()
    return torch.from_numpy(tokens.astype(np.int64, order="C"))
