"""`tdstream.export`: a corpus as the files of another tool, by hard links where the bytes are the same."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tdstream.core.errors import ConfigError, CorpusError, OutputError
from tdstream.core.progress_bar import ProgressBar
from tdstream.corpus.meta import META_FILE, VAL_DIR, read_meta
from tdstream.exchange.out_directory import OutDirectory, check_free
from tdstream.exchange.out_file import OutFile
from tdstream.exchange.source import TokenSource, describe_path
from tdstream.exchange.targets import TARGETS, Target, plan_megatron
from tdstream.formats import own
from tdstream.formats.description import NOTHING_TOLD, Description, FormatOptions, IndexedEnds
from tdstream.formats.ends import read_piece
from tdstream.writing.publish import check_space, explain_os_errors

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class ExportResult:
    """What an export made."""

    output_path: Path
    files: int
    linked_bytes: int
    """Bytes of hard links, which take no space."""
    copied_bytes: int
    """Bytes of tokens that were copied."""
    notes: tuple[str, ...]
    """What to know of the files."""


def export(
    corpus: str | os.PathLike[str],
    output_path: str | os.PathLike[str],
    *,
    to: str,
    one_prefix: bool = False,
    progress: bool = False,
    format: str | None = None,  # noqa: A002 - as build's
    dtype: Any = None,
    eos_token_id: int | None = None,
    eos_first: bool | None = None,
) -> ExportResult:
    """Write a corpus as the files of another tool, as ``tdstream export`` does.

    Files whose bytes are the same are hard links, which take no space; across file systems they are copies.
    The directory appears when it is complete. A killed export leaves ``.NAME.exporting`` beside it; the same
    export continues it.

    Args:
        corpus: A corpus directory, or token files of another tool.
        output_path: Directory for the files; it must not exist, or be empty.
        to: "megatron", "datatrove", "olmo", "nanogpt" or "llmc".
        one_prefix: Join all shards in one prefix; only for "megatron".
        progress: Whether to show a progress bar on stderr.
        format: Format of the files, if they could be of several.
        dtype: Type of their tokens, if they do not tell.
        eos_token_id: The token that marks documents, if they do not tell.
        eos_first: Whether it stands first in each document.

    Returns:
        Where the files are, how many bytes were linked and copied, and what to know of them.

    Raises:
        ConfigError: If an option is wrong, or the tool cannot hold these tokens.
        CorpusNotFoundError: If there is no corpus.
        CorpusError: If the corpus is damaged or unfinished.
        OutputError: If output_path holds anything, or is on a full disk.
    """
    told = FormatOptions.of(format, dtype, eos_token_id, eos_first)
    return run_export(corpus, output_path, to=to, one_prefix=one_prefix, told=told, visible=progress)


def run_export(
    corpus: str | os.PathLike[str],
    output_path: str | os.PathLike[str],
    *,
    to: str,
    one_prefix: bool = False,
    told: FormatOptions = NOTHING_TOLD,
    visible: bool = False,
    say: Callable[[str], object] = logger.info,
) -> ExportResult:
    """Do what `export` does; `say` receives what will be done, before it is done."""
    if to not in TARGETS:
        raise ConfigError(f"to must be one of {', '.join(TARGETS)}, got {to!r}.")
    if one_prefix and to != "megatron":
        raise ConfigError(f"one_prefix is for Megatron; {to} has no prefixes.", "Leave {one_prefix} out.")
    output = Path(os.path.realpath(output_path))
    description = describe_path(corpus, told)
    _check_outside(output, description)
    check_free(output)
    source = TokenSource(description, _find_val(description))
    target = plan_megatron(source, one_prefix=True) if one_prefix else TARGETS[to](source)
    with explain_os_errors(output):
        directory = OutDirectory(output, _make_plan(source, to, one_prefix, target))
    try:
        with explain_os_errors(output):
            return _fill(directory, source, target, say, visible=visible)
    except BaseException as error:
        kept = _leave(directory, target)
        if kept and isinstance(error, OutputError):
            error.add_hint(
                "{kept} in {place}: start again to continue, or remove it.", kept=kept, place=directory.place
            )
        raise


def _check_outside(output: Path, description: Description) -> None:
    inside = Path(os.path.realpath(description.path))
    if description.format == own.NAME and (output == inside or inside in output.parents):
        raise OutputError(f"{output} lies in the corpus {inside}. Choose another output path.")


def _find_val(description: Description) -> Description | None:
    """Return the documents that were held out of a corpus, if there are some."""
    if description.format != own.NAME:
        return None
    directory = Path(description.path)
    is_there = (directory / VAL_DIR / META_FILE).exists()
    held_out = is_there and read_meta(directory / META_FILE).holdout.get("part") == "train"
    return own.describe(directory / VAL_DIR) if held_out else None


def _make_plan(source: TokenSource, to: str, one_prefix: bool, target: Target) -> dict[str, Any]:
    """Return all that decides the files, in JSON types: a killed export with the same plan is continued."""
    parts = [source.description, *([] if source.val is None else [source.val])]
    read = {piece.path for part in parts for piece in part.pieces}
    read |= {path for part in parts if isinstance(part.ends, IndexedEnds) for path in part.ends.files}
    versions = [[path, (status := os.stat(path)).st_size, status.st_mtime_ns] for path in sorted(read)]
    return {
        "to": to, "one_prefix": one_prefix, "files": [file.name for file in target.files], "from": versions,
        "facts": {name: value for name, value in source.description.facts.items() if value is not None},
    }  # fmt: skip


def _leave(directory: OutDirectory, target: Target) -> str:
    """Keep the copies that are complete, or else remove everything; return what is kept."""
    copies = [
        file
        for file in target.files
        if file.copied and (directory.files / file.name).exists() and not file.is_linked(directory.files)
    ]
    if not copies:
        directory.discard()
        return ""
    directory.release()
    return f"{_count(len(copies), 'complete copy', 'complete copies')} of files are kept"


def _fill(
    directory: OutDirectory,
    source: TokenSource,
    target: Target,
    say: Callable[[str], object],
    *,
    visible: bool,
) -> ExportResult:
    """Make the files that an earlier run has not completed, and publish all."""
    place = directory.files
    missing = [file for file in target.files if not (place / file.name).exists()]
    whole = [file for file in missing if file.whole]
    can_link = bool(whole) and whole[0].link(place)  # a trial, so that what is said comes true
    copied = [file for file in missing if file.copied and not (can_link and file.whole)]
    scanned = source.num_bytes if target.below or source.description.signed else 0
    total = sum(file.copied for file in copied)
    say(_describe_work(directory, target, missing, copied, scanned))
    if whole and not can_link:
        say(f"Hard links are not possible from {source.what} to {directory.output}, so files are copied.")
    for note in target.notes:
        say(note)
    check_space(place, total)
    with ProgressBar(
        total=total + scanned, unit="B", unit_scale=True, dynamic_ncols=True, desc="Exporting",
        disable=not visible or not total + scanned,
    ) as bar:  # fmt: skip
        if scanned:
            _check_ids(source, bar.update)
        for file in missing:
            if can_link and file.whole and (file is whole[0] or file.link(place)):
                continue
            file.write(place, bar.update)
    linked = sum(file.copied for file in target.files if file.is_linked(place))
    directory.publish()
    return ExportResult(
        output_path=directory.output,
        files=len(target.files),
        linked_bytes=linked,
        copied_bytes=sum(file.copied for file in target.files) - linked,
        notes=target.notes,
    )


def _describe_work(
    directory: OutDirectory, target: Target, missing: list[OutFile], copied: list[OutFile], scanned: int
) -> str:
    linked = [file for file in missing if file.copied and file not in copied]
    new, kept = [file for file in missing if not file.copied], len(target.files) - len(missing)
    parts = [
        f"{_count(len(linked), 'hard link')} to {_sum(linked)}, which take no space" if linked else "",
        f"{_count(len(copied), 'file')} with {_sum(copied)} to copy" if copied else "",
        f"{_count(len(new), 'small file')} to write" if new else "",
        f"{_count(kept, 'file')} complete from an earlier run" if kept else "",
    ]  # fmt: skip
    read = f" {scanned:,} bytes are read first, to check that no id is 2^31 or more." if scanned else ""
    return f"{directory.output}: {'; '.join(part for part in parts if part)}.{read}"


def _check_ids(source: TokenSource, advance: Callable[[int], object]) -> None:
    """Refuse ids that are negative as signed numbers."""
    signed = np.dtype(f"<i{source.description.dtype.itemsize}")
    for _, piece in source.pieces:
        done = 0
        for tokens in read_piece(piece, source.description):
            if int(tokens.view(signed).min()) < 0:
                place = int((tokens.view(signed) < 0).argmax())
                raise CorpusError(
                    f"{piece.path} holds the id {int(tokens[place]):,} (token {done + place:,} there). The "
                    f"highest id of {signed.name} is {np.iinfo(signed).max:,}; nothing was exported."
                )
            done += len(tokens)
            advance(tokens.nbytes)


def _sum(files: list[OutFile]) -> str:
    return f"{sum(file.copied for file in files):,} bytes"


def _count(number: int, thing: str, things: str = "") -> str:
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"
