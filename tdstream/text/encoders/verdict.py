"""Verdicts on disk: which fast encoder is exact for which tokenizer."""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tdstream.core.user_cache import read_json, user_cache, write_json

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """The result of a proof; its fields are keys on disk."""

    ok: bool
    """Whether the encoder is exact on every text without the failing code points."""
    why: str = ""
    """The failure; empty if it is exact."""
    failing: tuple[tuple[int, int], ...] = ()
    """First and last of each run of code points that it failed on, or that were not tested."""
    num_failed: int = 0
    """Code points among them that it failed on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class VerdictKey:
    """Everything that a verdict depends on; its fields are keys on disk."""

    encoder: str
    version: str
    """Of the encoder's package."""
    oracle: str
    """The package that it is compared with, and its version."""
    proof: int
    """Version of the proof."""
    tokenizer: str
    """Hash of the effective tokenizer."""


def cache_dir() -> Path:
    """Return the directory of the verdicts, in the user's cache."""
    return user_cache("encoders")


def read_verdict(key: VerdictKey) -> Verdict | None:
    """Return a kept verdict; None if there is none, or it cannot be read."""
    try:
        content = read_json(_path(key))
        return _parse(content) if content["key"] == asdict(key) else None
    except (OSError, RuntimeError, ValueError, KeyError, TypeError):  # RuntimeError: there is no home
        return None


def _parse(content: dict[str, Any]) -> Verdict:
    ok, why = content["ok"], content["why"]
    failing = tuple((int(first), int(last)) for first, last in content["failing"])
    if not isinstance(ok, bool) or not isinstance(why, str):
        raise TypeError("a verdict is a truth value and a sentence")
    if any(not 0 <= first <= last < 0x110000 for first, last in failing):
        raise ValueError("no code points")
    return Verdict(ok=ok, why=why, failing=failing, num_failed=int(content["num_failed"]))


def write_verdict(key: VerdictKey, verdict: Verdict) -> None:
    """Keep a verdict if that is possible; readers see all of it or nothing."""
    try:
        write_json(_path(key), {"key": asdict(key), **asdict(verdict)})
    except (OSError, RuntimeError) as error:
        logger.debug("The verdict on encoder %s is not kept: %s", key.encoder, error)


def _path(key: VerdictKey) -> Path:
    name = hashlib.sha256(json.dumps(asdict(key), sort_keys=True).encode()).hexdigest()
    return cache_dir() / f"{key.encoder}-{name[:32]}.json"
