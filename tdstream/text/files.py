"""Local files that a dataset means.

The rule, for a directory: all files below with a known ending, in the order of their paths. Hidden and
temporary files, and descriptions that lie beside data, are left out. Links are followed, and no file is read
twice, whatever paths lead to it. Names tell splits, as `datasets` reads them. A path that exists is a path;
anything else may be a pattern.
"""

from __future__ import annotations

import functools
import glob
import logging
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from tdstream.core.errors import ConfigError, OutputError, SourceError
from tdstream.text.dataset_card import choose_config, has_card, read_configs
from tdstream.text.file_formats import (
    CHOICES,
    COMPRESSED,
    DESCRIPTION,
    FORMATS,
    HIDDEN,
    UNKNOWN,
    check_one_format,
    find_ending,
    judge_file,
    strip_compression,
)
from tdstream.text.file_search import (
    ALREADY_READ,
    FoundFile,
    Identity,
    LeftOut,
    Search,
    find_file,
    find_matching,
    is_pattern,
    make_absolute,
    take_all,
    walk,
)
from tdstream.text.options import TextOptions
from tdstream.text.split_names import check_split, choose_split, find_splits

logger = logging.getLogger(__name__)

OTHER_SPLIT = "of another split"
_EXAMPLES = 3  # names of left-out files in a description


@dataclass(frozen=True, kw_only=True, slots=True)
class FileList:
    """The files that a dataset means, in the order in which they are read."""

    files: tuple[str, ...]
    """Absolute paths."""
    format: str
    """One of "parquet", "json" (a record per line, or one array), "csv", "tsv", "text" and "arrow"."""
    num_bytes: int
    left_out: tuple[LeftOut, ...] = ()
    """What is not read, and why; directories end with a slash."""
    root: str | None = None
    """The directory that was searched; None where files or patterns were named."""

    def log(self, asked: str) -> None:
        """Log the description, once in a process; as a warning if anything is left out that may be missed."""
        expected = all(left.reason in (HIDDEN, DESCRIPTION) for left in self.left_out)
        _log_once(logging.INFO if expected else logging.WARNING, f"{asked}: {self.describe()}")
        twins = self.find_twins()
        if twins:
            first, second = map(show_path, twins[0])
            more = f", and {len(twins) - 1:,} more such files" if len(twins) > 1 else ""
            _log_once(
                logging.WARNING,
                f"{asked}: {first} is read, and so is {second}{more}. If one is the other, compressed, its "
                f"documents are read twice: move it away, or name the files by a pattern.",
            )

    def find_twins(self) -> list[tuple[str, str]]:
        """Return files whose names differ from that of an earlier one in the compression alone, after it."""
        earlier: dict[str, str] = {}
        pairs = [(earlier.setdefault(strip_compression(file), file), file) for file in self.files]
        return [(first, file) for first, file in pairs if first is not file]

    def count_endings(self) -> dict[str, int]:
        """Return the number of files with each ending, the most frequent first."""
        counts = Counter(find_ending(os.path.basename(file)).removeprefix(".") for file in self.files)
        return {ending or "other": count for ending, count in counts.most_common()}

    def count_left_out(self) -> dict[str, list[str]]:
        """Return the paths that are left out, by reason."""
        return _by_reason(self.left_out)

    def without(self, skipped: frozenset[str]) -> FileList:
        """Return the list without some files."""
        files = tuple(file for file in self.files if file not in skipped)
        num_bytes = sum(os.stat(file).st_size for file in files) if skipped else self.num_bytes
        return replace(self, files=files, num_bytes=num_bytes)

    def describe(self) -> str:
        """Return one line: "1,204 files (1,198 jsonl.gz, 6 left out: 6 temporary (a.bak, b.bak, ...))"."""
        parts = [f"{count:,} {ending}" for ending, count in self.count_endings().items()]
        if self.left_out:
            parts.append(
                f"{len(self.left_out):,} left out: {_describe_left_out(self.left_out, self._find_top())}"
            )
        total = len(self.files) + len(self.left_out)
        return f"{total:,} {'file' if total == 1 else 'files'} ({', '.join(parts)})"

    def _find_top(self) -> str:
        """Return the directory that all paths have in common."""
        paths = chain(self.files, (left.path.rstrip(os.sep) for left in self.left_out))
        return self.root or os.path.commonpath([os.path.dirname(path) for path in paths])


@functools.cache
def _log_once(level: int, message: str) -> None:
    logger.log(level, message)


def _by_reason(left_out: Iterable[LeftOut]) -> dict[str, list[str]]:
    reasons: dict[str, list[str]] = {}
    for path, reason in sorted(left_out, key=lambda left: (left.reason, left.path)):
        reasons.setdefault(reason, []).append(path)
    return reasons


def _describe_left_out(left_out: Iterable[LeftOut], root: str | None) -> str:
    return ", ".join(
        f"{len(paths):,} {reason} ({_list_some(paths, root)})"
        for reason, paths in _by_reason(left_out).items()
    )


