"""What a source is, decided once for streams, preparations and `build`."""

from __future__ import annotations

from collections import UserList
from pathlib import Path

import datasets
import numpy as np
import pytest

from tdstream.core.errors import ConfigError, SourceError
from tdstream.text.options import TextOptions
from tdstream.text.records import Place
from tdstream.text.source import SourceType, find_source_type, holds_text
from tdstream.text.text_stream import open_stream


class Texts:
    """Iterable again and again; as a class, a function that makes such an object."""

    def __iter__(self):
        return iter(["a", "b"])


class CallableTexts(Texts):
    """An iterable that can be called for another reason."""

    def __call__(self, text):
        return text


class Legacy:
    """Iterable as objects were before there was __iter__."""

    def __getitem__(self, index):
        return ["a", "b"][index]


def table():
    """Return a small dataset."""
    return datasets.Dataset.from_dict({"text": ["a", "b"]})


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("some/name", SourceType.LOCATION),
        (Path("file.jsonl"), SourceType.LOCATION),
        (["a", "b"], SourceType.LIST),
        (("a", "b"), SourceType.LIST),
        (table(), SourceType.DATASET),
        (table().to_iterable_dataset(), SourceType.DATASET_STREAM),
        (datasets.DatasetDict({"train": table()}), SourceType.MAPPING),
        ({"train": ["a"]}, SourceType.MAPPING),
        (UserList(["a", "b"]), SourceType.SEQUENCE),
        (np.array(["a", "b"]), SourceType.SEQUENCE),
        (lambda: iter(["a", "b"]), SourceType.FUNCTION),
        (Texts, SourceType.FUNCTION),
        (Texts(), SourceType.ITERABLE),
        (CallableTexts(), SourceType.ITERABLE),
        (Legacy(), SourceType.ITERABLE),
    ],
)
def test_a_source_has_one_type(source, expected):
    """Whatever holds texts, and what can be read of it gives them, again and again."""
    assert find_source_type(source) is expected
    if expected not in (SourceType.LOCATION, SourceType.MAPPING):
        for in_memory in (False, True):
            stream = open_stream(TextOptions.of(source, "some/tokenizer"), in_memory=in_memory)
            blocks = [list(stream.blocks(0, 0, 1, Place(), 8)) for _ in range(2)]
            assert [[text for block in found for text in block.texts] for found in blocks] == [["a", "b"]] * 2


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (7, "got int"),
        (None, "got NoneType"),
        (b"text", "got bytes"),
        (iter(["a"]), "a list_iterator, which can be read only once"),
        ((text for text in "ab"), "a generator, which can be read only once"),
        ({"a", "b"}, r"a set, whose order differs"),
        (lambda text: iter([text]), "needs arguments"),
        (table().to_pandas(), "a DataFrame; iterating over it"),
    ],
)
def test_what_is_no_source_is_refused(source, message):
    """Nothing to iterate over, not twice, or not in one order."""
    with pytest.raises(ConfigError, match=message):
        find_source_type(source)


def test_a_function_has_to_return_an_iterator():
    """It is named, with what it returned."""
    stream = open_stream(TextOptions.of(lambda: 7, "some/tokenizer"))
    with pytest.raises(SourceError, match=r"<lambda>, returned a int; expected an iterator"):
        next(stream.blocks(0, 0, 1, Place(), 8))


def test_a_dict_of_texts_is_no_mixture():
    """Datasets or columns of texts, rather than corpora with weights."""
    assert holds_text(datasets.DatasetDict({"train": table()}))
    assert holds_text({"text": ["a", "b"]})
    assert not holds_text({"web": ("data/web", 0.7)})
