"""Texts come out of records, errors say which field, and a broken network is waited for."""

from __future__ import annotations

import pytest

from tdstream.core.errors import SourceError
from tdstream.text import network as retry
from tdstream.text.records import IterableRecords, Place, SequenceRecords
from tdstream.text.text_stream import TextStream


def texts_of(records, text_field="text", block=4):
    """Return the texts of all records."""
    source = TextStream(IterableRecords(records), text_field=text_field)
    return [text for found in source.blocks(0, 0, 1, Place(), block) for text in found.texts]


@pytest.mark.parametrize(
    ("records", "field"),
    [
        (["a", "b"], "text"),
        ([{"text": "a"}, {"text": "b"}], "text"),
        ([{"body": "a", "text": 1}, {"body": "b"}], "body"),
        ([{"meta": {"title": "a"}}, {"meta": {"title": "b"}}], "meta.title"),
    ],
)
def test_a_text_is_a_record_or_a_field(records, field):
    """Plain texts, a field, a field inside of a field."""
    assert texts_of(records, field) == ["a", "b"]


def test_fields_are_joined():
    """Several fields, an empty line between them."""
    assert texts_of([{"title": "a", "text": "b"}], "title,text") == ["a\n\nb"]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"body": "a", "id": 1}, r"it is None or absent\. Its other fields: body, id\. .*text_field=\.\.\."),
        ({"text": 7}, r"it holds int\. Its other fields: none\."),
        ({"text": None}, r"it is None or absent\. Its other fields: none\."),
        (b"bytes", "it holds bytes"),
        ("half \ud800", "it holds half of a surrogate pair"),
        ({"text": "half \udfff"}, "it holds half of a surrogate pair"),
    ],
)
def test_a_record_without_text_is_named(record, message):
    """The sentence says which record, and what it has."""
    named = r"^Record 1 \(counted from 0\) of list has no text in 'text': "
    with pytest.raises(SourceError, match=named + message):
        texts_of([{"text": "a"}, record])


def test_a_record_is_counted_in_its_stream():
    """Where a source is divided, the sentence names the share in which the record is the n-th."""
    source = TextStream(SequenceRecords(["a", "b", "c", None]))
    with pytest.raises(SourceError, match=r"^Record 1 \(counted from 0, in stream 1 of 2\) of list has no"):
        list(source.blocks(0, 1, 2, Place(), 4))


class Flaky:
    """Twenty texts; opening or reading fails now and then."""

    def __init__(self, *errors):
        self.errors, self.opened = list(errors), 0

    def __iter__(self):
        self.opened += 1
        for number in range(20):
            if number == 10 and self.errors:
                raise self.errors.pop()
            yield str(number)


@pytest.fixture
def pauses(monkeypatch):
    """Return what was slept, without sleeping."""
    slept = []
    monkeypatch.setattr(retry.time, "sleep", slept.append)
    return slept


def test_a_broken_connection_is_tried_again(pauses, caplog):
    """Two failures: two longer and longer pauses, two lines in the log, no record lost or twice."""
    flaky = Flaky(ConnectionError("reset by peer"), TimeoutError("too slow"))
    assert texts_of(flaky) == [str(number) for number in range(20)]
    assert pauses == [0.5, 1.0]
    assert flaky.opened == 3
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert "trying again in 1 s (2 of 5)" in caplog.text


def test_patience_has_an_end(pauses):
    """After six tries the error comes out, with its cause."""
    with pytest.raises(SourceError, match=r"after 6 tries: OSError: no route") as caught:
        texts_of(Flaky(*[OSError("no route")] * 6))
    assert isinstance(caught.value.__cause__, OSError)
    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0]


def test_patience_is_renewed_by_success(pauses):
    """Failures at two places each begin with the shortest pause."""

    class Twice(Flaky):
        def __iter__(self):
            for number in range(20):
                if (number, len(self.errors)) in ((5, 2), (15, 1)):
                    raise self.errors.pop()
                yield str(number)

    assert texts_of(Twice(OSError(), OSError())) == [str(number) for number in range(20)]
    assert pauses == [0.5, 0.5]


class RefusedError(ConnectionError):
    """An answer that will be the same tomorrow."""

    status = 404


@pytest.mark.parametrize(
    "error", [FileNotFoundError("gone"), PermissionError("no"), RefusedError("404"), KeyError("bug")]
)
def test_what_will_not_heal_is_raised_at_once(pauses, error):
    """Missing files, refusals and bugs are not waited for."""
    with pytest.raises(type(error)):
        texts_of(Flaky(error))
    assert pauses == []
