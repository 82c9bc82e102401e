"""Prove that a fast encoder gives what the tokenizer gives, or find the code points on which it does not."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import numpy as np
from tokenizers import Tokenizer

from tdstream.core.errors import TokenizerError
from tdstream.text.encoders.encoder import Encoded, Encoder, EncoderFailedError, failures_named, flat
from tdstream.text.encoders.proof_texts import PLAIN, alone, around, groups_of, nasty_texts
from tdstream.text.encoders.verdict import CodePoints, Verdict

PROOF_VERSION = 2
"""Counts the changes of what is tested; a verdict of another version is not believed."""
MAX_FAILING = 20_000
"""Code points on which an encoder may fail and still be of use."""
_BATCH = 250

Contest: TypeAlias = tuple[Encoder, Encoder]
"""An encoder in doubt, and the one that is right."""


class _HopelessError(Exception):
    """The encoder fails on what every document has, or on too much."""


def prove(contests: list[Contest], texts: list[str], codes: Iterable[int]) -> Verdict:
    """Compare two encoders on texts, and on code points in all surroundings.

    Args:
        contests: The encoder in doubt beside the one that is right, with the tokenizer in question; and
            perhaps once more with one that shows more of its rules.
        texts: Nasty and ordinary texts.
        codes: The code points to test; the others count as failing.
    """
    tested = sorted(codes)
    trial = _Trial()
    try:
        for contest in contests:
            # The last one shows the most, and is asked the most.
            trial.hold(contest, texts, tested, fully=contest is contests[-1])
    except _HopelessError as reason:
        return Verdict(ok=False, why=str(reason))
    except EncoderFailedError as failure:
        return Verdict(ok=False, why=f"it raises {failure}")
    ranges = CodePoints.all_but(set(tested) - trial.failing).ranges()
    return Verdict(ok=True, failing=tuple(ranges), num_failed=len(trial.failing))


def texts_for(specials: list[str], words: list[str]) -> list[str]:
    """Return the texts of a proof.

    Args:
        specials: Strings that the tokenizer takes for tokens of its own.
        words: What the ids of its vocabulary stand for, each alone.
    """
    draw = np.random.default_rng(20)
    mixed = [words[place] for place in draw.permutation(len(words))]
    groups = [mixed[begin : begin + 200] for begin in range(0, len(mixed), 200)]
    return [
        *nasty_texts(specials),
        *["".join(group) for group in groups],
        *[" ".join(group) for group in groups],
    ]


class _Trial:
    """A comparison that goes on until nothing is left to compare, or to hope for."""

    def __init__(self) -> None:
        self.failing: set[int] = set()

    def hold(self, contest: Contest, texts: list[str], codes: list[int], *, fully: bool) -> None:
        """Let two encoders compete in everything."""
        self._fast, self._oracle = contest
        self._fully = fully
        self.on_texts(texts)
        self.on_codes(codes)

    def on_texts(self, texts: Iterable[str]) -> None:
        """Find the code points to blame for the texts on which the encoders differ."""
        for text in self._differing(list(texts)):
            self._explain(text)

    def on_codes(self, codes: list[int]) -> None:
        """Find the code points on which the encoders differ, each in all surroundings."""
        for group in self._differing_groups(codes):
            # Each by itself first: taking a text apart is slow where many are at fault.
            blamed = [group[place] for place in self._places([self._around([code]) for code in group])]
            self._blame(blamed, self._around(group))
            self._explain(self._around(group))
        for text in self._differing(alone(codes)):
            self._explain(text)

    def _differing_groups(self, codes: list[int]) -> Iterator[list[int]]:
        groups = list(groups_of(codes))
        texts = [self._around(group) for group in groups]
        for place in self._places(texts):
            yield groups[place]

    def _around(self, codes: list[int]) -> str:
        return around(codes, fully=self._fully)

    def _explain(self, text: str) -> None:
        """Blame code points of a text until what is left of it is encoded alike."""
        left = _without(text, self.failing)
        while self._differ(left):
            least = self._least(left)
            # Where two fail only together, documents without the rarer one are safe already.
            self._blame({max({ord(char) for char in least} - PLAIN, default=0x20)}, least)
            left = _without(left, self.failing)

    def _least(self, text: str) -> str:
        """Leave out of a text every code point that is not needed for the difference."""
        for code in sorted({ord(char) for char in text} - PLAIN):
            shorter = _without(text, {code})
            if self._differ(shorter):
                text = shorter
        return text

    def _blame(self, codes: Iterable[int], text: str) -> None:
        blamed = set(codes)
        if blamed & PLAIN:
            raise _HopelessError(f"it differs on ordinary text such as {_shown(text)}")
        self.failing |= blamed
        if len(self.failing) > MAX_FAILING:
            raise _HopelessError(f"it differs on more than {MAX_FAILING:,} code points")

    def _differ(self, text: str) -> bool:
        return bool(self._places([text]))

    def _differing(self, texts: list[str]) -> Iterator[str]:
        for place in self._places(texts):
            yield texts[place]

    def _places(self, texts: list[str]) -> list[int]:
        places: list[int] = []
        for begin in range(0, len(texts), _BATCH):
            batch = texts[begin : begin + _BATCH]
            with failures_named():
                given = self._fast.encode(batch)
            places += [begin + place for place in different(given, self._oracle.encode(batch))]
        return places


def different(given: Encoded, right: Encoded) -> list[int]:
    """Return the documents whose ids differ.

    Args:
        given: What an encoder gave.
        right: What is right, for the same documents.
    """
    if np.array_equal(given.offsets, right.offsets) and np.array_equal(given.ids, right.ids):
        return []
    if len(given.offsets) != len(right.offsets):
        return list(range(len(right.offsets) - 1))
    rows, others = _rows(given), _rows(right)
    return [place for place, row in enumerate(rows) if not np.array_equal(row, others[place])]


def _rows(encoded: Encoded) -> list[np.ndarray]:
    return np.split(encoded.ids, encoded.offsets[1:-1])


def _without(text: str, codes: set[int]) -> str:
    return text.translate(dict.fromkeys(codes))


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:60] + "...")


# Make a tokenizer's rules for cutting a text visible, whatever its vocabulary.
#
# Two encoders may cut a text at different places and still give the same ids: a cut shows only where some
# token of the vocabulary reaches across it, which is rare, and rarest beside the characters they disagree
# on. So the rules are tested with another vocabulary: the bytes, and every pair of bytes that can meet at a
# cut.

_NEIGHBOURS = b"abA1.'= \n"
"""What stands beside a code point in the tests."""
_FIRST_BYTES = range(0xC2, 0xF5)
_LAST_BYTES = range(0x80, 0xC0)


class BackendEncoder:
    """Encodes with the backend of a Hugging Face tokenizer."""

    name = "hf"

    def __init__(self, content: str) -> None:
        self._backend: Any = Tokenizer.from_str(content)

    def encode(self, texts: list[str]) -> Encoded:
        """Return the ids of some texts, in their order."""
        encodings = self._backend.encode_batch_fast(texts, add_special_tokens=False)
        return flat([encoding.ids for encoding in encodings])


def with_visible_cuts(content: str) -> str | None:
    """Return a tokenizer with the same rules and a vocabulary that shows every cut.

    Args:
        content: A tokenizer, as the JSON of its backend.

    Returns:
        Such JSON; None if the tokenizer cuts no text, or only at spaces, which any vocabulary shows.

    Raises:
        TokenizerError: If its rules cannot be made visible.
    """
    tokenizer = json.loads(content)
    kinds = _kinds(tokenizer["pre_tokenizer"])
    if kinds <= {"Metaspace"}:
        return None
    if tokenizer["model"]["type"] != "BPE" or "ByteLevel" not in kinds:
        raise TokenizerError(
            f"{tokenizer['model']['type']} behind {', '.join(sorted(kinds))} cannot be tested"
        )
    pairs = [(_letter(one), _letter(two)) for one, two in _pairs()]
    letters = [_letter(byte) for byte in range(256)]
    names = [*letters, *["".join(pair) for pair in pairs]]
    changed = {
        "vocab": {name: place for place, name in enumerate(names)},
        "merges": [list(pair) for pair in pairs],
    }
    model = {**tokenizer["model"], **changed, "unk_token": None}
    return json.dumps({**tokenizer, "model": model, "added_tokens": [], "post_processor": None})


def _kinds(pre_tokenizer: dict[str, Any] | None) -> set[str]:
    """Return the types of all steps that cut a text."""
    if pre_tokenizer is None:
        return set()
    steps = pre_tokenizer.get("pretokenizers")
    return set().union(*map(_kinds, steps)) if steps is not None else {pre_tokenizer["type"]}


def _pairs() -> list[tuple[int, int]]:
    """Return the pairs of bytes that meet at a cut: of two characters, or of one and a neighbour."""
    beside = [pair for one in _NEIGHBOURS for other in range(256) for pair in ((one, other), (other, one))]
    return list(dict.fromkeys([*beside, *[(last, first) for last in _LAST_BYTES for first in _FIRST_BYTES]]))


def _letter(byte: int) -> str:
    """Return the character that stands for a byte in such a vocabulary."""
    return _LETTERS[byte]


def _letters() -> dict[int, str]:
    """Return a letter for each byte: printable ones stand for themselves, others are counted from 256."""
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(kept)]
    return {
        **{byte: chr(byte) for byte in kept},
        **{byte: chr(256 + place) for place, byte in enumerate(others)},
    }


_LETTERS = _letters()
