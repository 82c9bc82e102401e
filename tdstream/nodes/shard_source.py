"""Token files as one token stream: those of a corpus directory, or of another tool; checked, not opened."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike

from tdstream.core.checks import is_address
from tdstream.core.errors import ConfigError, CorpusError, CorpusNotFoundError
from tdstream.core.state import IdentityState, differences
from tdstream.core.state_schema import equal
from tdstream.core.words import count_of
from tdstream.corpus.derived import WindowCounts, find_place_elsewhere, find_window_counts
from tdstream.corpus.document_ends import DocumentEnds
from tdstream.corpus.document_index import corpus_ends, find_pad_id
from tdstream.corpus.mapped_array import FileVersion, check_size, list_versions
from tdstream.corpus.meta import DTYPES, META_FILE, STAGING_DIR, VAL_DIR, CorpusMeta, Shard, read_meta
from tdstream.corpus.shard_reader import PieceMaps, ShardMaps
from tdstream.formats import adopted, raw
from tdstream.formats.description import NOTHING_TOLD, Description, FormatOptions
from tdstream.formats.ends import open_ends
from tdstream.formats.identity import identify, make_identity
from tdstream.formats.own import digest_checksums
from tdstream.formats.recognize import describe
from tdstream.schedule.windows import DocumentCut

if TYPE_CHECKING:
    from tdstream.corpus.pack_plan import PackOptions, PackPlan

logger = logging.getLogger(__name__)

_MOST_SHARDS = 1_000_000  # whose sizes are listed one by one
_MAX_RUNS = 16  # runs of shards of one size that a state lists; if there are more, it has only their digest


class ShardSource(IdentityState):
    """The shards of a corpus directory, in order.

    The sizes of all shards are compared with meta.json; no shard is opened. Without a meta.json, the shards
    are the directory's *.bin files, sorted by name, and dtype is required.

    Args:
        data_dir: The corpus directory.
        dtype: "uint16" or "uint32", or numpy's types of these names; None takes the type in meta.json.

    Attributes:
        directory: The corpus directory; `what` is the same as a str, for error messages.
        total_tokens: Tokens in all shards.
        dtype: The storage type, little-endian uint16 or uint32.
        files: File names of the shards, in order.
        tokenizer_fingerprint: A digest of the tokenizer, "" if meta.json has none.
        vocab_size: Size of the tokenizer's vocabulary, None if meta.json has none.
        eos_token_id: The id that ends documents, None if meta.json has none.
        tokenizer_name_or_path: Its name on the hub or its directory, "" if meta.json has none.
        offsets: int64 [num_shards + 1]; shard i holds tokens offsets[i] .. offsets[i + 1] - 1.

    Raises:
        CorpusNotFoundError: If the directory, its shards, or a shard that meta.json lists is missing.
        CorpusError: If a shard is shorter or longer than meta.json promises, or the corpus is unfinished.
        ConfigError: If dtype is not a storage type, contradicts meta.json, or is missing without one.
    """

    name = "source"
    _converted_from: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, data_dir: str | Path, *, dtype: DTypeLike | None = None) -> None:
        if not isinstance(data_dir, (str, os.PathLike)):
            raise ConfigError(f"a corpus is named by its directory, got {type(data_dir).__name__}.")
        if is_address(data_dir):
            raise CorpusNotFoundError(
                f"{data_dir} is an address, and tokens are read from local or mounted directories. "
                f"Copy the files there. Texts at an address are read with tdstream prepare --dataset."
            )
        self.directory = Path(data_dir).absolute()  # shards are opened later, possibly after a chdir
        self.what = str(self.directory)
        if self.directory.is_file():
            raise CorpusNotFoundError(
                f"{self.directory} is a file; a corpus is a directory with {META_FILE} and token shards. If "
                f"it holds text, make one of it: pass tokenizer=... and cache_dir=..., or run tdstream "
                f"prepare --dataset {self.directory} --tokenizer ... --output_path ..."
            )
        if not self.directory.is_dir():
            raise CorpusNotFoundError(
                f"{self.directory} is not a directory; expected one with {META_FILE} and token shards. "
                f"Make one with: tdstream prepare --dataset ... --tokenizer ... --output_path "
                f"{self.directory}"
            )
        versions = list_versions(self.directory)
        sizes = {file: version.size for file, version in versions.items()}
        meta = self._read_meta(sizes, None if dtype is None else check_dtype(dtype))
        self.dtype = DTYPES[meta.dtype]
        self.files = [chunk.file for chunk in meta.chunks]
        self.offsets = np.cumsum([0, *(chunk.tokens for chunk in meta.chunks)], dtype=np.int64)
        self.total_tokens = int(self.offsets[-1])
        for file, tokens in meta.chunks:
            if sizes.get(file) != tokens * self.dtype.itemsize:
                check_size(self.directory / file, sizes.get(file), tokens, self.dtype)
        self._mtimes = np.array([versions[file].mtime_ns for file in self.files], np.int64)
        self._checksums = tuple(meta.chunk_checksums.get(file, "") for file in self.files)
        self._converted_from = meta.converted_from
        self.tokenizer_fingerprint = meta.tokenizer_fingerprint
        self.vocab_size, self.eos_token_id = meta.vocab_size or None, meta.eos_token_id
        self.tokenizer_name_or_path = meta.tokenizer_name_or_path
        self._identity = make_identity(self.dtype.name, np.diff(self.offsets), digest_checksums(meta))

    def __repr__(self) -> str:
        return f"ShardSource({count_of(len(self.files), 'shard')}, {self.total_tokens:,} tokens)"

    def paths(self) -> list[Path]:
        """Return the path of each shard."""
        return [self.directory / file for file in self.files]

    def open(self) -> ShardMaps:
        """Return the token stream."""
        is_same = partial(_has_same_content, self.directory, self.files, self._checksums)
        return ShardMaps(
            self.directory, self.files, self.offsets, self.dtype, mtimes=self._mtimes, is_same=is_same
        )

    def ends(self) -> DocumentEnds:
        """Return where documents end."""
        return corpus_ends(self.directory, self.files, self.offsets, self.dtype)

    def window_counts(self, ends: DocumentEnds, cut: DocumentCut, documents: tuple[int, int]) -> WindowCounts:
        """Return the window counts of documents first .. last - 1."""
        return find_window_counts(self._derived_place, ends, cut, documents)

    def pack_plan(self, ends: DocumentEnds, options: PackOptions) -> PackPlan:
        """Return the documents of each packed row."""
        from tdstream.corpus.pack_plan import find_pack_plan  # noqa: PLC0415 - imports tqdm, for a bar

        return find_pack_plan(self._derived_place, ends, options)

    @property
    def _derived_place(self) -> Path:
        """The directory whose `.tdstream` has the files derived from these."""
        return self.directory

    @property
    def pad_id(self) -> int:
        """The id for padding."""
        return find_pad_id(self.directory)

    def state_dict(self) -> dict[str, Any]:
        """Return the corpus's identity, independent of its directory: type, sizes, and known checksums."""
        return dict(self._identity)

    def differences(self, saved: dict[str, Any]) -> list[str]:
        """Return a phrase for each difference from a saved identity, naming the first shard that differs."""
        if self._is_converted_from(saved):
            return []
        current = self.state_dict()
        if any(equal(saved.get("content"), unknown) for unknown in ("", None)) or not current["content"]:
            saved, current = {**saved, "content": ""}, {**current, "content": ""}
        was, now = (
            {field: value for field, value in part.items() if field not in ("shard_tokens", "sizes")}
            for part in (saved, current)
        )
        return [*self._shard_differences(saved, current), *differences(self.name, was, now)]

    def _is_converted_from(self, saved: dict[str, Any]) -> bool:
        """Return whether a state is of the files that this corpus was converted from."""
        source = self._converted_from
        if "sizes" not in source:
            return False  # it was not converted, or from files without an identity
        known = bool(saved.get("content")) and bool(source.get("content"))
        unknown = {} if known else {"content": ""}
        return equal({**saved, **unknown}, {**source, **unknown})

    def _shard_differences(self, saved: dict[str, Any], current: dict[str, Any]) -> list[str]:
        if equal(saved.get("sizes"), current["sizes"]):
            return []
        was, now = expand_sizes(saved.get("shard_tokens", "")), np.diff(self.offsets).tolist()
        for file, old, new in zip(self.files, was, now, strict=False):
            if old != new:
                return [f"shard {file} had {old:,} tokens, has {new:,}"]
        if 0 < len(was) < len(now):
            return [
                f"{self.name}: there are more shards, from {self.files[len(was)]} on (the corpus was "
                f"appended to, which gives an epoch other samples)"
            ]
        return [f"{self.name}: the sizes of the shards differ"]

    def _read_meta(self, sizes: Mapping[str, int], dtype: str | None) -> CorpusMeta:
        path = self.directory / META_FILE
        shards = sorted(file for file in sizes if file.endswith(".bin"))
        if not path.exists():
            return self._make_meta(dtype)
        meta = read_meta(path)
        if meta.dtype not in DTYPES:
            raise CorpusError(f'{path} has dtype {meta.dtype!r}; tdstream reads "uint16" and "uint32".')
        if dtype not in (None, meta.dtype):
            raise ConfigError(
                f"dtype={dtype!r} contradicts {path}, which says {meta.dtype!r}. Leave dtype out."
            )
        self._warn_of_lone_part(meta)
        listed = {chunk.file for chunk in meta.chunks}
        strays = [file for file in shards if file not in listed]
        if strays:
            logger.warning(
                "%s does not list %s; ignored.", path, ", ".join(strays[:5]) + " ..." * (len(strays) > 5)
            )
        return meta

    def _warn_of_lone_part(self, meta: CorpusMeta) -> None:
        """Warn of held-out documents whose main corpus was not moved to its place."""
        whole = self.directory.parent
        is_val = meta.holdout.get("part") == "val" and self.directory.name == VAL_DIR
        if is_val and (whole / STAGING_DIR / META_FILE).exists() and not (whole / META_FILE).exists():
            logger.warning(
                "%s was held out of a corpus that is not in its place yet: start that preparation again.",
                self.directory,
            )

    def _make_meta(self, dtype: str | None) -> CorpusMeta:
        """Return the meta of a corpus without meta.json: its *.bin files."""
        if (self.directory / STAGING_DIR).exists():
            raise CorpusError(
                f"{self.directory} holds a preparation that has not finished ({STAGING_DIR}/ and "
                f"no {META_FILE}). Wait for it, or run it again."
            )
        description = describe(self.directory, FormatOptions(dtype=dtype))
        if description.format != raw.NAME:
            raise ConfigError(
                f"{self.directory} is of another format, {description.format}: {description.evidence}. "
                f"tdstream.build and tdstream.loader read it."
            )
        pieces = description.pieces
        return CorpusMeta(
            dtype=description.dtype.name,
            chunks=tuple(Shard(Path(piece.path).name, piece.tokens) for piece in pieces),
        )


