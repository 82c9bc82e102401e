"""The place of a preparation, and its options in the words of whoever calls it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import fields

from tdstream.core.errors import TdstreamError
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


_SWITCHES = {field.name for field in fields(PrepareOptions) if isinstance(field.default, bool)}
_NAMES = {field.name for field in fields(PrepareOptions)}
_FLAG = re.compile(r"(?<![\w/-])--([a-z]\w*)( auto or hf)?")


@contextmanager
def python_options(known: Collection[str] | None = None) -> Iterator[None]:
    """Rewrite the messages of errors on their way out: --skip_bad is skip_bad=True here.

    Args:
        known: The options that the caller has; others are those of `tdstream.prepare`. None: all are known.
    """
    try:
        yield
    except TdstreamError as error:
        error.args = tuple(spelled(str(part), known) for part in error.args)
        raise


def spelled(message: str, known: Collection[str] | None = None) -> str:
    """Return a message with flags as options.

    Args:
        message: It.
        known: As `python_options`.
    """

    def option(found: re.Match[str]) -> str:
        name, values = found[1], found[2]
        if name not in _NAMES:
            return found[0]
        value = '"auto" or "hf"' if values else "True" if name in _SWITCHES else "..."
        return f"{name}={value}" + ("" if known is None or name in known else " to tdstream.prepare")

    return _FLAG.sub(option, message)
