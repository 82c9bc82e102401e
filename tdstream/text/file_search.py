"""Search for files below a directory and by a pattern: links are followed, and nothing is found twice."""

from __future__ import annotations

import fnmatch
import glob
import os
import re
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from tdstream.core.errors import SourceError
from tdstream.text.file_formats import HIDDEN, UNKNOWN, judge_directory, judge_file

ALREADY_READ = "already read under another path"
LEADS_UP = "leading back up"

Identity = tuple[int, int] | str
"""Device and inode of a file; its real path on file systems without inodes."""


class FoundFile(NamedTuple):
    """A file that a search has found."""

    path: str
    identity: Identity
    num_bytes: int
    is_linked: bool
    """A symbolic link leads to it, below where the search began."""


class LeftOut(NamedTuple):
    """A file, or a directory with a slash at its end, that a search passes over."""

    path: str
    reason: str


@dataclass
class Search:
    """What was found, in no order."""

    files: list[FoundFile] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    directories: list[str] = field(default_factory=list)
    """Directories that were searched."""
    linked: set[str] = field(default_factory=set)
    """Those that a link leads to, below where the search began."""
    are_named: bool = False
    """The files were named, not found."""

    def choose(self) -> list[FoundFile]:
        """Return each file once, in the order of the paths; others are left out.

        Of several paths of one file, one without links is chosen, then the first.
        """
        chosen: dict[Identity, FoundFile] = {}
        for file in sorted(self.files, key=lambda file: (file.is_linked, file.path)):
            if chosen.setdefault(file.identity, file).path != file.path:
                self.left_out.append(LeftOut(file.path, ALREADY_READ))
        return sorted(chosen.values(), key=lambda file: file.path)


def walk(directory: str, judge: Callable[[str], str] | None = judge_file) -> Search:
    """Search all directories below one. `judge` says why a file of some name is left out; None: all are.

    Real directories come first, then those that links lead to. A directory that was searched, or that lies
    above, is passed over, so that links cannot lead in circles.
    """
    search = Search()
    above = _list_above(os.path.realpath(directory))
    seen = dict.fromkeys([_identify(path) for path in above], LEADS_UP)
    pending = [(directory, False)]
    links: list[str] = []
    while pending:
        while pending:
            path, is_linked = pending.pop()
            search.directories.append(path)
            search.linked |= {path} if is_linked else set()
            for entry in _scan(path):
                is_link = entry.is_symlink()
                is_directory = os.path.isdir(entry.path) if is_link else entry.is_dir()
                if is_directory and judge_directory(entry.name):
                    search.left_out.append(LeftOut(f"{entry.path}/", judge_directory(entry.name)))
                elif is_directory and is_link:
                    links.append(entry.path)
                elif is_directory:
                    _enter(entry.path, is_linked, seen, pending, search)
                else:
                    _add_file(entry.path, is_linked or is_link, judge, search)
        for link in sorted(links):
            _enter(link, True, seen, pending, search)
        links = []
    return search


def _add_file(path: str, is_linked: bool, judge: Callable[[str], str] | None, search: Search) -> None:
    name = os.path.basename(path)
    reason = UNKNOWN if judge is None else judge(name)
    # A link that leads nowhere, and is not named like a file, was one to a directory.
    is_lost = is_linked and reason in ("", UNKNOWN) and not os.path.exists(path)
    if not reason or (is_lost and not re.search(r"\.[A-Za-z]\w*$", name)):
        search.files.append(find_file(path, is_linked=is_linked))
    elif judge is not None:
        search.left_out.append(LeftOut(path, reason))


def _enter(
    path: str, is_linked: bool, seen: dict[Identity, str], pending: list[tuple[str, bool]], search: Search
) -> None:
    identity = _identify(path)
    if identity in seen:
        search.left_out.append(LeftOut(f"{path}/", seen[identity]))
    else:
        seen[identity] = ALREADY_READ
        pending.append((path, is_linked))


def _list_above(directory: str) -> Iterable[str]:
    """Yield a directory and all above it."""
    while True:
        yield directory
        parent = os.path.dirname(directory)
        if parent == directory:
            return
        directory = parent


def _scan(directory: str) -> list[os.DirEntry[str]]:
    """Return what is in a directory, by name; raise SourceError if it cannot be listed."""
    try:
        with os.scandir(directory) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        raise SourceError(
            f"Directory {directory} cannot be listed: {error.strerror}. Make it readable, or name the files "
            f"without it."
        ) from None


