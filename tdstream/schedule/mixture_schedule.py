"""The order of a mixture: the sample at any position of any epoch, by arithmetic; nothing is read.

The samples of a run are numbered over all its epochs. A *stage* is a stretch of samples with the same
weights. A *segment* is a stretch of an epoch with the same sources and weights: one interleaving. It ends
with its stage, with its epoch, or where a source leaves. All epochs inside one stage are alike, so any epoch
is found without simulating the earlier ones.

The samples that a source contributes to the run are numbered over stages and epochs: sample u of a source of
N samples is position u mod N of the source's epoch u div N. With N = 10, sample 23 is position 3 of epoch 2.
"""

from __future__ import annotations

import hashlib
import math
import numbers
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tdstream.core.checks import LARGEST
from tdstream.core.errors import ConfigError
from tdstream.schedule.interleave import PERIOD, Interleaving

Ints = NDArray[np.int64]

STOPS = ("first", "all", "drop")
"""An epoch ends when the first source is used up, or all are; with "drop", sources leave one by one."""

_KEPT = 4  # interleavings in memory; others are made again


class Stage(NamedTuple):
    """Weights that hold from a sample of the run on."""

    start: int
    """Samples of the run before it."""
    weights: Ints
    """[num_sources], whole numbers; 0 for a source that is not in the mixture."""


class _Segment(NamedTuple):
    start: int  # its first position
    until: int  # where it ends unless its stage ends first: later stages do not change it
    weights: Ints
    used: Ints  # earlier samples of each source in the epoch


class _Epoch(NamedTuple):
    length: int
    used: Ints  # samples of each source
    segments: list[_Segment]
    starts: Ints  # of the segments


class _Run(NamedTuple):
    """Epochs that are alike."""

    first: int
    until: int | None  # the first later epoch; None if there is none
    base: int  # samples of the run before them
    used: Ints  # the same by source
    epoch: _Epoch


