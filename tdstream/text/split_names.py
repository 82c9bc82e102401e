"""Splits of a directory, told by the names of files and directories as `datasets` tells them.

The first of these rules that finds a file decides:

    data/train-00000-of-00004.parquet     the split is what stands before the numbers
    train/..., en/my-train-1/...          a directory has a word of a split in its name
    train.jsonl, en/my_train_1.jsonl      a file has one
    anything else                         all files are the split train
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import PurePosixPath

from tdstream.core.errors import SourceError
from tdstream.text.file_formats import find_ending

_WORDS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "dev", "val"),
    "test": ("test", "testing", "eval", "evaluation"),
}
_BETWEEN = "[-._ 0-9]"  # what may stand around a word
_NUMBERED = re.compile(r"(?P<split>\w+(?:\.\w+)*)-\d{5}-of-\d{5}.*\..*", re.DOTALL)


def find_splits(files: Sequence[str], root: str) -> dict[str, list[str]]:
    """Return the files of each split of a directory; a file may be in two, or in none."""
    inside = {file: PurePosixPath(file).relative_to(root) for file in files}
    for find in (_find_numbered, _find_in_directories, _find_in_file_name):
        splits: dict[str, list[str]] = {}
        for file, path in inside.items():
            for split in find(path):
                splits.setdefault(split, []).append(file)
        if splits:
            return dict(sorted(splits.items(), key=lambda item: (item[0] not in _WORDS, item[0])))
    return {"train": list(files)}


def _find_numbered(path: PurePosixPath) -> list[str]:
    found = _NUMBERED.fullmatch(path.name)
    return [found["split"]] if found and path.parent == PurePosixPath("data") else []


def _find_in_directories(path: PurePosixPath) -> list[str]:
    return [split for split, is_named in _IN_DIRECTORY.items() if any(map(is_named, path.parent.parts))]


def _find_in_file_name(path: PurePosixPath) -> list[str]:
    return [split for split, is_named in _IN_FILE.items() if is_named(path.name)]


def _make_test(words: tuple[str, ...], after: str) -> Callable[[str], object]:
    return re.compile(f"(?:.*{_BETWEEN})?(?:{'|'.join(words)}){after}", re.DOTALL).fullmatch


_IN_DIRECTORY = {split: _make_test(words, f"(?:{_BETWEEN}.*)?") for split, words in _WORDS.items()}
_IN_FILE = {split: _make_test(words, f"{_BETWEEN}.*") for split, words in _WORDS.items()}


def choose_split(splits: dict[str, list[str]], split: str, files: Sequence[str], asked: str) -> list[str]:
    """Return the files of one split.

    Raises SourceError if there is no such split, or if some files belong to none.
    """
    in_splits = {file for chosen in splits.values() for file in chosen}
    others = [file for file in files if file not in in_splits]
    if others:
        raise SourceError(
            f"{len(others):,} files of {asked} belong to none of its splits, such as {others[0]}: "
            f"a file or directory that is named like a split ({', '.join(splits)}) leaves out the others. "
            f"Name what to read by a pattern, such as '{asked}/**/*{find_ending(others[0])}'."
        )
    check_split(splits, split, asked)
    return splits[split]


def check_split(splits: Iterable[str], split: str, asked: str) -> None:
    """Raise SourceError if a dataset has no split of this name."""
    names = list(splits)
    if split not in names:
        raise SourceError(
            f"{asked} has no split {split!r}; it has: {', '.join(names)}.",
            f'Pass {{split:"{names[0]}"}}, or name the files.',
        )
