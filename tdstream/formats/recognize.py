"""Which format files are of: exactly one says so, with evidence, or a sentence asks."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tdstream.core.checks import is_address
from tdstream.core.errors import ConfigError, CorpusError, CorpusNotFoundError
from tdstream.formats import arrow, datatrove, litdata, litpacked, llmc, mds, megatron, npy, raw
from tdstream.formats.description import (
    CONVERT,
    NOTHING_TOLD,
    Description,
    FormatOptions,
    check_stored_dtype,
)

_LOOKED_AT = 4096  # tokens


class Format(NamedTuple):
    """A format of token files."""

    recognize: Callable[[Path], str | None]
    """Returns the evidence that a path is of this format."""
    describe: Callable[[Path, str, FormatOptions], Description]
    what: str
    """Whose it is."""


FORMATS: dict[str, Format] = {
    megatron.NAME: Format(megatron.recognize, megatron.describe, "Megatron, NeMo, GPT-NeoX: P.bin and P.idx"),
    llmc.NAME: Format(llmc.recognize, llmc.describe, "llm.c, modded-nanogpt: .bin shards with a header"),
    litpacked.NAME: Format(litpacked.recognize, litpacked.describe, "lit-gpt, TinyLlama: packed .bin files"),
    datatrove.NAME: Format(datatrove.recognize, datatrove.describe, "datatrove, nanotron: .ds files"),
    litdata.NAME: Format(litdata.recognize, litdata.describe, "litData: a folder with index.json"),
    mds.NAME: Format(mds.recognize, mds.describe, "MosaicML streaming: a folder with index.json"),
    arrow.NAME: Format(arrow.recognize, arrow.describe, "datasets: Arrow files with input_ids"),
    npy.NPY: Format(npy.recognize, npy.describe, "numpy.save: .npy files"),
    npy.OLMO: Format(npy.recognize_raw, npy.describe_raw, "OLMo, dolma: raw tokens named .npy"),
}
"""Formats that files prove."""
RAW = Format(raw.recognize, raw.describe, "nanoGPT: raw tokens named .bin")
NAMES = (*FORMATS, raw.NAME)


def describe(path: str | Path, options: FormatOptions) -> Description:
    """Return what lies at a path: a directory, a file, a prefix P of P.bin and P.idx, or a glob pattern.

    Raises:
        CorpusNotFoundError: If there is nothing, or nothing that any format knows.
        CorpusError: If files are damaged, or of a variant that is not read.
        ConfigError: If the files do not tell what has to be known, or contradict the options.
    """
    if is_address(path):
        raise CorpusNotFoundError(
            f"{path} is an address, and tokens are read from local or mounted directories. Copy "
            f"the files there. Texts at an address are read with tdstream prepare --dataset."
        )
    place = Path(path).absolute()
    if options.dtype is not None:
        options = replace(options, dtype=check_stored_dtype(options.dtype))
    name, evidence = recognize(place, options)
    description = (FORMATS.get(name) or RAW).describe(place, evidence, options)
    changed = {path: os.stat(path).st_mtime_ns for path in {piece.path for piece in description.pieces}}
    pieces = tuple(piece._replace(mtime_ns=changed[piece.path]) for piece in description.pieces)
    _check_first_ids(description)
    told = {} if options.eos_token_id is None else {"eos_token_id": options.eos_token_id}
    return replace(description, pieces=pieces, facts={**description.facts, **told})


def _check_first_ids(description: Description) -> None:
    """Raise CorpusError if the first tokens of signed files are negative, as where a bit holds a mask."""
    piece = next(piece for piece in description.pieces if piece.tokens)
    dtype = np.dtype(description.stored_dtype).newbyteorder("<")
    if description.signed:
        first = np.fromfile(piece.path, dtype, min(piece.tokens, _LOOKED_AT), offset=piece.offset)
        if len(first) and first.min() < 0:
            raise CorpusError(
                f"{piece.path} holds the negative id {int(first.min()):,}. It is no plain stream of token "
                f"ids: some tools keep a loss mask in the highest bit."
            )


def recognize(path: Path, options: FormatOptions = NOTHING_TOLD) -> tuple[str, str]:
    """Return the name of the one format, and the evidence for it; raise as `describe` does."""
    if options.format not in (None, *NAMES):
        raise ConfigError(f"format must be one of {', '.join(NAMES)}, got {options.format!r}.")
    found = {name: seen for name, one in FORMATS.items() if (seen := one.recognize(path)) is not None}
    if options.format == raw.NAME and found:
        name, seen = next(iter(found.items()))
        raise ConfigError(f"{path} is not raw: {seen} ({FORMATS[name].what}). Leave format out.")
    if options.format is not None:
        known = found.get(options.format) if options.format in FORMATS else raw.recognize(path)
        if known is None:
            seen = "; ".join(found.values()) or "nothing that tells a format"
            raise ConfigError(
                f"{path} is not of the format {options.format!r}; found: {seen}. Leave format out."
            )
        return options.format, known
    if len(found) > 1:
        raise ConfigError(
            f"{path} could be of several formats: {'; '.join(found.values())}. Pass "
            f"format={' or '.join(map(repr, found))}."
        )
    if found:
        return next(iter(found.items()))
    bare = raw.recognize(path)
    if bare is not None:
        return raw.NAME, bare
    raise _nothing(path)


def _nothing(path: Path) -> CorpusNotFoundError | CorpusError:
    """Return the error for a path that no format knows."""
    if (path / "shard_ledger.json").is_file():
        return CorpusError(f"{path} is a cache of Levanter, whose tokens are compressed. {CONVERT}")
    if path.suffix == ".parquet" or (path.is_dir() and any(path.glob("*.parquet"))):
        return CorpusError(
            f"{path} is Parquet, which is encoded and cannot be mapped. If it holds token ids: {CONVERT} If "
            f"it holds text, pass tokenizer=... and cache_dir=..., or run tdstream prepare."
        )
    if path.is_dir():
        return CorpusNotFoundError(
            f"{path} has no meta.json and no *.bin file or other token files of a known format; it is not a "
            f"corpus. If it holds text, pass tokenizer=... and cache_dir=..., or run tdstream prepare."
        )
    if path.exists():
        return CorpusNotFoundError(
            f"{path} is a file of no known format of token files; a corpus is a directory with meta.json and "
            f"token shards. If it holds text, make one of it: pass tokenizer=... and cache_dir=..., or run "
            f"tdstream prepare --dataset {path} --tokenizer ... --output_path ..."
        )
    if glob.has_magic(str(path)):
        return CorpusNotFoundError(f"{path} matches no token file of a known format.")
    return CorpusNotFoundError(
        f"{path} is not a directory, a file, or a prefix of .bin and .idx; expected a corpus or token files. "
        f"Make a corpus with: tdstream prepare --dataset ... --tokenizer ... --output_path {path}"
    )
