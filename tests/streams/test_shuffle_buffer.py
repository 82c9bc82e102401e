"""The buffer mixes well, forgets nothing, and holds nothing for longer than it says."""

from __future__ import annotations

import numpy as np
import pytest

from tdstream.core.errors import ConfigError
from tdstream.streams.cut import RecordBlock, Sample
from tdstream.streams.shuffle_buffer import NEVER_SERVED, ShuffleBuffer
from tdstream.text.records import Place


def samples(first, count):
    """One sample for each record."""
    block = RecordBlock(Place(), 0, 0)
    return [
        Sample(number, number, block, np.zeros(2, np.uint16), 2, 0, False)
        for number in range(first, first + count)
    ]


def served(buffer, total, *, epoch=0, stream=0, step=4):
    """Return (number, records that had come in when it left) of all samples, in the order served."""
    mixing, order = buffer.begin(epoch, stream, NEVER_SERVED), []
    for first in range(0, total, step):
        mixing.add(samples(first, min(step, total - first)))
        while (found := mixing.next(first + step)) is not None:
            order.append((found[1].number, first + step))
    mixing.end(total)
    while (found := mixing.next(total)) is not None:
        order.append((found[1].number, None))
    return order


def test_without_documents_the_order_stays():
    """shuffle_buffer=0 hands on at once."""
    order = served(ShuffleBuffer(0, 1), 20)
    assert [number for number, _ in order] == list(range(20))
    assert all(seen is not None and seen - number <= 4 for number, seen in order)


def test_every_sample_leaves_once():
    """All of 5,000 samples leave, in another order."""
    numbers = [number for number, _ in served(ShuffleBuffer(400, 1), 5000)]
    assert sorted(numbers) == list(range(5000)) != numbers


def test_nothing_leaves_before_the_buffer_has_been_full():
    """The first sample leaves when 400 records have come in."""
    assert served(ShuffleBuffer(400, 1), 5000)[0][1] == 400


def test_nothing_stays_for_longer_than_the_buffer():
    """Record r has left when record r + 300 comes in: 400 less two blocks."""
    order = served(ShuffleBuffer(400, 1), 5000, step=1)
    stays = [seen - number for number, seen in order if seen is not None and number >= 400]
    assert max(stays) <= 301
    assert 140 < np.mean(stays) < 160
    assert all(seen <= 400 for number, seen in order if seen is not None and number < 100)


def test_a_buffer_larger_than_the_source_shuffles_all_of_it_evenly():
    """200 samples, 400 orders: each sample's mean place is the middle, within five standard errors."""
    places = np.zeros(200)
    for seed in range(400):
        numbers = [number for number, _ in served(ShuffleBuffer(1000, seed), 200)]
        places[numbers] += np.arange(200)
    error = np.sqrt((200**2 - 1) / 12 / 400)
    assert np.abs(places / 400 - 99.5).max() < 5 * error


def test_neighbours_are_torn_apart():
    """In the middle of a long stream a sample moves by a quarter of the buffer and more, on average."""
    numbers = np.array([number for number, _ in served(ShuffleBuffer(400, 3), 8000)])[2000:6000]
    moved = np.abs(np.diff(numbers))
    assert moved.mean() > 80  # of two in a row, each moved by 0 to 300
    assert (
        abs(np.corrcoef(numbers[:-1] - np.arange(2000, 5999), numbers[1:] - np.arange(2001, 6000))[0, 1])
        < 0.1
    )


@pytest.mark.parametrize("other", [{"seed": 2}, {"epoch": 1}, {"stream": 1}])
def test_seed_epoch_and_stream_decide_the_order(other):
    """Each of them changes it; the same ones give it again."""
    place = {"epoch": 0, "stream": 0} | {key: value for key, value in other.items() if key != "seed"}
    first = served(ShuffleBuffer(100, 1), 500)
    assert served(ShuffleBuffer(100, 1), 500) == first
    assert served(ShuffleBuffer(100, other.get("seed", 1)), 500, **place) != first


def test_the_order_is_an_interface():
    """These values stay as they are: a run that was saved goes on in this order."""
    assert [number for number, _ in served(ShuffleBuffer(16, 7), 48)] == PINNED


@pytest.mark.parametrize("size", [-1, 2.5, "many"])
def test_a_size_is_a_number(size):
    """Anything else is refused."""
    with pytest.raises(ConfigError, match="shuffle_buffer must be an integer"):
        ShuffleBuffer(size, 1)


PINNED = [
    *[
        9,
        6,
        0,
        1,
        13,
        7,
        3,
        2,
        8,
        10,
        4,
        5,
        11,
        17,
        16,
        14,
        19,
        12,
        22,
        24,
        15,
        26,
        18,
        25,
        27,
        20,
        21,
        23,
        30,
    ],
    *[28, 29, 32, 38, 34, 31, 33, 40, 44, 35, 43, 45, 41, 36, 37, 42, 39, 47, 46],
]
