"""`build`: what a source is taken for, and the dataset over it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import DTypeLike

from tdstream.core.checks import check_bool
from tdstream.distributed.topology import Topology, resolve_topology
from tdstream.formats.description import FormatOptions
from tdstream.nodes.collate import Collate
from tdstream.nodes.document_fields import make_document_fields
from tdstream.nodes.mixture_node import MixtureNode
from tdstream.nodes.splitter import Splitter
from tdstream.pipelines.compose import (
    IndexedNodes,
    add_pad_id,
    compose_corpus,
    compose_memory,
    corpus_in_cache,
    make_stream_pipeline,
)
from tdstream.pipelines.compose_mixture import compose_mixture
from tdstream.pipelines.mixture import Mixture
from tdstream.pipelines.pipeline import Pipeline
from tdstream.pipelines.source_kind import apply_option_rules, check_mixture_kind, find_kind
from tdstream.schedule.windows import SampleSpec
from tdstream.streams.stream_pipeline import StreamPipeline
from tdstream.text.options import TextOptions
from tdstream.text.source import holds_text


def build(
    source: Any,
    *,
    tokenizer: Any = None,
    text_field: str = "text",
    kind: str | None = None,
    cache_dir: str | Path | None = None,
    num_proc: int = 1,
    encoder: str = "auto",
    prepend_bos: bool = False,
    seq_len: int = 2048,
    batch_size: int | None = None,
    shuffle: bool | str = False,
    seed: int = 42,
    order: str = "feistel",
    shuffle_buffer: int | None = None,
    stride: int | None = None,
    cut: str = "stream",
    min_tail_len: int | None = None,
    samples: slice | None = None,
    documents: bool = False,
    cross_document_labels: bool = False,
    cu_seqlens_capacity: int | None = None,
    block_samples: int = 1024,
    dtype: DTypeLike | None = None,
    format: str | None = None,  # noqa: A002 - the field's word
    eos_token_id: int | None = None,
    eos_first: bool | None = None,
    labels: str = "next",
    tail: str = "drop",
    source_id: bool = False,
    strict: bool = True,
    dp_rank: int | None = None,
    dp_world_size: int | None = None,
) -> Pipeline | StreamPipeline:
    """Return a dataset of token batches (or samples) for StatefulDataLoader or DataLoader.

    Args:
        source: A corpus directory (token shards and meta.json), or token files of another tool: a directory,
            a file, a prefix P of P.bin and P.idx, or a pattern. Or a part of one from `split`. Or several of
            them to mix: name -> (source, weight), or a `Mixture`. Or a `tdstream.nodes.TokenSource`. Or
            text: a list of texts or a `datasets.Dataset` is tokenized into memory here; a
            `datasets.IterableDataset`, a function that returns an iterator over texts or records, or any
            object that can be iterated over repeatedly is tokenized on the fly.
        tokenizer: For text: a name, a directory, or a Hugging Face tokenizer.
        text_field: Where a record holds its text: a field, a path such as meta.title, or several with commas.
        kind: How to treat the source: "corpus", "memory", "cache" or "stream"; None decides by its type and
            logs the decision.
        cache_dir: A directory for corpora: text is prepared into it once, by the first process to need it.
        num_proc: Processes that prepare it.
        encoder: What tokenizes: "auto", "hf", or the name of a fast encoder; the ids do not depend on it.
        prepend_bos: For text: whether each document begins with the tokenizer's BOS token.
        seq_len: T, tokens of a sample's input.
        batch_size: B, samples per rank and step. The dataset then yields batches, which a loader with
            batch_size 1 or None hands on; None yields single samples for the loader to batch.
        shuffle: Whether each epoch has an order of its own. "block" permutes blocks of neighboring samples
            and the samples within each, for storage that is slow at random reads.
        seed: Decides the orders, together with the epoch.
        order: "feistel" (no memory) or "numpy" (the reference loader's order, 8 bytes per sample).
        shuffle_buffer: For a live stream: how many documents are shuffled, and kept in memory, at a time;
            0 keeps the order; None means 10,000 with shuffle=True.
        stride: Tokens from one sample's start to the next one's; default seq_len + 1, with cut="document"
            seq_len.
        cut: "stream": samples are windows of the joined documents. "document": no sample crosses the end of
            a document; shorter ones are padded. "pack": a sample holds whole documents, or a full row of a
            longer one.
        min_tail_len: With cut="document", the fewest tokens of a document, or of the rest after its full
            samples, that make a padded sample; default seq_len // 4.
        samples: A slice of the samples to serve, in stored order (in a mixture, of each source); None means
            all.
        documents: Whether batches have "document_ids", "position_ids", "cu_seqlens" and "max_seqlen". With
            cut="pack" they always do.
        cross_document_labels: Whether labels are kept where the target belongs to the next document.
        cu_seqlens_capacity: A fixed length for cu_seqlens, for compiled models: it is padded with its last
            value, and max_seqlen is seq_len. A batch that needs more raises an error.
        block_samples: Samples in a block, for shuffle="block".
        dtype: The type of the tokens, if the files do not tell it.
        format: The format of other tools' files, if they could be of several; None recognizes it.
        eos_token_id: The token that marks documents in other tools' files, if these do not tell their ends.
        eos_first: Whether that token stands first in a document, not last; None is the format's habit.
        labels: "next": labels[i] is the token after input_ids[i]. "same": labels are the inputs, for models
            that shift them inside, as those of transformers do.
        tail: "drop" drops an epoch's last incomplete global batch; "wrap" fills it from the beginning of the
            epoch (in a mixture, from after the place at which a source last left it). "keep", for evaluation,
            deals its samples out as a smaller batch, of equally many rows on all ranks: a rank with a row too
            few repeats a sample, with all labels -100. Without batch_size, "keep" drops no sample.
        source_id: Whether batches of a mixture have "source_id", int32 [B]: the number of each row's source,
            counted from 0 in the order of the mixture; a state does not keep it.
        strict: Whether to refuse fewer samples than one global batch (or, without batch_size, than
            streams), states of other data or settings, and mixtures of tokenizers. False only warns, and
            lets streams be empty.
        dp_rank: This process's data-parallel rank; default torch.distributed's, else RANK, else 0.
        dp_world_size: The number of data-parallel ranks; given together with dp_rank.

    Returns:
        An IterableDataset of {"input_ids", "labels"}, int64 [B, T] (or [T] without batch_size); len() is the
        number of items of this rank per epoch, and a live stream has none. cut="document" and "pack" add
        "attention_mask" and "is_natural_stop". documents=True adds "document_ids", int32, and "position_ids",
        int64, of input_ids' shape, and with batch_size "cu_seqlens", int32 [n], and the int "max_seqlen", for
        the flattened batch.

    Raises:
        ConfigError: If an argument is out of range, or the source is of an unknown type.
        SourceError: If a record of text in memory holds none.
        TokenizerError: If text is given without a usable tokenizer.
        CorpusNotFoundError: If the directory or a shard is missing.
        CorpusError: If the corpus is damaged, unfinished, or too small for one sample.
        GeometryError: If strict and a stream would be empty.
    """
    topology = resolve_topology(dp_rank, dp_world_size)
    source_id, strict = check_bool("source_id", source_id), check_bool("strict", strict)
    prepend_bos = check_bool("prepend_bos", prepend_bos)
    spec = SampleSpec(
        seq_len=seq_len,
        stride=stride,
        cut=cut,
        min_tail_len=min_tail_len,
        documents=documents,
        samples=samples,
        shuffle=shuffle,
        seed=seed,
        order=order,
        block_samples=block_samples,
    )
    given = Mixture(source) if isinstance(source, Mapping) and not holds_text(source) else source
    kind = (
        check_mixture_kind(kind, cache_dir)
        if isinstance(given, Mixture)
        else find_kind(given, kind, cache_dir)
    )
    apply_option_rules(
        kind, quiet=topology.dp_rank > 0, tokenizer=tokenizer, text_field=text_field, encoder=encoder,
        prepend_bos=prepend_bos, cache_dir=cache_dir, num_proc=num_proc, shuffle_buffer=shuffle_buffer,
        order=order, block_samples=block_samples, dtype=dtype, format=format, eos_token_id=eos_token_id,
        eos_first=eos_first, shuffle=shuffle, cut=cut, documents=documents,
        samples=samples, tail=tail, source_id=source_id,
    )  # fmt: skip
    fields = make_document_fields(
        spec.marks_ends,
        batched=batch_size is not None,
        cross_labels=cross_document_labels,
        capacity=cu_seqlens_capacity,
    )
    collate = Collate(batched=batch_size is not None, labels=labels, documents=fields)
    files = FormatOptions.of(format, dtype, eos_token_id, eos_first)
    arguments = _Build(
        source=given, tokenizer=tokenizer, text_field=text_field, encoder=encoder, num_proc=num_proc,
        prepend_bos=prepend_bos, cache_dir=cache_dir, shuffle_buffer=shuffle_buffer, files=files,
        source_id=source_id, spec=spec, collate=collate, batch_size=batch_size, tail=tail,
        strict=strict, topology=topology,
    )  # fmt: skip
    return _BUILDERS[kind](arguments)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Build:
    """The arguments of `build`, once they are checked."""

    source: Any
    tokenizer: Any
    text_field: str
    encoder: str
    num_proc: int
    prepend_bos: bool
    cache_dir: Any
    shuffle_buffer: int | None
    files: FormatOptions
    source_id: bool
    spec: SampleSpec
    collate: Collate
    batch_size: int | None
    tail: str
    strict: bool
    topology: Topology

    @property
    def text(self) -> TextOptions:
        """What text to read, and how to tokenize it."""
        strip = self.spec.cut == "document"
        return TextOptions.of(
            self.source,
            self.tokenizer,
            text_field=self.text_field,
            encoder=self.encoder,
            num_proc=self.num_proc,
            prepend_bos=self.prepend_bos,
            strip=strip,
        )

    def over(self, nodes: tuple[MixtureNode] | IndexedNodes) -> Pipeline:
        """Return the dataset over indexed nodes."""
        splitter = Splitter(
            nodes[-1], topology=self.topology, batch_size=self.batch_size, tail=self.tail, strict=self.strict
        )
        return Pipeline(nodes, splitter, self.collate, strict=self.strict)


def _build_corpus(build: _Build) -> Pipeline:
    return build.over(compose_corpus(build.source, build.spec, build.files))


def _build_mixture(build: _Build) -> Pipeline:
    node = compose_mixture(
        build.source, build.spec, files=build.files, strict=build.strict, source_id=build.source_id
    )
    return build.over((node,))


def _build_memory(build: _Build) -> Pipeline:
    return build.over(compose_memory(build.text, build.spec, quiet=build.topology.dp_rank > 0))


def _build_cache(build: _Build) -> Pipeline:
    text = build.text
    corpus = corpus_in_cache(text, build.cache_dir, build.topology)
    return build.over(compose_corpus(corpus, add_pad_id(build.spec, text)))


def _build_stream(build: _Build) -> StreamPipeline:
    return make_stream_pipeline(
        build.text,
        build.spec,
        build.collate,
        build.shuffle_buffer,
        batch_size=build.batch_size,
        topology=build.topology,
        strict=build.strict,
    )


_BUILDERS: dict[str, Callable[[_Build], Pipeline | StreamPipeline]] = {
    "corpus": _build_corpus,
    "tokens": _build_corpus,
    "mixture": _build_mixture,
    "memory": _build_memory,
    "cache": _build_cache,
    "stream": _build_stream,
}
