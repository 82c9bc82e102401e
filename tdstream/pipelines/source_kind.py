"""Kinds of source, and the options of `build` that apply to each.

One script may run over a corpus today and over a live stream tomorrow, with one set of options. Options that
do not apply to a source are ignored with a log line; options the source cannot honor raise ConfigError, since
the model would be trained on other data than was asked for. A value out of range is refused for every source.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tdstream.core.checks import check_bool, check_int, is_address
from tdstream.core.errors import ConfigError
from tdstream.corpus.meta import DTYPES
from tdstream.formats.description import check_stored_dtype
from tdstream.nodes.epoch_permutation import check_order
from tdstream.pipelines.views import View
from tdstream.text.options import TextOptions, is_path
from tdstream.text.source import SourceType, find_source_type

logger = logging.getLogger(__name__)

MOST_IN_MEMORY = 2**30
"""Bytes of a datasets.Dataset up to which it is tokenized into memory."""
KIND_NAMES = {
    "corpus": "a corpus on disk",
    "memory": "text to be tokenized once into memory",
    "cache": "text to be prepared once into a corpus in cache_dir",
    "stream": "a live stream, tokenized on the fly",
    "mixture": "a mixture of corpora",
    "tokens": "a token source",
}
"""The kinds of source, in words."""
TEXT_KINDS = frozenset({"memory", "cache", "stream"})
_ASKED = ("corpus", "memory", "cache", "stream")


def find_kind(source: Any, kind: str | None = None, cache_dir: Any = None) -> str:
    """Return the kind of a source that is no mixture, and log it; `kind` is the one the caller asks for."""
    if kind not in (None, *_ASKED):
        hint = (
            f" For {KIND_NAMES[kind]}, leave kind out: it is known by itself."
            if isinstance(kind, str) and kind in KIND_NAMES
            else ""
        )
        raise ConfigError(f"kind must be one of {', '.join(_ASKED)}, got {kind!r}.{hint}")
    if kind == "corpus" and not (is_path(source) or isinstance(source, View)):
        raise ConfigError(
            f'kind="corpus" is for a directory with token shards and meta.json, got {type(source).__name__}. '
            f"Pass the directory, or leave kind out."
        )
    if kind == "corpus" or (kind is None and _is_corpus(source, cache_dir)):
        return "corpus"
    if kind is None and is_token_source(source):
        found, why = "tokens", "it has total_tokens and open()"
    else:
        source_type = find_source_type(source)
        found, why = (kind, "since kind= says so") if kind else _choose_kind(source, source_type, cache_dir)
        _check_kind(source, source_type, found, cache_dir)
    name = type(source).__name__
    logger.info("The source, a %s, is treated as %s (%s).", name, KIND_NAMES[found], why)
    return found


def check_mixture_kind(kind: str | None, cache_dir: Any) -> str:
    """Return "mixture"; raise ConfigError if it is to be taken for text, as its sources are corpora."""
    if kind not in (None, "corpus") or cache_dir is not None:
        raise ConfigError(
            f"the sources of a mixture are corpora or token sources; kind and cache_dir are for one of text. "
            f"Leave them out, got kind={kind!r}, cache_dir={cache_dir!r}."
        )
    return "mixture"


def _is_corpus(source: Any, cache_dir: Any) -> bool:
    if isinstance(source, View):
        return True
    return is_path(source) and (cache_dir is None or (Path(source) / "meta.json").exists())


def _choose_kind(source: Any, source_type: SourceType, cache_dir: Any) -> tuple[str, str]:
    if cache_dir is not None:
        return "cache", "cache_dir was given"
    if source_type is SourceType.LIST:
        return "memory", "a list"
    if source_type is not SourceType.DATASET:
        return "stream", "read from its beginning to its end"
    size = int(source.data.nbytes)
    if size <= MOST_IN_MEMORY:
        return "memory", f"{size:,} bytes"
    raise ConfigError(
        f"the dataset has {size:,} bytes, more than the {MOST_IN_MEMORY:,} that are tokenized into memory "
        f'unasked. Pass cache_dir=... to prepare it once on disk, or kind="memory", or kind="stream".'
    )


def _check_kind(source: Any, source_type: SourceType, kind: str, cache_dir: Any) -> None:
    """Raise ConfigError if a source cannot be read as text of a kind."""
    name = type(source).__name__
    if kind == "cache" and cache_dir is None:
        raise ConfigError('kind="cache" needs cache_dir=..., the directory for the prepared corpus.')
    if kind != "cache" and source_type is SourceType.LOCATION:
        raise ConfigError(
            f"{os.fspath(source)!r} is a path or a name, but kind={kind!r} takes text itself: a list, a "
            f"dataset (datasets.load_dataset(...)), or a function that returns an iterator."
        )
    if source_type is SourceType.MAPPING:
        pair = next((part for part in source.values() if _is_listed_pair(part)), None)
        hint = "" if pair is None else f" Of a mixture, a source and its weight are a tuple, not {pair!r}."
        names = ", ".join(map(str, source)) or "nothing"
        raise ConfigError(f"the source is a {name} with {names}; pass one of them.{hint}")
    if kind == "memory" and not hasattr(source, "__len__"):
        raise ConfigError(f'kind="memory" needs a list or a datasets.Dataset, got {name}.')


def is_token_source(source: Any) -> bool:
    """Return whether a source is a `tdstream.nodes.TokenSource`; raise ConfigError if it is incomplete."""
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
    if not isinstance(source.dtype, np.dtype) or source.dtype not in DTYPES.values():
        raise ConfigError(
            f"the dtype of a token source must be np.dtype of {' or '.join(DTYPES)}, got {source.dtype!r}."
        )
    check_int("total_tokens of a token source", source.total_tokens, at_least=0)
    _check_identity(source)
    return True


def _check_identity(source: Any) -> None:
    """Raise ConfigError unless a token source's state is a dict of JSON types."""
    try:
        state = source.state_dict()
        is_json = isinstance(state, dict) and json.loads(json.dumps(state)) == state
    except (TypeError, ValueError, NotImplementedError):
        is_json = False
    if not is_json:
        raise ConfigError(
            f"state_dict() of the token source, a {type(source).__name__}, must return a dict of JSON types "
            f"that identifies the tokens, such as a count and a hash."
        )