def _identify(path: str) -> Identity:
    return _make_identity(os.stat(path), path)


def _make_identity(facts: os.stat_result, path: str) -> Identity:
    return (facts.st_dev, facts.st_ino) if facts.st_ino else os.path.realpath(path)


def find_file(path: str, *, is_linked: bool = False) -> FoundFile:
    """Return the file at a path; raise SourceError if it cannot be read more than once."""
    try:
        facts = os.stat(path)
    except OSError as error:
        if os.path.islink(path):
            raise SourceError(
                f"{path} is a link to {os.readlink(path)}, which cannot be read: {error.strerror}. "
                f"Repair or remove the link."
            ) from None
        raise SourceError(f"{path} cannot be read: {error.strerror}.") from None
    if not stat.S_ISREG(facts.st_mode):
        raise SourceError(
            f"{path} is no regular file but {_name_type(facts.st_mode)}, which can be read only once. "
            f"Write its content to a file."
        )
    if not os.access(path, os.R_OK, effective_ids=os.access in os.supports_effective_ids):
        raise SourceError(f"{path} cannot be read: permission denied.")
    return FoundFile(path, _make_identity(facts, path), facts.st_size, is_linked or os.path.islink(path))


def _name_type(mode: int) -> str:
    kinds = (
        (stat.S_ISDIR, "a directory"),
        (stat.S_ISFIFO, "a pipe"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISCHR, "a device"),
        (stat.S_ISBLK, "a device"),
    )
    return next((name for is_kind, name in kinds if is_kind(mode)), "something else")


def is_pattern(name: str) -> bool:
    """Return whether a name is a pattern of files: it has ``*``, ``?`` or ``[``."""
    return glob.has_magic(name)


def find_matching(pattern: str) -> Search:
    """Search for the files that a shell pattern matches; ``**`` is any number of directories.

    A part that exists by just this name is that name, even if it has brackets. Hidden files match only what
    begins with a dot.
    """
    absolute = pattern.startswith(os.sep)
    parts = [part for part in pattern.split(os.sep) if part not in ("", ".")]
    search, left_out, linked = Search(), [], set()
    places = [os.sep if absolute else os.getcwd()]
    for number, part in enumerate(parts):
        is_last = number == len(parts) - 1
        search = Search()
        for place in places:
            if part == "**":
                found = walk(place, take_all if is_last else None)
                # That a pattern does not match names with a dot needs no word.
                found.left_out = [left for left in found.left_out if not _is_dotted(left.path)]
            else:
                found = _match_part(place, part, is_last=is_last)
            if place in linked:
                found.files = [file._replace(is_linked=True) for file in found.files]
                found.linked |= set(found.directories)
            if any(map(is_pattern, parts[: number + 1])):  # a link before it leads to all files alike
                linked |= found.linked
            search.files += found.files
            left_out += found.left_out
            search.directories += found.directories
        places = list(dict.fromkeys(search.directories))
    search.left_out = left_out
    return search


def _match_part(place: str, part: str, *, is_last: bool) -> Search:
    """Return the files and directories of one directory that match a part of a pattern."""
    search = Search()
    literal = os.path.join(place, part)
    if part == "..":
        paths = [make_absolute(literal)]
    elif os.path.lexists(literal) or not is_pattern(part):
        paths = [literal] * os.path.lexists(literal)
    else:
        is_name = re.compile(fnmatch.translate(part)).match
        paths = [entry.path for entry in _scan(place) if is_name(entry.name) and _shows(entry.name, part)]
    for path in paths:
        if os.path.isdir(path):
            search.directories.append(path)
            search.linked |= {path} if os.path.islink(path) else set()
        elif is_last or not os.path.exists(path):
            search.files.append(find_file(path))
    return search


def make_absolute(path: str) -> str:
    """Return an absolute path; ``..`` after a link is where the link leads."""
    absolute = os.path.join(os.getcwd(), path)
    short = os.path.normpath(absolute)
    if ".." not in absolute.split(os.sep) or (os.path.exists(short) and os.path.samefile(short, absolute)):
        return short
    directory, name = os.path.split(absolute)
    return os.path.realpath(absolute) if name == ".." else os.path.join(os.path.realpath(directory), name)


def _is_dotted(path: str) -> bool:
    return os.path.basename(path.rstrip(os.sep)).startswith(".")


def take_all(name: str) -> str:
    """Leave out only hidden files."""
    return HIDDEN if name.startswith(".") else ""


def _shows(name: str, part: str) -> bool:
    return part.startswith(".") or not name.startswith(".")
