"""An encoder gives what the tokenizer's own call gives, for every document."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from helpers_encoder import CharTokenizer
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, processors
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from helpers_text import EOS, numbers_tokenizer
from tdstream.preparation.tokenizing import Marks, add_marks
from tdstream.text.encoders.encoder import Encoded, HfEncoder

TEXTS = [
    "",
    " ",
    "def load(fp):\n\treturn 1",
    "\0\ufeff\u200d\U0001f600",
    f"a{EOS}b",
    EOS,
    "\u65e5\u672c e\u0301",
    "x" * 5000,
]


def split(encoded: Encoded) -> list[list[int]]:
    """Return the ids document by document."""
    return [part.tolist() for part in np.split(encoded.ids, encoded.offsets[1:-1])]


class Shouting(PreTrainedTokenizerFast):
    """A fast tokenizer that changes its texts before its backend sees them."""

    def __call__(self, text: Any, **named: Any) -> Any:
        return super().__call__([item.upper() for item in text], **named)


class TestHfEncoder:
    """Texts to ids."""

    def test_known_ids(self, tmp_path: Path) -> None:
        """The ids of all documents stand one behind the other, and the offsets say where each begins."""
        tokenizer = AutoTokenizer.from_pretrained(
            numbers_tokenizer(tmp_path, {"<unk>": 0, "<eos>": 1, "a": 5, "b": 7})
        )
        encoded = HfEncoder(tokenizer).encode(["a b", "", "b"])
        assert encoded.ids.tolist() == [5, 7, 7]
        assert encoded.offsets.tolist() == [0, 2, 2, 3]

    def test_fast(self, tokenizer_dir: Path) -> None:
        """A fast tokenizer's backend is used, and gives what the tokenizer itself gives."""
        tokenizer = AutoTokenizer.from_pretrained(tokenizer_dir)
        encoder = HfEncoder(tokenizer)
        assert encoder._backend is not None
        assert split(encoder.encode(TEXTS)) == tokenizer(TEXTS, add_special_tokens=False)["input_ids"]

    def test_more_than_a_piece(self, tokenizer_dir: Path) -> None:
        """Many documents are encoded in pieces, and are the same documents."""
        tokenizer = AutoTokenizer.from_pretrained(tokenizer_dir)
        texts = [" ".join(map(str, range(number % 7))) for number in range(300)]
        encoded = HfEncoder(tokenizer).encode(texts)
        assert split(encoded) == tokenizer(texts, add_special_tokens=False)["input_ids"]

    @settings(max_examples=60, deadline=None)
    @given(
        texts=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=40), min_size=1, max_size=6)
    )
    def test_any_text(self, tokenizer_dir: Path, texts: list[str]) -> None:
        """Whatever the text, backend and tokenizer agree."""
        tokenizer = AutoTokenizer.from_pretrained(tokenizer_dir)
        assert (
            split(HfEncoder(tokenizer).encode(texts))
            == tokenizer(texts, add_special_tokens=False)["input_ids"]
        )

    def test_settings_of_the_file_do_not_cut(self, tokenizer_dir: Path, tmp_path: Path) -> None:
        """Truncation, padding and special tokens that a tokenizer was saved with are not applied."""
        backend = Tokenizer.from_file(str(tokenizer_dir / "tokenizer.json"))
        backend.enable_truncation(3)
        backend.enable_padding(length=9, pad_id=0, pad_token=EOS)
        backend.post_processor = processors.TemplateProcessing(
            single=f"{EOS} $A {EOS}", special_tokens=[(EOS, 0)]
        )
        PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=EOS, model_max_length=4).save_pretrained(
            tmp_path
        )
        plain = AutoTokenizer.from_pretrained(tokenizer_dir)(TEXTS, add_special_tokens=False)["input_ids"]

        encoder = HfEncoder(AutoTokenizer.from_pretrained(tmp_path))

        assert encoder._backend is not None
        assert split(encoder.encode(TEXTS)) == plain

    def test_split_special_tokens(self, tokenizer_dir: Path) -> None:
        """A tokenizer that is set to take special tokens apart does so here too."""
        tokenizer = AutoTokenizer.from_pretrained(tokenizer_dir, split_special_tokens=True)
        encoder = HfEncoder(tokenizer)
        ids = encoder.encode([EOS]).ids.tolist()
        assert encoder._backend is not None
        assert ids == tokenizer([EOS], add_special_tokens=False)["input_ids"][0]
        assert len(ids) > 1

    def test_slow(self) -> None:
        """A tokenizer without a backend works, truncating nothing."""
        encoded = HfEncoder(CharTokenizer(model_max_length=2)).encode(["abc", "", "d<e>"])
        assert split(encoded) == [[97, 98, 99], [], [100, 300]]

    def test_a_class_of_its_own(self, tokenizer_dir: Path) -> None:
        """A fast tokenizer whose class changes the call is called as a whole."""
        tokenizer = Shouting.from_pretrained(tokenizer_dir)
        encoder = HfEncoder(tokenizer)
        assert encoder.encode(["abc"]).ids.tolist() == encoder.encode(["ABC"]).ids.tolist()

    def test_a_backend_that_disagrees(self, tokenizer_dir: Path) -> None:
        """If backend and tokenizer give different ids for some probes, the tokenizer is used."""
        tokenizer = AutoTokenizer.from_pretrained(tokenizer_dir)
        tokenizer._encode_plus = lambda text, **_: {"input_ids": [[1] * len(item) for item in text]}
        assert HfEncoder(tokenizer).encode(["abc"]).ids.tolist() == [1, 1, 1]


class TestDocuments:
    """End-of-text tokens between documents."""

    # Documents: [1 2], [], [9 3], [].
    encoded = Encoded(np.array([1, 2, 9, 3]), np.array([0, 2, 2, 4, 4]))

    def test_every_document_ends(self) -> None:
        """Each document is followed by one end-of-text id; an empty one is that id alone."""
        assert add_marks(self.encoded, Marks(9), "").ids.tolist() == [1, 2, 9, 9, 9, 3, 9, 9]

    def test_counts(self) -> None:
        """Documents that hold an id (once or more) are told apart, and so is where each ends."""
        assert add_marks(self.encoded, Marks(9), "").ends.tolist() == [3, 4, 7, 8]
        assert add_marks(self.encoded, Marks(9), "").holding.tolist() == [False, False, True, False]
        twice = Encoded(np.array([9, 9, 1, 9]), np.array([0, 2, 3, 4]))
        assert add_marks(twice, Marks(9), "").holding.tolist() == [True, False, True]
        assert not add_marks(self.encoded, Marks(7), "").holding.any()

    @given(documents=st.lists(st.lists(st.integers(0, 5), max_size=5), min_size=1, max_size=9))
    def test_any_documents(self, documents: list[list[int]]) -> None:
        """Splicing whole arrays gives what appending document by document gives."""
        encoded = Encoded(
            np.array([token for document in documents for token in document], np.int64),
            np.cumsum([0, *[len(document) for document in documents]]),
        )
        assert add_marks(encoded, Marks(9), "").ids.tolist() == [
            token for document in documents for token in [*document, 9]
        ]
