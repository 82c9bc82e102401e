"""Make the tokenizing node from whatever names a tokenizer, or is one."""

from __future__ import annotations

import os
from typing import Any

from tdstream.errors import ConfigError
from tdstream.text.tokenize import Tokenize


def tokenize_with(tokenizer: Any, *, encoder: str = "auto", strips: bool = False) -> Tokenize:
    """Return the node for a tokenizer.

    Args:
        tokenizer: A name, a directory, or a Hugging Face tokenizer, which is copied.
        encoder: "auto", "hf", or the name of a fast encoder; the ids do not depend on it.
        strips: Whether white space at both ends of a text is left out.

    Raises:
        ConfigError: If there is none, or the encoder is unknown.
        TokenizerError: If it cannot be found, has no end-of-text token, or is no Hugging Face tokenizer.
    """
    if tokenizer is None:
        raise ConfigError(
            "text has to be tokenized, and no tokenizer was given. Pass tokenizer=..., a name, a directory "
            "or a Hugging Face tokenizer."
        )
    # Loads transformers, which takes seconds that whoever reads a corpus does not wait.
    from tdstream.corpus.meta import DTYPES  # noqa: PLC0415
    from tdstream.preparation.options import PrepareOptions  # noqa: PLC0415
    from tdstream.preparation.tokenizer import load_tokenizer, own_tokenizer, plan_corpus  # noqa: PLC0415

    named = isinstance(tokenizer, (str, os.PathLike))
    known = load_tokenizer(os.fspath(tokenizer)) if named else own_tokenizer(tokenizer)
    name = os.fspath(tokenizer) if named else str(known.name_or_path or type(known).__name__)
    plan = plan_corpus(PrepareOptions(tokenizer=name, encoder=encoder), known)
    return Tokenize(
        known,
        dtype=DTYPES[plan.dtype],
        fingerprint=plan.tokenizer_fingerprint or "",
        encoder=encoder,
        strips=strips,
    )