def _is_listed_pair(part: Any) -> bool:
    return isinstance(part, list) and len(part) == 2 and isinstance(part[1], (int, float))


@dataclass(frozen=True, kw_only=True, slots=True)
class OptionRule:
    """The kinds of source to which an option applies."""

    kinds: frozenset[str]
    defaults: tuple[Any, ...]
    """Values that every kind can honor, `build`'s own default first."""
    refusal: str = ""
    """The reason why the other kinds refuse other values; empty if they ignore them."""
    check: Callable[[Any], object] | None = None
    """Raises ConfigError for a value that is out of range for every kind."""


_INDEXED = frozenset(KIND_NAMES) - {"stream"}
_FILES = frozenset({"corpus", "mixture"})
_NEEDS_ALL = (
    'cut="pack", documents=True and samples= need all documents at hand, and a live stream has seen only its '
    "past. Prepare the text once, with cache_dir=..."
)


def _at_least(name: str, least: int) -> Callable[[Any], object]:
    return lambda value: check_int(name, value, at_least=least)


def _of_text(name: str) -> Callable[[Any], object]:
    return lambda value: TextOptions(**{name: value})


def _check_cache_dir(value: Any) -> None:
    if not is_path(value):
        raise ConfigError(f"cache_dir must be a directory's path, got {value!r}.")
    if not os.fspath(value):
        raise ConfigError("cache_dir must name a directory, got ''.")
    if is_address(value):
        raise ConfigError(f"cache_dir must be a local or mounted directory, got {os.fspath(value)}.")


