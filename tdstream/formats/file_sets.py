"""Files that form one corpus: one file, a pattern, or those of a directory, without mixing its splits."""

from __future__ import annotations

import glob
import re
from collections import defaultdict
from pathlib import Path

from tdstream.core.errors import CorpusError

_SPLIT = re.compile(
    r"(?<![a-zA-Z])(train(?:ing)?|val(?:id(?:ation)?)?|dev|test(?:ing)?|eval(?:uation)?)(?![a-zA-Z])",
    re.IGNORECASE,
)
_KINDS = {"tr": "train", "va": "validation", "de": "validation", "te": "test", "ev": "validation"}


def find_set(path: Path, pattern: str) -> list[Path]:
    """Return the files that match, of a file, a directory or a glob pattern, by name."""
    if path.is_file():
        return [path] if path.match(pattern) else []
    if path.is_dir():
        files = sorted(
            file for file in path.glob(pattern) if file.is_file() and not file.name.startswith(".")
        )
    elif glob.has_magic(str(path)):
        files = sorted(Path(name) for name in glob.glob(str(path), recursive=True) if Path(name).is_file())
        files = [file for file in files if file.match(pattern)]
    else:
        return []
    check_one_split(path, files)
    check_no_masks(path, files)
    return files


_MASK = re.compile(r"(?<![a-zA-Z])masks?(?![a-zA-Z])", re.IGNORECASE)


def check_no_masks(path: Path, files: list[Path]) -> None:
    """Raise CorpusError if some of several files are named as masks of the others."""
    masks = [file.name for file in files if _MASK.search(file.name)]
    tokens = [file.name for file in files if not _MASK.search(file.name)]
    if masks and tokens:
        raise CorpusError(
            f"{path} holds masks beside tokens ({masks[0]}), which are no tokens. Name the token files by a "
            f"pattern, such as {path if path.is_dir() else path.parent}/{_make_pattern(tokens)}."
        )


def check_one_split(path: Path, files: list[Path]) -> None:
    """Raise CorpusError if the names of files fall into training and validation files."""
    groups = defaultdict(list)
    for file in files:
        found = _SPLIT.search(file.name)
        groups[_KINDS[found[1][:2].lower()] if found else ""].append(file.name)
    named = {kind: names for kind, names in groups.items() if kind}
    if len(named) > 1 or (named and "" in groups and "train" not in named):
        examples = ", ".join(f"{kind or 'others'}: {names[0]}" for kind, names in groups.items())
        pattern = _make_pattern(next(iter(named.values())))
        raise CorpusError(
            f"{path} holds files of several splits ({examples}), which are not one corpus: you would train "
            f"on the validation data. Name the files of one split, such as "
            f"{path if path.is_dir() else path.parent}/{pattern}."
        )


def _make_pattern(names: list[str]) -> str:
    """Return a pattern for file names: a_train_000.bin and a_train_001.bin give a_train_*.bin."""
    return names[0] if len(names) == 1 else re.sub(r"\d+(?=\D*$)", "*", names[0])
