"""The real packages: where they load and prove, they give the tokenizer's ids."""

from __future__ import annotations

import importlib.util
import multiprocessing
from pathlib import Path
from typing import Any

import pytest
from helpers_encoder import KINDS, SPECIALS, TEXT, by_call, byte_level, split, wrapped
from transformers import AutoTokenizer

from helpers_text import EOS
from tdstream.core.errors import TokenizerError
from tdstream.text.encoders import encoder as fast_encoders
from tdstream.text.encoders import select
from tdstream.text.encoders.encoder import FAST_ENCODERS, GigatokenEncoder, load_fast
from tdstream.text.encoders.proof_texts import make_hard_texts, surround
from tdstream.text.encoders.select import choose_encoder

FEW_CODES = [*range(0x500), *range(0x1E00, 0x2100), 0x4E00, 0xAC00, *range(0x1F5F0, 0x1F610), 0x1C89, 0x1F1E9]
EXACT = {
    "fastokens": {"byte_level", "odd_tokens", "llama3", "qwen", "llama2"},
    "gigatoken": {"byte_level", "llama3", "qwen", "llama2"},
}
"""Kinds for which each is known to prove itself; it may learn more."""

each_package = pytest.mark.parametrize(
    "package",
    [
        pytest.param(
            name,
            marks=pytest.mark.skipif(
                importlib.util.find_spec(name) is None,
                reason=f"{name} is not installed: pip install 'tdstream[fast]'",
            ),
        )
        for name in FAST_ENCODERS
    ],
)


def texts() -> list[str]:
    """Return ordinary documents, hard ones, and every eleventh code point in groups."""
    lines = [text[begin : begin + 700] for text in TEXT for begin in range(0, len(text), 700)]
    groups = [surround(list(range(first, first + 704, 11))) for first in range(0, 0xD800 - 704, 704)]
    return [*lines, *make_hard_texts(SPECIALS), *groups, *[f"{special}x" for special in SPECIALS]]


@pytest.fixture
def few_codes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Test few code points, and keep the verdict nowhere else."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(select, "code_points", lambda: FEW_CODES)


@each_package
class TestPackages:
    """Loading, proving, encoding."""

    @pytest.mark.parametrize("kind", KINDS)
    def test_exact_or_refused(self, package: str, kind: str, few_codes: None) -> None:
        """For every family of tokenizers the ids are the tokenizer's, or the encoder is refused."""
        tokenizer = wrapped(KINDS[kind]())
        try:
            encoder = choose_encoder(tokenizer, package)
        except TokenizerError:
            if kind in EXACT[package]:
                raise
            return
        documents = texts()
        assert split(encoder.encode(documents)) == by_call(tokenizer, documents)
        assert encoder.name == package

    def test_all_code_points(self, package: str, tokenizer_dir: Path) -> None:
        """The whole proof, as users run it, holds for a byte-level BPE."""
        tokenizer = AutoTokenizer.from_pretrained(tokenizer_dir)
        encoder: Any = choose_encoder(tokenizer, package)
        assert len(encoder._failing) < 0x110000 - 200_000
        documents = [f"a{EOS}b", *TEXT, "\U00100000 private", ""]
        assert split(encoder.encode(documents)) == by_call(tokenizer, documents)

    def test_tokens_that_reach_across_a_cut(self, package: str) -> None:
        """Characters that only newer tables know are the tokenizer's, where a token joins them to a sign."""
        chars = ["\ua7cf", "\U00016ebb", "\u1c89", "\U000323b0"]
        lines = [f'    "{char}",\n    None,\n' for char in chars] * 400
        tokenizer = wrapped(byte_level(lines))
        encoder = choose_encoder(tokenizer, package)
        assert split(encoder.encode(lines)) == by_call(tokenizer, lines)
        assert encoder.name == package

    @pytest.mark.exhaustive
    @pytest.mark.parametrize("kind", KINDS)
    def test_the_whole_proof(self, package: str, kind: str, tmp_path: Path, monkeypatch: Any) -> None:
        """With all code points too, the kinds that are known to be exact are."""
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        tokenizer = wrapped(KINDS[kind]())
        if kind in EXACT[package]:
            assert choose_encoder(tokenizer, package).name == package

    def test_what_it_cannot_load(self, package: str) -> None:
        """A tokenizer that it refuses, or that is none, is a sentence."""
        with pytest.raises(TokenizerError, match=f"{package!r} cannot load this tokenizer"):
            load_fast(package, '{"model": {"type": "Nonsense"}}')

    def test_nothing(self, package: str, tokenizer_dir: Path) -> None:
        """Empty documents have no ids, alone and among others."""
        content = AutoTokenizer.from_pretrained(tokenizer_dir)._tokenizer.to_str()
        encoder = load_fast(package, content)
        assert split(encoder.encode([""])) == [[]]
        assert [bool(row) for row in split(encoder.encode(["", "a", ""]))] == [False, True, False]

    def test_after_a_fork(self, package: str, tokenizer_dir: Path) -> None:
        """A process that is forked after encoding encodes too."""
        content = AutoTokenizer.from_pretrained(tokenizer_dir)._tokenizer.to_str()
        encoder = load_fast(package, content)
        documents = ["hello world " * 50] * 300
        here = len(encoder.encode(documents).ids)
        context = multiprocessing.get_context("fork")
        with context.Pool(1) as pool:
            assert pool.apply_async(_count, (package, content, documents)).get(timeout=60) == here


class TestGigatoken:
    """Its memory."""

    def test_it_is_made_anew(self, tokenizer_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Every so many characters it begins with an empty memory, and gives the same ids."""
        pytest.importorskip("gigatoken", reason="pip install 'tdstream[fast]'")
        tokenizer = AutoTokenizer.from_pretrained(tokenizer_dir)
        encoder = GigatokenEncoder(tokenizer._tokenizer.to_str(), renew_characters=100)
        characters = []
        for _ in range(5):
            assert split(encoder.encode(["x" * 60])) == by_call(tokenizer, ["x" * 60])
            characters.append(encoder._characters)
        assert characters == [60, 120, 60, 120, 60]


def test_the_names_are_packages() -> None:
    """Encoders are named as what has to be installed."""
    assert fast_encoders.FAST_ENCODERS == ("fastokens", "gigatoken")


def _count(package: str, content: str, documents: list[str]) -> int:
    return len(load_fast(package, content).encode(documents).ids)
