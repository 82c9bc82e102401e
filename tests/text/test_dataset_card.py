"""Directories whose card says which files are data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tdstream.core.errors import SourceError
from tdstream.text.files import find_files
from tdstream.text.options import TextOptions

SPLITS = """
- config_name: default
  data_files:
  - split: train
    path: data/train-*
  - split: test
    path: [data/test-*, more/*.jsonl]
"""
SEVERAL = """
- config_name: en
  data_files: "en/*.jsonl"
- config_name: de
  data_dir: de
"""


def make(root: Path, configs: str, *names: str) -> Path:
    """Make a directory with a card and empty files."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    (root / "README.md").write_text(f"---\nlicense: mit\nconfigs:{configs}---\n# About\ndata_files: no\n")
    return root


def find(root: Path, **named: Any) -> list[str]:
    """Return the files relative to the directory."""
    files = find_files(TextOptions(dataset=str(root), **named))
    assert files is not None
    return [str(Path(file).relative_to(root.resolve())) for file in files.files]


FILES = ("data/train-1.jsonl", "data/train-2.jsonl", "data/test-1.jsonl", "more/b.jsonl", "z.csv")


@pytest.mark.parametrize("name", ["data", "a[1]", "b*", "c::d"])
def test_splits(tmp_path: Path, name: str) -> None:
    """The card's patterns decide, wherever the directory is."""
    make(tmp_path / "bc", SPLITS, *FILES)
    root = make(tmp_path / name, SPLITS, *FILES)
    assert find(root) == ["data/train-1.jsonl", "data/train-2.jsonl"]
    assert find(root, split="test") == ["data/test-1.jsonl", "more/b.jsonl"]
    assert find(root, data_files=("z.csv",)) == ["z.csv"]
    with pytest.raises(SourceError, match=r"has no split 'dev'; it has: train, test\."):
        find(root, split="dev")


def test_configurations(tmp_path: Path) -> None:
    """One is named by data_name."""
    root = make(tmp_path / "data", SEVERAL, "en/a.jsonl", "de/train.jsonl", "de/test.jsonl")
    assert find(root, data_name="en") == ["en/a.jsonl"]
    assert find(root, data_name="de") == ["de/train.jsonl"]
    with pytest.raises(
        SourceError, match=r'several configurations: en, de\. Pass data_name="en", for example'
    ):
        find(root)
    with pytest.raises(SourceError, match=r"no configuration 'fr'; its card names: en, de\."):
        find(root, data_name="fr")


def test_links(tmp_path: Path) -> None:
    """A file that two patterns match is read once."""
    root = make(tmp_path, "\n- config_name: default\n  data_files: ['*.jsonl', 'a*']\n", "a.jsonl", "b.jsonl")
    (root / "c.jsonl").symlink_to("a.jsonl")
    assert find(root) == ["a.jsonl", "b.jsonl"]


def test_settings(tmp_path: Path) -> None:
    """How else a file is to be read is for `datasets`."""
    root = make(tmp_path, "\n- config_name: default\n  data_files: a.csv\n  sep: ';'\n", "a.csv")
    assert find_files(TextOptions(dataset=str(root))) is None


def test_no_card(tmp_path: Path) -> None:
    """A README.md that only speaks of data_files is no card; one that cannot be read is refused."""
    (tmp_path / "a.jsonl").touch()
    (tmp_path / "README.md").write_text("Use `data_files: b.jsonl`.\n\n---\ndata_files: b.jsonl\n---\n")
    assert find(tmp_path) == ["a.jsonl"]
    for configs in ("\n- data_files: [\n", "\n- data_files: a.jsonl\n", " 7\ndata_files: a\n"):
        make(tmp_path, configs)
        with pytest.raises(SourceError, match=r"README\.md does not say which files are data: \w+: "):
            find(tmp_path)
    make(tmp_path, "\n- config_name: default\n  data_files: nothing*\n")
    with pytest.raises(SourceError, match=r"No file of .* matches what its card names: nothing\*\."):
        find(tmp_path)