class Schedule:
    """The order of a mixture, from the sizes of its sources and its stages, the first of which begins at 0.

    `stop` is one of STOPS. `max_epochs` limits the passes over each source in an epoch; None means one with
    "first" and "drop", and no limit with "all". `seed` changes the order from period to period; None
    keeps one order.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        stages: Sequence[Stage],
        *,
        stop: str,
        max_epochs: Sequence[int | None],
        seed: int | None,
    ) -> None:
        self.sizes, self.stages, self.stop, self.seed = np.array(sizes, np.int64), list(stages), stop, seed
        default = LARGEST if stop == "all" else 1
        pairs = zip(sizes, max_epochs, strict=True)
        limits = [min(size * (most or default), LARGEST) for size, most in pairs]
        self._limits = np.array(limits, np.int64)
        self._runs: list[_Run] = []
        self._interleavings: dict[bytes, Interleaving] = {}

    def num_samples(self, epoch: int) -> int:
        """Return N, the positions of an epoch."""
        return self._run(epoch).epoch.length

    def next_change(self, epoch: int) -> int | None:
        """Return the first epoch after this one whose length may differ; None if none has."""
        return self._run(epoch).until

    def fills_from(self, epoch: int) -> int:
        """Return the position from which an epoch's incomplete last batch is filled.

        It is 0; or, if stages removed sources during the epoch, the place where the last one left: all later
        samples are of sources that are still in the mixture.
        """
        base, last = self.base(epoch), self.base(epoch) + self.num_samples(epoch) - 1
        absent, found = self._weights_at(last) == 0, last
        for stage in (stage for stage in reversed(self.stages) if stage.start <= last):
            if stage.weights[absent].any():
                return max(found - base, 0)
            found = stage.start
        return 0

    def base(self, epoch: int) -> int:
        """Count the samples of the run before an epoch."""
        run = self._run(epoch)
        return run.base + (epoch - run.first) * run.epoch.length

    def at(self, positions: Ints, epoch: int) -> tuple[Ints, Ints]:
        """Return the sources at positions [n] of an epoch, and the numbers of their samples in the run."""
        run = self._run(epoch)
        which = np.searchsorted(run.epoch.starts, positions, side="right") - 1
        first, last = int(which.min()), int(which.max())
        if first == last:
            sources, numbers = self._at(epoch, first, run.epoch.segments[first], positions)
        else:
            sources, numbers = np.empty_like(positions), np.empty_like(positions)
            for number in np.unique(which).tolist():
                here = np.flatnonzero(which == number)
                found = self._at(epoch, number, run.epoch.segments[number], positions[here])
                sources[here], numbers[here] = found
        return sources, numbers + self._used_before(run, epoch)[sources]

    def _at(self, epoch: int, number: int, segment: _Segment, positions: Ints) -> tuple[Ints, Ints]:
        """Return `at` for positions in one segment, with numbers counted in this epoch only."""
        options = self._key(epoch, number), segment.until - segment.start
        sources, counts = self._interleaving(segment).at(positions - segment.start, *options)
        return sources, counts + segment.used[sources]

    def used(self, epoch: int, position: int) -> Ints:
        """Count the samples of each source in the run before a position of an epoch, [num_sources]."""
        run = self._run(epoch)
        number = max(int(np.searchsorted(run.epoch.starts, position, side="left")) - 1, 0)
        used: Ints = self._used_in(epoch, number, run.epoch.segments[number], position)
        return used + self._used_before(run, epoch)

    def is_same_in_all(self, epoch: int, position: int) -> bool:
        """Return whether all epochs of a run have the same samples of each source before a position."""
        run = self._run(epoch)
        number = max(int(np.searchsorted(run.epoch.starts, position, side="left")) - 1, 0)
        segment = run.epoch.segments[number]
        place, length = position - segment.start, segment.until - segment.start
        exchanged = place % 2 and place // PERIOD < length // PERIOD  # a pair that the place may divide
        return self.seed is None or not exchanged

    def _used_in(self, epoch: int, number: int, segment: _Segment, position: int) -> Ints:
        """Count the samples of each source in an epoch before a position of a segment, its end included."""
        options = self._key(epoch, number), segment.until - segment.start
        return segment.used + self._interleaving(segment).counts_at(position - segment.start, *options)

    def _used_before(self, run: _Run, epoch: int) -> Ints:
        return run.used + (epoch - run.first) * run.epoch.used

    def _key(self, epoch: int, segment: int) -> int | None:
        if self.seed is None:
            return None
        text = f"tdstream mixture 1 {self.seed} {epoch} {segment}"
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")

    def _run(self, epoch: int) -> _Run:
        """Return the run that holds an epoch; runs are computed when they are needed."""
        while not self._runs or epoch >= (self._runs[-1].until or math.inf):
            self._runs.append(self._next_run())
        firsts = [run.first for run in self._runs]
        run = self._runs[int(np.searchsorted(firsts, epoch, side="right")) - 1]
        if run.base + (epoch - run.first + 1) * run.epoch.length > LARGEST:
            raise ConfigError(f"epoch {epoch:,} of a mixture would end after 2^62 samples; choose another.")
        return run

    def _next_run(self) -> _Run:
        first, base, used = 0, 0, np.zeros(len(self.sizes), np.int64)
        if self._runs:
            last = self._runs[-1]
            first = last.until or 0
            base = last.base + (first - last.first) * last.epoch.length
            used = self._used_before(last, first)
        epoch = self._simulated(first, base)
        change = min((stage.start for stage in self.stages if stage.start > base), default=None)
        until = None if change is None else first + max((change - base) // epoch.length, 1)
        return _Run(first, until, base, used, epoch)

    def _simulated(self, epoch: int, base: int) -> _Epoch:
        """Simulate an epoch, segment by segment."""
        used: Ints = np.zeros(len(self.sizes), np.int64)
        position, segments = 0, list[_Segment]()
        while position == 0 or not self._is_over(base + position, used):
            segment = _Segment(position, position, self._left(base + position, used), used)
            segment = segment._replace(until=position + self._length(segment))
            stages = [stage.start - base for stage in self.stages if stage.start > base + position]
            position = min([segment.until, *stages])
            if position >= LARGEST:
                raise ConfigError("a mixture's epoch has 2^62 samples or more; choose a smaller max_epochs.")
            used = self._used_in(epoch, len(segments), segment, position)
            segments.append(segment)
        return _Epoch(position, used, segments, np.array([segment.start for segment in segments]))

    def _left(self, sample: int, used: Ints) -> Ints:
        """Return the weights at a sample of the run, 0 for sources that are used up."""
        return np.where(used < self._limits, self._weights_at(sample), 0)

    def _is_over(self, sample: int, used: Ints) -> bool:
        """Return whether an epoch ends before a sample of the run, by the stage of either neighbour."""
        for at in (sample - 1, sample):
            done = used >= (self.sizes if self.stop == "all" else self._limits)
            present = done[self._weights_at(at) > 0]
            if present.any() if self.stop == "first" else present.all():
                return True
        return False

    def _length(self, segment: _Segment) -> int:
        """Count the samples until a source leaves or the epoch ends."""
        present, interleaving = segment.weights > 0, self._interleaving(segment)
        ends = [interleaving.first(np.where(present, self._limits - segment.used, 0))]
        lacking = np.where(present, np.maximum(self.sizes - segment.used, 0), 0)
        if self.stop == "all" and lacking.any():
            ends.append(interleaving.last(lacking))
        return min(ends)

    def _weights_at(self, sample: int) -> Ints:
        return next(stage.weights for stage in reversed(self.stages) if stage.start <= sample)

    def _interleaving(self, segment: _Segment) -> Interleaving:
        """Return a segment's interleaving, from a cache of the last few."""
        key = segment.weights.tobytes()
        if key not in self._interleavings:
            if len(self._interleavings) >= _KEPT:
                del self._interleavings[next(iter(self._interleavings))]
            self._interleavings[key] = Interleaving(segment.weights)
        return self._interleavings[key]


