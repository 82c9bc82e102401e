"""A tokenizer whose ids depend on more than the text is made to agree with itself, or refused."""

from __future__ import annotations

import json
import logging
import random
from pathlib import Path
from typing import Any

import pytest
from helpers_encoder import CharTokenizer, byte_level, split, unigram, wrapped
from tokenizers import Tokenizer, processors
from transformers import AutoTokenizer

from helpers_text import corpus_bytes, expected_tokens, numbers_tokenizer, write_jsonl
from tdstream.cli.main import main
from tdstream.core.errors import TokenizerError
from tdstream.preparation.api import prepare
from tdstream.text.encoders.encoder import HfEncoder
from tdstream.text.options import TextOptions
from tdstream.text.tokenizer import get_tokenizer, load_tokenizer
from tdstream.text.tokenizer_checks import find_sampling

TEXT = "def tokenization(internationalization): return uncharacteristically " * 20
UNKNOWN, BEGIN = {"unk_token": "<u>"}, {"bos_token": "<b>"}


def sampling(tokenizer: Tokenizer, **model: Any) -> Tokenizer:
    """Return a tokenizer with other settings of its model."""
    content = json.loads(tokenizer.to_str())
    content["model"].update(model)
    return Tokenizer.from_str(json.dumps(content))


def with_dropout() -> Any:
    """Return a BPE that leaves out every third merge at random."""
    return wrapped(sampling(byte_level(), dropout=0.3))


def with_unigram_sampling() -> Any:
    """Return a unigram model that draws one of all segmentations."""
    tokenizer = wrapped(unigram())
    tokenizer._tokenizer.model.alpha = 0.1
    return tokenizer


def draw(tokenizer: Any) -> int:
    """Return how many different results a tokenizer gives for one text."""
    drawn = set()
    for _ in range(5):
        getattr(tokenizer._tokenizer.model, "_clear_cache", lambda: None)()
        drawn.add(tuple(tokenizer(TEXT)["input_ids"]))
    return len(drawn)


class TestSampling:
    """Chance is switched off, with a word."""

    @pytest.mark.parametrize(
        ("make", "named"),
        [(with_dropout, "BPE dropout of 0.3"), (with_unigram_sampling, "unigram sampling")],
    )
    def test_off_and_said(self, make: Any, named: str, caplog: pytest.LogCaptureFixture) -> None:
        """The ids are those of the same tokenizer without chance; the caller's own keeps its chance."""
        theirs = make()
        assert draw(theirs) > 1
        with caplog.at_level(logging.WARNING):
            ours = get_tokenizer(TextOptions.of(["text"], theirs))
        assert named in caplog.text
        assert "switched off" in caplog.text
        plain = json.loads(theirs._tokenizer.to_str())
        plain["model"].pop("dropout", None)
        right = Tokenizer.from_str(json.dumps(plain)).encode(TEXT, add_special_tokens=False).ids
        assert draw(ours) == 1
        assert split(HfEncoder(ours).encode([TEXT])) == [right]
        assert draw(theirs) > 1

    def test_nothing_to_switch_off(self) -> None:
        """A dropout of nothing is no chance."""
        assert find_sampling(wrapped(sampling(byte_level(), dropout=0.0))) == ""
        assert find_sampling(CharTokenizer()) == ""

    def test_prepared_in_processes(self, tmp_path: Path) -> None:
        """Workers that load the tokenizer by themselves know it again, named or given; and so does verify."""
        with_dropout().save_pretrained(tmp_path / "random")
        wrapped(byte_level()).save_pretrained(tmp_path / "plain")
        theirs = AutoTokenizer.from_pretrained(tmp_path / "random")
        for tokenizer, num_proc in ((theirs, 2), (str(tmp_path / "random"), 1)):
            out = tmp_path / f"corpus{num_proc}"
            prepare([TEXT] * 3, tokenizer, out, num_proc=num_proc, encoder="hf", batch_size=1)
            assert corpus_bytes(out) == expected_tokens(tmp_path / "plain", [TEXT] * 3, "<u2").tobytes()
        assert main(["verify", str(tmp_path / "corpus1")]) == 0


class Random(CharTokenizer):
    """Leaves out one character in ten."""

    def _tokenize(self, text: str, **_: Any) -> list[str]:
        return [character for character in text if random.random() > 0.1]


class Padding(CharTokenizer):
    """Pads whatever it is told."""

    def __call__(self, text: Any, **named: Any) -> Any:
        rows = super().__call__(text, **named)["input_ids"]
        longest = max(map(len, rows))
        return {"input_ids": [[*row, *[0] * (longest - len(row))] for row in rows]}


class Truncating(CharTokenizer):
    """Truncates whatever it is told."""

    def __call__(self, text: Any, **named: Any) -> Any:
        rows = super().__call__(text, **named)["input_ids"]
        return {"input_ids": [row[: self.model_max_length] for row in rows]}


class Unknowing(CharTokenizer):
    """Has no id for some characters."""

    wrong: Any = None

    def _convert_token_to_id(self, token: str) -> Any:
        return self.wrong if ord(token) == ord("z") else super()._convert_token_to_id(token)


