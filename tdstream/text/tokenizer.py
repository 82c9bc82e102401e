"""Tokenizers: loading, copying, sending to another process, and their fingerprint."""

from __future__ import annotations

import copy
import hashlib
import json
import logging
import pickle
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from tdstream.core.errors import TokenizerError
from tdstream.corpus.meta import storage_dtype
from tdstream.text.network import hub_is_unreachable, in_one_line, looks_like_a_path
from tdstream.text.options import TextOptions
from tdstream.text.tokenizer_checks import (
    check_bos,
    check_eos,
    find_added_tokens,
    find_sampling,
    switch_off_sampling,
)

logger = logging.getLogger(__name__)

_HIGHEST_ID = 2**32 - 1


def get_tokenizer(options: TextOptions) -> Any:
    """Return a tokenizer of the caller's own: the named one, or a copy of the given one.

    Sampling, as in BPE dropout, is switched off with a warning. Raises TokenizerError if the tokenizer cannot
    be found or loaded, is no Hugging Face tokenizer, or lacks a token that has to stand in each document.
    """
    given, name = options.given_tokenizer, options.tokenizer
    tokenizer = _load(name) if given is None else _copy_tokenizer(given)
    random = find_sampling(tokenizer if given is None else given)  # a copy may have lost it
    switch_off_sampling(tokenizer)
    if random:
        logger.warning(
            "Tokenizer %r has %s, which gives a text other ids each time: it is switched off here.",
            name,
            random,
        )
    added = find_added_tokens(tokenizer, name)
    if options.prepend_bos:
        check_bos(tokenizer, name, added)
    if added:
        logger.warning(
            "Tokenizer %r adds %s to every text by itself: every document has it.", name, " ".join(added)
        )
    return tokenizer


def load_tokenizer(name_or_path: str) -> Any:
    """Load a Hugging Face tokenizer by its name on the hub, or from a local directory, without sampling."""
    tokenizer = _load(name_or_path)
    switch_off_sampling(tokenizer)
    return tokenizer


def _load(name_or_path: str) -> Any:
    local = looks_like_a_path(name_or_path)
    path = Path(name_or_path).expanduser()
    if local and not path.exists():
        raise TokenizerError(
            f"Tokenizer {name_or_path!r} not found: there is no such directory. Pass one that "
            f"tokenizer.save_pretrained has written, or a name on the hub."
        )
    offline = not local and hub_is_unreachable()
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            str(path) if local else name_or_path, local_files_only=offline
        )
    except Exception as error:  # whatever its parts raise
        raise TokenizerError(_not_loaded(name_or_path, local, offline, error)) from error
    check_eos(tokenizer, name_or_path)
    return tokenizer


def _copy_tokenizer(tokenizer: Any) -> Any:
    """Return a copy of a tokenizer, since a preparation turns off its truncation and padding."""
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        raise TokenizerError(
            f"The tokenizer must be a name, a path or a Hugging Face tokenizer, got "
            f"{type(tokenizer).__name__}. A tokenizers.Tokenizer is made one by "
            f"transformers.PreTrainedTokenizerFast(tokenizer_object=..., eos_token=...)."
        )
    check_eos(tokenizer, tokenizer.name_or_path or type(tokenizer).__name__)
    return copy.deepcopy(tokenizer)


def pack_tokenizer(tokenizer: Any) -> bytes:
    """Return a tokenizer as bytes, for another process; raise TokenizerError if it cannot be pickled."""
    try:
        return pickle.dumps(tokenizer)
    except Exception as error:  # whatever its parts raise
        raise TokenizerError(
            f"The tokenizer cannot be sent to other processes: {in_one_line(error)}. Use num_proc=1, or save "
            f"it and pass the directory."
        ) from error


def unpack_tokenizer(content: bytes) -> Any:
    """Return a packed tokenizer, without sampling; raise TokenizerError if its class is not known here."""
    try:
        tokenizer = pickle.loads(content)  # noqa: S301 - from the process that started this one
    except Exception as error:  # whatever its parts raise
        raise TokenizerError(
            f"The tokenizer cannot be loaded by another process: {in_one_line(error)}. Its class must be in "
            f"a module that can be imported; or use num_proc=1."
        ) from error
    switch_off_sampling(tokenizer)
    return tokenizer


def _not_loaded(name_or_path: str, local: bool, offline: bool, error: Exception) -> str:
    if offline:
        return (
            f"Tokenizer {name_or_path!r} is neither a local directory nor in the local cache, and the hub "
            f"cannot be reached. Check the name and the network."
        )
    place = "loaded from there" if local else "found on the hub"
    return f"Tokenizer {name_or_path!r} cannot be {place}: {in_one_line(error)}."


def fingerprint(tokenizer: Any) -> str:
    """Return a hash of everything that decides the ids of a text.

    A fast tokenizer counts with all of its parts, without truncation and padding; of a slow one only the
    class and the vocabulary can be seen.
    """
    if tokenizer.is_fast:
        backend = tokenizer._tokenizer
        if backend.truncation or backend.padding:
            backend = Tokenizer.from_str(backend.to_str())
            backend.no_truncation()
            backend.no_padding()
        content = backend.to_str()
    else:
        content = json.dumps([type(tokenizer).__name__, sorted(tokenizer.get_vocab().items())])
    return "sha256:" + hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()


def describe_tokenizer(tokenizer: Any, name: str, *, prepend_bos: bool = False) -> dict[str, Any]:
    """Return a tokenizer's keys in meta.json: dtype, the ids of its marks, its size and its fingerprint.

    bos_token_id is None unless documents begin with it. A vocabulary may have holes: with ids 0 to 299 and
    70,000, its size is 70,001, and its dtype is uint32.
    """
    marks = [int(tokenizer.eos_token_id), *([int(tokenizer.bos_token_id)] if prepend_bos else [])]
    ids = {*tokenizer.get_vocab().values(), *marks}
    lowest, highest = min(ids), max(ids)
    if lowest < 0 or highest > _HIGHEST_ID:
        raise TokenizerError(
            f"Tokenizer {name!r} has the id {lowest if lowest < 0 else highest:,}; a corpus holds ids of "
            f"0 to {_HIGHEST_ID:,}. Use a tokenizer with such ids."
        )
    vocab_size = max(len(tokenizer), highest + 1)
    return {
        "dtype": storage_dtype(vocab_size),
        "eos_token_id": marks[0],
        "bos_token_id": marks[1] if prepend_bos else None,
        "vocab_size": vocab_size,
        "tokenizer_fingerprint": fingerprint(tokenizer),
    }
