"""The tools that own the formats read the golden files as the truth says; run by make test-formats."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from foreign_stubs import stub_torchvision
from golden_truth import GOLDEN, SETS, ends_of
from oracles import (
    need,
    read_with_datasets,
    read_with_datatrove,
    read_with_litdata,
    read_with_mds,
    read_with_megatron,
    read_with_olmo,
)
from sparse_files import make_sparse_megatron

pytestmark = [pytest.mark.formats_oracle, pytest.mark.filterwarnings("default")]
BY_CHANCE = ["litdata/encrypted/"]  # files that no two runs write alike


def select(format_name, *, besides=()):
    """Return the names of the sets of a format that its owner reads."""
    return [one.name for one in SETS.values() if one.format == format_name and one.name not in besides]


@pytest.mark.parametrize(
    "name",
    select(
        "megatron",
        besides=("megatron_two", "megatron_legacy", "megatron_sft", "megatron_modes", "megatron_modes_zero"),
    ),
)
def test_megatron(name):
    """IndexedDataset gives the tokens and the documents, empty ones too."""
    assert read_with_megatron(SETS[name].place) == (SETS[name].tokens, SETS[name].ends)


def test_megatron_directory():
    """Two prefixes, one after the other."""
    a, b = (read_with_megatron(GOLDEN / "megatron/two" / name) for name in "ab")
    assert a.tokens + b.tokens == SETS["megatron_two"].tokens
    assert [*a.ends, *(len(a.tokens) + end for end in b.ends)] == SETS["megatron_two"].ends


def test_megatron_modes():
    """A multimodal reader sees the modes; bit 31 makes tokens negative."""
    indexed = need("megatron.core.datasets.indexed_dataset", "megatron-core")
    for name, modes in {"modes": [0, 0, 1] * 3 + [0], "modes_zero": [0] * 10}.items():
        dataset = indexed.IndexedDataset(str(GOLDEN / "megatron" / name / "corpus"), multimodal=True)
        assert [int(dataset[number][1]) for number in range(10)] == modes
    packed = indexed.IndexedDataset(str(GOLDEN / "megatron/sft/corpus"))
    assert (packed[0] < 0).tolist() == [False, False, True, True, True]
    assert (packed[0] & 0x7FFFFFFF).tolist() == SETS["megatron_sft"].tokens[:5]


def test_megatron_old_index():
    """Today's Megatron refuses it, too."""
    indexed = need("megatron.core.datasets.indexed_dataset", "megatron-core")
    with pytest.raises(AssertionError, match="bad header"):
        indexed._IndexReader(f"{SETS['megatron_legacy'].place}.idx", multimodal=False)


@pytest.mark.parametrize(
    "name", select("datatrove", besides=("datatrove_unindexed", "datatrove_tokens_only"))
)
def test_datatrove(name):
    """Its datasets give the tokens, its index the ends."""
    one = SETS[name]
    assert read_with_datatrove(one.place, np.dtype(one.dtype).itemsize) == (one.tokens, one.ends)


@pytest.mark.parametrize("name", ["datatrove_unindexed", "datatrove_tokens_only"])
def test_datatrove_without_an_index(name):
    """Its datasets give the tokens."""
    assert read_with_datatrove(SETS[name].place) == (SETS[name].tokens, None)


@pytest.mark.parametrize("name", ["olmo_u16", "olmo_u32", "olmo_masked"])
def test_olmo(name):
    """olmo-core gives the documents of the table."""
    one = SETS[name]
    pattern = one.place.name if "*" in one.place.name else "*.npy"
    folder = one.place.parent if "*" in one.place.name else one.place
    assert read_with_olmo(folder, one.dtype, pattern) == (one.tokens, one.ends)


def test_olmo_by_the_token():
    """olmo-core finds the same documents by the token that ends them."""
    utils = need("olmo_core.data.utils", "ai2-olmo-core")
    one, ends, start = SETS["olmo_bare"], [], 0
    for file in one.files():
        found = list(utils.iter_document_indices(file, eos_token_id=one.eos_token_id, dtype=np.uint16))
        ends += [start + end for _, end in found]
        start += found[-1][1]
    assert ends == one.ends


@pytest.mark.parametrize(
    "name", select("litdata", besides=("litdata_zstd", "litdata_encrypted", "litdata_pytree"))
)
def test_litdata(name, tmp_path):
    """StreamingDataset gives every token, offsets give the documents."""
    folder = tmp_path / name  # it may write beside what it reads
    shutil.copytree(SETS[name].place, folder)
    assert read_with_litdata(folder) == (SETS[name].tokens, SETS[name].ends)


@pytest.mark.parametrize(
    "name", ["mds_fixed_i32", "mds_fixed_u16", "mds_bytes", "mds_ndarray", "mds_pkl", "mds_two_columns"]
)
def test_mds(name):
    """LocalDataset gives rows of 64 tokens."""
    assert read_with_mds(SETS[name].place) == (SETS[name].tokens, [64, 128, 192, 256, 320, 384])


@pytest.mark.parametrize("name", select("arrow", besides=("arrow_text", "arrow_strings")))
def test_datasets(name):
    """Datasets gives rows; those of packed blocks are no documents."""
    one, read = SETS[name], read_with_datasets(SETS[name].place)
    assert read.tokens == one.tokens
    assert read.ends == (one.ends if one.ends_from == "index" else [64, 128, 192, 256, 320, 384])


def test_parquet():
    """The rows of a Parquet file, through pyarrow."""
    parquet = need("pyarrow.parquet", "pyarrow")
    rows = parquet.read_table(next(SETS["arrow_parquet"].place.glob("*")))
    documents = rows["input_ids"].to_pylist()
    assert [token for document in documents for token in document] == SETS["arrow_parquet"].tokens
    assert ends_of(documents) == SETS["arrow_parquet"].ends


def test_megatron_reads_a_sparse_prefix(tmp_path):
    """Its own reader sees the marks of 10^11 tokens, beyond bytes 2^31 and 2^32."""
    indexed = need("megatron.core.datasets.indexed_dataset", "megatron-core")
    sparse = make_sparse_megatron(tmp_path / "corpus")
    dataset = indexed.IndexedDataset(str(sparse.path))
    assert len(dataset) == 100
    for place, token in sparse.marks.items():
        number = int(np.searchsorted(sparse.ends, place, "right"))
        start = int(sparse.ends[number - 1]) if number else 0
        assert dataset.get(number, offset=place - start, length=1).tolist() == [token]


def test_the_writers_write_the_golden_files_again(tmp_path):
    """The script gives the same files, byte for byte, with the versions of constraints.txt."""
    for module in ("megatron.core.datasets.indexed_dataset", "datatrove", "litdata", "olmo_core"):
        need(module, "a writer")
    stub_torchvision()
    need("streaming", "mosaicml-streaming")
    made = tmp_path / "made"
    command = [sys.executable, str(GOLDEN / "make.py"), str(made)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    kept = {str(file.relative_to(GOLDEN)) for file in GOLDEN.rglob("*") if file.is_file()}
    kept = {name for name in kept if not name.endswith((".py", ".pyc"))}
    assert {str(file.relative_to(made)) for file in made.rglob("*") if file.is_file()} == kept
    for name in sorted(kept):
        if not name.startswith(tuple(BY_CHANCE)):
            assert Path(made, name).read_bytes() == Path(GOLDEN, name).read_bytes(), name