class FormatSource(ShardSource):
    """Token files that another tool wrote, read where they lie.

    Attributes are those of ShardSource, with a piece of a file in the place of a shard.

    Args:
        description: What the files are.
    """

    def __init__(self, description: Description) -> None:
        self.description, self.what = description, description.path
        self.directory = Path(description.path)
        pieces = description.pieces
        common = os.path.commonpath([os.path.dirname(piece.path) for piece in pieces])
        self.files = [os.path.relpath(piece.path, common) for piece in pieces]
        self.offsets = np.cumsum([0, *(piece.tokens for piece in pieces)], dtype=np.int64)
        self.total_tokens, self.dtype = int(self.offsets[-1]), description.dtype
        facts = description.facts
        self.tokenizer_fingerprint = ""
        self.vocab_size, self.eos_token_id = facts.get("vocab_size"), facts.get("eos_token_id")
        self.tokenizer_name_or_path = facts.get("tokenizer_name_or_path", "")
        self._identity = identify(description)

    def __repr__(self) -> str:
        name = type(self).__name__
        return f"{name}({self.description.format}, {len(self.files):,} pieces, {self.total_tokens:,} tokens)"

    def paths(self) -> list[Path]:
        """Return the path of each piece."""
        return [Path(piece.path) for piece in self.description.pieces]

    def open(self) -> PieceMaps:
        """Return the token stream."""
        paths, firsts, _, sizes, mtimes = zip(*self.description.pieces, strict=True)
        versions = list(map(FileVersion, sizes, mtimes))
        signed = self.description.signed
        return PieceMaps(paths, firsts, versions, self.offsets, self.dtype, signed=signed)

    def ends(self) -> DocumentEnds:
        """Return where documents end."""
        return open_ends(self.description)

    @property
    def pad_id(self) -> int:
        """The id for padding: the token that marks documents, or 0 if that is unknown."""
        return self.eos_token_id or 0

    @property
    def _derived_place(self) -> Path:
        return find_place_elsewhere(self.what)  # not beside other people's files


