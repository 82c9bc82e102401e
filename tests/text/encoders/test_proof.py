"""A proof finds the code points on which an encoder fails, and no more than necessary."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers_encoder import SPECIALS, Wrong, encoded
from transformers import AutoTokenizer

from helpers_text import EOS
from tdstream.text.encoders import proof as encoder_proof
from tdstream.text.encoders.code_points import CodePoints
from tdstream.text.encoders.encoder import Encoded, HfEncoder
from tdstream.text.encoders.proof import find_differences, make_texts, prove
from tdstream.text.encoders.proof_texts import PLAIN, code_points, group_codes, make_hard_texts, surround
from tdstream.text.encoders.verdict import Verdict

CODES = [*range(0x300), *range(0x4E00, 0x4E60), 0x1F600]


def has(*needles: str) -> Callable[[str, int], bool]:
    """Return what spoils the texts that hold all of some strings."""
    return lambda text, _: all(needle in text for needle in needles)


@pytest.fixture(scope="module")
def tokenizer(tokenizer_dir: Path) -> Any:
    """Return a byte-level BPE of 400 ids."""
    return AutoTokenizer.from_pretrained(tokenizer_dir)


def proved(tokenizer: Any, fast: Any, texts: list[str] | None = None) -> Verdict:
    """Run a proof over few texts and code points."""
    chosen = make_texts([EOS], ["def", " self"]) if texts is None else texts
    return prove([(fast, HfEncoder(tokenizer))], chosen, CODES)


def failed(verdict: Verdict) -> set[int]:
    """Return which of the tested code points are among the failing ones."""
    return {code for first, last in verdict.failing for code in range(first, last + 1)} & set(CODES)


class TestProve:
    """From two encoders to a verdict."""

    def test_exact(self, tokenizer: Any) -> None:
        """An exact encoder is trusted with everything that was tested, and with nothing else."""
        verdict = proved(tokenizer, Wrong(tokenizer))
        assert verdict.ok
        assert verdict.num_failed == 0
        untested = {code for first, last in verdict.failing for code in range(first, last + 1)}
        assert untested == set(range(0x110000)) - set(CODES)

    @pytest.mark.parametrize(
        ("needles", "codes"),
        [
            (["\u017f"], {0x17F}),
            (["'\u017f"], {0x17F}),
            (["\u4e05\u4e05"], {0x4E05}),
            (["a\u00e9b"], {0xE9}),
            (["\0"], {0}),
            (["\u00e9", "\u00f4"], {0xF4}),
        ],
        ids=["anywhere", "beside an apostrophe", "doubled", "between letters", "NUL", "two together"],
    )
    def test_one_code_point(self, tokenizer: Any, needles: list[str], codes: set[int]) -> None:
        """An encoder that is wrong on one code point, in one surrounding, is good for the others."""
        verdict = proved(tokenizer, Wrong(tokenizer, has(*needles)), texts=["plain"])
        assert verdict.ok
        assert failed(verdict) == codes
        assert verdict.num_failed == len(codes)

    def test_several(self, tokenizer: Any) -> None:
        """One code point at fault does not hide another in the same text."""
        spoil = lambda text, _: bool(set(text) & {"\u00e9", "\u00ea", "\U0001f600"})  # noqa: E731
        assert failed(proved(tokenizer, Wrong(tokenizer, spoil))) == {0xE9, 0xEA, 0x1F600}

    def test_code_points_of_hard_texts_are_found_too(self, tokenizer: Any) -> None:
        """What only a whole text shows is traced to a code point of it."""
        fast = Wrong(tokenizer, has("1\ufe0f\u20e3"))
        verdict = prove([(fast, HfEncoder(tokenizer))], make_texts([], []), [*CODES, 0xFE0F, 0x20E3])
        assert verdict.ok
        assert verdict.num_failed == 1
        assert CodePoints.from_ranges(verdict.failing).find_holders(["1\ufe0f\u20e3", "1", "\u00e9"]) == [0]

    @pytest.mark.parametrize("needle", ["e", "  ", "'s", EOS, "=" * 1000])
    def test_ordinary_text(self, tokenizer: Any, needle: str) -> None:
        """An encoder that is wrong on what every document may have is of no use."""
        verdict = proved(tokenizer, Wrong(tokenizer, has(needle)))
        assert not verdict.ok
        assert "differs on ordinary text such as" in verdict.why

    def test_too_many(self, tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """Nor is one that is wrong on too many code points."""
        monkeypatch.setattr(encoder_proof, "MAX_FAILING", 50)
        verdict = proved(
            tokenizer, Wrong(tokenizer, lambda text, _: any(char >= "\u4e00" for char in text)), []
        )
        assert not verdict.ok
        assert verdict.why == "it differs on more than 50 code points"

    def test_raising(self, tokenizer: Any) -> None:
        """Nor is one that raises, even what is no Exception."""

        class Panic(BaseException):
            pass

        class Raising:
            name = "fastokens"

            def encode(self, texts: list[str]) -> Encoded:
                raise Panic("index out of bounds")

        verdict = proved(tokenizer, Raising())
        assert not verdict.ok
        assert verdict.why == "it raises Panic: index out of bounds"

    def test_other_number_of_documents(self, tokenizer: Any) -> None:
        """Nor is one that loses documents."""

        class Losing:
            name = "fastokens"

            def encode(self, texts: list[str]) -> Encoded:
                return encoded([[1]])

        assert not proved(tokenizer, Losing()).ok


class TestTexts:
    """What is tested."""

    def test_all_code_points(self) -> None:
        """Every character that is assigned is tested, but for the private ones of the last planes."""
        import unicodedata

        tested = set(code_points())
        assigned = {code for code in range(0xF0000) if unicodedata.category(chr(code)) not in ("Cn", "Cs")}
        assert assigned <= tested

    def test_surroundings(self) -> None:
        """A code point stands alone, doubled, between letters and beside an apostrophe."""
        text = surround([0x17F])
        assert all(part in text for part in (" \u017f", "\u017f\u017f", "a\u017fb", "'\u017f", "1\u017f"))
        assert all(part in surround([0x4E05]) for part in ("\u4e05\u4e05", "a\u4e05 "))

    def test_groups(self) -> None:
        """Groups hold every code point once."""
        assert [code for group in group_codes(CODES) for code in group] == CODES

    def test_specials(self) -> None:
        """Special tokens' strings stand alone, between letters, doubled and cut."""
        texts = make_hard_texts(SPECIALS)
        assert set(SPECIALS) <= set(texts)
        for special in SPECIALS:
            assert any(f"a{special}b" in text and special * 2 in text for text in texts)

    def test_they_are_always_the_same(self) -> None:
        """A verdict that was kept is about the same texts."""
        assert make_texts([EOS], ["a", "b", "c"]) == make_texts([EOS], ["a", "b", "c"])

    def test_they_are_plain_too(self) -> None:
        """Some of them are of characters that every document has."""
        assert sum({ord(char) for char in text} <= PLAIN for text in make_hard_texts([])) > 100


class TestDifferent:
    """Comparing documents."""

    def rows(self) -> Iterator[tuple[list[list[int]], list[int]]]:
        yield [[1, 2], [], [3]], []
        yield [[1, 2], [9], [3]], [1]
        yield [[1], [2], [3]], [0, 1]
        yield [[1, 2], [], [4]], [2]

    def test_places(self) -> None:
        """The documents whose ids differ are named, moved borders too."""
        for given, places in self.rows():
            assert find_differences(encoded(given), encoded([[1, 2], [], [3]])) == places

    def test_none(self) -> None:
        """No documents are alike."""
        nothing = Encoded(np.zeros(0, np.uint32), np.zeros(1, np.int64))
        assert find_differences(nothing, nothing) == []