OPTION_RULES = {
    "tokenizer": OptionRule(kinds=TEXT_KINDS, defaults=(None,)),
    "text_field": OptionRule(kinds=TEXT_KINDS, defaults=("text",), check=_of_text("text_field")),
    "prepend_bos": OptionRule(
        kinds=TEXT_KINDS,
        defaults=(False,),
        refusal="prepend_bos begins each document with a BOS token when text is tokenized, and this source "
        "holds tokens already. Prepare its text again with prepend_bos=True, or leave prepend_bos out.",
        check=lambda value: check_bool("prepend_bos", value),
    ),
    "encoder": OptionRule(kinds=TEXT_KINDS, defaults=("auto",), check=_of_text("encoder")),
    "cache_dir": OptionRule(kinds=frozenset({"cache"}), defaults=(None,), check=_check_cache_dir),
    "num_proc": OptionRule(kinds=frozenset({"cache"}), defaults=(1,), check=_at_least("num_proc", 1)),
    "shuffle_buffer": OptionRule(
        kinds=frozenset({"stream"}), defaults=(None,), check=_at_least("shuffle_buffer", 0)
    ),
    "order": OptionRule(kinds=_INDEXED, defaults=("feistel",), check=check_order),
    "block_samples": OptionRule(kinds=_INDEXED, defaults=(1024,), check=_at_least("block_samples", 1)),
    "prefetch": OptionRule(kinds=_INDEXED, defaults=(2,), check=_at_least("prefetch", 1)),
    "dtype": OptionRule(kinds=_FILES, defaults=(None,), check=check_stored_dtype),
    "format": OptionRule(kinds=_FILES, defaults=(None,)),
    "eos_token_id": OptionRule(kinds=_FILES, defaults=(None,)),
    "eos_first": OptionRule(kinds=_FILES, defaults=(None,)),
    "shuffle": OptionRule(
        kinds=_INDEXED, defaults=(False, True), refusal="shuffle must be True or False for a live stream."
    ),
    "cut": OptionRule(kinds=_INDEXED, defaults=("stream", "document"), refusal=_NEEDS_ALL),
    "documents": OptionRule(kinds=_INDEXED, defaults=(False,), refusal=_NEEDS_ALL),
    "samples": OptionRule(kinds=_INDEXED, defaults=(None,), refusal=_NEEDS_ALL),
    "tail": OptionRule(
        kinds=_INDEXED,
        defaults=("drop",),
        refusal=(
            'a live stream takes only tail="drop": at its end, what it had before is gone. For whole epochs, '
            'prepare the text with cache_dir=..., or pass a list with kind="memory".'
        ),
    ),
    "source_id": OptionRule(
        kinds=frozenset({"mixture"}),
        defaults=(False,),
        refusal="source_id numbers the sources of a mixture, and this is one source. Leave it out.",
    ),
}
"""Every option that does not apply to every kind."""

_logged: set[tuple[str, tuple[str, ...]]] = set()


def apply_option_rules(kind: str, *, quiet: bool = False, **options: Any) -> None:
    """Raise ConfigError for an option that a kind of source cannot honor; log once which ones it ignores."""
    given = {
        name: value for name, value in options.items() if not _is_one_of(value, OPTION_RULES[name].defaults)
    }
    for name, value in given.items():
        rule = OPTION_RULES[name]
        if rule.check is not None:
            rule.check(value)
        if rule.refusal and kind not in rule.kinds:
            raise ConfigError(rule.refusal)
    ignored = tuple(name for name in given if kind not in OPTION_RULES[name].kinds)
    if ignored and not quiet and (kind, ignored) not in _logged:
        _logged.add((kind, ignored))
        kinds = ", ".join(f"{name}= is for {_join_kinds(OPTION_RULES[name].kinds)}" for name in ignored)
        logger.warning("The source is treated as %s; some options are ignored: %s.", KIND_NAMES[kind], kinds)


def _is_one_of(value: Any, defaults: tuple[Any, ...]) -> bool:
    # A dtype of numpy may say that it equals None, and True equals 1.
    return any(
        value is default
        or (default is not None and value == default and _is_bool(value) == _is_bool(default))
        for default in defaults
    )


def _is_bool(value: Any) -> bool:
    return isinstance(value, (bool, np.bool_))


def _join_kinds(kinds: frozenset[str]) -> str:
    """Return kinds in words: the ones to ask for by their name, the others by what they are."""
    named = [f'kind="{kind}"' if kind in _ASKED else KIND_NAMES[kind] for kind in KIND_NAMES if kind in kinds]
    return " or ".join(named)
