"""Documents are found wherever pieces are cut, and their lengths are counted exactly."""

from __future__ import annotations

import statistics
from collections import Counter

import numpy as np
import pytest

from tdstream.verification.contents import Document, DocumentScan, LengthCounter, LengthStatistics


def split(tokens: list[int], eos: int) -> list[tuple[int, int]]:
    """Return (first token, tokens) of each document, one token after the other."""
    documents, begin = [], 0
    for place, token in enumerate(tokens):
        if token == eos:
            documents.append((begin, place - begin))
            begin = place + 1
    return [*documents, (begin, len(tokens) - begin)] if begin < len(tokens) else documents


def scan(tokens: list[int], piece_tokens: int, *, samples: int = 0, seed: int = 0) -> DocumentScan:
    """Feed a stream in pieces."""
    found = DocumentScan(0, samples=samples, seed=seed)
    array = np.array(tokens, np.uint16)
    for begin in range(0, len(tokens), piece_tokens):
        found.feed(array[begin : begin + piece_tokens])
    return found


def statistics_of(lengths: list[int]) -> LengthStatistics:
    """Count lengths, and say what they are."""
    counter = LengthCounter()
    counter.add(np.array(lengths, np.int64))
    found = counter.statistics()
    assert found is not None
    return found


class TestDocumentScan:
    """Documents of a stream that comes in pieces."""

    @pytest.mark.parametrize("piece_tokens", [1, 2, 3, 4, 5, 7, 100])
    @pytest.mark.parametrize("seed", range(5))
    def test_pieces(self, seed: int, piece_tokens: int) -> None:
        """Every document is found with its place and length: empty ones, ends at borders, long ones."""
        tokens = np.random.default_rng(seed).integers(0, 3, 60).tolist()
        found = scan(tokens, piece_tokens, samples=1000)
        found.finish()

        expected = split(tokens, 0)
        assert found.chosen == [Document(number, *place) for number, place in enumerate(expected)]
        assert found.first_document == found.chosen[0]
        assert found.eos_tokens == tokens.count(0)
        counted = found.lengths.statistics()
        assert counted is not None
        assert counted.documents == len(expected)
        assert counted.mean == statistics.mean(length for _, length in expected)

    def test_rest(self) -> None:
        """Tokens behind the last end-of-text token are a document only when the stream is over."""
        found = scan([1, 0, 2, 2], 2)
        assert (found.rest, found.eos_tokens) == (2, 1)
        found.finish()
        assert found.rest == 0
        assert found.lengths.statistics() == statistics_of([1, 2])
        assert scan([1, 0], 2).rest == 0

    def test_hole(self) -> None:
        """Documents that reach into tokens that cannot be read are left out, the others keep their places."""
        found = DocumentScan(0, samples=9)
        found.feed(np.array([1, 0, 2], np.uint16))
        found.skip(10)
        found.feed(np.array([3], np.uint16))
        found.feed(np.array([3, 0, 4, 4, 0], np.uint16))
        assert found.chosen == [Document(0, 0, 1), Document(1, 16, 2)]
        assert found.eos_tokens == 3
        found.skip(5)
        found.finish()
        assert len(found.chosen) == 2

    def test_the_sample_depends_on_the_stream_alone(self) -> None:
        """Same seed, same documents, however the stream is cut; another seed, others."""
        tokens = [1, 0] * 500
        samples = {tuple(scan(tokens, piece, samples=10, seed=1).chosen) for piece in (1, 7, 64, 1000)}
        assert len(samples) == 1
        assert samples != {tuple(scan(tokens, 7, samples=10, seed=2).chosen)}

    def test_the_sample_is_fair(self) -> None:
        """Over 400 seeds each of 20 documents is among 5 chosen about 100 times (standard deviation 8.7)."""
        times: Counter[int] = Counter()
        for seed in range(400):
            times.update(document.number for document in scan([1, 0] * 20, 9, samples=5, seed=seed).chosen)
        assert sum(times.values()) == 2000
        assert all(60 < times[number] < 140 for number in range(20))

    def test_longest(self) -> None:
        """Documents that are too long are counted and not chosen."""
        found = DocumentScan(0, samples=9, longest=2)
        found.feed(np.array([1, 1, 1, 0, 1, 1, 0], np.uint16))
        assert found.chosen == [Document(1, 4, 2)]


class TestLengths:
    """Statistics that can be worked out by hand."""

    def test_small(self) -> None:
        """Eight lengths: the middle two are 3 and 4, the sum is 126."""
        assert statistics_of([100, 0, 1, 8, 2, 8, 3, 4]) == LengthStatistics(
            documents=8,
            minimum=0,
            median=3.5,
            mean=15.75,
            p99=100,
            maximum=100,
            histogram=(
                (0, 0, 1),
                (1, 1, 1),
                (2, 3, 2),
                (4, 7, 1),
                (8, 15, 2),
                (16, 31, 0),
                (32, 63, 0),
                (64, 127, 1),
            ),
        )

    def test_p99(self) -> None:
        """Of the lengths 1 to 200, 198 is the smallest that 99 % do not exceed; the median is 100.5."""
        found = statistics_of(list(range(1, 201)))
        assert (found.p99, found.median, found.mean) == (198, 100.5, 100.5)
        assert statistics_of(list(range(1, 102))).p99 == 100  # 99 % of 101 are 99.99

    def test_one(self) -> None:
        """One document is its own minimum, median and maximum."""
        found = statistics_of([5])
        assert (found.minimum, found.median, found.p99, found.maximum) == (5, 5, 5, 5)
        assert found.histogram == ((4, 7, 1),)

    def test_none(self) -> None:
        """Without documents there are no statistics."""
        assert LengthCounter().statistics() is None

    def test_long(self) -> None:
        """Very long documents are counted as exactly as short ones."""
        million = 1 << 20
        found = statistics_of([million - 1, million, 3 * million, million])
        assert (found.minimum, found.median, found.maximum) == (million - 1, million, 3 * million)
        assert found.mean == (6 * million - 1) / 4
        assert found.histogram == (
            (million // 2, million - 1, 1),
            (million, 2 * million - 1, 2),
            (2 * million, 4 * million - 1, 1),
        )

    @pytest.mark.parametrize("seed", range(10))
    def test_against_python(self, seed: int) -> None:
        """The standard library says the same, in whatever pieces lengths are added."""
        random = np.random.default_rng(seed)
        lengths = random.integers(0, 50, random.integers(1, 60)).tolist()
        counter = LengthCounter()
        for begin in range(0, len(lengths), 7):
            counter.add(np.array(lengths[begin : begin + 7], np.int64))
        found = counter.statistics()
        assert found is not None
        assert found.median == statistics.median(lengths)
        assert found.mean == statistics.mean(lengths)
        assert sum(count for _, _, count in found.histogram) == len(lengths)
        for low, high, count in found.histogram:
            assert count == sum(low <= length <= high for length in lengths)
