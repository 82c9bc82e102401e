"""The place of a preparation."""

from __future__ import annotations

from tdstream.text.options import PrepareOptions
from tdstream.writing.staging import check_output


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
