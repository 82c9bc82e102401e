"""Turn text into a corpus in a directory of corpora, once, whoever asks and however often."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from tdstream.core.errors import ConfigError, TdstreamError, as_argument
from tdstream.distributed.topology import Topology
from tdstream.pipelines.source_kind import Text
from tdstream.schedule.sample_spec import SampleSpec
from tdstream.text.options import TextOptions
from tdstream.text.tokenize import tokenize_with

_OPTIONS = ("text_field", "encoder", "num_proc")  # of a preparation that `build` takes as well


def cut_of(cut: SampleSpec, text: Text) -> SampleSpec:
    """Return the cut with the tokenizer's own pad id, which a corpus does not know."""
    if cut.cut == "stream":
        return cut
    return replace(cut, pad_id=tokenize_with(text.tokenizer).pad_token_id)


def corpus_in_cache(source: Any, text: Text, cut: SampleSpec, cache_dir: Any, topology: Topology) -> Path:
    """Return the corpus of a source, prepared by rank 0 of whoever needs it first.

    Args:
        source: What `prepare` takes.
        text: How text is read and tokenized.
        cut: How samples will be cut; with cut="document" texts are stripped.
        cache_dir: The directory for corpora.
        topology: This rank.

    Raises:
        TdstreamError: If it cannot be prepared.
    """
    if text.tokenizer is None:
        raise ConfigError("text has to be tokenized, and no tokenizer was given. Pass tokenizer=...")
    # Loads datasets and transformers, which takes seconds that whoever reads a corpus does not wait.
    from tdstream.preparation.cache import cached_corpus  # noqa: PLC0415
    from tdstream.preparation.result import Bar  # noqa: PLC0415

    options = TextOptions.of(
        source,
        text.tokenizer,
        text_field=text.text_field,
        encoder=text.encoder,
        strip=cut.cut == "document",
        num_proc=text.num_proc,
    )
    try:
        with Bar(visible=topology.dp_rank == 0) as bar:
            directory, is_first = Path(cache_dir).absolute(), topology.dp_rank == 0
            return cached_corpus(options, directory, goes_first=is_first, observe=lambda: bar)
    except TdstreamError as error:
        error.spell(_as_argument)
        raise


def _as_argument(name: str, value: str) -> str:
    """Spell an option; one that `build` does not have is an argument of `tdstream.prepare`."""
    return as_argument(name, value) + ("" if name in _OPTIONS else " to tdstream.prepare")
