"""The card of a local dataset: the first lines of its README.md, which may say which files are data."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from tdstream.core.errors import SourceError

_NO_SETTINGS = {"config_name", "data_files", "data_dir", "default", "description", "version"}


@dataclass(frozen=True, slots=True)
class CardConfig:
    """One configuration of a dataset, as its card describes it."""

    name: str
    data_dir: str = ""
    """The directory that the patterns begin in."""
    patterns: dict[str, list[str]] = field(default_factory=dict)
    """Names and patterns of files, by split; empty where all files of the directory are meant."""
    settings: dict[str, Any] = field(default_factory=dict)
    """How `datasets` has to read the files, if not as usual."""
    is_default: bool = False


def has_card(directory: str) -> bool:
    """Return whether a card says which files of a directory are its data."""
    try:
        with open(os.path.join(directory, "README.md"), encoding="utf-8-sig", errors="replace") as card:
            return next(card, "").strip() == "---" and any(
                "data_files:" in line for line in takewhile(lambda line: line.strip() != "---", card)
            )
    except OSError:
        return False


def read_configs(directory: str) -> list[CardConfig]:
    """Return the configurations that the card of a directory describes; none without a card.

    Raises SourceError for a card that `datasets` could not read either.
    """
    if not has_card(directory):
        return []
    from huggingface_hub import metadata_load  # noqa: PLC0415 - few directories have a card

    path = os.path.join(directory, "README.md")
    try:
        described = (metadata_load(path) or {}).get("configs") or []
        return [_read_config(config) for config in described]
    except Exception as error:  # YAML of any kind
        raise SourceError(
            f"{path} does not say which files are data: {type(error).__name__}: {error}. Repair its "
            f"`configs`, or name the files by a pattern."
        ) from error


def _read_config(config: dict[str, Any]) -> CardConfig:
    return CardConfig(
        name=str(config["config_name"]),
        data_dir=str(config.get("data_dir") or ""),
        patterns=_read_patterns(config.get("data_files")),
        settings={name: value for name, value in config.items() if name not in _NO_SETTINGS},
        is_default=bool(config.get("default")),
    )


def _read_patterns(data_files: Any) -> dict[str, list[str]]:
    """Return the patterns of each split: of "a*", ["a*", "b*"] or [{"split": "test", "path": "a*"}]."""
    if data_files is None:
        return {}
    items: list[Any] = [data_files] if isinstance(data_files, str) else list(data_files)
    if all(isinstance(item, str) for item in items):
        return {"train": items}
    paths: dict[str, Any] = {str(item["split"]): item["path"] for item in items}
    return {split: [path] if isinstance(path, str) else list(path) for split, path in paths.items()}


def choose_config(configs: list[CardConfig], name: str | None, asked: str) -> CardConfig:
    """Return the configuration of a name, or the one that stands for all; raise SourceError if none does."""
    known = {config.name: config for config in configs}
    if name and name not in known and not (name == "default" and not configs):
        names = f"its card names: {', '.join(known)}" if known else "it has no card that names any"
        raise SourceError(f"{asked} has no configuration {name!r}; {names}. Check data_name.")
    if name or not configs:
        return known.get(name or "", CardConfig("default"))
    chosen = [config for config in configs if config.is_default or config.name == "default"]
    if len(configs) > 1 and not chosen:
        raise SourceError(
            f"{asked} has several configurations: {', '.join(known)}.",
            f'Pass {{data_name:"{configs[0].name}"}}, for example.',
        )
    return (chosen or configs)[0]
