"""Choice of what an append reads: files whose documents are not in the corpus yet, and no list that grew."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

from tdstream.core.errors import ConfigError
from tdstream.corpus.meta import META_FILE, CorpusMeta
from tdstream.preparation.identity import make_complete_result, make_identity, summarize_identity
from tdstream.preparation.input_files import SortedFiles, sort_files
from tdstream.preparation.options import PrepareOptions
from tdstream.preparation.result import PrepareResult
from tdstream.text.open import open_text
from tdstream.writing.staging import read_unfinished

logger = logging.getLogger(__name__)


def skip_known_files(
    options: PrepareOptions, base: CorpusMeta, identity: dict[str, Any], files: list[str]
) -> PrepareOptions | PrepareResult:
    """Return the options of an append without the files that are in the corpus; the result if all are.

    Raises ConfigError for a file that has changed since its documents were written, for one that was not
    read whole and, unless `resume` is given, if none is new.
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


def check_list(options: PrepareOptions, base: CorpusMeta, plan: CorpusMeta) -> None:
    """Refuse to append a list that begins with the records which the corpus was made from."""
    given = options.text.given
    first = base.num_documents - sum(int(part.get("documents", 0)) for part in base.appended)
    if not isinstance(given, (list, tuple)) or not 0 < first < len(given) or "given" not in base.made_from:
        return
    if options.output.resume and read_unfinished(options.output.output_path) is not None:
        return
    text = replace(options.text, given=given[:first])
    with open_text(text) as source:
        identity = make_identity(replace(options, text=text), plan, source.facts)
    if summarize_identity(identity).get("given") == base.made_from["given"]:
        raise ConfigError(
            f"The first {first:,} records of the {type(given).__name__} are in the corpus in "
            f"{options.output.output_path} already: it was made from them. Pass only the others: "
            f"source[{first}:]."
        )


def _check_not_changed(output: Path, found: SortedFiles) -> None:
    if found.partial:
        raise ConfigError(
            f"Of {found.partial[0]}, the corpus in {output} holds perhaps only the first records, because "
            f"max_samples ended there. The rest cannot be appended: name the other files alone, or prepare "
            f"the whole as another corpus."
        )
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
