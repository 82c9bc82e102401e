"""What text to read, and how to tokenize it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from tdstream.core.checks import check_int, option
from tdstream.core.errors import ConfigError

DEFAULT_DATA_NAME = "sample-10BT"
ENCODERS = ("auto", "hf", "fastokens", "gigatoken")


@dataclass(frozen=True, kw_only=True, slots=True)
class TextOptions:
    """What text to read, and how to tokenize it."""

    tokenizer: str = option("gpt2", "name on the hub or local directory")
    dataset: str = option(
        "HuggingFaceFW/fineweb-edu",
        "name on the hub; or a local file or directory of parquet, json, jsonl, csv or txt, also .gz or "
        ".zst; or json, parquet, csv or text together with --data_files",
    )
    data_name: str | None = option(
        None, "configuration of the dataset (on the hub: sample-10BT unless given; '' for none)"
    )
    split: str = option("train", "split of the dataset")
    data_files: tuple[str, ...] = option((), "read only these files of the dataset", metavar="FILE")
    text_field: str = option(
        "text",
        "field that holds the text; dots reach nested fields (meta.title), comma-separated fields "
        "(title,text) are joined with a blank line",
    )
    strip: bool = option(False, "strip white space at both ends of a text")
    prepend_bos: bool = option(False, "begin each document with the tokenizer's BOS token")
    lines: bool = option(False, "text files: one document per line, not per file")
    batch_size: int = option(1000, "documents to tokenize in one call")
    max_samples: int | None = option(None, "records to read at most")
    skip_bad: bool = option(False, "leave out and count records that hold no text")
    num_proc: int = option(1, "processes that tokenize; the corpus does not depend on it")
    encoder: str = option(
        "auto",
        "what turns text into ids; auto takes the fastest that is exact for the tokenizer",
        choices=ENCODERS,
    )
    given: Any = field(default=None, compare=False, repr=False)
    """The source itself, if the caller has it; `dataset` is then its name."""
    skipped_files: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    """Local files that are not read, since the corpus that is appended to has them."""
    is_named: bool = field(default=False, compare=False, repr=False)
    """Whether the caller named the source, and so vouches that the same name means the same text."""
    given_tokenizer: Any = field(default=None, compare=False, repr=False)
    """The Hugging Face tokenizer itself, if the caller has it."""

    @classmethod
    def of(cls, source: Any, tokenizer: Any, *, name: str | None = None, **options: Any) -> TextOptions:
        """Return options for a source and a tokenizer, each a path, a name or the object itself."""
        if tokenizer is None:
            raise ConfigError(
                "text has to be tokenized, and no tokenizer was given. Pass tokenizer=..., a name, a "
                "directory or a Hugging Face tokenizer."
            )
        return cls(**named(source, tokenizer, name), **options)

    def __post_init__(self) -> None:
        """Raise ConfigError for a value out of range or of another type."""
        for name in ("tokenizer", "dataset", "split", "text_field"):
            value = getattr(self, name)
            if not isinstance(value, str):
                raise ConfigError(f"{name} must be a string, got {value!r}.")
            if not value:
                raise ConfigError(f"{name} must not be empty.")
        if not all(part.strip() for part in self.text_field.split(",")):
            raise ConfigError(
                f"text_field must be a name, or names with commas between them, got {self.text_field!r}."
            )
        check_counts(self, "batch_size", "max_samples", "num_proc")
        check_switches(self, "strip", "prepend_bos", "lines", "skip_bad")
        if self.encoder not in ENCODERS:
            raise ConfigError(f"encoder must be one of {', '.join(ENCODERS)}, got {self.encoder!r}.")


def named(source: Any, tokenizer: Any, name: str | None = None) -> dict[str, Any]:
    """Return the fields of TextOptions that name or hold the source and the tokenizer."""
    if is_path(source) and name is not None:
        raise ConfigError("name is for a source that is no path or name. Leave it out.")
    return {
        "dataset": os.fspath(source) if is_path(source) else name or _find_name(source),
        "given": None if is_path(source) else source,
        "is_named": name is not None,
        "tokenizer": os.fspath(tokenizer) if is_path(tokenizer) else _find_name(tokenizer),
        "given_tokenizer": None if is_path(tokenizer) else tokenizer,
    }


def is_path(thing: Any) -> bool:
    """Return whether a source or a tokenizer is a path or a name."""
    return isinstance(thing, (str, os.PathLike))


def _find_name(thing: Any) -> str:
    """Return a name for a function or an object: a tokenizer's own, else that of the function or class."""
    name = getattr(thing, "name_or_path", None)
    if isinstance(name, str) and name:
        return name
    owner = thing if hasattr(thing, "__qualname__") else type(thing)
    module = getattr(owner, "__module__", "builtins")
    return owner.__qualname__ if module == "builtins" else f"{module}.{owner.__qualname__}"


def check_counts(options: Any, *names: str) -> None:
    """Raise ConfigError unless each of these is None or an integer of at least 1; numpy's become ints."""
    for name in names:
        value = getattr(options, name)
        if value is not None:
            object.__setattr__(options, name, check_int(name, value, at_least=1))


def check_switches(options: Any, *names: str) -> None:
    """Raise ConfigError unless each of these is True or False."""
    for name in names:
        if getattr(options, name) not in (True, False):
            raise ConfigError(f"{name} must be True or False, got {getattr(options, name)!r}.")
