"""Say what a source is taken for."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tdstream.checks import refuse_unfit
from tdstream.errors import ConfigError
from tdstream.views import View

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
}
"""What a source can be taken for, in words."""


def _kind_of(source: Any, cache_dir: Any) -> tuple[str, str]:
    if isinstance(source, View):
        return "corpus", "a part of one"
    if is_path(source) and (cache_dir is None or (Path(source) / "meta.json").exists()):
        return "corpus", "a path"
    if cache_dir is not None:
        return "cache", "cache_dir was given"
    if isinstance(source, (list, tuple)):
        return "memory", "a list"
    if is_dataset(source, "Dataset"):
        return _kind_of_dataset(source)
    return "stream", "read from its beginning to its end"


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
    if kind != "corpus":
        refuse_unfit(source)
    if kind != "corpus" and isinstance(source, Mapping):
        names = ", ".join(map(str, source)) or "nothing"
        pair = next((part for part in source.values() if _is_listed_pair(part)), None)
        hint = "" if pair is None else f" Of a mixture, a source and its weight are a tuple, not {pair!r}."
        raise ConfigError(f"the source is a {type(source).__name__} with {names}; pass one of them.{hint}")
    if kind == "memory" and not hasattr(source, "__len__"):
        raise ConfigError(f'kind="memory" needs a list or a datasets.Dataset, got {type(source).__name__}.')
    if kind == "stream" and not (callable(source) or hasattr(source, "__iter__")):
        raise ConfigError(
            f"a source is a corpus directory, a list of texts, a dataset, a function that returns an "
            f"iterator, or anything that can be iterated over again and again, got {type(source).__name__}."
        )


def holds_text(source: Mapping[Any, Any]) -> bool:
    """Return whether a dict is one of datasets or columns, rather than one of sources to be mixed."""
    kinds = ("Dataset", "IterableDataset")
    return any(isinstance(part, list) or any(is_dataset(part, k) for k in kinds) for part in source.values())


def is_path(source: Any) -> bool:
    """Return whether a source is a path or a name."""
    return isinstance(source, (str, os.PathLike))


def is_dataset(source: Any, name: str) -> bool:
    """Return whether a source is of a class of `datasets`, which is not imported for the question."""
    module = sys.modules.get("datasets")
    return module is not None and isinstance(source, getattr(module, name))


def _is_listed_pair(part: Any) -> bool:
    return isinstance(part, list) and len(part) == 2 and isinstance(part[1], (int, float))
