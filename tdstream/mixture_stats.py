"""Say what a run has been given of each source of a mixture; from where it stands, not by counting along."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tdstream.errors import ConfigError
from tdstream.journey import Journey, Leg
from tdstream.mixtures.schedule import Ints, Schedule
from tdstream.pipeline import Pipeline


def mixture_stats(journey: Journey, pipeline: Pipeline) -> dict[str, dict[str, int]]:
    """Return, by source, the samples and tokens that trainers were given, and its epochs that are through.

    Args:
        journey: Where the run stands.
        pipeline: What it reads.

    Raises:
        ConfigError: If that is no mixture.
    """
    if pipeline.mixture is None:
        raise ConfigError("mixture_stats() counts the sources of a mixture, and this is one source.")
    plan = pipeline.mixture.plan
    samples, epochs = _given(journey, plan.schedule), _used(plan.schedule, *journey.place)
    epochs //= plan.schedule.sizes
    return {
        name: {"samples": count, "tokens": count * pipeline.seq_len, "epochs": whole}
        for name, count, whole in zip(plan.names, samples.tolist(), epochs.tolist(), strict=True)
    }


def _given(journey: Journey, schedule: Schedule) -> Ints:
    """Return the samples of each source in the steps of a run; those before its oldest leg as if all were."""
    first = journey.legs[0]
    given = _used(schedule, first.epoch, first.position) if first.step else np.zeros_like(schedule.sizes)
    ends = [leg.step for leg in journey.legs[1:]] + [journey.step]
    for leg, end in zip(journey.legs, ends, strict=True):
        for epoch, begin, stop in _stretches(journey, leg, end - leg.step):
            given += _between(schedule, epoch, begin, stop)
    return given


def _stretches(journey: Journey, leg: Leg, steps: int) -> Iterator[tuple[int, int, int]]:
    """Yield (epoch, first position, position behind the last) of a leg's steps, epoch by epoch."""
    epoch, position = leg.epoch, leg.position
    while steps:
        here = min(journey.left_at((epoch, position), leg.global_batch), steps)
        yield epoch, position, position + here * leg.global_batch
        epoch, position, steps = epoch + 1, 0, steps - here


def _between(schedule: Schedule, epoch: int, begin: int, stop: int) -> Ints:
    """Return the samples of each source between positions; behind the end, of those that fill the epoch."""
    samples = schedule.num_samples(epoch)
    count: Ints = _used(schedule, epoch, stop) - _used(schedule, epoch, begin)
    if stop > samples:
        first = schedule.fills_from(epoch)
        times, rest = divmod(stop - samples, samples - first)
        start = _used(schedule, epoch, first)
        count = count + times * (_used(schedule, epoch, samples) - start)
        count = count + _used(schedule, epoch, first + rest) - start
    return count


def _used(schedule: Schedule, epoch: int, position: int) -> Ints:
    return schedule.used(epoch, min(position, schedule.num_samples(epoch)))
