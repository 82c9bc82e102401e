"""Parts shared by several commands: arguments, flags from dataclasses, tokenizer loading, progress bar."""

from __future__ import annotations

import argparse
import types
from collections.abc import Callable
from dataclasses import Field, dataclass, fields
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from tdstream.core.errors import StateError, TokenizerError
from tdstream.corpus.meta import META_FILE, STAGING_DIR
from tdstream.formats.adopted import describe as describe_adopted
from tdstream.formats.adopted import is_adopted
from tdstream.formats.description import STORED_AS, Description, FormatOptions
from tdstream.formats.raw import NAME as RAW
from tdstream.formats.recognize import NAMES, describe, recognize
from tdstream.verification.inventory import read_lenient_meta
from tdstream.verification.verify_report import Findings


class DefaultsFormatter(argparse.ArgumentDefaultsHelpFormatter):
    """A formatter that shows the default of a flag where there is one to show."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        shown = action.default not in (None, False, True, []) or isinstance(action.default, (int, float))
        is_switch = action.nargs == 0
        return super()._get_help_string(action) if shown and not is_switch else action.help


def whole_number(text: str) -> int:
    """Parse an integer: 100000000, 100_000_000 and 1e8 are equal."""
    problem = argparse.ArgumentTypeError(f"expected a whole number such as 1000 or 1e8, got {text!r}")
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise problem from None
    if not number.is_finite() or number.adjusted() > 18 or number != number.to_integral_value():
        raise problem
    return int(number)


def add_corpus_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the corpus, and flags for what its files do not tell themselves."""
    parser.add_argument(
        "directory", type=Path, metavar="path", help="the corpus directory, or token files of another tool"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--tokenizer", help="tokenizer to decode with (default: the one in meta.json)")
    add_format_arguments(parser)


def add_format_arguments(parser: argparse.ArgumentParser) -> None:
    """Add flags for what files do not tell themselves."""
    parser.add_argument("--dtype", choices=list(STORED_AS), help="token type of bare .bin files")
    parser.add_argument("--eos", type=whole_number, metavar="ID", help="end-of-text id of bare .bin files")
    parser.add_argument("--eos_first", action="store_true", help="it stands first in each document, not last")
    parser.add_argument("--format", choices=NAMES, help="format of the files, if they could be of several")


def read_told(arguments: argparse.Namespace) -> FormatOptions:
    """Return what the flags of `add_format_arguments` say."""
    return FormatOptions.of(arguments.format, arguments.dtype, arguments.eos, arguments.eos_first or None)


def describe_files(arguments: argparse.Namespace) -> Description | None:
    """Return what lies at the path if it is of another tool; None for a corpus, or bare shards of one."""
    path = arguments.directory
    if is_adopted(path):
        return describe_adopted(path.absolute())
    if (path / META_FILE).exists() or (path / STAGING_DIR).exists():
        return None
    told = read_told(arguments)
    is_bare = path.is_dir() and recognize(path.absolute(), told)[0] == RAW
    return None if is_bare and not told.eos_first else describe(path, told)


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedTokenizer:
    """A tokenizer, or the reason why none is loaded."""

    tokenizer: Any = None
    fingerprint: str = ""
    reason: str = "it was not requested"


def load_corpus_tokenizer(arguments: argparse.Namespace) -> LoadedTokenizer:
    """Load the tokenizer given by --tokenizer or else, if possible, the one named in meta.json."""
    path = arguments.directory / META_FILE
    meta = read_lenient_meta(path, Findings()) if path.is_file() else None
    name = arguments.tokenizer or (meta.tokenizer_name_or_path if meta else "")
    if not name:
        return LoadedTokenizer(reason="no tokenizer is known; name one with --tokenizer")
    from tdstream.text.tokenizer import fingerprint, load_tokenizer  # noqa: PLC0415 - takes seconds

    try:
        tokenizer = load_tokenizer(name)
    except TokenizerError as error:
        if arguments.tokenizer:
            raise
        return LoadedTokenizer(reason=f"{error} Pass another name or path with --tokenizer.")
    return LoadedTokenizer(tokenizer=tokenizer, fingerprint=fingerprint(tokenizer))


def check_no_corpus(path: Path) -> None:
    """Raise StateError if a path that should name a checkpoint is a corpus or its meta.json."""
    if path.name == META_FILE or (path / META_FILE).is_file():
        directory = path.parent if path.name == META_FILE else path
        raise StateError(
            f"{path} is a corpus, not a checkpoint. To look at it: tdstream inspect {directory}. A "
            f"checkpoint is what torch.save, json.dump or torch.distributed.checkpoint has written."
        )


def reading_bar(total: int, hidden: bool = False) -> Any:
    """Return a progress bar over `total` bytes; in a log file, reading that takes long says how far it is."""
    from tdstream.core.progress_bar import ProgressBar  # noqa: PLC0415 - help does without tqdm

    return ProgressBar(
        total=total, unit="B", unit_scale=True, dynamic_ncols=True, desc="Reading", disable=hidden, delay=1
    )


def add_options(parser: argparse.ArgumentParser, group: type) -> None:
    """Add a flag for each field of a dataclass that `core.checks.option` made."""
    kinds = get_type_hints(group)
    for field in fields(group):
        if "help" in field.metadata:
            _add_option(parser, field, kinds[field.name])


def read_options(arguments: argparse.Namespace, *groups: type) -> dict[str, Any]:
    """Return the values of the flags that `add_options` added for these dataclasses."""
    names = [field.name for group in groups for field in fields(group) if "help" in field.metadata]
    values = {name: getattr(arguments, name) for name in names}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


def _add_option(parser: argparse.ArgumentParser, field: Field[Any], kind: Any) -> None:
    flag = f"--{field.name}"
    settings = {name: value for name, value in field.metadata.items() if name != "off"}
    if "off" in field.metadata:
        parser.add_argument(
            f"--no_{field.name}", dest=field.name, action="store_false", help=field.metadata["off"]
        )
    elif kind is bool:
        parser.add_argument(flag, action="store_true", **settings)
    elif get_origin(kind) is tuple:
        parser.add_argument(flag, nargs="+", default=[], **settings)
    else:
        if get_origin(kind) in (Union, types.UnionType):  # int | None -> int
            kind = next(part for part in get_args(kind) if part is not type(None))
        parser.add_argument(flag, type=_PARSERS[kind], default=field.default, **settings)


def _named_path(text: str) -> Path:
    if not text:  # an unset variable of a script; Path would take it for the working directory
        raise argparse.ArgumentTypeError("expected a path, got ''")
    return Path(text)


_PARSERS: dict[Any, Callable[[str], Any]] = {str: str, int: whole_number, float: float, Path: _named_path}
