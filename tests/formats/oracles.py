"""Readers of the tools that own the formats: tokens and document ends as they see them.

Each imports its package inside and skips the test, with the reason, where it is absent. `make test-formats`
makes an environment that has them all, and sets FORMATS_ORACLES=required so that none is skipped there.
"""

from __future__ import annotations

import os
import struct
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest
from foreign_stubs import stub_torchvision

LLMC_MAGICS = {(20240520, 1): "<u2", (20240801, 7): "<u4"}


class Read(NamedTuple):
    """What a reader gave."""

    tokens: list[int]
    ends: list[int] | None
    """Where documents end in the stream; None if the reader has no notion of them."""


@contextmanager
def without_warnings() -> Iterator[None]:
    """Let other people's packages warn without failing a test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def need(module: str, package: str) -> ModuleType:
    """Import a module, or skip the test."""
    with without_warnings():
        try:
            return import_module(module)
        except ImportError as error:
            if os.environ.get("FORMATS_ORACLES") == "required":
                raise
            pytest.skip(f"{package} is not installed ({error}); make test-formats installs it")


def join(parts: Sequence[Any]) -> Read:
    """Return documents, as arrays, as one stream."""
    ends = np.cumsum([len(part) for part in parts], dtype=np.int64)
    tokens = np.concatenate([np.zeros(0, np.int64), *parts])
    return Read(tokens.astype(np.int64).tolist(), ends.tolist())


def read_with_megatron(prefix: Path) -> Read:
    """Read P.bin and P.idx with Megatron's IndexedDataset."""
    indexed = need("megatron.core.datasets.indexed_dataset", "megatron-core")
    with without_warnings():
        dataset = indexed.IndexedDataset(str(prefix), multimodal=False, mmap=True)
        sequences = [np.array(dataset[number]) for number in range(len(dataset))]
        lengths = np.cumsum([0, *dataset.sequence_lengths], dtype=np.int64)
        ends = lengths[dataset.document_indices[1:]]
    return Read(join(sequences).tokens, ends.tolist())


def read_with_datatrove(folder: Path, token_size: int = 2) -> Read:
    """Read a folder of .ds files with datatrove's datasets, and the index with its merger's reader."""
    module = need("datatrove.utils.dataset", "datatrove")
    merger = need("datatrove.pipeline.tokens.merger", "datatrove")
    own_order = module.DatatroveFolderDataset(str(folder), seq_len=0, token_size=token_size).files
    names = [str(folder / file.file_path) for file in own_order]
    tokens: list[int] = []
    ends: list[int] = []
    for name in names:
        size = Path(name).stat().st_size // token_size
        index = Path(f"{name}.index")
        whole = module.DatatroveFileDataset(
            name, size - 1, token_size=token_size, return_positions=index.exists()
        )[0]
        if index.exists():
            own = merger.load_doc_ends(index.open("rb")).tolist()
            if len(set(own)) == len(own):  # its positions are wrong behind an end that is repeated
                starts = (whole["positions"] == 0).nonzero().ravel().tolist()
                assert starts == [0, *own[:-1]], f"{name}: positions contradict the index"
            ends += [len(tokens) + end for end in own]
        tokens += whole["input_ids"].tolist()
    return Read(tokens, ends or None)


def read_with_olmo(folder: Path, dtype: str = "uint16", pattern: str = "*.npy") -> Read:
    """Read raw .npy files, in the order of their names, by the documents of their .csv.gz, with olmo-core."""
    utils = need("olmo_core.data.utils", "ai2-olmo-core")
    parts = []
    for file in sorted(folder.glob(pattern)):
        for start, end in utils.iter_document_indices(file):
            parts.append(utils.load_array_slice(file, start, end, getattr(np, dtype)))
    return join(parts)


def read_with_litdata(folder: Path) -> Read:
    """Read a folder with litData's StreamingDataset of blocks of one token, so that none is lost.

    The reader knows no documents; their ends are taken from the offsets that stand in each chunk.
    """
    os.environ.setdefault("LITDATA_DISABLE_VERSION_CHECK", "1")
    litdata = need("litdata", "litdata")
    with without_warnings():
        dataset = litdata.StreamingDataset(str(folder), item_loader=litdata.TokensLoader(block_size=1))
        tokens = [int(block[0]) for block in dataset]
    lengths: list[int] = []
    for chunk in sorted(folder.glob("chunk-*.bin")):
        data = chunk.read_bytes()
        (count,) = struct.unpack_from("<I", data)
        lengths += [end - start for start, end in pairwise(struct.unpack_from(f"<{count + 1}I", data, 4))]
    width = sum(lengths) // len(tokens)
    return Read(tokens, (np.cumsum(lengths) // width).tolist())


def read_with_mds(folder: Path, column: str = "tokens", dtype: str = "int64") -> Read:
    """Read rows with MosaicML's LocalDataset; ends are those of rows, `dtype` is that of a bytes column."""
    stub_torchvision()
    streaming = need("streaming", "mosaicml-streaming")
    with without_warnings():
        rows = [row[column] for row in streaming.LocalDataset(str(folder))]
    return join([np.frombuffer(row, dtype) if isinstance(row, bytes) else row for row in rows])


def read_with_datasets(folder: Path, column: str = "input_ids") -> Read:
    """Read a saved dataset, or .arrow files, with datasets. Ends are those of rows."""
    datasets = need("datasets", "datasets")
    if (folder / "state.json").exists():
        rows = datasets.load_from_disk(str(folder))[column]
    else:
        files = [datasets.Dataset.from_file(str(file)) for file in sorted(folder.glob("*.arrow"))]
        rows = datasets.concatenate_datasets(files)[column]
    return join([np.array(row, np.int64) for row in rows])


def read_with_llmc(files: Sequence[Path], eot: int | None = None) -> Read:
    """Read shards of llm.c: a parser of its own, after dataloader.h, which has no package.

    With `eot`, documents are what begins with it.
    """
    tokens: list[int] = []
    for file in files:
        data = file.read_bytes()
        header = struct.unpack_from("<256i", data)
        dtype = np.dtype(LLMC_MAGICS[header[0], header[1]])
        assert not any(header[3:]), f"{file}: the rest of the header is not zero"
        assert len(data) == 1024 + header[2] * dtype.itemsize, f"{file}: the size contradicts the header"
        tokens += np.frombuffer(data, dtype, offset=1024).tolist()
    if eot is None:
        return Read(tokens, None)
    starts = [place for place, token in enumerate(tokens) if token == eot]
    assert starts[:1] == [0], "the first token does not begin a document"
    return Read(tokens, [*starts[1:], len(tokens)])


def read_with_nanogpt(file: Path) -> Read:
    """Read a file as nanoGPT's train.py does."""
    return Read(np.memmap(file, dtype=np.uint16, mode="r").tolist(), None)
