"""The command ``tdstream``: subcommands, exit codes, and errors in one sentence."""

from __future__ import annotations

import argparse
import difflib
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from types import FrameType
from typing import Any

from tdstream.cli import adopt, bench, convert, export, inspect, locate, merge, prepare, state, verify
from tdstream.cli.streams import discard_output, standard_streams
from tdstream.core.errors import TdstreamError, as_flag

EXIT_ERROR = 1
EXIT_INTERRUPTED = 128 + signal.SIGINT
EXIT_NO_READER = 128 + signal.SIGPIPE


def main(argv: Sequence[str] | None = None, *, own_process: bool | None = None) -> int:
    """Run a subcommand, by default with the arguments of the process; return its exit code.

    0; 1 after an error or a fault; 130 after Ctrl-C; 141 if the reader of the output has closed it. Wrong
    usage exits with 2. `own_process`: whether the process runs nothing else; by default true without `argv`.
    """
    owns = argv is None if own_process is None else own_process
    with standard_streams(own_process=owns):
        return _run(_make_parser(), argv, owns)


def _run(parser: argparse.ArgumentParser, argv: Sequence[str] | None, own_process: bool) -> int:
    arguments = parser.parse_args(argv)
    arguments.own_process = own_process
    try:
        with _unwinding_on_sigterm():
            code = int(arguments.run(arguments))
            sys.stdout.flush()
            return code
    except TdstreamError as error:
        print(f"{parser.prog}: error: {error.spelled(as_flag)}", file=sys.stderr)
        return EXIT_ERROR
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # as in `tdstream inspect DIR | head`
        discard_output()
        return EXIT_NO_READER
    except OSError as error:  # of a file that somebody removes or closes in the meantime
        where = f"{error.filename}: " if error.filename else ""
        print(f"{parser.prog}: error: {where}{error.strerror or error}.", file=sys.stderr)
        return EXIT_ERROR


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tdstream", description="Token streams for language-model pre-training."
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {_version()}")
    commands = parser.add_subparsers(
        title="commands", metavar="COMMAND", required=True, parser_class=_CommandParser
    )
    for command in (prepare, merge, inspect, verify, state, locate, bench, export, adopt, convert):
        command.add_parser(commands)
    return parser


class _CommandParser(argparse.ArgumentParser):
    """The parser of a command, which answers for the arguments that it does not take."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parse arguments; exit with 2, and one sentence, if there are unknown ones."""
        known, unknown = super().parse_known_args(args, namespace)
        if unknown:
            message = self._describe_unknown(unknown[0].partition("=")[0])
            self.exit(2, f"{self.prog}: error: {message} '{self.prog} --help' lists what it takes.\n")
        return known, unknown

    def _describe_unknown(self, word: str) -> str:
        if word.startswith("-"):
            flags = [flag for action in self._actions for flag in action.option_strings]
            near = difflib.get_close_matches(word, flags, n=1)
            return f"there is no flag {word}." + (f" Did you mean {near[0]}?" if near else "")
        if any(action.dest == "dataset" for action in self._actions):
            return (
                f"{word!r} has no flag. Name what to read with --dataset, where to write with --output_path."
            )
        return f"{word!r} is one argument too many."


def _version() -> str:
    try:
        return version("tdstream")
    except PackageNotFoundError:
        return "(not installed)"


@contextmanager
def _unwinding_on_sigterm() -> Iterator[None]:
    """Make SIGTERM unwind the stack like Ctrl-C, so that staged files are removed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _exit)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _exit(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    raise SystemExit(128 + number)
