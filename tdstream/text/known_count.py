"""Recall what `tdstream.count` has found in a text, if it has gone through it."""

from __future__ import annotations

import logging
from typing import Any

from tdstream.errors import TdstreamError
from tdstream.text.chunk import Chunk
from tdstream.text.document_chunk import DocumentChunk
from tdstream.usercache import user_cache
from tdstream.windows import samples_of

logger = logging.getLogger(__name__)


def known_samples(source: Any, tokenizer: Any, text_field: str, chunk: Chunk | DocumentChunk) -> int | None:
    """Return the samples that a source gives, all together; None if they were not counted.

    Where anything was counted before, the first records of a source that is no dataset are looked at, to tell
    it from others.

    Args:
        source: What was given to `build`.
        tokenizer: The Hugging Face tokenizer.
        text_field: Where a record holds its text.
        chunk: How its documents are cut.
    """
    try:
        if next(user_cache("counts").glob("count-*.json"), None) is None:
            return None
    except (OSError, RuntimeError):  # RuntimeError: nobody's home.
        return None
    # Loads datasets, which takes a second that only who has counted waits.
    from tdstream.preparation.counting import recall_count  # noqa: PLC0415
    from tdstream.preparation.engine import Inputs  # noqa: PLC0415
    from tdstream.preparation.options import PrepareOptions, name_of  # noqa: PLC0415

    cut = chunk.cut if isinstance(chunk, DocumentChunk) else None
    options = PrepareOptions(
        dataset=name_of(source), tokenizer="-", text_field=text_field, strip=cut is not None
    )
    try:
        known = recall_count(options, Inputs(source=source, tokenizer=tokenizer), cut)
    except TdstreamError as error:
        logger.debug("Whether this text was counted before cannot be seen: %s", error)
        return None
    if known is None or isinstance(chunk, DocumentChunk):
        return None if known is None else known.windows
    return samples_of(known.counts.tokens, chunk.seq_len, chunk.stride)
