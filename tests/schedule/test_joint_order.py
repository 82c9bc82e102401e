"""Orders of several sources in one call are the sources' own orders."""

from __future__ import annotations

import numpy as np
import pytest

from tdstream.schedule.order import JointOrder, feistel_order

SIZES = (1, 2, 7, 1000, 62_501, 2**48)


@pytest.mark.parametrize("most", [1, 3, 10**6], ids=["one epoch", "near epochs", "far epochs"])
def test_each_sample_is_the_one_of_its_sources_order(most):
    """Whatever sources and epochs are asked for together, each entry is that of its own bijection."""
    dice = np.random.default_rng(most)
    sources = dice.integers(0, len(SIZES), 3000)
    epochs = dice.integers(0, most, 3000)
    positions = dice.integers(0, np.array(SIZES)[sources])
    found = JointOrder(SIZES, 5).indices(sources, epochs, positions)
    assert found.dtype == np.int64
    expected = [
        int(feistel_order(SIZES[source], 5, epoch)(np.array([position]))[0])
        for source, epoch, position in zip(sources[:400], epochs[:400].tolist(), positions[:400], strict=True)
    ]
    assert found[:400].tolist() == expected


def test_a_whole_epoch_of_each_source_is_a_permutation():
    """No sample is missing where all of two sources' epochs are asked for at once."""
    sizes, sources = (997, 61), np.repeat([0, 1, 1], [997, 61, 61])
    epochs, positions = (
        np.repeat([4, 2, 3], [997, 61, 61]),
        np.concatenate([np.arange(n) for n in (997, 61, 61)]),
    )
    found = JointOrder(sizes, 1).indices(sources, epochs, positions)
    for source, epoch in ((0, 4), (1, 2), (1, 3)):
        here = (sources == source) & (epochs == epoch)
        assert sorted(found[here].tolist()) == list(range(sizes[source]))
