"""The cases of the golden files: sources, options, and how what comes out is written down.

Only the public API is used. Once its files are made a case never changes; new cases may be added.
All paths are relative to the working directory, a copy of a golden folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import runpy
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import torch
from torchdata.stateful_dataloader import StatefulDataLoader

import tdstream

FORMAT = "v0_1"
"""The newest golden folder; `make.py` adds to it."""
TOKENIZER = "tokenizer"
SEQ_LEN, BATCH_SIZE, COUNT = 16, 4, 20
END = "end"


def hash_of(batch: Any) -> str:
    """Return the first 16 hex digits of the SHA-256 of a batch.

    For each key, in sorted order: the key, then a tensor's type, shape and bytes, or another value's JSON.
    """
    digest = hashlib.sha256()
    for key in sorted(batch):
        value = batch[key]
        digest.update(key.encode())
        if isinstance(value, torch.Tensor):
            digest.update(f"{value.dtype}{list(value.shape)}".encode())
            digest.update(value.contiguous().numpy().tobytes())
        else:
            digest.update(json.dumps(value).encode())
    return digest.hexdigest()[:16]


def take(loader: Any, count: int = COUNT) -> list[str]:
    """Return the hashes of the next batches; "end" stands where a pass over the loader ends."""
    taken: list[str] = []
    while sum(item != END for item in taken) < count:
        for batch in loader:
            taken.append(hash_of(batch))
            if sum(item != END for item in taken) == count:
                break
        else:
            taken.append(END)
            assert taken[-3:] != [END] * 3, "only empty passes"
    return taken


def advance(loader: Any, batches: int) -> Any:
    """Hand out so many batches, over epochs if need be; return the iterator, which keeps its place."""
    iterator = iter(loader)
    while batches:
        if next(iterator, None) is None:
            iterator = iter(loader)
        else:
            batches -= 1
    return iterator


def first_of(loader: Any, epoch: int) -> Any:
    """Return the loader, at the beginning of an epoch."""
    place = loader if hasattr(loader, "set_epoch") else loader.dataset
    place.set_epoch(epoch)
    return loader


def texts_of(name: str) -> list[str]:
    """Return the texts of a golden JSONL file."""
    return [json.loads(line)["text"] for line in Path(f"texts/{name}.jsonl").read_text("utf-8").splitlines()]


def records_of_a() -> Iterator[dict[str, str]]:
    """Yield the records of a.jsonl: a live stream."""
    for text in texts_of("a"):
        yield {"text": text}


def _iterable(shards: int) -> datasets.IterableDataset:
    return datasets.Dataset.from_dict({"text": texts_of("a")}).to_iterable_dataset(num_shards=shards)


def _mixture(**options: Any) -> Callable[[], Any]:
    def made() -> Any:
        given = dict(options)
        names = given.pop("names", ("web", "code"))
        where = {"web": "corpora/indexed", "code": "corpora/merged", "more": "corpora/appended"}
        return tdstream.Mixture({name: where[name] for name in names}, **given)

    return made


def _part(by: str, number: int, corpus: str = "corpora/indexed") -> Callable[[], Any]:
    return lambda: tdstream.split(corpus, [0.7, 0.3], by=by)[number]


@dataclass(frozen=True)
class Case:
    """A pipeline."""

    name: str
    source: Callable[[], Any]
    options: dict[str, Any] = field(default_factory=dict)
    live: bool = False
    by_samples: bool = False
    """Without batch_size in `build`: the StatefulDataLoader makes the batches."""

    def arguments(self, **more: Any) -> dict[str, Any]:
        """Return the keyword arguments of `loader`."""
        return {"seq_len": SEQ_LEN, "batch_size": BATCH_SIZE, **self.options, **more}

    def loader(self, **more: Any) -> Any:
        """Return a tdstream.loader."""
        return tdstream.loader(self.source(), **self.arguments(**more))

    def stateful(self, num_workers: int, **more: Any) -> Any:
        """Return a StatefulDataLoader over `build`."""
        arguments = self.arguments(**more)
        if self.by_samples:
            batch_size = arguments.pop("batch_size")
            source = self.source()
            made = source(**arguments) if source is _reference else tdstream.build(source, **arguments)
            return StatefulDataLoader(made, batch_size=batch_size, num_workers=num_workers)
        return StatefulDataLoader(tdstream.build(self.source(), **arguments), num_workers=num_workers)


def _corpus(name: str) -> Callable[[], str]:
    return lambda: f"corpora/{name}"


_TEXT = {"tokenizer": TOKENIZER, "encoder": "hf"}
_SHUFFLED = {"shuffle": True, "seed": 7}
_LIVE = {**_TEXT, "seed": 7}

CASES: list[Case] = [
    Case("plain", _corpus("legacy")),
    Case("feistel", _corpus("legacy"), _SHUFFLED),
    Case("seed_42", _corpus("legacy"), {"shuffle": True}),
    Case("numpy", _corpus("legacy"), {**_SHUFFLED, "order": "numpy"}),
    Case("block", _corpus("legacy"), {"shuffle": "block", "block_samples": 8, "seed": 7}),
    Case("stride_5", _corpus("legacy"), {**_SHUFFLED, "stride": 5}),
    Case("stride_seq_len", _corpus("legacy"), {**_SHUFFLED, "stride": SEQ_LEN}),
    Case("wrap", _corpus("legacy"), {**_SHUFFLED, "tail": "wrap", "batch_size": 5}),
    Case("labels_same", _corpus("legacy"), {**_SHUFFLED, "labels": "same"}),
    Case("samples", _corpus("legacy"), {**_SHUFFLED, "samples": slice(5, 95)}),
    Case("legacy_uint32", _corpus("legacy_uint32"), _SHUFFLED),
    Case("bare_uint16", _corpus("bare_uint16"), {**_SHUFFLED, "dtype": "uint16"}),
    Case("bare_uint32", _corpus("bare_uint32"), {**_SHUFFLED, "dtype": "uint32"}),
    Case("indexed", _corpus("indexed"), _SHUFFLED),
    Case("document", _corpus("indexed"), {**_SHUFFLED, "cut": "document"}),
    Case(
        "document_stride",
        _corpus("indexed"),
        {**_SHUFFLED, "cut": "document", "stride": 10, "min_tail_len": 2},
    ),
    Case("document_marks", _corpus("indexed"), {**_SHUFFLED, "cut": "document", "documents": True}),
    Case("document_unindexed", _corpus("unindexed"), {**_SHUFFLED, "cut": "document"}),
    Case("pack", _corpus("indexed"), {**_SHUFFLED, "cut": "pack"}),
    Case("pack_unindexed", _corpus("unindexed"), {**_SHUFFLED, "cut": "pack"}),
    Case(
        "pack_block", _corpus("indexed"), {"cut": "pack", "shuffle": "block", "block_samples": 8, "seed": 7}
    ),
    Case("pack_capacity", _corpus("merged"), {**_SHUFFLED, "cut": "pack", "cu_seqlens_capacity": 70}),
    Case("marks", _corpus("indexed"), {**_SHUFFLED, "documents": True}),
    Case("marks_cross", _corpus("indexed"), {**_SHUFFLED, "documents": True, "cross_document_labels": True}),
    Case("marks_capacity", _corpus("indexed"), {**_SHUFFLED, "documents": True, "cu_seqlens_capacity": 70}),
    Case("marks_same", _corpus("indexed"), {**_SHUFFLED, "documents": True, "labels": "same"}),
    Case("marks_legacy", _corpus("legacy_text"), {**_SHUFFLED, "documents": True}),
    Case("appended", _corpus("appended"), {**_SHUFFLED, "documents": True}),
    Case("held_out_train", _corpus("held_out"), _SHUFFLED),
    Case("held_out_val", _corpus("held_out/val"), {"documents": True}),
    Case("merged", _corpus("merged"), {**_SHUFFLED, "documents": True}),
    Case("part_samples", _part("samples", 0), _SHUFFLED),
    Case("part_documents", _part("documents", 0), _SHUFFLED),
    Case("part_documents_1", _part("documents", 1), {"documents": True}),
    Case("part_pack", _part("documents", 0), {**_SHUFFLED, "cut": "pack"}),
    Case("part_document", _part("documents", 0, "corpora/unindexed"), {**_SHUFFLED, "cut": "document"}),
    Case("mixture", _mixture(weights={"web": 0.7, "code": 0.3}), {**_SHUFFLED, "source_id": True}),
    Case("mixture_even", _mixture(weights={"web": 1, "code": 1}), {**_SHUFFLED, "source_id": True}),
    Case(
        "mixture_three",
        _mixture(names=("more", "web", "code"), weights={"web": 2, "code": 1, "more": 1}),
        {**_SHUFFLED, "source_id": True},
    ),
    Case("mixture_plain", _mixture(weights={"web": 0.6, "code": 0.4}), {"seed": 3}),
    Case(
        "mixture_stages",
        _mixture(stages=[(0, {"web": 1}), (30, {"web": 0.6, "code": 0.4}), (90, {"web": 0.2, "code": 0.8})]),
        {**_SHUFFLED, "source_id": True},
    ),
    Case(
        "mixture_all",
        _mixture(weights={"web": 0.8, "code": 0.2}, stop="all", max_epochs={"web": 3}),
        {**_SHUFFLED, "source_id": True},
    ),
    Case(
        "mixture_drop",
        _mixture(weights={"web": 0.2, "code": 0.8}, stop="drop"),
        {**_SHUFFLED, "source_id": True},
    ),
    Case(
        "mixture_epochs",
        _mixture(weights={"web": 0.5, "code": 0.5}, max_epochs=2),
        {**_SHUFFLED, "source_id": True},
    ),
    Case("mixture_tokens", _mixture(names=("web", "more"), weights="tokens"), _SHUFFLED),
    Case("mixture_temperature", _mixture(names=("web", "more"), temperature=2), _SHUFFLED),
    Case(
        "mixture_wrap",
        _mixture(weights={"web": 0.5, "code": 0.5}, stop="drop"),
        {**_SHUFFLED, "tail": "wrap", "batch_size": 7},
    ),
    Case("mixture_pack", _mixture(weights={"web": 0.5, "code": 0.5}), {**_SHUFFLED, "cut": "pack"}),
    Case("mixture_document", _mixture(weights={"web": 0.5, "code": 0.5}), {**_SHUFFLED, "cut": "document"}),
    Case("memory_list", lambda: texts_of("a"), {**_SHUFFLED, **_TEXT}),
    Case(
        "memory_dataset", lambda: datasets.Dataset.from_dict({"text": texts_of("a")}), {**_SHUFFLED, **_TEXT}
    ),
    Case("memory_document", lambda: texts_of("a"), {**_SHUFFLED, **_TEXT, "cut": "document"}),
    Case("memory_pack", lambda: texts_of("a"), {**_SHUFFLED, **_TEXT, "cut": "pack"}),
    Case("memory_marks", lambda: texts_of("a"), {**_SHUFFLED, **_TEXT, "documents": True}),
    Case("cache", lambda: texts_of("a"), {**_SHUFFLED, **_TEXT, "cache_dir": "cache"}),
    Case(
        "cache_document",
        lambda: texts_of("a"),
        {**_SHUFFLED, **_TEXT, "cache_dir": "cache", "cut": "document"},
    ),
    Case("live_function", lambda: records_of_a, {**_LIVE, "shuffle_buffer": 0}, live=True),
    Case("live_buffer", lambda: records_of_a, {**_LIVE, "shuffle_buffer": 25}, live=True),
    Case("live_shuffle", lambda: records_of_a, {**_LIVE, "shuffle": True}, live=True),
    Case("live_document", lambda: records_of_a, {**_LIVE, "shuffle_buffer": 0, "cut": "document"}, live=True),
    Case(
        "live_document_buffer",
        lambda: records_of_a,
        {**_LIVE, "shuffle_buffer": 25, "cut": "document", "stride": 10, "min_tail_len": 2},
        live=True,
    ),
    Case("live_stride", lambda: records_of_a, {**_LIVE, "shuffle_buffer": 0, "stride": SEQ_LEN}, live=True),
    Case("live_iterable", lambda: _iterable(1), {**_LIVE, "shuffle_buffer": 0}, live=True),
    Case("live_iterable_shards", lambda: _iterable(4), {**_LIVE, "shuffle_buffer": 25}, live=True),
    Case(
        "live_iterable_shuffled",
        lambda: _iterable(4).shuffle(seed=5, buffer_size=10),
        {**_LIVE, "shuffle_buffer": 25, "cut": "document"},
        live=True,
    ),
    Case("live_list", lambda: texts_of("a"), {**_LIVE, "kind": "stream", "shuffle_buffer": 25}, live=True),
    Case("sample_plain", _corpus("legacy"), by_samples=True),
    Case("sample_feistel", _corpus("legacy"), _SHUFFLED, by_samples=True),
    Case("sample_marks", _corpus("indexed"), {**_SHUFFLED, "documents": True}, by_samples=True),
    Case("sample_pack", _corpus("indexed"), {**_SHUFFLED, "cut": "pack"}, by_samples=True),
    Case("sample_document", _corpus("indexed"), {**_SHUFFLED, "cut": "document"}, by_samples=True),
    Case(
        "sample_mixture",
        _mixture(weights={"web": 0.7, "code": 0.3}),
        {**_SHUFFLED, "source_id": True},
        by_samples=True,
    ),
    Case("sample_live", lambda: records_of_a, {**_LIVE, "shuffle_buffer": 25}, live=True, by_samples=True),
    Case("reference", lambda: _reference, {"shuffle": True}, by_samples=True),
    Case(
        "reference_skip",
        lambda: _reference,
        {"shuffle": True, "seed": 3, "global_skip_batches": 9},
        by_samples=True,
    ),
]
BY_NAME = {case.name: case for case in CASES}


def _reference(**options: Any) -> Any:
    return tdstream.DistributedDataset("corpora/legacy", **options)


RANKED = [
    "plain", "feistel", "numpy", "wrap", "pack", "document", "marks", "mixture", "mixture_drop", "cache",
    "live_function", "live_buffer", "live_iterable_shards", "sample_feistel", "sample_live", "reference",
]  # fmt: skip
"""Cases that are made for two ranks as well."""


@dataclass(frozen=True)
class Crossing:
    """A portable state that is loaded under another geometry, or into another mixture."""

    name: str
    saved: str
    loaded: str
    before: dict[str, Any] = field(default_factory=dict)
    after: dict[str, Any] = field(default_factory=dict)
    batches: int = 9
    """Handed out before the state is taken."""
    more: int = 5
    """Handed out before the next one is taken."""
    skip: int = 0
    """Global batches to leave out before the second state is taken."""


_TWO = {"dp_rank": 0, "dp_world_size": 2}
CROSSINGS = [
    Crossing("feistel_2_to_1", "feistel", "feistel", _TWO, {"batch_size": 8}),
    Crossing("feistel_2_to_1_other", "feistel", "feistel", _TWO, {"batch_size": 3}),
    Crossing(
        "feistel_2_to_3", "feistel", "feistel", _TWO, {"batch_size": 2, "dp_rank": 2, "dp_world_size": 3}
    ),
    Crossing("feistel_2_to_1_workers", "feistel", "feistel", _TWO, {"batch_size": 5, "num_workers": 2}),
    Crossing("numpy_2_to_1", "numpy", "numpy", _TWO, {"batch_size": 6}),
    Crossing("wrap_2_to_1", "wrap", "wrap", _TWO, {"batch_size": 4}, batches=14),
    Crossing("pack_2_to_1", "pack", "pack", _TWO, {"batch_size": 3}),
    Crossing("document_2_to_1", "document", "document", _TWO, {"batch_size": 5}),
    Crossing("memory_2_to_1", "memory_list", "memory_list", _TWO, {"batch_size": 3}),
    Crossing("cache_2_to_1", "cache", "cache", _TWO, {"batch_size": 3}),
    Crossing("mixture_2_to_1", "mixture", "mixture", _TWO, {"batch_size": 3}),
    Crossing("mixture_weights", "mixture", "mixture_even"),
    Crossing("mixture_more", "mixture", "mixture_three", batches=31),
    Crossing("mixture_less", "mixture_three", "mixture", batches=31),
    Crossing("mixture_weights_2_to_1", "mixture", "mixture_even", _TWO, {"batch_size": 3}),
    Crossing("skip", "feistel", "feistel", skip=3),
    Crossing("skip_mixture", "mixture", "mixture", skip=4),
    Crossing("later_epochs", "feistel", "feistel", {"batch_size": 6}, {"batch_size": 5}, batches=47, more=23),
]


def command(*words: str) -> tuple[int, str, str]:
    """Run `python -m tdstream` in this process; return its exit code, stdout and stderr."""
    out, err = io.StringIO(), io.StringIO()
    argv, environment = sys.argv, dict(os.environ)
    sys.argv = ["tdstream", *words]
    code: Any = 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            runpy.run_module("tdstream", run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        code = ended.code
    finally:
        sys.argv = argv
        os.environ.clear()
        os.environ.update(environment)
    return (0 if code is None else code), out.getvalue(), err.getvalue()


def ran(*words: str) -> str:
    """Run `python -m tdstream`, which has to succeed; return its stdout."""
    code, out, err = command(*words)
    assert code == 0, (words, code, err)
    return out


@dataclass(frozen=True)
class Output:
    """Commands that write a corpus into `out`, below the working directory."""

    name: str
    commands: list[list[str]]


def _prepare(dataset: str, *flags: str) -> list[str]:
    return [
        "prepare", "--dataset", dataset, "--tokenizer", TOKENIZER, "--output_path", "out", "--encoder", "hf",
        "--tokens_per_chunk", "500", "--batch_size", "16", *flags,
    ]  # fmt: skip


OUTPUTS = [
    Output("jsonl", [_prepare("texts/a.jsonl")]),
    Output("no_index", [_prepare("texts/a.jsonl", "--no_doc_index")]),
    Output("strip", [_prepare("texts/a.jsonl", "--strip")]),
    Output("lines", [_prepare("texts/lines.txt", "--lines")]),
    Output("text_file", [_prepare("texts/lines.txt")]),
    Output("csv", [_prepare("texts/table.csv", "--text_field", "title,body")]),
    Output("parquet", [_prepare("texts/table.parquet", "--text_field", "meta.body")]),
    Output("gz", [_prepare("texts/c.jsonl.gz")]),
    Output("pattern", [_prepare("texts/[bc].jsonl")]),
    Output("data_files", [_prepare("json", "--data_files", "texts/c.jsonl", "texts/b.jsonl")]),
    Output("max_samples", [_prepare("texts/a.jsonl", "--max_samples", "31")]),
    Output("skip_bad", [_prepare("texts/bad.jsonl", "--skip_bad")]),
    Output("num_proc", [_prepare("texts/c.jsonl", "--num_proc", "2")]),
    Output("val_documents", [_prepare("texts/a.jsonl", "--val_documents", "12")]),
    Output("val_fraction", [_prepare("texts/a.jsonl", "--val_fraction", "0.25")]),
    Output("append", [_prepare("texts/b.jsonl"), _prepare("texts/c.jsonl", "--append")]),
    Output(
        "tasks",
        [
            *(_prepare("texts/a.jsonl", "--task", str(task), "--num_tasks", "3") for task in range(3)),
            ["merge", "out"],
        ],
    ),
    Output(
        "tasks_val",
        [
            *(
                _prepare("texts/[bc].jsonl", "--task", str(task), "--num_tasks", "2", "--val_fraction", "0.2")
                for task in range(2)
            ),
            ["merge", "out"],
        ],
    ),
    Output("overwrite", [_prepare("texts/b.jsonl"), _prepare("texts/c.jsonl", "--overwrite")]),
]
WIDE_OUTPUT = [
    "prepare", "--dataset", "texts/c.jsonl", "--tokenizer", "wide_tokenizer", "--output_path", "out",
    "--encoder", "hf", "--tokens_per_chunk", "500",
]  # fmt: skip
"""A vocabulary of more than 65,536 ids, which `make_wide_tokenizer` writes: uint32."""


@dataclass(frozen=True)
class Killed:
    """A preparation into `out` that was killed with SIGKILL, and how it goes on."""

    name: str
    inputs: list[str]
    """Files that the killed commands read, in order."""
    killed: list[list[str]]
    before: list[list[str]] = field(default_factory=list)
    """Commands that end well before."""
    after: list[list[str]] = field(default_factory=list)
    """Commands that follow behind those that resume."""
    in_the_move: bool = False
    """Killed when all is written, while it gets its place."""

    def resumed(self) -> list[list[str]]:
        """Return the commands that go on."""
        return [[*words, "--resume"] for words in self.killed] + self.after

    def uninterrupted(self) -> list[list[str]]:
        """Return the commands of a run that is not killed."""
        return [*self.before, *self.killed, *self.after]


_SLOW = ("--batch_size", "4", "--tokens_per_chunk", "150")
KILLED = [
    Killed("one", ["texts/a.jsonl"], [_prepare("texts/a.jsonl", *_SLOW)]),
    Killed(
        "parquet",
        ["texts/table.parquet"],
        [_prepare("texts/table.parquet", "--text_field", "meta.body", *_SLOW)],
    ),
    Killed("gz", ["texts/c.jsonl.gz"], [_prepare("texts/c.jsonl.gz", "--no_doc_index", *_SLOW)]),
    Killed(
        "tasks",
        ["texts/a.jsonl"],
        [_prepare("texts/a.jsonl", "--task", str(task), "--num_tasks", "2", *_SLOW) for task in range(2)],
        after=[["merge", "out"]],
    ),
    Killed("val", ["texts/a.jsonl"], [_prepare("texts/a.jsonl", "--val_fraction", "0.3", *_SLOW)]),
    Killed("skip_bad", ["texts/bad.jsonl"], [_prepare("texts/bad.jsonl", "--skip_bad", *_SLOW)]),
    Killed(
        "append",
        ["texts/a.jsonl"],
        [_prepare("texts/a.jsonl", "--append", *_SLOW)],
        before=[_prepare("texts/b.jsonl", *_SLOW)],
    ),
    Killed(
        "overwrite",
        ["texts/a.jsonl"],
        [_prepare("texts/a.jsonl", "--overwrite", *_SLOW)],
        before=[_prepare("texts/b.jsonl", *_SLOW)],
    ),
]
KILLED.append(Killed("move", ["texts/c.jsonl"], [_prepare("texts/c.jsonl", *_SLOW)], in_the_move=True))
KILLED_LIST = {"tokens_per_chunk": 150, "batch_size": 4, "encoder": "hf"}
"""Options of `tdstream.prepare(texts_of("a"), "tokenizer", "out")`, which was killed."""


def make_wide_tokenizer() -> None:
    """Write `wide_tokenizer`: the golden one, with 70,000 more words, the words of c.jsonl among the last."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = sorted({word for text in texts_of("c") for word in text.split()})
    names = ["<eos>", "<unk>", *(f"filler-{number}" for number in range(70_000)), *words]
    special = {"unk_token": "<unk>", "eos_token": "<eos>"}
    ids = {name: number for number, name in enumerate(names)}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token=special["unk_token"]))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)
    fast.save_pretrained("wide_tokenizer")


