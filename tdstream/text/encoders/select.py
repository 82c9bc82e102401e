"""Choice of the fastest encoder that gives exactly the tokenizer's ids."""

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
from tdstream.text.encoders import encoder as fast_encoders
from tdstream.text.encoders.code_points import CodePoints
from tdstream.text.encoders.encoder import EXACT_ENCODERS, Encoder, HfEncoder
from tdstream.text.encoders.probe_tokenizer import BackendEncoder, make_probe_tokenizer
from tdstream.text.encoders.proof import PROOF_VERSION, EncoderPair, make_texts, prove
from tdstream.text.encoders.proof_texts import code_points
from tdstream.text.encoders.verdict import Verdict, VerdictKey, read_verdict, write_verdict
from tdstream.text.encoders.verified import CheckedEncoder

logger = logging.getLogger(__name__)

_MAX_SPECIALS = 512
_MAX_WORDS = 65_536

Chosen: TypeAlias = Callable[[], Encoder]
"""Returns the chosen encoder when it is ready."""


class _NotProvedError(TokenizerError):
    """A fast encoder would have to be proved first."""


@contextmanager
def choose_in_background(tokenizer: Any, name: str) -> Iterator[Chosen]:
    """Choose an encoder as `choose_encoder` does, and load it while the body runs.

    A proof takes seconds, and the body may raise; so it waits until the encoder is asked for. Nothing else
    may use the tokenizer before that.
    """
    with ThreadPoolExecutor(1) as threads:
        early = threads.submit(_load_proved, tokenizer, name)

        def choose() -> Encoder:
            encoder = early.result()
            return choose_encoder(tokenizer, name) if encoder is None else _say(encoder)

        yield choose


def choose_encoder(tokenizer: Any, name: str = "auto", *, prove: bool = True) -> Encoder:
    """Return an encoder for a Hugging Face tokenizer; whichever it is, the ids are that tokenizer's.

    The name is "hf", "fastokens", "gigatoken", or "auto" for the first fast one that is exact, else hf.
    Without `prove`, "auto" considers only those that were proved before.

    Raises:
        ConfigError: If the named package is not installed.
        TokenizerError: If the named encoder cannot load this tokenizer, or is not exact for it.
    """
    reference = HfEncoder(tokenizer)
    if name == "hf":
        return _say(reference)
    if name != "auto":
        return _say(_load_fast(tokenizer, reference, name))
    advice = advise_fast() if reference.backend is not None else ""
    if advice:
        logger.info(advice)
        return reference
    reasons = []
    for candidate in fast_encoders.FAST_ENCODERS:
        try:
            return _say(_load_fast(tokenizer, reference, candidate, prove=prove))
        except (ConfigError, TokenizerError) as error:
            reasons.append(str(error))
    logger.info("Encoder hf, the tokenizer itself: %s", " ".join(reasons))
    return reference


def _say(encoder: Encoder) -> Encoder:
    """Log which encoder was chosen."""
    logger.info(encoder.note if isinstance(encoder, CheckedEncoder) else "Encoder hf, the tokenizer itself.")
    return encoder


def advise_fast() -> str:
    """Return what to install for a fast encoder; empty if one is installed."""
    if any(map(fast_encoders.is_installed, fast_encoders.FAST_ENCODERS)):
        return ""
    return (
        "Encoder hf, the tokenizer itself: it takes many times as long as a fast encoder, and none is "
        "installed. pip install 'tdstream[fast]'"
    )


def _load_proved(tokenizer: Any, name: str) -> Encoder | None:
    """Return the fast encoder to choose; None if there is none, or a proof is needed to tell."""
    if name == "hf":
        return None
    reference = HfEncoder(tokenizer)
    for candidate in fast_encoders.FAST_ENCODERS if name == "auto" else (name,):
        try:
            return _load_fast(tokenizer, reference, candidate, prove=False)
        except _NotProvedError:
            return None
        except (ConfigError, TokenizerError):  # choose_encoder will raise it
            continue
    return None


