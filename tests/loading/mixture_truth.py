"""What a mixture must hand out, computed anew: sources whose samples say which they are."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

from loader_truth import STRIDE, Ids, epoch_order, write_counting_corpus

import tdstream

SIZES = {"tiny": 5, "small": 23, "mid": 60, "large": 1499}
"""Samples of each source."""
FIRST = {name: 2000 * number for number, name in enumerate(SIZES)}
"""The number of each source's first sample."""


def write_sources(directory: Path) -> dict[str, Path]:
    """Write a corpus for each source, in two shards; samples of source k are 2000 k, 2000 k + 1, ..."""
    return {
        name: write_counting_corpus(directory / name, (7, size * STRIDE - 5), first=FIRST[name] * STRIDE)
        for name, size in SIZES.items()
    }


def source_of(sample: int) -> str:
    """Return the source that a sample is of."""
    return list(SIZES)[sample // 2000]


def own_order(name: str, order: str) -> Iterator[int]:
    """Yield a source's samples, one of its epochs after the other."""
    for epoch in itertools.count():
        for sample in epoch_order(order, epoch, SIZES[name]):
            yield FIRST[name] + sample


def check_own_orders(samples: Iterable[int], order: str) -> None:
    """Each source must have given its samples in its own order, none twice, none left out."""
    orders = {name: own_order(name, order) for name in SIZES}
    for sample in samples:
        assert sample == next(orders[source_of(sample)])


def mixture_of(sources: dict[str, Path], weights: dict[str, float], **options: object) -> tdstream.Mixture:
    """Return a mixture of the sources that have a weight."""
    return tdstream.Mixture({name: sources[name] for name in weights}, weights=weights, **options)


def flat(batches: Iterable[Ids]) -> list[int]:
    """Return the samples of batches, in order."""
    return list(itertools.chain.from_iterable(batches))