def files_digest(files: list[str]) -> dict[str, Any]:
    """Return what journals and meta.json remember of input files: number, bytes, and a hash.

    The hash is of [path, bytes, time of change in ns] of each, as JSON; its first 16 hex digits.
    """
    known = [(os.path.abspath(file), os.stat(file).st_size, os.stat(file).st_mtime_ns) for file in files]
    digest = hashlib.sha256(json.dumps(known).encode()).hexdigest()[:16]
    return {"count": len(known), "bytes": sum(size for _, size, _ in known), "sha256": digest}


def short_hash(value: Any) -> str:
    """Return the first 16 hex digits of the SHA-256 of a value's JSON with sorted keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def written(directory: Path) -> dict[str, Any]:
    """Return what lies in a corpus: the SHA-256 of each file, and what each meta.json says.

    Left out are times, and hashes that depend on the place and times of the input files.
    """
    found: dict[str, Any] = {}
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory).as_posix()
        if path.name == "meta.json":
            meta = json.loads(path.read_text())
            assert isinstance(meta.pop("created_at_unix"), int)
            meta.get("made_from", {}).pop("files", None)
            meta.pop("input_files", None)
            for part in meta.get("appended", []):
                part.pop("source")
            found[name] = meta
        elif path.is_file():
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def tree(directory: Path) -> dict[str, str]:
    """Return the SHA-256 of every file below a directory, by its path; Python's own caches aside."""
    paths = [path for path in directory.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return {
        path.relative_to(directory).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in paths
    }


def located(state: str, step: int, *flags: str) -> Any:
    """Return what `tdstream locate` says of a step."""
    return json.loads(ran("locate", "--state", state, "--step", str(step), "--json", *flags))


@dataclass(frozen=True)
class Checkpoint:
    """A file, or directory, that holds a loader's state."""

    name: str
    case: str
    locate: list[tuple[Any, ...]]
    """Arguments of `located`, but for the first."""


CHECKPOINTS = [
    Checkpoint("loader.pt", "feistel", [(2, "--rank", "0", "--data", "corpora/legacy"), (30,)]),
    Checkpoint(
        "loader.json",
        "pack",
        [(3, "--data", "corpora/indexed"), (40, "--rank", "0", "--data", "corpora/indexed")],
    ),
    Checkpoint(
        "document.json",
        "document",
        [(3, "--data", "corpora/indexed"), (40, "--rank", "0", "--data", "corpora/indexed")],
    ),
    Checkpoint("stateful.pt", "feistel", [(2, "--rank", "0", "--data", "corpora/legacy")]),
    Checkpoint("mixture.pt", "mixture", [(2,), (60, "--rank", "0")]),
    Checkpoint(
        "distributed", "feistel", [(5, "--data", "corpora/legacy", "--decode", "--tokenizer", TOKENIZER)]
    ),
    Checkpoint("train.pt", "train", [(4, "--data", "corpora/indexed")]),
]
BY_NAME["train"] = Case(
    "train", lambda: tdstream.split("corpora/indexed", [0.8, 0.2])[0], {"shuffle": True, "seed": 42}
)
"""What examples/train.py reads."""
COUNTS = [
    {"seq_len": SEQ_LEN, "batch_size": BATCH_SIZE},
    {"seq_len": SEQ_LEN, "batch_size": BATCH_SIZE, "cut": "document", "stride": 10, "min_tail_len": 2},
]


def counted(options: dict[str, Any]) -> dict[str, Any]:
    """Return what a.jsonl holds; the answer is kept in `counts`."""
    found = tdstream.count(
        texts_of("a"), TOKENIZER, encoder="hf", cache_dir="counts", progress=False, **options
    )
    return {
        name: getattr(found, name) for name in ("documents", "tokens", "text_bytes", "samples", "batches")
    }


MANY = (1 << 22) + 5
"""From so many documents on, the windows of cut="document" are counted once and kept."""


def write_many(directory: Path) -> None:
    """Write a corpus of `MANY` documents of 3 tokens, 5 6 0."""
    directory.mkdir(parents=True)
    tokens = np.tile(np.array([5, 6, 0], "<u2"), MANY).tobytes()
    ends = np.arange(3, 3 * MANY + 1, 3, dtype="<i8").tobytes()
    (directory / "chunk_000000.bin").write_bytes(tokens)
    (directory / "chunk_000000.ends").write_bytes(ends)
    meta = {
        "created_at_unix": 1_700_000_000, "tokenizer_name_or_path": "", "is_fast": True, "dtype": "uint16",
        "eos_token_id": 0, "tokens_per_chunk": 3 * MANY,
        "chunks": [{"file": "chunk_000000.bin", "tokens": 3 * MANY}],
        "total_tokens": 3 * MANY, "format_version": 1, "num_documents": MANY,
        "doc_index": {"version": 1, "suffix": ".ends", "dtype": "int64"},
        "chunk_documents": {"chunk_000000.bin": MANY},
        "doc_index_checksums": {"chunk_000000.bin": "sha256:" + hashlib.sha256(ends).hexdigest()},
    }  # fmt: skip
    (directory / "meta.json").write_text(json.dumps(meta))


def many_counts() -> bytes:
    """Return the file of their windows: none left out, and then one window per document, before each 8."""
    before = np.minimum(8 * np.arange((MANY + 7) // 8 + 1, dtype="<i8"), MANY)
    return np.concatenate([np.zeros(2, "<i8"), before]).astype("<i8").tobytes()


def open_many(directory: Path) -> Any:
    """Return a loader over one window of each document."""
    return tdstream.loader(
        directory, seq_len=3, batch_size=BATCH_SIZE, cut="document", min_tail_len=1, **_SHUFFLED
    )
