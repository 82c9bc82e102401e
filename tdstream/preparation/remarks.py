"""Say what somebody should know about a corpus that has just been prepared."""

from __future__ import annotations

import logging

from tdstream.preparation.counts import Counts

logger = logging.getLogger(__name__)


def warn_of(counts: Counts) -> None:
    """Say what is unusual about the documents of a preparation.

    Args:
        counts: All of them.
    """
    if counts.with_eos:
        logger.warning(
            "%s of %s documents hold the end-of-text token in their own text; without an index of document "
            "ends, readers cannot tell it from the end of a document.",
            f"{counts.with_eos:,}",
            f"{counts.documents:,}",
        )
    if counts.skipped:
        logger.warning("%s records without text were skipped.", f"{counts.skipped:,}")
