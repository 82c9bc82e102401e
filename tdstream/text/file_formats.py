"""Formats of text files by their endings, and names of files that lie beside data."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tdstream.core.errors import SourceError

FORMATS = {
    ".parquet": "parquet",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".txt": "text",
    ".arrow": "arrow",
}
"""The format of each ending."""
COMPRESSED = (".gz", ".zst", ".zstd", ".bz2", ".xz")
"""Endings that may follow those of FORMATS."""
CHOICES = ("parquet", "json", "csv", "text", "arrow")
"""Formats that can be named instead of a dataset, together with data_files."""

UNKNOWN = "of unknown ending"
HIDDEN = "hidden"
TEMPORARY = "temporary"
DESCRIPTION = "describing data"

# What editors, downloads and careful people append to the name of a data file.
_TEMPORARY = re.compile(
    r"~|\.~?(?:bak|backup|old|orig|save|tmp|temp|part|partial|filepart|incomplete|download|crdownload|opdownload"
    r"|aria2|lock|swp|swo|swx|\d+)(?:[.~].*)?$"
)
_TEMPORARY_DIRECTORIES = ("_temporary", "_delta_log", "_spark_metadata")
_ABOUT_TXT = ("readme", "license", "licence", "copying", "notice", "citation", "changelog")
_ABOUT = {
    "txt": _ABOUT_TXT,
    "md": _ABOUT_TXT,
    "json": (
        "config", "dataset_dict", "dataset_info", "dataset_infos", "dataset-metadata", "manifest", "meta",
        "metadata", "state",
    ),
    "": (*_ABOUT_TXT, "_success", "_metadata", "_common_metadata"),
}  # fmt: skip
"""Names of files that describe the data beside them, by the last part of the name."""


def find_ending(name: str) -> str:
    """Return the ending of a name that tells its format, with its compression; empty if it is unknown."""
    plain, compressed = _split_compressed(name.lower())
    ending = next((ending for ending in FORMATS if plain.endswith(ending)), "")
    return ending + compressed if ending else ""


def strip_compression(path: str) -> str:
    """Return a path without the ending that tells how the file is compressed."""
    return path[: len(path) - len(_split_compressed(path.lower())[1])]


def find_format(name: str) -> str:
    """Return the format that a name tells; empty if it is unknown."""
    return FORMATS.get(_split_compressed(find_ending(name))[0], "")


def _split_compressed(name: str) -> tuple[str, str]:
    compressed = next((ending for ending in COMPRESSED if name.endswith(ending)), "")
    return name.removesuffix(compressed), compressed


def judge_file(name: str) -> str:
    """Return why a file of this name in a directory is not data; empty if it is."""
    if name.startswith("."):
        return HIDDEN
    stem, _, ending = name.lower().partition(".")
    if stem in _ABOUT.get(ending.rpartition(".")[2], ()):
        return DESCRIPTION
    if not find_ending(name):
        lower = name.lower()
        cut = _TEMPORARY.search(lower)
        return TEMPORARY if cut and find_ending(lower[: cut.start()]) else UNKNOWN
    return TEMPORARY if name.startswith("~$") else ""  # made by office programs while a file is open


def judge_directory(name: str) -> str:
    """Return why a directory of this name is not searched; empty if it is."""
    if name.startswith((".", "__")):
        return HIDDEN
    return TEMPORARY if name in _TEMPORARY_DIRECTORIES else ""


def check_one_format(files: Iterable[str], asked: str) -> str:
    """Return the one format of some files; raise SourceError if there are several."""
    first: dict[str, str] = {}
    for file in files:
        first.setdefault(find_format(file), file)
    if len(first) > 1:
        one, other = list(first.values())[:2]
        raise SourceError(
            f"{asked!r} holds files of several kinds, such as {one} and {other}. Prepare one kind at a time: "
            f"name a pattern, for example '**/*{find_ending(one)}'."
        )
    return next(iter(first))
