"""Everything that a preparation can be told, checked when it is made."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tdstream.core.errors import ConfigError

DEFAULT_DATA_NAME = "sample-10BT"
ENCODERS = ("auto", "hf", "fastokens", "gigatoken")


@dataclass(frozen=True, kw_only=True, slots=True)
class PrepareOptions:
    """What to read, how to tokenize it, where to write it."""

    tokenizer: str = "gpt2"
    """Name on the hub, or a local directory."""
    dataset: str = "HuggingFaceFW/fineweb-edu"
    """Name on the hub, a local directory or file, or a format (json, parquet, csv, text) with data_files."""
    data_name: str | None = None
    """Configuration; None means sample-10BT for a dataset on the hub and none for others; "" means none."""
    split: str = "train"
    """Split of the dataset."""
    data_files: tuple[str, ...] = ()
    """Files of the dataset to read; empty means all."""
    text_field: str = "text"
    """Field of a record that holds its text: a name, a path such as meta.title, or several, with commas."""
    lines: bool = False
    """For text files: one document per line instead of one per file."""
    output_path: Path = Path("data/fineweb-edu-sample-10BT")
    """Directory for the corpus."""
    tokens_per_chunk: int = 100_000_000
    """Tokens per shard; the last one holds the rest."""
    batch_size: int = 1000
    """Documents to tokenize in one call."""
    max_samples: int | None = None
    """Records to read at most; None means all."""
    overwrite: bool = False
    """Replace a corpus that lies in output_path, once the new one is complete."""
    doc_index: bool = True
    """Write beside each shard an index of the documents that end in it."""
    val_fraction: float | None = None
    """Share of the documents to hold out, into a corpus of their own in output_path/val; None means none."""
    val_documents: int | None = None
    """Number of documents to hold out instead."""
    append: bool = False
    """Write behind the documents of the corpus that lies in output_path."""
    skip_bad: bool = False
    """Count records that hold no text and go on, instead of stopping."""
    resume: bool = False
    """Go on with an unfinished preparation in output_path, if there is one."""
    strip: bool = False
    """Leave out white space at both ends of a text."""
    num_proc: int = 1
    """Processes that tokenize; the corpus does not depend on it."""
    encoder: str = "auto"
    """What turns text into ids, one of ENCODERS; the ids do not depend on it."""
    task: int | None = None
    """Which of num_tasks shares of the dataset to prepare, from 0; None prepares all of it."""
    num_tasks: int | None = None
    """Shares that the dataset is divided into; given together with task or not at all."""
    merge_wait: float = 300.0
    """Seconds after which the task that merges gives up on one that neither ends nor shows life."""

    def __post_init__(self) -> None:
        """Refuse what cannot be followed.

        Raises:
            ConfigError: If a number is out of range, or a name is empty.
        """
        for name in (
            "tokens_per_chunk", "batch_size", "max_samples", "num_proc", "num_tasks", "val_documents"
        ):  # fmt: skip
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} must be at least 1, got {value}.")
        self._check_types()
        if not all(part.strip() for part in self.text_field.split(",")):
            raise ConfigError(
                f"text_field must be a name, or names with commas between them, got {self.text_field!r}."
            )
        if self.encoder not in ENCODERS:
            raise ConfigError(f"encoder must be one of {', '.join(ENCODERS)}, got {self.encoder!r}.")
        self._check_holdout()
        self._check_append()
        if (self.task is None) != (self.num_tasks is None):
            raise ConfigError(
                f"task and num_tasks are given together or not at all, got task={self.task} and "
                f"num_tasks={self.num_tasks}."
            )
        if self.task is not None and self.num_tasks is not None and not 0 <= self.task < self.num_tasks:
            raise ConfigError(
                f"task must be 0 to {self.num_tasks - 1} with num_tasks={self.num_tasks}, got {self.task}."
            )

    def _check_types(self) -> None:
        for name in ("tokenizer", "dataset", "split", "text_field"):
            value = getattr(self, name)
            if not isinstance(value, str):
                raise ConfigError(f"{name} must be a string, got {value!r}.")
            if not value:
                raise ConfigError(f"{name} must not be empty.")
        for name in ("lines", "overwrite", "doc_index", "append", "skip_bad", "resume", "strip"):
            value = getattr(self, name)
            if value not in (True, False):
                raise ConfigError(f"{name} must be True or False, got {value!r}.")

    def _check_append(self) -> None:
        if not self.append:
            return
        if self.overwrite:
            raise ConfigError("append keeps the corpus in output_path, overwrite replaces it. Leave one out.")
        if self.task is not None:
            raise ConfigError("append is for one process: several tasks cannot append. Leave one out.")
        if self.val_fraction is not None or self.val_documents is not None:
            raise ConfigError(
                "append holds nothing out: appended documents all go behind those of output_path, and what "
                "was held out before stays as it is. Leave val_fraction and val_documents out."
            )

    def _check_holdout(self) -> None:
        if self.val_fraction is not None and self.val_documents is not None:
            raise ConfigError("val_fraction and val_documents are two ways to say the same. Leave one out.")
        fraction = self.val_fraction
        if fraction is not None and not (isinstance(fraction, (int, float)) and 0 < fraction < 1):
            raise ConfigError(f"val_fraction must be a number above 0 and below 1, got {fraction!r}.")


def name_of(thing: Any) -> str:
    """Return what to call a function, or a thing of a class; a tokenizer by where it is from."""
    told = getattr(thing, "name_or_path", None)
    if isinstance(told, str) and told:
        return told
    owner = thing if hasattr(thing, "__qualname__") else type(thing)
    module = getattr(owner, "__module__", "builtins")
    return owner.__qualname__ if module == "builtins" else f"{module}.{owner.__qualname__}"