def _list_some(paths: Sequence[str], root: str | None) -> str:
    names = [show_path(os.path.relpath(path, root) if root else path) for path in paths[:_EXAMPLES]]
    slashes = ["/" if path.endswith("/") and root else "" for path in paths[:_EXAMPLES]]
    shown = [name + slash for name, slash in zip(names, slashes, strict=True)]
    return ", ".join([*shown, *["..."] * (len(paths) > _EXAMPLES)])


def show_path(path: str) -> str:
    """Return a path as text for one line: bytes that are no UTF-8 and line ends are escaped."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in path
    )


def find_files(options: TextOptions) -> FileList | None:
    """Return the local files that the options mean.

    None if `datasets` has to find them: a dataset on the hub, one that ``save_to_disk`` wrote, a directory
    whose card says how to read its files, or `data_files` with URLs.

    Raises:
        ConfigError: If two options do not go together.
        SourceError: If a name means no file, files of several formats, or one that cannot be read.
    """
    name, path = options.dataset, find_path(options.dataset)
    if name in CHOICES and options.data_files:
        return _find_data_files(options, os.getcwd(), name)
    if path is None:
        is_local = is_pattern(name) and "://" not in name
        return _find_named(options, find_matching(os.path.expanduser(name)), name) if is_local else None
    if not os.path.isdir(path):
        return _find_named(options, _name(path), name)
    if was_saved(path):
        return None
    root = make_absolute(path)
    return _find_data_files(options, root, "") if options.data_files else _find_described(root, options)


def check_apart(options: TextOptions, place: str | os.PathLike[str]) -> None:
    """Raise OutputError if a directory to write lies in one that is read, and would be read next time."""
    if options.given is not None:
        return
    base = find_path(options.dataset) if options.dataset not in CHOICES or not options.data_files else None
    names = [os.path.join(base or "", os.path.expanduser(name)) for name in options.data_files]
    written = os.path.realpath(place)
    for name in names or [base or ""]:
        is_read = os.path.isdir(name) and not (was_saved(name) or has_card(name))
        if is_read and os.path.commonpath([os.path.realpath(name), written]) == os.path.realpath(name):
            raise OutputError(
                f"{place} lies in {name}, which is read with all that is in it. Choose another place, or "
                f"name the files to read by a pattern."
            )


def find_path(name: str) -> str | None:
    """Return the path that a name is, if there is something at it, even a link that leads nowhere."""
    paths = (name, os.path.expanduser(name))
    return next((path for path in paths if "\0" not in path and os.path.lexists(path)), None)


def was_saved(path: str) -> bool:
    """Return whether a directory was written by ``Dataset.save_to_disk``."""

    def holds(*names: str) -> bool:
        return all(os.path.isfile(os.path.join(path, name)) for name in names)

    return holds("dataset_dict.json") or holds("state.json", "dataset_info.json")


def _find_described(root: str, options: TextOptions) -> FileList | None:
    """Return the files of a directory, as its card says if it has one."""
    config = choose_config(read_configs(root), options.data_name, options.dataset)
    place = os.path.join(root, config.data_dir)
    if config.settings or any(is_url(name) for names in config.patterns.values() for name in names):
        return None
    if not config.patterns:
        return _find_in_directory(place, options)
    check_split(config.patterns, options.split, options.dataset)
    chosen: dict[Identity, FoundFile] = {}
    left_out: list[LeftOut] = []
    for name in config.patterns[options.split]:
        search = _find_data_file(name, place)
        for file in _choose_data(search):
            if chosen.setdefault(file.identity, file) is not file:
                left_out.append(LeftOut(file.path, ALREADY_READ))
        left_out += search.left_out
    if not chosen:
        patterns = ", ".join(config.patterns[options.split])
        raise SourceError(f"No file of {options.dataset} matches what its card names: {patterns}.")
    found = list(chosen.values())
    return _make_list(found, check_one_format([file.path for file in found], options.dataset), left_out, root)


def _find_in_directory(root: str, options: TextOptions) -> FileList:
    search = walk(root)
    found = search.choose()
    if not found:
        raise _no_data_error(options.dataset, search.left_out)
    paths = [file.path for file in found]
    chosen = set(choose_split(find_splits(paths, root), options.split, paths, options.dataset))
    search.left_out += [LeftOut(path, OTHER_SPLIT) for path in paths if path not in chosen]
    kept = [file for file in found if file.path in chosen]
    format_ = check_one_format([file.path for file in kept], options.dataset)
    return _make_list(kept, format_, search.left_out, root)


def _find_named(options: TextOptions, search: Search, asked: str) -> FileList:
    if options.data_files:
        raise ConfigError(
            f"data_files chooses among the files of a dataset, but {asked} names the files itself. "
            f"Leave it out."
        )
    _check_no_split(options)
    found = _choose_data(search)
    if not found:
        raise _no_match_error(asked, search, "Check the pattern and where it begins.")
    format_ = check_one_format([file.path for file in found], asked)
    return _make_list(found, format_, search.left_out)


def _find_data_files(options: TextOptions, place: str, chosen: str) -> FileList | None:
    """Return the files that data_files names, relative to a directory; `chosen` is their format, if given."""
    if any(map(is_url, options.data_files)):
        return None
    _check_no_split(options)
    files: list[FoundFile] = []
    searches: list[Search] = []
    for name in options.data_files:
        search = _find_data_file(name, place)
        found = _choose_data(search, any_ending=bool(chosen))
        if not found:
            raise _no_match_error(name, search, "Check the name.", f" of data_files in {place}")
        searches.append(search)
        files += found
    if not all(search.are_named for search in searches):
        _check_no_file_twice(files)
    known = [file.path for file in files if find_ending(file.path) or not chosen]
    format_ = check_one_format(known, "data_files") if known else chosen
    left_out = [left for search in searches for left in search.left_out]
    return _make_list(files, chosen or format_, left_out)


def _find_data_file(name: str, place: str) -> Search:
    """Search for what a name in data_files means: a file, a directory or a pattern, relative to `place`."""
    path = find_path(os.path.join(place, name)) or os.path.join(place, os.path.expanduser(name))
    if os.path.isdir(path):
        return walk(make_absolute(path), take_all)
    return _name(path) if os.path.lexists(path) else find_matching(path)


def is_url(name: str) -> bool:
    """Return whether a name is a URL, or a chain of them, for `datasets` to open."""
    return "://" in name and not os.path.lexists(name)


def resolve_local(names: Iterable[str], place: str) -> list[str]:
    """Return data_files for `datasets`: URLs as they are, others as paths in which nothing is a pattern."""
    resolved: list[str] = []
    for name in names:
        if is_url(name):
            resolved.append(name)
            continue
        search = _find_data_file(name, place)
        found = _choose_data(search, any_ending=True)
        if not found:
            raise _no_match_error(name, search, "Check the name.", f" of data_files in {place}")
        resolved += [glob.escape(file.path) for file in found]
    return resolved


def _name(path: str) -> Search:
    """Return a file that is named, and therefore meant, whatever it is called."""
    return Search(files=[find_file(make_absolute(path))], are_named=True)


def _choose_data(search: Search, *, any_ending: bool = False) -> list[FoundFile]:
    """Return the files of a search that are data, each once; the others are left out.

    With `any_ending` those are data whose endings tell no format, if no ending does.
    """
    reasons = {file.path: judge_file(os.path.basename(file.path)) for file in search.files}
    if any_ending and not any(find_ending(path) for path in reasons):
        reasons = {path: reason if reason != UNKNOWN else "" for path, reason in reasons.items()}
    if search.are_named:
        reasons = dict.fromkeys(reasons, "")
    data = [file for file in search.files if not reasons[file.path]]
    unknown = next((file.path for file in data or search.files if not find_ending(file.path)), None)
    if unknown is not None and not any_ending:
        raise SourceError(
            f"{unknown} is of no known kind; expected one of {', '.join(FORMATS)}, also with "
            f"{', '.join(COMPRESSED)} after it. Rename it, or pass its format as the dataset "
            f"({', '.join(CHOICES)}) and the file in data_files."
        )
    search.left_out += [LeftOut(path, reason) for path, reason in reasons.items() if reason]
    search.files = data
    return search.choose()


def _check_no_split(options: TextOptions) -> None:
    if options.split != "train":
        raise SourceError(
            f"split={options.split!r} chooses among the splits of a directory or a dataset on the hub, but "
            f"the files are named: they are the split train. Leave it out."
        )


def _check_no_file_twice(files: list[FoundFile]) -> None:
    """Raise ConfigError for patterns that overlap: documents would be in the corpus twice."""
    times = Counter(file.identity for file in files)
    twice = next((file.path for file in files if times[file.identity] > 1), None)
    if twice is not None:
        raise ConfigError(f"data_files names {twice} twice. Each file may match only one pattern.")


def _make_list(
    found: list[FoundFile], format_: str, left_out: list[LeftOut], root: str | None = None
) -> FileList:
    return FileList(
        files=tuple(file.path for file in found),
        format=format_,
        num_bytes=sum(file.num_bytes for file in found),
        left_out=tuple(sorted(left_out)),
        root=root,
    )


def _no_match_error(pattern: str, search: Search, hint: str, where: str = "") -> SourceError:
    why = ""
    if search.left_out:
        why = f" that is data; {_describe_left_out(search.left_out, None)} are left out"
    elif search.directories and not where:
        why = f", only {len(search.directories):,} directories; end the pattern with /**/*.jsonl, for example"
    return SourceError(f"No file matches {pattern!r}{where}{why}. {hint}")


def _no_data_error(asked: str, left_out: list[LeftOut]) -> SourceError:
    holds = f"only {_describe_left_out(left_out, None)}, all left out" if left_out else "no file"
    return SourceError(
        f"Directory {asked} doesn't contain any data files: it holds {holds}. Expected files that end in "
        f"{', '.join(FORMATS)}, also with {', '.join(COMPRESSED)} after it."
    )
