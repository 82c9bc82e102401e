"""The description of a mixture: which sources, in which shares, from when on, and when an epoch ends."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from tdstream.core.checks import check_int, make_absolute
from tdstream.core.errors import ConfigError
from tdstream.schedule.mixture_schedule import STOPS, Weights, check_weights, find_size_weights


class Mixture:
    """Several sources, interleaved sample by sample; `build` and `loader` take it in place of a directory.

    Each source keeps its own order and its own epochs: whatever the weights, their changes and the mixture's
    epochs, it yields each of its samples once before any a second time. Weights are given in one of four
    ways: with the sources, as `weights`, by size, or in `stages`; they are rounded to six digits.

    Args:
        sources: name -> source, or name -> (source, weight).
        weights: name -> share of the samples, in any unit; or "tokens": by the number of tokens.
        temperature: Weights in proportion to size ** (1 / temperature): above 1 small sources have more
            than their size, below 1 less.
        stages: [(0, weights), (1_000_000, weights), ...]: the weights from a number of samples of the run
            on, over all ranks and epochs. A source that a stage does not name takes no part in it.
        stop: When an epoch of the mixture ends. "first": with the first source that is used up. "all": when
            all have been used up at least once; the others start over until then. "drop": a source that is
            used up leaves, and the others share its weight, until none is left.
        max_epochs: How many times an epoch of the mixture takes a source before it is used up, for all or by
            name; default 1, and with "all" no limit: there, a source with a limit leaves when it reaches it.

    Raises:
        ConfigError: If weights are missing, given twice, not above 0 or for an unknown source, or an
            argument is out of range.
    """

    def __init__(
        self,
        sources: Mapping[str, Any],
        *,
        weights: Mapping[str, float] | str | None = None,
        temperature: float | None = None,
        stages: Sequence[tuple[int, Mapping[str, float]]] | None = None,
        stop: str = "first",
        max_epochs: int | Mapping[str, int] | None = None,
    ) -> None:
        if not isinstance(sources, Mapping) or not sources:
            raise ConfigError(
                f'sources must be a dict such as {{"web": ("data/web", 0.7)}}, got {sources!r}.'
            )
        if not all(isinstance(name, str) and name for name in sources):
            raise ConfigError(f"the names of sources must be non-empty strings, got {list(sources)!r}.")
        if stop not in STOPS:
            raise ConfigError(f'stop must be "first", "all" or "drop", got {stop!r}.')
        self.names, self.stop = list(sources), stop
        pairs = {name: source for name, source in sources.items() if isinstance(source, tuple)}
        if any(len(pair) != 2 for pair in pairs.values()):
            raise ConfigError("a source must be a directory, or a pair of a directory and its weight.")
        given = {name: pairs[name][0] if name in pairs else sources[name] for name in sources}
        self.sources = {
            name: make_absolute(source) if isinstance(source, (str, os.PathLike)) else source
            for name, source in given.items()
        }
        self.max_epochs = self._check_max_epochs(max_epochs)
        if temperature is not None and weights not in (None, "tokens"):
            raise ConfigError('temperature makes weights of sizes; leave weights out, or weights="tokens".')
        if weights == "tokens" or temperature is not None:
            weights = None
            temperature = 1 if temperature is None else temperature
            find_size_weights({"": 1}, temperature)  # which checks it
        elif isinstance(weights, str):
            raise ConfigError(f'weights must be a dict or "tokens", got {weights!r}.')
        self.temperature = temperature
        paired = {name: pair[1] for name, pair in pairs.items()} or None
        self._stages = self._check_weights(paired, weights, stages)

    def stages(self, sizes: Mapping[str, int]) -> list[tuple[int, Weights]]:
        """Return (first sample, weights) of each stage, given the sources' sizes."""
        if self.temperature is not None:
            return [(0, find_size_weights(sizes, self.temperature))]
        return self._stages

    def _check_weights(self, paired: Any, weights: Any, stages: Any) -> list[tuple[int, Weights]]:
        """Return the stages, which must be given in exactly one way; [] where sizes decide."""
        ways = {
            "with the sources": paired,
            "as weights": weights,
            "by size": self.temperature,
            "in stages": stages,
        }
        given = [way for way, value in ways.items() if value is not None]
        if len(given) != 1:
            problem = f"weights are given {' and '.join(given)}" if given else "no weights are given"
            raise ConfigError(
                f'{problem}. Give them in one way: with the sources, as {{"web": ("data/web", 0.7), ...}}; '
                f'as weights=...; by size, as weights="tokens" or temperature=...; or in stages=....'
            )
        if stages is not None:
            return self._check_stages(stages)
        if self.temperature is not None:
            return []
        found = check_weights(paired or weights, self.names)
        missing = [name for name in self.names if name not in found]
        if missing:
            raise ConfigError(f"{', '.join(missing)} has no weight; give it one, or leave it out.")
        return [(0, found)]

    def _check_stages(self, stages: Any) -> list[tuple[int, Weights]]:
        pairs = isinstance(stages, Sequence) and all(
            isinstance(stage, Sequence) and len(stage) == 2 for stage in stages
        )
        if not pairs or not stages:
            raise ConfigError(f"stages must be pairs of a number of samples and weights, got {stages!r}.")
        found = [
            (check_int("the start of a stage", start, at_least=0), check_weights(weights, self.names))
            for start, weights in stages
        ]
        starts = [start for start, _ in found]
        if starts[0] != 0 or any(later <= earlier for earlier, later in pairwise(starts)):
            raise ConfigError(f"the starts of stages must rise from 0, got {starts}.")
        return found

    def _check_max_epochs(self, max_epochs: Any) -> dict[str, int]:
        if max_epochs is None:
            return {}
        if not isinstance(max_epochs, Mapping):
            max_epochs = dict.fromkeys(self.names, max_epochs)
        unknown = sorted(set(map(str, max_epochs)) - set(self.names))
        if unknown:
            raise ConfigError(f"max_epochs names {', '.join(unknown)}, which are not sources.")
        return {
            name: check_int(f"max_epochs of {name}", most, at_least=1) for name, most in max_epochs.items()
        }
