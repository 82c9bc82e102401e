"""Look at the place of a corpus before anything else is done for it."""

from __future__ import annotations

from tdstream.corpus.staging import check_output
from tdstream.preparation.options import PrepareOptions


def check_place(options: PrepareOptions) -> None:
    """Refuse an output directory that cannot be written as the options say.

    Args:
        options: What was asked for.

    Raises:
        OutputError: If it is in use, or holds what may not be replaced.
    """
    check_output(
        options.output_path,
        overwrite=options.overwrite,
        resume=options.resume,
        task=options.task,
        append=options.append,
    )
