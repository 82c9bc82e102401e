"""Say what a source is taken for."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tdstream.core.checks import check_int, check_source
from tdstream.core.errors import ConfigError
from tdstream.nodes.epoch_permutation import check_order
from tdstream.nodes.shard_source import check_dtype
from tdstream.pipelines.views import View
from tdstream.text.dataset_stream import DatasetRecords
from tdstream.text.options import TextOptions, is_path
from tdstream.text.records import CountedRecords, IndexedRecords, Records

logger = logging.getLogger(__name__)

KINDS = ("corpus", "memory", "cache", "stream")
MOST_IN_MEMORY = 2**30
"""Bytes of a datasets.Dataset up to which it is tokenized into memory."""


def kind_of(source: Any, kind: str | None = None, *, cache_dir: Any = None) -> str:
    """Return what a source is taken for, one of KINDS, and log it.

    Args:
        source: What `build` was given.
        kind: What it is to be taken for; None leaves it to this function.
        cache_dir: Where corpora may be prepared.

    Raises:
        ConfigError: If it can be taken for nothing, or not for the kind that was asked for.
    """
    if kind not in (None, *KINDS):
        raise ConfigError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}.")
    found, why = _kind_of(source, cache_dir) if kind is None else (kind, "since kind= says so")
    _refuse(source, found, cache_dir)
    if found != "corpus":
        logger.info("The source, a %s, is taken for %s (%s).", type(source).__name__, NAMES[found], why)
    return found


def mixture_kind(kind: str | None, cache_dir: Any) -> str:
    """Return what a mixture is taken for, "mixture".

    Raises:
        ConfigError: If it is to be taken for text; its sources are corpora.
    """
    if kind not in (None, "corpus") or cache_dir is not None:
        raise ConfigError(
            f"the sources of a mixture are corpus directories; kind and cache_dir are for one of text. "
            f"Leave them out, got kind={kind!r}, cache_dir={cache_dir!r}."
        )
    return "mixture"


NAMES = {
    "corpus": "a corpus on disk",
    "memory": "text to be tokenized once into memory",
    "cache": "text to be prepared once into a corpus in cache_dir",
    "stream": "a live stream, tokenized on the fly",
    "mixture": "a mixture of corpora",
    "tokens": "a token source",
}
"""What a source can be taken for, in words."""


def _kind_of(source: Any, cache_dir: Any) -> tuple[str, str]:
    if is_token_source(source):
        return "tokens", "it has total_tokens and open()"
    if isinstance(source, View):
        return "corpus", "a part of one"
    if is_path(source) and (cache_dir is None or (Path(source) / "meta.json").exists()):
        return "corpus", "a path"
    if cache_dir is not None:
        return "cache", "cache_dir was given"
    if is_dataset(source, "Dataset"):
        return _kind_of_dataset(source)
    is_list = isinstance(source, (list, tuple))
    return ("memory", "a list") if is_list else ("stream", "read from its beginning to its end")


def _kind_of_dataset(source: Any) -> tuple[str, str]:
    size = int(source.data.nbytes)
    if size <= MOST_IN_MEMORY:
        return "memory", f"{size:,} bytes"
    raise ConfigError(
        f"the dataset has {size:,} bytes, more than the {MOST_IN_MEMORY:,} that are tokenized into memory "
        f'unasked. Pass cache_dir=... to prepare it once on disk, or kind="memory", or kind="stream".'
    )


def _refuse(source: Any, kind: str, cache_dir: Any) -> None:
    if kind == "corpus" and not is_path(source) and not isinstance(source, View):
        raise ConfigError(
            f'kind="corpus" is for a directory with token shards and meta.json, got {type(source).__name__}.'
        )
    if kind == "cache" and cache_dir is None:
        raise ConfigError('kind="cache" needs cache_dir=..., the directory for the prepared corpus.')
    if kind in ("memory", "stream") and is_path(source):
        raise ConfigError(
            f"{os.fspath(source)!r} names something, but kind={kind!r} takes text itself: a list, a dataset "
            f"(datasets.load_dataset(...)), or a function that returns an iterator."
        )
    if kind in ("corpus", "tokens"):
        return
    check_source(source)
    if isinstance(source, Mapping):
        names = ", ".join(map(str, source)) or "nothing"
        pair = next((part for part in source.values() if _is_listed_pair(part)), None)
        hint = "" if pair is None else f" Of a mixture, a source and its weight are a tuple, not {pair!r}."
        raise ConfigError(f"the source is a {type(source).__name__} with {names}; pass one of them.{hint}")
    if kind == "memory" and not hasattr(source, "__len__"):
        raise ConfigError(f'kind="memory" needs a list or a datasets.Dataset, got {type(source).__name__}.')
    if kind == "stream" and not (callable(source) or hasattr(source, "__iter__")):
        raise ConfigError(
            f"a source is a corpus directory, a list of texts, a dataset, a token source, a function that "
            f"returns an iterator, or anything that can be iterated over again and again, got "
            f"{type(source).__name__}."
        )


def holds_text(source: Mapping[Any, Any]) -> bool:
    """Return whether a dict is one of datasets or columns, rather than one of sources to be mixed."""
    kinds = ("Dataset", "IterableDataset")
    return any(isinstance(part, list) or any(is_dataset(part, k) for k in kinds) for part in source.values())


def is_token_source(source: Any) -> bool:
    """Return whether a source is a `tdstream.nodes.TokenSource`; refuse one that is incomplete."""
    if not (hasattr(source, "total_tokens") and callable(getattr(source, "open", None))):
        return False
    members = ("name", "what", "dtype", "state_dict", "load_state_dict", "differences")
    missing = [member for member in members if not hasattr(source, member)]
    if missing:
        raise ConfigError(
            f"the source, a {type(source).__name__}, has total_tokens and open(), but to be a "
            f"tdstream.nodes.TokenSource it lacks {', '.join(missing)}."
        )
    if source.name != "source":
        raise ConfigError(
            f'the name of a token source must be "source", its key in states, got {source.name!r}.'
        )
    return True


def is_dataset(source: Any, name: str) -> bool:
    """Return whether a source is of a class of `datasets`, which is not imported for the question."""
    module = sys.modules.get("datasets")
    return module is not None and isinstance(source, getattr(module, name))


def _is_listed_pair(part: Any) -> bool:
    return isinstance(part, list) and len(part) == 2 and isinstance(part[1], (int, float))


# Say for which kinds of source an option of `build` means something, and speak up where it means nothing.
#
# One script may be run over a corpus today and over a stream tomorrow, with one set of options. So there are
# two sorts: what would change what batches hold is *refused* where it cannot be followed, since a model would
# be trained on something else than was asked for; what only says how another kind does its work is *left
# aside*, with a line in the log. A value that is wrong for every kind is refused whatever the source.

TEXT = frozenset({"memory", "cache", "stream"})
INDEXED = frozenset(NAMES) - {"stream"}
_NEEDS_ALL = (
    'cut="pack", documents=True and samples= need all documents at hand, and a live stream has seen only its '
    "past. Prepare the text once, with cache_dir=..."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Meaning:
    """Where an option means something."""

    kinds: frozenset[str]
    """For these kinds of source any value does."""
    anywhere: tuple[Any, ...]
    """For the others these values do, the default first."""
    refusal: str = ""
    """Why another value is refused for the others; empty if it is left aside."""
    check: Callable[[Any], object] | None = None
    """Refuses a value that is wrong for every kind."""


def _at_least(name: str, least: int) -> Callable[[Any], object]:
    return lambda value: check_int(name, value, at_least=least)


def _is_field(value: Any) -> None:
    if not isinstance(value, str):
        raise ConfigError(f"text_field must be a name, or names with commas between them, got {value!r}.")
    TextOptions(text_field=value)


def _is_path(value: Any) -> None:
    if not isinstance(value, (str, os.PathLike)):
        raise ConfigError(f"cache_dir must be a directory's path, got {value!r}.")
    if not os.fspath(value):
        raise ConfigError("cache_dir must name a directory, got ''.")


MEANINGS = {
    "tokenizer": Meaning(kinds=TEXT, anywhere=(None,)),
    "text_field": Meaning(kinds=TEXT, anywhere=("text",), check=_is_field),
    "encoder": Meaning(kinds=TEXT, anywhere=("auto",), check=lambda value: TextOptions(encoder=value)),
    "cache_dir": Meaning(kinds=frozenset({"cache"}), anywhere=(None,), check=_is_path),
    "num_proc": Meaning(kinds=frozenset({"cache"}), anywhere=(1,), check=_at_least("num_proc", 1)),
    "shuffle_buffer": Meaning(
        kinds=frozenset({"stream"}), anywhere=(None,), check=_at_least("shuffle_buffer", 0)
    ),
    "order": Meaning(kinds=INDEXED, anywhere=("feistel",), check=check_order),
    "block_samples": Meaning(kinds=INDEXED, anywhere=(1024,), check=_at_least("block_samples", 1)),
    "prefetch": Meaning(kinds=INDEXED, anywhere=(2,), check=_at_least("prefetch", 1)),
    "dtype": Meaning(kinds=frozenset({"corpus", "mixture"}), anywhere=(None,), check=check_dtype),
    "shuffle": Meaning(
        kinds=INDEXED, anywhere=(False, True), refusal="shuffle must be True or False for a live stream."
    ),
    "cut": Meaning(kinds=INDEXED, anywhere=("stream", "document"), refusal=_NEEDS_ALL),
    "documents": Meaning(kinds=INDEXED, anywhere=(False,), refusal=_NEEDS_ALL),
    "samples": Meaning(kinds=INDEXED, anywhere=(None,), refusal=_NEEDS_ALL),
    "tail": Meaning(
        kinds=INDEXED,
        anywhere=("drop",),
        refusal='a live stream takes only tail="drop"; its beginning is gone by then.',
    ),
    "source_id": Meaning(
        kinds=frozenset({"mixture"}),
        anywhere=(False,),
        refusal="source_id numbers the sources of a mixture, and this is one source. Leave it out.",
    ),
}
"""Every option that does not mean something everywhere."""

_said: set[tuple[str, tuple[str, ...]]] = set()


def heed_meanings(kind: str, *, quiet: bool = False, **options: Any) -> None:
    """Refuse options that a kind of source cannot follow, and say once which ones mean nothing for it.

    Args:
        kind: What the source is taken for, one of NAMES.
        quiet: Whether another process says it.
        **options: What was asked for, by the names of MEANINGS.

    Raises:
        ConfigError: If an option would change what batches hold, or has a value that is wrong everywhere.
    """
    given = {name: value for name, value in options.items() if not _is_plain(value, MEANINGS[name].anywhere)}
    for name, value in given.items():
        meaning = MEANINGS[name]
        if meaning.check is not None:
            meaning.check(value)
        if meaning.refusal and kind not in meaning.kinds:
            raise ConfigError(meaning.refusal)
    idle = tuple(name for name in given if kind not in MEANINGS[name].kinds)
    if idle and not quiet and (kind, idle) not in _said:
        _said.add((kind, idle))
        named = ", ".join(f"{name}= is for {_listed(MEANINGS[name].kinds)}" for name in idle)
        logger.warning("The source is taken for %s, and some options are left aside: %s.", NAMES[kind], named)


def _is_plain(value: Any, anywhere: tuple[Any, ...]) -> bool:
    # A dtype of numpy may say that it equals None, and True equals 1.
    return any(
        value is plain or (plain is not None and value == plain and _is_flag(value) == _is_flag(plain))
        for plain in anywhere
    )


def _is_flag(value: Any) -> bool:
    return isinstance(value, (bool, np.bool_))


def _listed(kinds: frozenset[str]) -> str:
    return " or ".join(f'kind="{kind}"' for kind in NAMES if kind in kinds)


@dataclass(frozen=True, kw_only=True, slots=True)
class Text:
    """How text becomes tokens; the fields are `build`'s arguments."""

    tokenizer: Any
    text_field: str = "text"
    encoder: str = "auto"
    shuffle_buffer: int | None = None
    num_proc: int = 1


def records_of(source: Any) -> Records:
    """Return the records of a source that is read from its beginning to its end."""
    if is_dataset(source, "IterableDataset"):
        return DatasetRecords(source)
    if hasattr(source, "__getitem__") and hasattr(source, "__len__"):
        return IndexedRecords(source)
    return CountedRecords(source)
