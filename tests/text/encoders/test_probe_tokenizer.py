"""A tokenizer's rules for cutting become visible, where its own vocabulary hides them."""

from __future__ import annotations

import json

import pytest
from helpers_encoder import KINDS, split, trained_on_bytes, with_odd_tokens
from tokenizers import Regex, Tokenizer, models, pre_tokenizers

from tdstream.core.errors import TokenizerError
from tdstream.text.encoders.code_points import CodePoints
from tdstream.text.encoders.probe_tokenizer import BackendEncoder, make_probe_tokenizer
from tdstream.text.encoders.proof import prove

CODES = [*range(0x200), 0x4E00, 0xA7CF, 0x1F600]


def splitting(letters: str) -> str:
    """Return a byte-level BPE that takes the ASCII letters and some others for letters."""
    tokenizer = Tokenizer(models.BPE())
    word = f"[a-zA-Z{letters}]"
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(rf" ?{word}+| ?[0-9]+| ?[^\sa-zA-Z0-9{letters}]+|\s+"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    return trained_on_bytes(tokenizer).to_str()


class TestVisibleCuts:
    """The same rules with a vocabulary that shows them."""

    @pytest.mark.parametrize("char", ["\u0101", "\u4e00", "\ua7cf", "\U0001f600"])
    def test_another_class(self, char: str) -> None:
        """A character that one takes for a letter is found, though no id of the real vocabulary shows it."""
        one, other = splitting("\u00e9"), splitting("\u00e9" + char)
        real = (BackendEncoder(other), BackendEncoder(one))
        visible = [make_probe_tokenizer(content) for content in (other, one)]
        assert visible[0] is not None
        assert visible[1] is not None
        shown = (BackendEncoder(visible[0]), BackendEncoder(visible[1]))

        hidden = prove([real], ["plain"], CODES)
        found = prove([real, shown], ["plain"], CODES)

        assert (hidden.ok, hidden.num_failed) == (True, 0)
        assert (found.ok, found.num_failed) == (True, 1)
        assert CodePoints.from_ranges(found.failing).find_holders([f"a{char}", "a\u00e9"]) == [0]

    @pytest.mark.parametrize(
        ("kind", "sign_ids"), [("byte_level", 5), ("odd_tokens", 5), ("llama3", 4), ("qwen", 4)]
    )
    def test_cuts_show(self, kind: str, sign_ids: int) -> None:
        """A letter joins both neighbours, a sign none (GPT-2) or the one behind it (Llama 3)."""
        visible = make_probe_tokenizer(KINDS[kind]().to_str())
        assert visible is not None
        letter, sign = split(BackendEncoder(visible).encode(["a\u00e9b", "a\u20acb"]))
        assert len(letter) == 2
        assert len(sign) == sign_ids

    def test_every_byte_has_its_letter(self) -> None:
        """The bytes are named as this release of the library names them."""
        visible = make_probe_tokenizer(with_odd_tokens().to_str())
        assert visible is not None
        assert set(pre_tokenizers.ByteLevel.alphabet()) <= set(json.loads(visible)["model"]["vocab"])
        assert split(BackendEncoder(visible).encode(["\x00", "\x7f", "!"])) == [[0], [0x7F], [0x21]]

    @pytest.mark.parametrize("kind", ["llama2", "unigram"])
    def test_nothing_to_show(self, kind: str) -> None:
        """A tokenizer that cuts at spaces at most needs no other vocabulary."""
        assert make_probe_tokenizer(KINDS[kind]().to_str()) is None

    def test_what_cannot_be_shown(self) -> None:
        """Rules over anything but bytes are refused: nobody could say whether they are the same."""
        with pytest.raises(TokenizerError, match="WordPiece after BertPreTokenizer cannot be tested"):
            make_probe_tokenizer(KINDS["word_piece"]().to_str())