class TestCalls:
    """A tokenizer that runs code of its own is tried out."""

    @pytest.mark.parametrize(
        ("tokenizer", "said"),
        [
            (Random(), r"\(Random\) is random: it gives the same text other ids"),
            (Padding(), r"\(Padding\) gives a text other ids beside other texts"),
            (Truncating(model_max_length=5000), r"gives 5,000 ids however long the text is: it truncates"),
        ],
    )
    def test_refused(self, tokenizer: Any, said: str, tmp_path: Path) -> None:
        """Nothing is written."""
        with pytest.raises(TokenizerError, match=said):
            prepare(["some text"], tokenizer, tmp_path / "corpus")
        assert not (tmp_path / "corpus").exists()

    @pytest.mark.parametrize("wrong", [None, -1, 1 << 32, 1 << 70, "7", 1.5])
    def test_impossible_ids(self, wrong: Any) -> None:
        """What is no id is refused, where it would have become another one."""
        tokenizer = Unknowing()
        tokenizer.wrong = wrong
        with pytest.raises(TokenizerError, match=r"gave the id .*; expected a whole number"):
            HfEncoder(tokenizer).encode(["a", "z"])

    def test_its_own_settings_do_not_matter(self, tokenizer_dir: Path) -> None:
        """Truncation and padding that a tokenizer was saved with are not applied."""
        tokenizer = load_tokenizer(str(tokenizer_dir))
        right = tokenizer(TEXT, add_special_tokens=False)["input_ids"]
        tokenizer._tokenizer.enable_truncation(3)
        tokenizer._tokenizer.enable_padding(length=9)
        assert split(HfEncoder(tokenizer).encode([TEXT, ""])) == [right, []]


class TestSpecialTokens:
    """Tokens that a tokenizer adds, and the one that ends documents."""

    def test_an_eos_that_is_unknown(self, tmp_path: Path) -> None:
        """An end-of-text token with the id of unknown words would end a document at each of them."""
        tokenizer = CharTokenizer(**UNKNOWN)
        tokenizer.convert_tokens_to_ids = lambda token: 299  # type: ignore[method-assign]
        with pytest.raises(TokenizerError, match=r"'<e>' .* is not in its vocabulary.* the id of '<u>'"):
            prepare(["text"], tokenizer, tmp_path / "corpus")

    def test_one_token_for_both(self, tmp_path: Path) -> None:
        """As in GPT-2, end-of-text and unknown may be the same token."""
        directory = numbers_tokenizer(tmp_path, {"<unk>": 0, "<eos>": 1, "a": 2})
        tokenizer = load_tokenizer(str(directory))
        tokenizer.unk_token = tokenizer.eos_token
        assert prepare(["a"], tokenizer, tmp_path / "corpus").counts.tokens == 2

    def test_a_template_is_not_applied(self, tmp_path: Path) -> None:
        """A beginning-of-text token of the tokenizer's template is no part of documents."""
        backend = byte_level()
        template = {"single": "<|im_start|> $A", "special_tokens": [("<|im_start|>", 1)]}
        backend.post_processor = processors.TemplateProcessing(**template)
        prepare(["text"], wrapped(backend), tmp_path / "corpus")
        assert 1 not in bytes(corpus_bytes(tmp_path / "corpus"))[::2]

    def test_added_by_its_own_code(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """A token that a tokenizer adds whatever it is told is named; one that ends documents is refused."""
        tokenizer = Adding(**BEGIN)
        tokenizer.added = tokenizer.bos_token_id
        prepare(["ab"], tokenizer, tmp_path / "corpus")
        assert "adds <b> to every text by itself: every document has it" in caplog.text
        tokenizer.added = tokenizer.eos_token_id
        with pytest.raises(TokenizerError, match=r"ends every text with '<e>' by itself"):
            prepare(["ab"], tokenizer, tmp_path / "other")


class Adding(CharTokenizer):
    """Adds a token whatever it is told."""

    added = 0

    def __call__(self, text: Any, **named: Any) -> Any:
        rows = super().__call__(text, **named)["input_ids"]
        return {"input_ids": [[self.added, *row] for row in rows]}


class TestHoles:
    """Vocabularies whose ids are not 0, 1, 2, ..."""

    @pytest.mark.parametrize("highest", [65_535, 70_000])
    def test_prepared_and_verified(self, highest: int, tmp_path: Path) -> None:
        """The corpus holds the right ids, and verify finds nothing wrong with them."""
        ids = {"<unk>": 0, "<eos>": 1, "a": 2, "far": highest}
        tokenizer = numbers_tokenizer(tmp_path / "tokenizer", ids)
        data = write_jsonl(tmp_path / "data.jsonl", [{"text": "a far far a"}])
        out = tmp_path / "corpus"
        given = ["--tokenizer", str(tokenizer), "--output_path", str(out)]
        assert main(["prepare", "--dataset", str(data), *given]) == 0
        dtype = "<u2" if highest < 65_536 else "<u4"
        assert corpus_bytes(out) == expected_tokens(tokenizer, ["a far far a"], dtype).tobytes()
        assert main(["verify", str(out)]) == 0

    def test_a_corpus_of_an_earlier_version(self, tmp_path: Path) -> None:
        """It counted tokens, not ids; such a corpus is sound all the same, and can be appended to."""
        tokenizer = numbers_tokenizer(tmp_path / "tokenizer", {"<unk>": 0, "<eos>": 1, "far": 65_535})
        out = tmp_path / "corpus"
        prepare(["far far"], str(tokenizer), out)
        meta = json.loads((out / "meta.json").read_text())
        assert meta["vocab_size"] == 65_536
        (out / "meta.json").write_text(json.dumps({**meta, "vocab_size": 3}))
        assert main(["verify", str(out)]) == 0
        assert prepare(["far"], str(tokenizer), out, append=True).counts.tokens == 2
