"""Find the local files that hold a dataset, in the order of their paths, and see that none is forgotten."""

from __future__ import annotations

import glob
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tdstream.core.errors import ConfigError, SourceError

FORMATS: dict[str, tuple[str, dict[str, Any]]] = {
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
_NO_DATA = ("readme", "license", "dataset_info")  # Such files lie beside data, and are none.


def ending_of(path: str | Path) -> str:
    """Return the ending that tells a file's format, one of FORMATS; empty if it is another one.

    Args:
        path: Its path; the ending of a compression is passed over.
    """
    name = Path(path).name.lower()
    for compressed in _COMPRESSED:
        name = name.removesuffix(compressed)
    ending = Path(name).suffix
    return ending if ending in FORMATS else ""


def is_pattern(name: str) -> bool:
    """Return whether a name is to be matched with files, because it holds ``*``, ``?`` or ``[``."""
    return glob.has_magic(name)


def matching(pattern: str) -> list[Path]:
    """Return the files that a pattern matches, in the order of their paths.

    Args:
        pattern: As a shell has them; ``**`` stands for any number of directories.

    Raises:
        SourceError: If there is none.
    """
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


def format_of(files: list[Path], asked: str) -> tuple[str, dict[str, Any]]:
    """Return the builder for some files, and its settings.

    Args:
        files: At least one.
        asked: What was asked for.

    Raises:
        SourceError: If one is of no known kind, or they are of several kinds.
    """
    unknown = next((file for file in files if not ending_of(file)), None)
    if unknown is not None:
        raise SourceError(
            f"{unknown} is of no known kind; expected one of {', '.join(FORMATS)}, also with "
            f"{' or '.join(_COMPRESSED[:2])} behind it. Rename it, or pass its format as the dataset "
            f"(json, parquet, csv, text) and the file in data_files."
        )
    check_one_format(files, asked)
    return FORMATS[ending_of(files[0])]


def check_one_format(files: Iterable[str | Path], asked: str) -> None:
    """Refuse files of several kinds.

    Args:
        files: Those that are to be read; endings that are not known are passed over.
        asked: What was asked for.

    Raises:
        SourceError: If two of them have to be read in different ways.
    """
    first: dict[str, str | Path] = {}
    for file in files:
        if ending_of(file):
            builder, settings = FORMATS[ending_of(file)]
            first.setdefault(f"{builder} {settings}", file)
    if len(first) > 1:
        one, other = list(first.values())[:2]
        raise SourceError(
            f"{asked!r} holds files of several kinds, such as {one} and {other}. Prepare one kind at a time: "
            f"name a pattern, for example '**/*{ending_of(one)}'."
        )


def check_none_left_out(directory: Path, used: Iterable[str]) -> None:
    """Refuse a directory some of whose files would be passed over without a word.

    Args:
        directory: It.
        used: The files of all of its splits.

    Raises:
        SourceError: If it holds another file that looks like data.
    """
    known = {str(Path(file).absolute()) for file in used}
    others = sorted(str(path) for path in directory.absolute().rglob("*") if _is_data(path, directory))
    left_out = [path for path in others if path not in known]
    if left_out:
        check_one_format([*sorted(known), *left_out], str(directory))
        raise SourceError(
            f"{len(left_out):,} files of {directory} belong to none of its splits, such as {left_out[0]}: "
            f"some file or directory is named like a split (train, test, ...), which leaves out the others. "
            f"Name what to read by a pattern, such as '{directory}/**/*{ending_of(left_out[0])}'."
        )


def _is_data(path: Path, directory: Path) -> bool:
    inside = path.relative_to(directory.absolute()).parts
    hidden = any(part.startswith((".", "__")) for part in inside)
    named = path.name.lower().startswith(_NO_DATA)
    return bool(ending_of(path)) and not hidden and not named and path.is_file()


def was_saved(path: Path) -> bool:
    """Return whether a directory was written by ``Dataset.save_to_disk``."""
    return any((path / name).is_file() for name in ("dataset_dict.json", "state.json"))


def check_each_matches(patterns: Iterable[str], directory: Path) -> None:
    """Refuse patterns that match no file, even if others do.

    Args:
        patterns: Names and patterns of local files; addresses are passed over.
        directory: What they are relative to.

    Raises:
        SourceError: If there is no file for one of them.
    """
    for pattern in patterns:
        path = directory / Path(pattern).expanduser()
        if "://" not in pattern and not path.exists() and not glob.glob(str(path), recursive=True):
            raise SourceError(
                f"No file matches {pattern!r} of data_files in {directory.absolute()}. Check the name."
            )


def check_no_file_twice(files: list[str], patterns: Iterable[str]) -> None:
    """Refuse patterns that overlap, because documents would be in the corpus twice.

    Args:
        files: What the patterns match.
        patterns: Names and patterns; names without a pattern among them may be repeated.

    Raises:
        ConfigError: If one file is matched twice.
    """
    times = Counter(files)
    twice = next((file for file in files if times[file] > 1), None)
    if twice is not None and any(map(is_pattern, patterns)):
        raise ConfigError(f"data_files names {twice} twice. Let no two patterns match one file.")
