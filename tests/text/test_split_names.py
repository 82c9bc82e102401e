"""Splits by the names of files and directories, compared with what `datasets` makes of the same names."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from datasets.data_files import DataFilesDict, get_data_patterns
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tdstream.core.errors import SourceError
from tdstream.text.files import find_files
from tdstream.text.options import TextOptions
from tdstream.text.split_names import find_splits

WORDS = st.sampled_from(
    [
        "train",
        "training",
        "dev",
        "val",
        "valid",
        "validation",
        "test",
        "testing",
        "eval",
        "Train",
        "trains",
        "my",
    ]
)
BETWEEN = st.sampled_from(["", "-", ".", "_", " ", "1", "x"])
BEFORE = st.sampled_from(["", "a", "my_", "a-", "a.", "7", "a b "])
NAMES = st.builds("{}{}{}".format, BEFORE, WORDS, BETWEEN)
NUMBERED = st.builds("data/{}-0000{}-of-00003.jsonl".format, WORDS, st.sampled_from("012"))
FILES = st.one_of(
    NUMBERED,
    st.builds("{}.jsonl".format, NAMES),
    st.builds("{}/{}.jsonl".format, NAMES, NAMES),
    st.builds("x/{}/{}.jsonl".format, NAMES, NAMES),
)


@given(files=st.lists(FILES, min_size=1, max_size=5, unique=True))
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
def test_as_datasets(files: list[str]) -> None:
    """A split has the same files, whichever rule applies."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name).resolve()
        for file in files:
            (root / file).parent.mkdir(parents=True, exist_ok=True)
            (root / file).touch()
        patterns = get_data_patterns(str(root))
        expected = DataFilesDict.from_patterns(patterns, base_path=str(root))
        found = find_splits(sorted(str(root / file) for file in files), str(root))
    assert found == {split: sorted(set(listed)) for split, listed in expected.items()}


@pytest.mark.parametrize(
    ("names", "split", "chosen"),
    [
        (["train.jsonl", "eval.jsonl", "test.jsonl"], "train", ["train.jsonl"]),
        (["train.jsonl", "eval.jsonl", "test.jsonl"], "test", ["eval.jsonl", "test.jsonl"]),
        (["train/a.jsonl", "val/a.jsonl"], "validation", ["val/a.jsonl"]),
        (["data/en-00000-of-00001.jsonl", "data/de-00000-of-00001.jsonl"], None, None),
        (
            ["data/en-00000-of-00001.jsonl", "data/de-00000-of-00001.jsonl"],
            "de",
            ["data/de-00000-of-00001.jsonl"],
        ),
        (["data/c4-en-00000-of-00001.jsonl"], "train", ["data/c4-en-00000-of-00001.jsonl"]),
        (["latest/a.jsonl", "contest.jsonl"], "train", ["contest.jsonl", "latest/a.jsonl"]),
        (["a.jsonl", "train.jsonl.bak"], "train", ["a.jsonl"]),
    ],
)
def test_chosen(tmp_path: Path, names: list[str], split: str | None, chosen: list[str] | None) -> None:
    """The split decides; what is left out is said, and a missing split is refused with those there are."""
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    if chosen is None:
        with pytest.raises(SourceError, match=r"has no split 'train'; it has: de, en\. Pass split=\"de\""):
            find_files(TextOptions(dataset=str(tmp_path)))
        return
    files = find_files(TextOptions(dataset=str(tmp_path), split=split or "train"))
    assert files is not None
    assert list(files.files) == [str(tmp_path / name) for name in chosen]
    others = [name for name in names if name not in chosen and name.endswith("jsonl")]
    assert (f"{len(others)} of another split" in files.describe()) == bool(others)
