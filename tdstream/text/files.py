"""Local files of a dataset, in the order of their paths, and checks that none is left out or read twice."""

from __future__ import annotations

import glob
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tdstream.core.errors import ConfigError, SourceError

_FORMATS: dict[str, tuple[str, dict[str, Any]]] = {
    ".parquet": ("parquet", {}),
    ".json": ("json", {}),
    ".jsonl": ("json", {}),
    ".ndjson": ("json", {}),
    ".csv": ("csv", {}),
    ".tsv": ("csv", {"sep": "\t"}),
    ".txt": ("text", {}),
}
"""The builder of `datasets` for each ending, and its settings."""
_COMPRESSED = (".gz", ".zst", ".zstd")
_NO_DATA = ("readme", "license", "dataset_info")  # files that lie beside data


def _find_ending(path: str | Path) -> str:
    """Return the ending that tells a file's format, without compression; empty if it is unknown."""
    name = Path(path).name.lower()
    for compressed in _COMPRESSED:
        name = name.removesuffix(compressed)
    ending = Path(name).suffix
    return ending if ending in _FORMATS else ""


def is_pattern(name: str) -> bool:
    """Return whether a name is a pattern of files: it has ``*``, ``?`` or ``[``."""
    return glob.has_magic(name)


def find_matching(pattern: str) -> list[Path]:
    """Return the files that a shell pattern matches, sorted by path; ``**`` is any number of directories."""
    found = [Path(path) for path in glob.glob(str(Path(pattern).expanduser()), recursive=True)]
    files = sorted({path.absolute() for path in found if path.is_file()}, key=str)
    if not files:
        why = (
            f", only {len(found):,} directories; end the pattern with /**/*.jsonl, for example"
            if found
            else ""
        )
        raise SourceError(f"No file matches {pattern!r}{why}. Check the pattern and where it begins.")
    return files


def find_format(files: list[Path], asked: str) -> tuple[str, dict[str, Any]]:
    """Return the builder for some files, and its settings; `asked` is what the user named."""
    unknown = next((file for file in files if not _find_ending(file)), None)
    if unknown is not None:
        raise SourceError(
            f"{unknown} is of no known kind; expected one of {', '.join(_FORMATS)}, also with "
            f"{' or '.join(_COMPRESSED[:2])} after it. Rename it, or pass its format as the dataset "
            f"(json, parquet, csv, text) and the file in data_files."
        )
    check_one_format(files, asked)
    return _FORMATS[_find_ending(files[0])]


def check_one_format(files: Iterable[str | Path], asked: str) -> None:
    """Raise SourceError for files that have to be read in different ways; unknown endings are skipped."""
    first: dict[str, str | Path] = {}
    for file in files:
        if _find_ending(file):
            builder, settings = _FORMATS[_find_ending(file)]
            first.setdefault(f"{builder} {settings}", file)
    if len(first) > 1:
        one, other = list(first.values())[:2]
        raise SourceError(
            f"{asked!r} holds files of several kinds, such as {one} and {other}. Prepare one kind at a time: "
            f"name a pattern, for example '**/*{_find_ending(one)}'."
        )


def check_none_left_out(directory: Path, used: Iterable[str]) -> None:
    """Raise SourceError if a directory has a data file that none of its splits uses."""
    known = {str(Path(file).absolute()) for file in used}
    others = sorted(str(path) for path in directory.absolute().rglob("*") if _is_data(path, directory))
    left_out = [path for path in others if path not in known]
    if left_out:
        check_one_format([*sorted(known), *left_out], str(directory))
        raise SourceError(
            f"{len(left_out):,} files of {directory} belong to none of its splits, such as {left_out[0]}: "
            f"some file or directory is named like a split (train, test, ...), which leaves out the others. "
            f"Name what to read by a pattern, such as '{directory}/**/*{_find_ending(left_out[0])}'."
        )


def _is_data(path: Path, directory: Path) -> bool:
    inside = path.relative_to(directory.absolute()).parts
    hidden = any(part.startswith((".", "__")) for part in inside)
    named = path.name.lower().startswith(_NO_DATA)
    return bool(_find_ending(path)) and not hidden and not named and path.is_file()


def was_saved(path: Path) -> bool:
    """Return whether a directory was written by ``Dataset.save_to_disk``."""
    return any((path / name).is_file() for name in ("dataset_dict.json", "state.json"))


def check_each_matches(patterns: Iterable[str], directory: Path) -> None:
    """Raise SourceError for a pattern, relative to a directory, that matches no file; URLs are skipped."""
    for pattern in patterns:
        path = directory / Path(pattern).expanduser()
        if "://" not in pattern and not path.exists() and not glob.glob(str(path), recursive=True):
            raise SourceError(
                f"No file matches {pattern!r} of data_files in {directory.absolute()}. Check the name."
            )


def check_no_file_twice(files: list[str], patterns: Iterable[str]) -> None:
    """Raise ConfigError for patterns that overlap: documents would be in the corpus twice.

    Names that are no patterns may be repeated.
    """
    times = Counter(files)
    twice = next((file for file in files if times[file] > 1), None)
    if twice is not None and any(map(is_pattern, patterns)):
        raise ConfigError(f"data_files names {twice} twice. Each file may match only one pattern.")
