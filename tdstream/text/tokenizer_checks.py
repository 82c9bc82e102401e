"""Checks of tokenizers: sampling is switched off, and ids must follow from the text alone."""

from __future__ import annotations

from typing import Any

from tdstream.core.errors import TokenizerError

_MOST_TOKENS = 200_000  # a limit of more tokens is not tried out
_PROBE = (
    "Tokenization should give the same identifiers whenever the same sentence is tokenized again, "
    "whatever else stands beside it: internationalization, uncharacteristically, 3.14159, na\u00efvely. "
) * 8


def find_sampling(tokenizer: Any) -> str:
    """Describe how the model of a fast tokenizer draws ids at random; empty if it does not."""
    model = tokenizer._tokenizer.model if tokenizer.is_fast else None
    dropout, alpha = getattr(model, "dropout", None), getattr(model, "alpha", None)
    if dropout is not None and 0 < dropout < 1:  # at 0 and at 1 nothing is left to chance
        return f"BPE dropout of {dropout:g}"
    return "" if alpha is None else f"unigram sampling (alpha {alpha:g})"


def switch_off_sampling(tokenizer: Any) -> None:
    """Make the model of a fast tokenizer deterministic."""
    if find_sampling(tokenizer):
        model = tokenizer._tokenizer.model
        for name in ("dropout", "alpha", "nbest_size"):
            if hasattr(model, name):
                setattr(model, name, None)


def check_eos(tokenizer: Any, name: str) -> None:
    """Raise TokenizerError unless a tokenizer has an end-of-text token of its own."""
    if tokenizer.eos_token_id is None:
        raise TokenizerError(
            f"Tokenizer {name!r} has no end-of-text token (eos_token), which has to follow every "
            f"document. Set its eos_token and save it, or use another tokenizer."
        )
    unknown = tokenizer.unk_token
    if unknown not in (None, tokenizer.eos_token) and tokenizer.eos_token_id == tokenizer.unk_token_id:
        raise TokenizerError(
            f"The end-of-text token {tokenizer.eos_token!r} of tokenizer {name!r} is not in its vocabulary: "
            f"it has the id of {unknown!r}, {tokenizer.unk_token_id}, and every unknown word would end a "
            f"document. Add the token to the vocabulary, or set another eos_token."
        )


def check_bos(tokenizer: Any, name: str, added: list[str]) -> None:
    """Raise TokenizerError unless a tokenizer has a BOS token of its own that it does not add by itself.

    `added` are the tokens that it adds to every text.
    """
    if tokenizer.bos_token_id is None:
        raise TokenizerError(
            f"Tokenizer {name!r} has no BOS token (bos_token), with which every document would have to "
            f"begin. Set its bos_token and save it, or leave prepend_bos out."
        )
    unknown = tokenizer.unk_token
    if unknown not in (None, tokenizer.bos_token) and tokenizer.bos_token_id == tokenizer.unk_token_id:
        raise TokenizerError(
            f"The BOS token {tokenizer.bos_token!r} of tokenizer {name!r} is not in its vocabulary: it has "
            f"the id of {unknown!r}, {tokenizer.unk_token_id}. Add the token to the vocabulary, set another "
            f"bos_token, or leave prepend_bos out."
        )
    if tokenizer.bos_token in added:
        raise TokenizerError(
            f"Tokenizer {name!r} begins every text with {tokenizer.bos_token!r} by itself, even with "
            f"add_special_tokens=False, and every document would begin with it twice. Leave prepend_bos out."
        )


def find_added_tokens(tokenizer: Any, name: str) -> list[str]:
    """Return the tokens that a tokenizer adds to every text even without special tokens.

    Raises TokenizerError if the end-of-text token is among them.
    """
    try:
        ids = list(tokenizer([""], add_special_tokens=False)["input_ids"][0])
    except Exception:  # whatever its parts raise; the encoder says so
        return []
    if tokenizer.eos_token_id in ids:
        raise TokenizerError(
            f"Tokenizer {name!r} ends every text with {tokenizer.eos_token!r} by itself, even with "
            f"add_special_tokens=False, and every document would end twice. Turn that off "
            f"(add_eos_token=False) and save it."
        )
    return [str(token) for token in tokenizer.convert_ids_to_tokens(ids)]


def check_calls(tokenizer: Any, encode: Any) -> None:
    """Raise TokenizerError unless ids follow from the text alone, and from all of it.

    `encode` returns the ids of a list of texts, one list for each.
    """
    kind = type(tokenizer).__name__
    alone = encode([_PROBE])
    if any(encode([_PROBE]) != alone for _ in range(3)):
        raise TokenizerError(
            f"This tokenizer ({kind}) is random: it gives the same text other ids at each call. Switch off "
            f"its sampling or dropout, and save it."
        )
    if encode([_PROBE, "a"]) != [*alone, *encode(["a"])]:
        raise TokenizerError(
            f"This tokenizer ({kind}) gives a text other ids beside other texts, as padding does even "
            f"with padding=False. Use one whose ids follow from the text alone."
        )
    limit = tokenizer.model_max_length
    times = 1 + limit // len(alone[0]) if alone[0] and limit < _MOST_TOKENS else 1
    shorter, longer = (len(encode([_PROBE * count])[0]) for count in (times, 2 * times))
    if alone[0] and shorter == longer:
        raise TokenizerError(
            f"This tokenizer ({kind}) gives {longer:,} ids however long the text is: it truncates even with "
            f"truncation=False. Raise its model_max_length, or use one that encodes whole documents."
        )
