"""Choice of the input files of an append: those whose documents are not in the corpus yet."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from tdstream.core.errors import ConfigError
from tdstream.corpus.meta import META_FILE, CorpusMeta
from tdstream.preparation.identity import make_complete_result
from tdstream.preparation.input_files import SortedFiles, sort_files
from tdstream.preparation.options import PrepareOptions
from tdstream.preparation.result import PrepareResult
from tdstream.writing.staging import read_unfinished

logger = logging.getLogger(__name__)


def skip_known_files(
    options: PrepareOptions, base: CorpusMeta, identity: dict[str, Any], files: list[str]
) -> PrepareOptions | PrepareResult:
    """Return the options of an append without the files that are in the corpus; the result if all are.

    Raises ConfigError for a file that has changed since its documents were written and, unless `resume` is
    given, if none is new.
    """
    output = options.output.output_path
    unfinished = read_unfinished(output) if options.output.resume else None
    if unfinished is not None and unfinished.identity.get("files") == identity["files"]:
        return options  # begun by an earlier version, which took all files
    found = sort_files(files, identity, base)
    _check_not_changed(output, found)
    if not found.is_certain:
        logger.warning(
            "%s has no record of its files, or not of all: documents that are in it already cannot be "
            "recognized. Name only new files.",
            output / META_FILE,
        )
    if not found.known:
        return options
    if not found.new:
        if not options.output.resume:
            number = f"All {len(found.known):,} files are" if len(found.known) > 1 else f"{found.known[0]} is"
            raise ConfigError(
                f"{number} in the corpus in {output} already.", "With {resume} nothing is done."
            )
        return make_complete_result(options, base)
    logger.warning("%s: those are appended to %s.", found.describe(), output)
    return options.replace(skipped_files=frozenset(found.known))


def _check_not_changed(output: Path, found: SortedFiles) -> None:
    if found.grown:
        file, size = found.grown[0]
        raise ConfigError(
            f"{file} begins with {size:,} bytes that are in the corpus in {output} already: the file has "
            f"grown. Put the new records into a file of their own, or prepare the whole as another corpus."
        )
    if found.changed:
        raise ConfigError(
            f"{found.changed[0]} has changed since its documents were written to the corpus in {output}; "
            f"they may be in it twice. If all of its documents are new, give the file another name; else "
            f"prepare the whole again as another corpus."
        )