def _load_fast(tokenizer: Any, reference: HfEncoder, name: str, *, prove: bool = True) -> Encoder:
    version = fast_encoders.package_version(name)
    if reference.backend is None:
        raise TokenizerError(
            f"Encoder {name!r} cannot stand in for this tokenizer: {type(tokenizer).__name__} does more than "
            f"its backend, or has none.",
            EXACT_ENCODERS,
        )
    content = reference.backend.to_str()
    key = _make_key(name, version, content, reference.backend)
    kept = read_verdict(key)
    if kept is None and not prove:
        raise _NotProvedError(
            f"Encoder {name!r} was not tested on this tokenizer yet; a preparation does it."
        )
    if kept is not None:
        _check_exact(name, kept)
    fast = fast_encoders.load_fast(name, content)
    verdict = _prove(key, fast, reference, tokenizer) if kept is None else kept
    _check_exact(name, verdict)
    failed = (
        f"; texts with one of {verdict.num_failed:,} characters on which it failed are left to the latter"
    )
    note = (
        f"Encoder {name} {version}, tested against the tokenizer itself{failed * (verdict.num_failed > 0)}."
    )

    def remember(why: str) -> None:
        write_verdict(key, replace(verdict, ok=False, why=why))

    return CheckedEncoder(fast, reference, CodePoints.from_ranges(verdict.failing), remember, note)


def _make_key(name: str, version: str, content: str, backend: Any) -> VerdictKey:
    # Not part of the backend's JSON, but it decides the ids of special tokens in a text.
    split = bool(getattr(backend, "encode_special_tokens", False))
    digest = hashlib.sha256(f"{split} {content}".encode("utf-8", "surrogatepass")).hexdigest()
    compared = f"tokenizers {tokenizers.__version__}"
    return VerdictKey(encoder=name, version=version, oracle=compared, proof=PROOF_VERSION, tokenizer=digest)


def _check_exact(name: str, verdict: Verdict) -> None:
    if not verdict.ok:
        raise TokenizerError(
            f"Encoder {name!r} is not exact for this tokenizer: {verdict.why}.", EXACT_ENCODERS
        )


def _prove(key: VerdictKey, fast: Encoder, reference: HfEncoder, tokenizer: Any) -> Verdict:
    """Prove an encoder, and keep the verdict."""
    logger.info(
        "Testing encoder %s %s on this tokenizer, once: does it give the same ids as the tokenizer itself? "
        "This takes up to a minute.",
        key.encoder,
        key.version,
    )
    start = time.monotonic()
    pairs = [(fast, reference), *_make_probe_pair(key.encoder, reference.backend.to_str())]
    found = prove(pairs, make_texts(_list_specials(tokenizer), _list_words(reference.backend)), code_points())
    found_out = "exact" if found.ok else f"not exact, {found.why}"
    logger.info("Tested encoder %s in %.1f s: %s.", key.encoder, time.monotonic() - start, found_out)
    write_verdict(key, found)
    return found


def _make_probe_pair(name: str, content: str) -> list[EncoderPair]:
    """Return the same two encoders for the probe tokenizer; nothing if none is needed."""
    probe = make_probe_tokenizer(content)
    return [] if probe is None else [(fast_encoders.load_fast(name, probe), BackendEncoder(probe))]


def _list_specials(tokenizer: Any) -> list[str]:
    strings = sorted({*tokenizer.get_added_vocab(), *map(str, tokenizer.all_special_tokens)})
    return _thin_out(strings, _MAX_SPECIALS)


def _list_words(backend: Any) -> list[str]:
    """Return the strings of a vocabulary's ids."""
    ids = _thin_out(sorted(backend.get_vocab(with_added_tokens=False).values()), _MAX_WORDS)
    return list(backend.decode_batch([[token_id] for token_id in ids], skip_special_tokens=False))


def _thin_out(items: list[Any], most: int) -> list[Any]:
    """Return all items, or at most so many of them, evenly spaced."""
    return items[:: -(-len(items) // most)] if len(items) > most else items
