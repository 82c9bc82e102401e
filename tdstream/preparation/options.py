"""Options of a preparation, grouped by purpose: text, output, hold-out, tasks."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from tdstream.core.checks import check_seconds, option
from tdstream.core.errors import ConfigError
from tdstream.text.files import check_apart
from tdstream.text.options import TextOptions, check_counts, check_switches
from tdstream.writing.staging import check_output


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputOptions:
    """Options of the output."""

    output_path: Path = option(Path("data/fineweb-edu-sample-10BT"), "directory for the corpus")
    tokens_per_chunk: int = option(100_000_000, "tokens per shard (1e8 works too)")
    overwrite: bool = option(False, "replace the corpus in output_path when the new one is complete")
    doc_index: bool = option(
        True,
        "write an index of document ends beside each shard",
        off="write no index of document ends beside the shards",
    )
    append: bool = option(False, "write after the documents of the corpus in output_path")
    resume: bool = option(False, "continue an unfinished preparation; start from scratch if there is none")

    def __post_init__(self) -> None:
        check_counts(self, "tokens_per_chunk")
        check_switches(self, "overwrite", "doc_index", "append", "resume")
        if self.append and self.overwrite:
            raise ConfigError("append keeps the corpus in output_path, overwrite replaces it. Leave one out.")


@dataclass(frozen=True, kw_only=True, slots=True)
class HoldoutOptions:
    """Options of the documents to hold out, into a separate corpus."""

    val_fraction: float | None = option(None, "share of the documents to hold out, in OUTPUT_PATH/val")
    val_documents: int | None = option(None, "number of documents to hold out instead")

    def __post_init__(self) -> None:
        check_counts(self, "val_documents")
        if self.val_fraction is not None and self.val_documents is not None:
            raise ConfigError("val_fraction and val_documents exclude each other. Leave one out.")
        fraction = self.val_fraction
        if fraction is not None and not (isinstance(fraction, (int, float)) and 0 < fraction < 1):
            raise ConfigError(f"val_fraction must be a number above 0 and below 1, got {fraction!r}.")

    @property
    def asked(self) -> dict[str, Any]:
        """The given option by name; empty if nothing is to be held out."""
        given = {name: getattr(self, name) for name in ("val_fraction", "val_documents")}
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskOptions:
    """Options of a preparation by several tasks."""

    task: int | None = option(None, "prepare only this share of the dataset, from 0")
    num_tasks: int | None = option(None, "shares that the dataset is divided into")
    merge_wait: float = option(
        300.0, "seconds after which rank 0 gives up on a rank that neither ends nor shows life"
    )

    @property
    def share(self) -> tuple[int, int] | None:
        """Number of this task and number of tasks; None if there is one process."""
        return None if self.task is None or self.num_tasks is None else (self.task, self.num_tasks)

    def __post_init__(self) -> None:
        check_counts(self, "num_tasks")
        check_seconds("merge_wait", self.merge_wait)
        task, num_tasks = self.task, self.num_tasks
        if (task is None) != (num_tasks is None):
            raise ConfigError(
                f"task and num_tasks are given together or not at all, got task={task} and "
                f"num_tasks={num_tasks}."
            )
        if task is not None and num_tasks is not None and not 0 <= task < num_tasks:
            raise ConfigError(f"task must be 0 to {num_tasks - 1} with num_tasks={num_tasks}, got {task}.")


@dataclass(frozen=True, kw_only=True, slots=True)
class PrepareOptions:
    """All options of a preparation."""

    text: TextOptions = field(default_factory=TextOptions)
    output: OutputOptions = field(default_factory=OutputOptions)
    holdout: HoldoutOptions = field(default_factory=HoldoutOptions)
    tasks: TaskOptions = field(default_factory=TaskOptions)

    @classmethod
    def of(cls, **options: Any) -> PrepareOptions:
        """Return options from keyword arguments, named like the flags."""
        return cls().replace(**options)

    def replace(self, **options: Any) -> PrepareOptions:
        """Return a copy with some options changed, named like the flags."""
        changed = {}
        for group in fields(self):
            before = getattr(self, group.name)
            own = {name: options.pop(name) for name in list(options) if hasattr(before, name)}
            changed[group.name] = dataclasses.replace(before, **own)
        if options:
            raise ConfigError(f"there is no option {', '.join(options)}.")
        return PrepareOptions(**changed)

    def __post_init__(self) -> None:
        if self.output.append and self.tasks.task is not None:
            raise ConfigError("append is for one process: several tasks cannot append. Leave one out.")
        if self.output.append and self.holdout.asked:
            raise ConfigError(
                "append cannot hold documents out: all appended documents go after those of output_path, and "
                "those held out before stay as they are. Leave val_fraction and val_documents out."
            )

    def check_output(self) -> None:
        """Raise OutputError if output_path is in use, or holds anything that may not be replaced."""
        out = self.output
        task = self.tasks.task
        if not os.path.isdir(out.output_path) or not os.listdir(out.output_path):  # what is begun may go on
            check_apart(self.text, out.output_path)
        check_output(
            out.output_path, overwrite=out.overwrite, resume=out.resume, task=task, append=out.append
        )


GROUPS = (TextOptions, OutputOptions, HoldoutOptions, TaskOptions)
