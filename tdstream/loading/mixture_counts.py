"""What trainers were given of each source of a mixture, counted from the spans of a run."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tdstream.core.errors import ConfigError
from tdstream.pipelines.pipeline import Pipeline
from tdstream.schedule.mixture_schedule import Ints, Schedule
from tdstream.schedule.run_cursor import RunCursor, RunSpan

_MOST_EPOCHS = 100_000  # counted one by one


def count_mixture(cursor: RunCursor, pipeline: Pipeline) -> dict[str, dict[str, int]]:
    """Return, by source, the samples and tokens that trainers were given, and its complete epochs."""
    if pipeline.mixture is None:
        raise ConfigError("mixture_stats() counts the sources of a mixture, and this is one source.")
    plan = pipeline.mixture.mixture_plan
    samples, epochs = _count_given(cursor, plan.schedule), _used(plan.schedule, *cursor.place)
    epochs //= plan.schedule.sizes
    return {
        name: {"samples": count, "tokens": count * pipeline.seq_len, "epochs": whole}
        for name, count, whole in zip(plan.names, samples.tolist(), epochs.tolist(), strict=True)
    }


def _count_given(cursor: RunCursor, schedule: Schedule) -> Ints:
    """Return the samples of each source in a run's steps; before the oldest span, as if none were skipped."""
    first = cursor.spans[0]
    given = _used(schedule, first.epoch, first.position) if first.step else np.zeros_like(schedule.sizes)
    ends = [span.step for span in cursor.spans[1:]] + [cursor.step]
    for span, end in zip(cursor.spans, ends, strict=True):
        for epochs, epoch, begin, stop in _split_by_epoch(cursor, schedule, span, end - span.step):
            # With "keep", the rows that fill the last batch are not given.
            last = min(stop, schedule.num_samples(epoch)) if cursor.keep else stop
            given += epochs * _count_between(schedule, epoch, begin, last)
    return given


def _split_by_epoch(
    cursor: RunCursor, schedule: Schedule, span: RunSpan, steps: int
) -> Iterator[tuple[int, int, int, int]]:
    """Yield (epochs, the first of them, first position, position after the last) of the steps of a span."""
    epoch, position = span.epoch, span.position
    while steps:
        here = min(cursor.left_at((epoch, position), span.global_batch), steps)
        yield 1, epoch, position, position + here * span.global_batch
        epoch, position, steps = epoch + 1, 0, steps - here
        whole, change = cursor.left_at((epoch, 0), span.global_batch), cursor.lengths.next_change(epoch)
        if not whole:
            if change is None:
                return  # no later epoch has a batch
            epoch = change
            continue
        # Epochs that are alike are counted together, but for places that an exchange of neighbours divides.
        stop = whole * span.global_batch
        alike = steps // whole if change is None else min(steps // whole, change - epoch)
        if alike > 1 and _is_same_in_all(schedule, epoch, stop):
            yield alike, epoch, 0, stop
            epoch, steps = epoch + alike, steps - alike * whole
        elif alike > _MOST_EPOCHS:
            raise ConfigError(
                f"mixture_stats() counts at most {_MOST_EPOCHS:,} epochs one by one, and {alike:,} passed."
            )


def _count_between(schedule: Schedule, epoch: int, begin: int, stop: int) -> Ints:
    """Return the samples of each source between two positions.

    Positions after the epoch's end stand for the samples that fill its last batch, again and again: of 10
    samples filled from position 4, positions 8 to 17 are 8, 9, then 4 to 9, then 4, 5.
    """
    samples = schedule.num_samples(epoch)
    count: Ints = _used(schedule, epoch, stop) - _used(schedule, epoch, begin)
    if stop > samples:
        first = schedule.fills_from(epoch)
        rounds, rest = divmod(stop - samples, samples - first)
        start = _used(schedule, epoch, first)
        count = count + rounds * (_used(schedule, epoch, samples) - start)
        count = count + _used(schedule, epoch, first + rest) - start
    return count


def _is_same_in_all(schedule: Schedule, epoch: int, stop: int) -> bool:
    """Return whether all epochs like this one have the same samples of each source before a position."""
    samples, first = schedule.num_samples(epoch), schedule.fills_from(epoch)
    places = [stop] if stop <= samples else [first, first + (stop - samples) % (samples - first)]
    return all(schedule.is_same_in_all(epoch, place) for place in places)


def _used(schedule: Schedule, epoch: int, position: int) -> Ints:
    return schedule.used(epoch, min(position, schedule.num_samples(epoch)))
