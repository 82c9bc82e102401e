"""A fast encoder that turns out wrong changes nothing in the corpus where anybody looked."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers_encoder import Wrong, by_call, encoded, split
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from helpers_text import EOS
from tdstream.text.encoders import verified as encoder_checked
from tdstream.text.encoders.code_points import CodePoints
from tdstream.text.encoders.encoder import Encoded, HfEncoder
from tdstream.text.encoders.verified import RECHECK_EVERY, CheckedEncoder, choose_rechecked

TEXTS = ["def load", "", "na\u00efve", "\u017f", f"a{EOS}b", "x\u017fy", "\u65e5\u672c"]


class Panic(BaseException):
    """What a library written in Rust raises when it panics."""


class Raising:
    """An encoder that raises from its second batch on."""

    name = "fastokens"

    def __init__(self, tokenizer: Any, error: BaseException) -> None:
        self._tokenizer = tokenizer
        self._error = error
        self.calls = 0

    def encode(self, texts: list[str]) -> Encoded:
        self.calls += 1
        if self.calls > 1:
            raise self._error
        return encoded(by_call(self._tokenizer, texts))


@pytest.fixture(scope="module")
def tokenizer(tokenizer_dir: Path) -> Any:
    """Return a byte-level BPE of 400 ids."""
    return AutoTokenizer.from_pretrained(tokenizer_dir)


def checked(tokenizer: Any, fast: Any, codes: str = "", faults: list[str] | None = None) -> CheckedEncoder:
    """Return an encoder that does not trust the fast one with some characters."""
    on_fault = (faults if faults is not None else []).append
    return CheckedEncoder(fast, HfEncoder(tokenizer), CodePoints(map(ord, codes)), on_fault)


class TestRouting:
    """Who encodes which document."""

    def test_failing_code_points(self, tokenizer: Any) -> None:
        """Documents with a failing code point never reach the fast encoder, and all stay in their order."""
        fast = Wrong(tokenizer, lambda text, _: "\u017f" in text)
        given = checked(tokenizer, fast, codes="\u017f").encode(TEXTS)
        assert split(given) == by_call(tokenizer, TEXTS)
        assert fast.seen == [text for text in TEXTS if "\u017f" not in text]

    @pytest.mark.parametrize("texts", [["\u017f"], ["\u017f", "a"], ["a", "\u017f"], ["\u017f", "\u017fb"]])
    def test_places(self, tokenizer: Any, texts: list[str]) -> None:
        """First, last, and all of a batch may be the reference's."""
        assert split(checked(tokenizer, Wrong(tokenizer), codes="\u017f").encode(texts)) == by_call(
            tokenizer, texts
        )

    @settings(max_examples=50, deadline=None)
    @given(texts=st.lists(st.text("ab \u017f\u00e9", max_size=5), min_size=1, max_size=8))
    def test_any_batch(self, tokenizer_dir: Path, texts: list[str]) -> None:
        """Whichever documents are routed, the ids and borders are the tokenizer's."""
        tokenizer = AutoTokenizer.from_pretrained(tokenizer_dir)
        fast = Wrong(tokenizer, lambda text, _: "\u017f" in text)
        assert split(checked(tokenizer, fast, codes="\u017f").encode(texts)) == by_call(tokenizer, texts)


class TestRechecked:
    """Which documents are looked at."""

    def test_one_in_a_thousand(self) -> None:
        """About one in a thousand, the first one among them."""
        places = choose_rechecked(0, 1_000_000)
        assert places[0] == 0
        assert 0.9 < len(places) * RECHECK_EVERY / 1_000_000 < 1.1

    def test_batches_do_not_matter(self) -> None:
        """The same ordinals are chosen, however they are cut into batches."""
        together = choose_rechecked(0, 9000)
        assert [
            begin + place for begin in range(0, 9000, 750) for place in choose_rechecked(begin, 750)
        ] == together

    def test_long_ones_are_left_out(self, tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """A document that would cost the reference gigabytes is not chosen."""
        monkeypatch.setattr(encoder_checked, "_LONGEST_RECHECK", 10)
        encoder = checked(tokenizer, Wrong(tokenizer, lambda text, _: True))
        encoder.encode(["a" * 11])
        assert encoder.name == "fastokens"


class TestFaults:
    """What happens when the fast encoder is found wrong."""

    def test_a_wrong_document(self, tokenizer: Any, caplog: pytest.LogCaptureFixture) -> None:
        """The batch of a wrong document is the reference's, and so are all that follow; it is said once."""
        ordinal = choose_rechecked(1, 5000)[0] + 1
        fast = Wrong(tokenizer, lambda _, number: number == ordinal)
        faults: list[str] = []
        encoder = checked(tokenizer, fast, faults=faults)
        texts = [f"document {number}" for number in range(ordinal + 2500)]
        with caplog.at_level(logging.WARNING):
            batches = [texts[begin : begin + 500] for begin in range(0, len(texts), 500)]
            rows = [row for batch in batches for row in split(encoder.encode(batch))]
        assert rows == by_call(tokenizer, texts)
        assert len(fast.seen) < len(texts) - 1000
        assert [f"document {ordinal:,} " in record.getMessage() for record in caplog.records] == [True]
        assert len(faults) == 1
        assert encoder.name == "fastokens+hf"

    @pytest.mark.parametrize("error", [ValueError("no"), Panic("index out of bounds")], ids=type)
    def test_raising(self, tokenizer: Any, error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
        """Whatever it raises, the reference encodes the batch at hand."""
        fast = Raising(tokenizer, error)
        encoder = checked(tokenizer, fast)
        with caplog.at_level(logging.WARNING):
            rows = [split(encoder.encode(TEXTS)) for _ in range(4)]
        assert rows == [by_call(tokenizer, TEXTS)] * 4
        assert fast.calls == 2
        assert len(caplog.records) == 1
        assert type(error).__name__ in caplog.text

    @pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(143), MemoryError()], ids=type)
    def test_stopping_is_no_fault(self, tokenizer: Any, error: BaseException) -> None:
        """Ctrl-C and SIGTERM are not its fault, and nobody goes on."""
        encoder = checked(tokenizer, Raising(tokenizer, error))
        encoder.encode(TEXTS)
        with pytest.raises(type(error)):
            encoder.encode(TEXTS)

    @pytest.mark.parametrize(
        ("ids", "offsets"), [([1], [0, 1]), ([1], [0, 1, 2]), ([1, 1], [0, 2, 1]), ([1], [1, 1, 1]), ([], [])]
    )
    def test_nonsense(self, tokenizer: Any, ids: list[int], offsets: list[int]) -> None:
        """Borders that cannot be are a fault, not a crash."""

        class Nonsense:
            name = "fastokens"

            def encode(self, texts: list[str]) -> Encoded:
                return Encoded(np.array(ids, np.uint32), np.array(offsets, np.int64))

        encoder = checked(tokenizer, Nonsense())
        assert split(encoder.encode(["a b", "c"])) == by_call(tokenizer, ["a b", "c"])
        assert encoder.name == "fastokens+hf"
