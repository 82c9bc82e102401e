"""EpochPermutation: each epoch holds the same samples in an order of its own."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from tdstream.core.errors import ConfigError, StateError
from tdstream.nodes.base import PlanByReading
from tdstream.nodes.epoch_permutation import EpochPermutation


class Numbers(PlanByReading):
    """Stands for a reader of n samples; sample i is the row [i]."""

    name = "numbers"

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def read(self, indices):
        return indices[:, None].astype(np.uint32)


def test_unshuffled_positions_are_indices():
    """In every epoch."""
    node = EpochPermutation(Numbers(5), shuffle=False)
    assert node.indices(np.arange(5), epoch=3).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("order", ["feistel", "numpy"])
def test_epochs_differ_and_are_complete(order):
    """Each epoch serves every sample once, in an order that comes again when asked again."""
    node = EpochPermutation(Numbers(100), shuffle=True, seed=3, order=order)
    first, second, again = (node.indices(np.arange(100), epoch).tolist() for epoch in (0, 1, 0))
    assert sorted(first) == sorted(second) == list(range(100))
    assert first != second
    assert first == again


def test_numpy_is_the_reference_order():
    """default_rng(seed + epoch * 1000003).permutation(N)."""
    node = EpochPermutation(Numbers(50), shuffle=True, seed=9, order="numpy")
    expected = np.random.default_rng(9 + 2 * 1_000_003).permutation(50)
    assert node.indices(np.arange(50), epoch=2).tolist() == expected.tolist()


def test_reading_goes_upstream():
    """Indices are the upstream's own."""
    node = EpochPermutation(Numbers(5), shuffle=True)
    assert node.read(np.array([4, 2])).tolist() == [[4], [2]]


def test_pickling_forgets_the_permutation():
    """A numpy order of a million samples does not travel to spawned workers."""
    node = EpochPermutation(Numbers(10**6), shuffle=True, order="numpy")
    here = node.indices(np.arange(3), epoch=1).tolist()
    sent = pickle.dumps(node)
    assert len(sent) < 1_000
    assert pickle.loads(sent).indices(np.arange(3), epoch=1).tolist() == here


def test_bad_settings_are_refused():
    """Each with what was given and what is possible."""
    with pytest.raises(ConfigError, match='order must be "feistel" or "numpy", got \'best\''):
        EpochPermutation(Numbers(5), shuffle=True, order="best")
    with pytest.raises(ConfigError, match="seed must be an integer of at least 0, got -1"):
        EpochPermutation(Numbers(5), shuffle=True, seed=-1)
    with pytest.raises(ConfigError, match="seed must be an integer of at least 0, got '7'"):
        EpochPermutation(Numbers(5), shuffle=True, seed="7")
    with pytest.raises(
        ConfigError, match=r"at most 2\^48 samples can be ordered, the corpus has 281,474,976,710,657"
    ):
        EpochPermutation(Numbers(2**48 + 1), shuffle=True)


def test_identity_is_order_and_seed():
    """Another seed or order is refused by name; of an unshuffled corpus the seed does not matter."""
    state = EpochPermutation(Numbers(5), shuffle=True, seed=1).state_dict()
    with pytest.raises(StateError, match=r"permutation\.seed was 1, is 2"):
        EpochPermutation(Numbers(5), shuffle=True, seed=2).load_state_dict(state)
    with pytest.raises(StateError, match=r"permutation\.order was 'feistel', is 'numpy'"):
        EpochPermutation(Numbers(5), shuffle=True, seed=1, order="numpy").load_state_dict(state)
    plain = EpochPermutation(Numbers(5), shuffle=False, seed=1).state_dict()
    EpochPermutation(Numbers(5), shuffle=False, seed=2).load_state_dict(plain)
