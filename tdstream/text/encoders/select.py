"""Choose the fastest encoder that gives exactly what the tokenizer gives."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeAlias

import tokenizers

from tdstream.core.errors import ConfigError, TokenizerError
from tdstream.text.encoders import encoder as encoder_fast
from tdstream.text.encoders.encoder import EXACT_ENCODERS, Encoder, HfEncoder
from tdstream.text.encoders.proof import (
    PROOF_VERSION,
    BackendEncoder,
    Contest,
    prove,
    texts_for,
    with_visible_cuts,
)
from tdstream.text.encoders.proof_texts import code_points
from tdstream.text.encoders.verdict import CodePoints, Verdict, VerdictKey, read_verdict, write_verdict
from tdstream.text.encoders.verified import CheckedEncoder

logger = logging.getLogger(__name__)

_MAX_SPECIALS = 512
_MAX_WORDS = 65_536

Chosen: TypeAlias = Callable[[], Encoder]
"""Returns an encoder that was chosen, when it is ready."""


class _UnprovedError(TokenizerError):
    """A fast encoder would have to be proved first."""


@contextmanager
def choosing(tokenizer: Any, name: str) -> Iterator[Chosen]:
    """Choose an encoder as `choose_encoder` does; load it while the body does other things.

    Where something has to be proved first, that is left until the encoder is asked for: it takes seconds, and
    the body may have an error to tell.

    Args:
        tokenizer: The tokenizer; not to be used by anybody else before the encoder is there.
        name: As there.
    """
    with ThreadPoolExecutor(1) as threads:
        early = threads.submit(_proved_encoder, tokenizer, name)
        yield lambda: early.result() or choose_encoder(tokenizer, name)


def choose_encoder(tokenizer: Any, name: str = "auto", *, prove: bool = True) -> Encoder:
    """Return an encoder for a Hugging Face tokenizer; whichever it is, the ids are that tokenizer's.

    Args:
        tokenizer: The tokenizer.
        name: "hf", "fastokens", "gigatoken", or "auto" for the first fast one that is exact, else hf.
        prove: Whether "auto" may take the seconds that it takes to test a fast one for the first time; else
            only those are considered that were tested before.

    Raises:
        ConfigError: If the package named is not installed.
        TokenizerError: If the encoder named cannot load this tokenizer, or is not exact for it.
    """
    oracle = HfEncoder(tokenizer)
    if name == "hf":
        return oracle
    if name != "auto":
        return _fast_encoder(tokenizer, oracle, name)
    reasons = []
    for candidate in encoder_fast.FAST_ENCODERS:
        try:
            return _fast_encoder(tokenizer, oracle, candidate, prove=prove)
        except (ConfigError, TokenizerError) as error:
            reasons.append(str(error))
    logger.info("Encoder hf, the tokenizer itself: %s", " ".join(reasons))
    return oracle


def _proved_encoder(tokenizer: Any, name: str) -> Encoder | None:
    """Return the fast encoder to choose; None if there is none, or it takes a proof to tell."""
    if name == "hf":
        return None
    oracle = HfEncoder(tokenizer)
    for candidate in encoder_fast.FAST_ENCODERS if name == "auto" else (name,):
        try:
            return _fast_encoder(tokenizer, oracle, candidate, prove=False)
        except _UnprovedError:
            return None
        except (ConfigError, TokenizerError):  # Whoever chooses in earnest will say it.
            continue
    return None


def _fast_encoder(tokenizer: Any, oracle: HfEncoder, name: str, *, prove: bool = True) -> Encoder:
    version = encoder_fast.package_version(name)
    if oracle.backend is None:
        raise TokenizerError(
            f"Encoder {name!r} cannot stand in for this tokenizer: {type(tokenizer).__name__} does more than "
            f"its backend, or has none.",
            EXACT_ENCODERS,
        )
    content = oracle.backend.to_str()
    key = _key(name, version, content, oracle.backend)
    kept = read_verdict(key)
    if kept is None and not prove:
        raise _UnprovedError(f"Encoder {name!r} was not tested on this tokenizer yet, as a preparation does.")
    if kept is not None:
        _check_exact(name, kept)
    fast = encoder_fast.load_fast(name, content)
    verdict = _proved(key, fast, oracle, tokenizer) if kept is None else kept
    _check_exact(name, verdict)
    logger.info(
        "Encoder %s %s: gives this tokenizer's ids, tested; documents with one of %s code points on which it "
        "failed, or with one that was not tested, are left to the tokenizer itself.",
        name,
        version,
        f"{verdict.num_failed:,}",
    )

    def remember(why: str) -> None:
        write_verdict(key, replace(verdict, ok=False, why=why))

    return CheckedEncoder(fast, oracle, CodePoints.from_ranges(verdict.failing), remember)


def _key(name: str, version: str, content: str, backend: Any) -> VerdictKey:
    # Not part of the backend's JSON, but it decides what becomes of special tokens in a text.
    split = bool(getattr(backend, "encode_special_tokens", False))
    digest = hashlib.sha256(f"{split} {content}".encode("utf-8", "surrogatepass")).hexdigest()
    oracle = f"tokenizers {tokenizers.__version__}"
    return VerdictKey(encoder=name, version=version, oracle=oracle, proof=PROOF_VERSION, tokenizer=digest)


def _check_exact(name: str, verdict: Verdict) -> None:
    if not verdict.ok:
        raise TokenizerError(
            f"Encoder {name!r} is not exact for this tokenizer: {verdict.why}.", EXACT_ENCODERS
        )


def _proved(key: VerdictKey, fast: Encoder, oracle: HfEncoder, tokenizer: Any) -> Verdict:
    """Find a verdict out, and keep it."""
    logger.info("Testing encoder %s on this tokenizer, once; this takes seconds.", key.encoder)
    begun = time.monotonic()
    contests = [(fast, oracle), *_with_visible_cuts(key.encoder, oracle.backend.to_str())]
    found = prove(contests, texts_for(_specials(tokenizer), _words(oracle.backend)), code_points())
    logger.info("Tested encoder %s in %.1f s.", key.encoder, time.monotonic() - begun)
    write_verdict(key, found)
    return found


def _with_visible_cuts(name: str, content: str) -> list[Contest]:
    """Return the same two encoders with a vocabulary that shows every cut; nothing if none is needed."""
    visible = with_visible_cuts(content)
    return [] if visible is None else [(encoder_fast.load_fast(name, visible), BackendEncoder(visible))]


def _specials(tokenizer: Any) -> list[str]:
    strings = sorted({*tokenizer.get_added_vocab(), *map(str, tokenizer.all_special_tokens)})
    return _spread(strings, _MAX_SPECIALS)


def _words(backend: Any) -> list[str]:
    """Return what the ids of a vocabulary stand for."""
    ids = _spread(sorted(backend.get_vocab(with_added_tokens=False).values()), _MAX_WORDS)
    return list(backend.decode_batch([[token_id] for token_id in ids], skip_special_tokens=False))


def _spread(items: list[Any], most: int) -> list[Any]:
    """Return all items, or so many of them from beginning to end."""
    return items[:: -(-len(items) // most)] if len(items) > most else items
