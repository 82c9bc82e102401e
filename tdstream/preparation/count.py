"""Count what text that is not tokenized yet will give, for totals that are known before the first step."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tdstream.core.checks import check_int
from tdstream.core.errors import ConfigError, TdstreamError
from tdstream.core.user_cache import read_json, user_cache, write_json
from tdstream.corpus.meta import CorpusMeta
from tdstream.distributed.topology import resolve_topology
from tdstream.preparation.engine import Inputs
from tdstream.preparation.identity import identity_of
from tdstream.preparation.result import Counts, Observer
from tdstream.preparation.tokenizing import Overlapped
from tdstream.schedule.sample_spec import SampleSpec
from tdstream.schedule.windows import DocumentCut, count_samples
from tdstream.text.batches import TextSource
from tdstream.text.encoders.select import choose_encoder
from tdstream.text.open import open_source
from tdstream.text.options import PrepareOptions, name_of
from tdstream.text.tokenizer import load_tokenizer, own_tokenizer, plan_corpus

logger = logging.getLogger(__name__)

_OF_CORPORA = ("format_version", "dtype", "tokens_per_chunk", "task", "num_tasks")  # what no count depends on
_VERSION = 1


@dataclass(frozen=True, slots=True)
class CountedText:
    """What a text holds, and gives."""

    counts: Counts
    """Its documents and tokens."""
    windows: int | None = None
    """Windows of single documents; None where documents are joined, and tokens tell."""


def count_text(
    options: PrepareOptions,
    inputs: Inputs,
    cut: DocumentCut | None,
    cache_dir: Path | None,
    observer: Observer,
) -> CountedText:
    """Count the documents and tokens that a preparation would write, or recall an earlier count.

    Args:
        options: What to read, and how to tokenize it.
        inputs: A dataset and a tokenizer in hand.
        cut: How each document is cut by itself; None where documents are joined.
        cache_dir: Where counts are kept; None for the user's cache.
        observer: Told how far it is.

    Raises:
        TdstreamError: If the text cannot be read, or the tokenizer cannot be used.
    """
    given = inputs.tokenizer
    tokenizer = load_tokenizer(options.tokenizer) if given is None else own_tokenizer(given)
    plan = plan_corpus(options, tokenizer)
    with open_source(options, inputs.source) as source:
        key = _key(options, plan, source, cut)
        path = _path(_directory(cache_dir), key)
        known = _recall(path, key)
        if known is None:
            known = _count(source, tokenizer, plan, options, cut, observer)
            _keep(path, key, known)
    observer.end()
    return known


def recall_count(
    options: PrepareOptions, inputs: Inputs, cut: DocumentCut | None = None, cache_dir: Path | None = None
) -> CountedText | None:
    """Return what was counted before, or None; no more is read than tells a source from others.

    Args:
        options: What to read, and how to tokenize it.
        inputs: A dataset and a tokenizer in hand.
        cut: As `count_text`.
        cache_dir: Where counts are kept; None for the user's cache.

    Raises:
        TdstreamError: If the text cannot be read, or the tokenizer cannot be used.
    """
    plan = plan_corpus(options, inputs.tokenizer)
    with open_source(options, inputs.source) as source:
        key = _key(options, plan, source, cut)
    return _recall(_path(_directory(cache_dir), key), key)


def _count(
    source: TextSource,
    tokenizer: Any,
    plan: CorpusMeta,
    options: PrepareOptions,
    cut: DocumentCut | None,
    observer: Observer,
) -> CountedText:
    counts, windows = Counts(), 0
    observer.begin(source.total, counts)
    encoder = choose_encoder(tokenizer, options.encoder)
    with closing(Overlapped(source.batches(), encoder, plan.eos_token_id or 0)) as blocks:
        for block in blocks:
            documents = len(block.documents.ends)
            counts += block.documents.counted(0, documents, skipped=block.num_records - documents)
            windows += 0 if cut is None else _count_windows(block.documents.lengths(0, documents), cut)
            observer.advance(block.num_records, counts)
    return CountedText(counts, None if cut is None else windows)


def _count_windows(lengths: NDArray[np.int64], cut: DocumentCut) -> int:
    """Return the windows of documents of so many tokens of their own."""
    return int(cut.count(lengths[cut.is_kept(lengths)] + 1).sum())


def _key(
    options: PrepareOptions, plan: CorpusMeta, source: TextSource, cut: DocumentCut | None
) -> dict[str, Any]:
    """Return what decides a count, in JSON types."""
    identity = identity_of(options, plan, source.facts.files, source.facts.identity)
    decisive = {name: value for name, value in identity.items() if name not in _OF_CORPORA}
    windows = {} if cut is None else {"windows": [cut.seq_len, cut.stride, cut.min_tail]}
    return {"version": _VERSION, "skip_bad": options.skip_bad, **windows, **decisive}


def _directory(cache_dir: Path | None) -> Path:
    return user_cache("counts") if cache_dir is None else cache_dir


def _path(directory: Path, key: dict[str, Any]) -> Path:
    name = hashlib.sha256(json.dumps(key, sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest()
    return directory / f"count-{name[:32]}.json"


def _recall(path: Path, key: dict[str, Any]) -> CountedText | None:
    try:
        content = read_json(path)
        if content["key"] != key:
            return None
        counts = Counts.from_json(content)
        windows = int(content["windows"]) if "windows" in key else None
        fits = all(isinstance(value, (int, float)) for value in asdict(counts).values())
        return CountedText(counts, windows) if fits else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _keep(path: Path, key: dict[str, Any], counted: CountedText) -> None:
    try:
        write_json(path, {**asdict(counted.counts), "windows": counted.windows, "key": key})
    except OSError as error:
        logger.warning("The count is not kept, and will be made again the next time: %s", error)


@dataclass(frozen=True, kw_only=True, slots=True)
class TextCount:
    """What a source holds."""

    documents: int
    """Documents, empty ones too."""
    tokens: int
    """Their tokens, with an end-of-text token behind each."""
    text_bytes: int
    """Bytes of their texts in UTF-8."""
    samples: int | None = None
    """Samples of an epoch over all ranks; None where no seq_len was given."""
    batches: int | None = None
    """Batches of an epoch on each rank; None where no batch_size was given."""


def count(
    source: Any,
    tokenizer: Any,
    *,
    seq_len: int | None = None,
    batch_size: int | None = None,
    stride: int | None = None,
    cut: str = "stream",
    min_tail_len: int | None = None,
    dp_world_size: int = 1,
    text_field: str = "text",
    split: str = "train",
    data_name: str | None = None,
    data_files: Sequence[str] = (),
    lines: bool = False,
    max_samples: int | None = None,
    skip_bad: bool = False,
    encoder: str = "auto",
    name: str | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    progress: bool = True,
) -> TextCount:
    """Read and tokenize a source once, and say what it holds; asked again, the answer comes from a file.

    It is kept by what tells source and tokenizer from others: files by their names, sizes and times of
    change, a list by its content, a Dataset by its fingerprint, anything else as `tdstream.prepare` says.

    Args:
        source: As `tdstream.prepare` takes it: a path or a name on the hub, a list, a dataset, a function
            that returns an iterator, or another iterable that can be read again.
        tokenizer: A name, a path, or a Hugging Face tokenizer, which is copied.
        seq_len: T, to say how many samples an epoch has.
        batch_size: B, samples per rank and step, to say how many batches that is.
        stride: As `build`'s, like the two that follow; all three are of use with seq_len only.
        cut: "stream" or "document". Each document cut of its own, texts are stripped and counted anew.
        min_tail_len: For cut="document".
        dp_world_size: Ranks that receive different rows.
        text_field: As `tdstream.prepare`'s, like the seven that follow.
        split: Split of the dataset.
        data_name: Configuration of a dataset.
        data_files: Files of a dataset to read.
        lines: One document per line of a text file.
        max_samples: Records to read at most.
        skip_bad: Whether records without text are left out.
        encoder: What turns text into ids; the count does not depend on it.
        name: What to call a source that is no path or name.
        cache_dir: Where counts are kept; default `$XDG_CACHE_HOME/tdstream/counts`, or below `~/.cache`.
        progress: Whether rank 0 shows a progress bar on stderr.

    Raises:
        ConfigError: If an option is out of range, or does not go with the source.
        SourceError: If the text cannot be found or read, or a record holds none.
        TokenizerError: If the tokenizer cannot be found, or has no end-of-text token.
    """
    if source is None or tokenizer is None:
        raise ConfigError("count needs a source and a tokenizer, got None.")
    _check_numbers(seq_len=seq_len, batch_size=batch_size, stride=stride, dp_world_size=dp_world_size)
    windows = _document_cut(seq_len, stride, cut, min_tail_len)
    named, known = isinstance(source, (str, os.PathLike)), isinstance(tokenizer, (str, os.PathLike))
    if named and name is not None:
        raise ConfigError("name is for a source that is no path or name. Leave it out.")
    asked = PrepareOptions(
        dataset=os.fspath(source) if named else name or name_of(source),
        tokenizer=os.fspath(tokenizer) if known else name_of(tokenizer),
        text_field=text_field, split=split, data_name=data_name, lines=lines, skip_bad=skip_bad,
        encoder=encoder, strip=windows is not None,
        data_files=(data_files,) if isinstance(data_files, str) else tuple(map(str, data_files)),
        max_samples=None if max_samples is None else check_int("max_samples", max_samples, at_least=1),
    )  # fmt: skip
    # Loads datasets and transformers, which takes seconds; what is refused above does not wait for it.
    from tdstream.preparation.engine import Inputs  # noqa: PLC0415
    from tdstream.preparation.result import Bar  # noqa: PLC0415

    inputs = Inputs(source=None if named else source, tokenizer=None if known else tokenizer)
    directory = None if cache_dir is None else Path(cache_dir)
    visible = progress and resolve_topology().dp_rank == 0
    with Bar(visible=visible, desc="Counting") as bar:
        found = count_text(asked, inputs, windows, directory, bar)
    counted, samples = found.counts, found.windows
    if windows is None and seq_len is not None:
        samples = count_samples(counted.tokens, seq_len, stride)
    return TextCount(
        documents=counted.documents,
        tokens=counted.tokens,
        text_bytes=counted.text_bytes,
        samples=samples,
        batches=None if samples is None or batch_size is None else samples // (batch_size * dp_world_size),
    )


def _check_numbers(**numbers: int | None) -> None:
    for name, number in numbers.items():
        if number is not None:
            check_int(name, number, at_least=1)
    if numbers["batch_size"] is not None and numbers["seq_len"] is None:
        raise ConfigError("batch_size says how many batches there are only together with seq_len.")
    if numbers["dp_world_size"] != 1 and numbers["batch_size"] is None:
        raise ConfigError("dp_world_size says how many batches a rank has only together with batch_size.")


def _document_cut(
    seq_len: int | None, stride: int | None, cut: str, min_tail_len: int | None
) -> DocumentCut | None:
    """Return how documents are cut by themselves; None if they are joined."""
    if seq_len is None:
        if stride is not None or min_tail_len is not None or cut != "stream":
            raise ConfigError(
                "stride, cut and min_tail_len say how many samples there are only together with seq_len."
            )
        return None
    how = SampleSpec(seq_len=seq_len, stride=stride, cut=cut, min_tail_len=min_tail_len)
    if how.cut == "pack":
        raise ConfigError(
            'cut="pack" gives as many rows as the lengths of all documents allow, which a count does not '
            "keep. Prepare the text, and ask len(build(...))."
        )
    if how.cut == "document":
        return DocumentCut.of(seq_len, stride, min_tail_len)
    if stride is not None and stride > seq_len + 1:
        raise ConfigError(f"stride must be 1 to seq_len + 1 = {seq_len + 1}, got {stride}.")
    return None


def known_samples(
    source: Any, tokenizer: Any, text_field: str, *, cut: DocumentCut | None, seq_len: int, stride: int
) -> int | None:
    """Return the samples that a source gives, all together; None if they were not counted.

    Where anything was counted before, the first records of a source that is no dataset are looked at, to tell
    it from others.

    Args:
        source: What was given to `build`.
        tokenizer: The Hugging Face tokenizer.
        text_field: Where a record holds its text.
        cut: How each document is cut by itself; None where documents are joined.
        seq_len: T.
        stride: Tokens from one sample's start to the next one's.
    """
    options = PrepareOptions(
        dataset=name_of(source), tokenizer="-", text_field=text_field, strip=cut is not None
    )
    try:
        known = recall_count(options, Inputs(source=source, tokenizer=tokenizer), cut)
    except TdstreamError as error:
        logger.debug("Whether this text was counted before cannot be seen: %s", error)
        return None
    if known is None or cut is not None:
        return None if known is None else known.windows
    return count_samples(known.counts.tokens, seq_len, stride)
