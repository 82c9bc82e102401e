"""The exceptions that tdstream raises.

TdstreamError
├── ConfigError (ValueError)              an argument or flag is out of range, or two exclude each other
├── CorpusError (ValueError)              the files of a corpus do not match its meta.json
├── CorpusNotFoundError (FileNotFoundError)   there is no corpus at that path
├── StateError (ValueError)               a state belongs to other data or settings, or is not a state
├── GeometryError (ValueError)            ranks, workers or samples do not fit together
├── StaleIteratorError (RuntimeError)     an iterator was replaced by a newer one or by a loaded state
├── SourceError (ValueError)              a text source cannot be found, read or used
├── TokenizerError (ValueError)           a tokenizer cannot be found, or lacks what is needed
└── OutputError (OSError)                 the output cannot be written

Each is also the built-in exception that a caller would expect, and can be rebuilt from its message alone, as
a loader does with an error of a worker process. The message says what was found and what was expected; the
hint says what to do.
"""

from __future__ import annotations

import string
from collections.abc import Callable

Spelling = Callable[[str, str], str]
"""Spells an option, given its name and value; the value "" switches it on."""


def as_argument(name: str, value: str) -> str:
    """Spell an option as a Python argument: resume=True, text_field=..."""
    return f"{name}={value or True}"


def as_flag(name: str, value: str) -> str:
    """Spell an option as a flag: --resume, --text_field, --encoder auto or hf."""
    words = value.replace('"', "").replace("...", "").strip()
    return f"--{name} {words}" if words else f"--{name}"


class TdstreamError(Exception):
    """The base class of all errors of tdstream.

    Args:
        message: What was found, and what was expected.
        hint: What to do. A name in braces stands for one of `values`, else for the option of that name as a
            Python argument: "Pass {resume}." becomes "Pass resume=True.", "Use {text_field:...}." becomes
            "Use text_field=....". The command line spells options as flags.
        **values: Values of other names in the hint.
    """

    def __init__(self, message: str = "", hint: str = "", **values: object) -> None:
        self.message = message
        self._hints: list[tuple[str, dict[str, object]]] = [(hint, values)] if hint else []
        super().__init__(self.spelled(as_argument))

    @property
    def options(self) -> set[str]:
        """The options that the hint names."""
        return {
            name
            for hint, values in self._hints
            for _, name, _, _ in string.Formatter().parse(hint)
            if name and name not in values
        }

    def add_hint(self, hint: str, **values: object) -> None:
        """Append to the hint."""
        self._hints.append((hint, values))
        self.spell(as_argument)

    def spell(self, spelling: Spelling) -> None:
        """Change how the options in the message are spelled."""
        self.args = (self.spelled(spelling),)

    def spelled(self, spelling: Spelling) -> str:
        """Return the whole message, with its options spelled by `spelling`."""
        return " ".join([self.message, *(_filled(hint, values, spelling) for hint, values in self._hints)])


def _filled(hint: str, values: dict[str, object], spelling: Spelling) -> str:
    parts = []
    for text, name, value, _ in string.Formatter().parse(hint):
        parts.append(text)
        if name:
            parts.append(str(values[name]) if name in values else spelling(name, value or ""))
    return "".join(parts)


class ConfigError(TdstreamError, ValueError):
    """An argument or flag cannot be used, or two of them exclude each other."""


class CorpusError(TdstreamError, ValueError):
    """A corpus is damaged, unfinished, or does not match its meta.json."""


class CorpusNotFoundError(TdstreamError, FileNotFoundError):
    """A directory, or a shard that meta.json lists, does not exist."""


class StateError(TdstreamError, ValueError):
    """A state was saved with other data or settings, by a newer version, or is not a state."""


class GeometryError(TdstreamError, ValueError):
    """World size, worker count or number of samples do not fit together, or differ from a state's."""


class StaleIteratorError(TdstreamError, RuntimeError):
    """An iterator was used after a newer one was made, after a state was loaded, or after it had failed."""


class SourceError(TdstreamError, ValueError):
    """A text source cannot be found or reached, or holds a record that is not text."""


class TokenizerError(TdstreamError, ValueError):
    """A tokenizer cannot be found or reached, or has no end-of-text token."""


class OutputError(TdstreamError, OSError):
    """The output directory is in use, holds other files, or has no space left."""