Weights = dict[str, float]
"""Weight by source; sources without one are not in the mixture."""

_MOST = 2**35  # so that products of sums with a million samples fit into 64 bits
_SIMPLE = 1000  # the largest denominator that a rounded weight may stand for: 0.333333 for 1/3


def check_weights(weights: Mapping[str, Any], names: Sequence[str]) -> Weights:
    """Return weights rounded to six digits; raise ConfigError unless they are numbers above 0 of sources."""
    if not isinstance(weights, Mapping) or not weights:
        raise ConfigError(f'weights are a dict such as {{"{names[0]}": 0.7}}, got {weights!r}.')
    unknown = sorted(set(map(str, weights)) - set(names))
    if unknown:
        raise ConfigError(
            f"weights name {', '.join(unknown)}, which are not sources; sources are {', '.join(names[:20])}."
        )
    return {name: _check_weight(name, weight) for name, weight in weights.items()}


def _check_weight(name: str, weight: Any) -> float:
    if not _is_number(weight) or not _is_finite(weight) or weight <= 0:
        raise ConfigError(
            f"the weight of {name} must be a number above 0, got {weight!r}. "
            f"To take a source out of the mixture, leave it out."
        )
    return _round(weight)


def _round(weight: Any) -> float:
    """Return a weight rounded to six digits; a whole one as an int."""
    rounded = float(f"{float(weight):.6g}")
    return int(rounded) if rounded.is_integer() and rounded < 2**53 else rounded


def _is_finite(value: Any) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number above all floats
        return False


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def find_size_weights(sizes: Mapping[str, int], temperature: float) -> Weights:
    """Return weights in proportion to size ** (1 / temperature); the temperature is above 0."""
    if not _is_number(temperature) or not temperature > 0:
        raise ConfigError(f"temperature must be a number above 0, got {temperature!r}.")
    largest = max(sizes.values())
    if temperature == 1:
        return {name: _round(size) for name, size in sizes.items()}
    # At least 1e-9, so that no weight is rounded to 0.
    return {name: _round(max((size / largest) ** (1 / temperature), 1e-9)) for name, size in sizes.items()}


def whole_weights(weights: Weights, names: Sequence[str]) -> NDArray[np.int64]:
    """Return the weights of `names` as whole numbers in the same proportion, with a sum below 2^36.

    For names a, b, c, {"a": 0.333333, "b": 0.666667} gives [1, 2, 0].
    """
    fractions = {name: _fraction(weight) for name, weight in weights.items()}
    total = sum(fractions.values())
    shares = {name: fraction / total for name, fraction in fractions.items()}
    common = 1
    for share in shares.values():
        common = math.lcm(common, share.denominator)
        if common > _MOST:
            break
    if common <= _MOST:
        found = {name: int(share * common) for name, share in shares.items()}
    else:
        found = {name: max(round(float(share) * _MOST), 1) for name, share in shares.items()}
    return np.array([found.get(name, 0) for name in names], np.int64)


def _fraction(weight: float) -> Fraction:
    """Return a weight of six digits as a fraction: a simple one, if that rounds to the same weight."""
    exact = Fraction(repr(weight))
    simple = exact.limit_denominator(_SIMPLE)
    return simple if abs(simple - exact) <= exact / 500_000 else exact
