"""Say for which kinds of source an option of `build` means something, and speak up where it means nothing.

One script may be run over a corpus today and over a stream tomorrow, with one set of options. So there are
two sorts: what would change what batches hold is *refused* where it cannot be followed, since a model would
be trained on something else than was asked for; what only says how another kind does its work is *left
aside*, with a line in the log. A value that is wrong for every kind is refused whatever the source.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tdstream.checks import whole
from tdstream.errors import ConfigError
from tdstream.nodes.epoch_permutation import check_order
from tdstream.nodes.shard_source import dtype_name
from tdstream.preparation.options import PrepareOptions
from tdstream.sources.kinds import NAMES

logger = logging.getLogger(__name__)

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
    return lambda value: whole(name, value, at_least=least)


def _is_field(value: Any) -> None:
    if not isinstance(value, str):
        raise ConfigError(f"text_field must be a name, or names with commas between them, got {value!r}.")
    PrepareOptions(text_field=value)


def _is_path(value: Any) -> None:
    if not isinstance(value, (str, os.PathLike)):
        raise ConfigError(f"cache_dir must be a directory's path, got {value!r}.")
    if not os.fspath(value):
        raise ConfigError("cache_dir must name a directory, got ''.")


MEANINGS = {
    "tokenizer": Meaning(kinds=TEXT, anywhere=(None,)),
    "text_field": Meaning(kinds=TEXT, anywhere=("text",), check=_is_field),
    "encoder": Meaning(kinds=TEXT, anywhere=("auto",), check=lambda value: PrepareOptions(encoder=value)),
    "cache_dir": Meaning(kinds=frozenset({"cache"}), anywhere=(None,), check=_is_path),
    "num_proc": Meaning(kinds=frozenset({"cache"}), anywhere=(1,), check=_at_least("num_proc", 1)),
    "shuffle_buffer": Meaning(
        kinds=frozenset({"stream"}), anywhere=(None,), check=_at_least("shuffle_buffer", 0)
    ),
    "order": Meaning(kinds=INDEXED, anywhere=("feistel",), check=check_order),
    "block_samples": Meaning(kinds=INDEXED, anywhere=(1024,), check=_at_least("block_samples", 1)),
    "prefetch": Meaning(kinds=INDEXED, anywhere=(2,), check=_at_least("prefetch", 1)),
    "dtype": Meaning(kinds=frozenset({"corpus", "mixture"}), anywhere=(None,), check=dtype_name),
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
