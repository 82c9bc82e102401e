"""Text as a corpus in a directory of corpora, prepared once by the first process to need it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from tdstream.core.errors import TdstreamError, as_argument
from tdstream.distributed.topology import Topology
from tdstream.schedule.sample_spec import SampleSpec
from tdstream.text.options import TextOptions
from tdstream.text.tokenize import make_tokenize

_OPTIONS = ("text_field", "encoder", "num_proc")  # of a preparation that `build` takes as well


def add_pad_id(spec: SampleSpec, text: TextOptions) -> SampleSpec:
    """Return the spec with the tokenizer's own pad id, which a corpus does not store."""
    return spec if spec.cut == "stream" else replace(spec, pad_id=make_tokenize(text).pad_token_id)


def corpus_in_cache(text: TextOptions, cache_dir: Any, topology: Topology) -> Path:
    """Return the corpus of a text, after preparing it or waiting for it; rank 0 goes first."""
    # Loads datasets and transformers, which takes seconds that a reader of a corpus does not wait.
    from tdstream.preparation.cache import cached_corpus  # noqa: PLC0415
    from tdstream.preparation.result import Bar  # noqa: PLC0415

    is_first = topology.dp_rank == 0
    try:
        with Bar(visible=is_first) as bar:
            return cached_corpus(text, Path(cache_dir).absolute(), goes_first=is_first, observe=lambda: bar)
    except TdstreamError as error:
        error.spell(_as_argument)
        raise


def _as_argument(name: str, value: str) -> str:
    """Spell an option; one that `build` does not have is an argument of `tdstream.prepare`."""
    return as_argument(name, value) + ("" if name in _OPTIONS else " to tdstream.prepare")