def open_source(path: str | Path, told: FormatOptions = NOTHING_TOLD) -> ShardSource:
    """Return the source for a corpus, or for token files of another format, which is recognized.

    Args:
        path: A corpus directory; or a directory, a file, a prefix P of P.bin and P.idx, or a pattern.
        told: What the caller says of the files.

    Raises:
        CorpusNotFoundError, CorpusError, ConfigError: As ShardSource, and if no format knows the files.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise ConfigError(f"a corpus is named by its path, got {type(path).__name__}.")
    place = Path(path)
    try:
        (place / META_FILE).exists()
    except OSError as error:  # a directory that this user may not enter
        raise CorpusError(
            f"{place} cannot be read: {error.strerror}. Change its permissions, or read a copy."
        ) from None
    has_adopted = adopted.is_adopted(place)
    if not (place / META_FILE).exists() and not (place / STAGING_DIR).exists():
        return FormatSource(describe(path, told))
    names = ("format", *(("dtype",) if has_adopted else ()), "eos_token_id", "eos_first")
    given = [name for name in names if getattr(told, name) is not None]
    if given and (place / META_FILE).exists():
        raise ConfigError(
            f"{place} is a corpus with a {META_FILE}, which says what {' and '.join(given)} would. Leave "
            f"{'them' if len(given) > 1 else 'it'} out."
        )
    if has_adopted:
        return FormatSource(adopted.describe(place.absolute()))
    return ShardSource(path, dtype=told.dtype)


def _has_same_content(directory: Path, files: Sequence[str], checksums: Sequence[str], shard: int) -> bool:
    """Return whether meta.json says of a shard that was replaced that its content is what it was."""
    try:
        now = read_meta(directory / META_FILE)
    except CorpusError:
        return False
    return bool(checksums[shard]) and now.chunk_checksums.get(files[shard]) == checksums[shard]


def check_dtype(dtype: DTypeLike) -> str:
    """Return the name of a storage type, or raise ConfigError."""
    try:
        name = str(np.dtype(dtype).name)
    except TypeError:
        name = ""
    if name not in DTYPES:
        raise ConfigError(f'dtype must be "uint16" or "uint32", got {dtype!r}.')
    return name


def expand_sizes(runs: Any) -> list[int]:
    """Return the sizes in a state's text: "1000x2 10x1" is [1000, 1000, 10]; [] if it was changed."""
    if not isinstance(runs, str):
        return []
    try:
        pairs = [(int(size), int(count)) for size, count in (run.split("x") for run in runs.split())]
        if (
            sum(count for _, count in pairs) > _MOST_SHARDS
            or min((min(pair) for pair in pairs), default=0) < 0
        ):
            return []
        return [size for size, count in pairs for _ in range(count)]
    except ValueError:
        return []  # a damaged state; the digests of the sizes differ anyway
