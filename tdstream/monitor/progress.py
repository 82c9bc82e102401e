"""A tqdm progress bar with the exact total of the epoch, tokens per second, and the share of waiting."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal, NamedTuple
from weakref import WeakKeyDictionary

from tdstream.core.progress_bar import ProgressBar
from tdstream.distributed.topology import Topology, find_topology
from tdstream.loading.torchdata_workarounds import batches_before
from tdstream.monitor.meter import DataMeter
from tdstream.streams.total_hint import TotalHint, find_hint

_APART_S, _KEPT = 0.5, 64  # between snapshots; snapshots kept, about half a minute of them
_ESTIMATE = "{l_bar}{bar}| {n_fmt}/~{total_fmt} [{elapsed}<{remaining}, {rate_fmt}{postfix}]"


def progress(
    loader: Iterable[Any],
    *,
    epoch: int | None = None,
    desc: str | None = None,
    meter: DataMeter | None = None,
    **tqdm_options: Any,
) -> Progress:
    """Return a tqdm over one pass of a loader, with the true total of the epoch.

    The total is `len(loader)`. For a loader without a length it is `loader.total_hint()` (see
    `tdstream.streams.total_hint`): batches or documents counted before, or an estimate. In a second pass, the
    batches of the first are the estimate. Estimates are marked `~`. After a resume the bar starts where the
    run left the epoch. A complete pass ends at 100 %.

    After the keys of `set_postfix` come `tok/s`, tokens per second over all data-parallel ranks if all are as
    fast as this one, and `wait`, the share of time that the loop waited for data. Both cover
    about the last half minute, or the whole pass once it is over.

    Only rank 0 shows a bar. If the output is neither a terminal nor a notebook (a log file), lines are
    written: one at the start, one per `mininterval`, and one at the end.

    Args:
        loader: Any iterable of batches: `tdstream.loader`, StatefulDataLoader, DataLoader, ...
        epoch: Labels the bar "Epoch {epoch}"; the bar never calls `set_epoch`.
        desc: Another label.
        meter: Measures the waits; several bars may share one. By default each bar has its own, `bar.meter`.
        **tqdm_options: Passed to tqdm. The default `mininterval` is 0.1 s on a terminal or in a notebook,
            else 30 s.
    """
    if desc is None and epoch is not None:
        desc = f"Epoch {epoch}"
    return Progress(loader, meter=meter or DataMeter(), desc=desc, **tqdm_options)


class Progress(ProgressBar):
    """The bar returned by `progress`."""

    def __init__(self, loader: Iterable[Any], *, meter: DataMeter, **options: Any) -> None:
        self.meter = meter
        self._ranks = _data_parallel_size(loader)
        self._unit, self._bar_format = options.get("unit"), options.get("bar_format")
        self._epoch_total = EpochTotal(loader, total=options.get("total"), initial=options.get("initial"))
        self._start_rate()
        self._has_started = self._is_over = False
        options.setdefault("disable", find_topology().dp_rank != 0)
        options = {"unit": "batch", "initial": self._epoch_total.batches, **options}
        super().__init__(loader, **options)

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches of one pass."""
        batches = self.meter.watch(self.iterable)
        if self.disable:
            yield from batches
            return
        self._start()
        complete = False
        try:
            for batch in batches:
                self._epoch_total.start_batch()
                yield batch
                self._step()
            complete = True
        finally:
            self._finish(complete)

    def _start(self) -> None:
        """Start at the loader's present position: a state may have been loaded after the bar was made."""
        self._epoch_total.start()
        self._has_started = True
        if self.n != self._epoch_total.batches:
            self.initial = self.n = self.last_print_n = self._epoch_total.batches
            self.refresh()
        self._start_rate()
        if self._in_lines:
            self.refresh()  # writes the first line

    def _start_rate(self) -> None:
        """Measure speed from now on."""
        known = self._epoch_total.update()
        self._is_start_unknown = known is None or not (known.is_exact or known.done)
        self._done_at_start = self._done()
        self._rate = Rate(self.meter, self._done_at_start)

    def _step(self) -> None:
        self._epoch_total.finish_batch()
        if self._is_start_unknown and self._epoch_total.update() is not None:
            self._is_start_unknown, self._done_at_start = False, self._done()
            self._rate.rebase(self._done_at_start)
        self._rate.step(self._done)
        self.update(self._epoch_total.batches - self.n)

    def _finish(self, complete: bool) -> None:
        self._epoch_total.finish(complete=complete)
        self._rate.finish(self._done())
        self.n, self._is_over = self._epoch_total.batches, True
        self.close()

    def _done(self) -> int:
        """Return the amount done, in the unit shown."""
        known = self._epoch_total.update()
        return self._epoch_total.batches if known is None else known.done

    @property
    def format_dict(self) -> MutableMapping[str, Any]:
        """The values tqdm shows, with the true total, and tokens and waits after the postfix."""
        shown: MutableMapping[str, Any] = super().format_dict
        if "rate" not in shown:  # a bar that was never shown
            return shown
        known = self._epoch_total.update()
        shown["n"] = self._epoch_total.batches
        if known is not None:
            shown["n"], shown["total"] = known.done, known.total
            shown["bar_format"] = self._bar_format or (None if known.is_exact else _ESTIMATE)
        if known is not None and known.unit != "batch":
            shown["unit"], shown["rate"] = self._unit or known.unit, self._rate.units_per_s or None
            shown["initial"] = self._done_at_start
        elif self._is_over:
            shown["rate"] = None  # all batches by the whole time
        shown["postfix"] = ", ".join(part for part in (str(self.postfix or ""), *self._own_postfix()) if part)
        return shown

    def _own_postfix(self) -> Iterator[str]:
        """Yield tokens and waits, unless set_postfix was given the same keys."""
        given = self.postfix or ""
        if self._rate.tokens_per_s and "tok/s=" not in given:
            yield f"tok/s={self.format_sizeof(self._ranks * self._rate.tokens_per_s).strip()}"
        share = self._rate.wait_share
        if share is not None and "wait=" not in given:
            yield f"wait={100 * share:.0f}%"

    def display(self, msg: str | None = None, pos: int | None = None) -> bool:  # type: ignore[override]  # as in tqdm
        """Draw the bar, or write a line if one is due; before the pass begins, its place is unknown."""
        return (self._has_started or not self._in_lines) and super().display(msg, pos)


def _data_parallel_size(loader: Any) -> int:
    """Return the number of ranks that read different batches."""
    pipeline = getattr(loader, "dataset", None)
    known = getattr(getattr(pipeline, "splitter", pipeline), "topology", None)
    return known.dp_world_size if isinstance(known, Topology) else find_topology().dp_world_size


_last_totals: MutableMapping[Any, int] = WeakKeyDictionary()  # loader -> batches of its last complete pass


class EpochTotal:
    """The best known total of one pass over a loader; `find_hint` defines the order of preference.

    `total` is the number of batches in the epoch and `initial` the number done before the first batch, if the
    caller knows them.
    """

    def __init__(self, loader: Any, *, total: int | None = None, initial: int | None = None) -> None:
        self._loader, self._total, self._initial = loader, total, initial
        self.start()

    def start(self) -> None:
        """Start the pass; call it again if the loader may have changed before the first batch."""
        self._length = _len(self._loader) if self._total is None else self._total
        self.batches = batches_before(self._loader) if self._initial is None else self._initial
        """Batches of the epoch that the loop has finished, those before a resume included."""
        self._in_loop, self._has_started, self._is_over = 0, False, False
        self.update()

    def start_batch(self) -> None:
        """Note that the loop has received a batch."""
        self._in_loop = 1
        if not self._has_started and self._initial is None:
            # A loader knows its epoch, and so this count, once it has yielded a batch.
            done = getattr(self._loader, "batches_done", None)
            self.batches = done - 1 if isinstance(done, int) and done > 0 else self.batches
        self._has_started = True

    def finish_batch(self) -> None:
        """Note that the loop has finished the batch."""
        self._in_loop = 0
        self.batches += 1

    def update(self) -> TotalHint | None:
        """Return what is known now, `done` never above `total`; None if nothing is."""
        if not self._is_over:
            best = self._choose(find_hint(self._loader) if self._total is None else None)
            if best is not None and best.unit != "batch" and not (best.is_exact or self._has_started):
                best = replace(best, done=0)  # the workers' reports are of the previous pass
            if best is not None and best.done > best.total:  # the total was too low
                best = replace(best, kind="estimate", total=best.done)
            self.known = best
        return self.known

    def _choose(self, hint: TotalHint | None) -> TotalHint | None:
        """Return the loader's hint, or its length or the total of its last pass if that is better."""
        in_batches = hint is not None and hint.unit == "batch"
        self._is_counted_by_loader = in_batches and hint is not None and hint.done > 0
        if hint is not None and in_batches:
            # The loader counts skipped batches and the one in the loop as done.
            self.batches = max(self.batches, hint.done - self._in_loop)
            hint = replace(hint, done=self.batches)
        if hint is not None and (hint.kind == "counted" or self._length is None):
            return hint
        total = _recall(self._loader) if self._length is None else self._length
        kind: Literal["counted", "estimate"] = "estimate" if self._length is None else "counted"
        return None if total is None else TotalHint(kind=kind, total=total, done=self.batches)

    def finish(self, *, complete: bool) -> None:
        """End the pass; `complete` if the loader is exhausted, not if the loop broke off."""
        if complete:
            self.known = self._final()
            self.batches = self.known.total if self.known.unit == "batch" else self.batches
            if self._length is None:
                _remember(self._loader, self.batches)
        else:
            self.update()
        self._is_over = True

    def _final(self) -> TotalHint:
        """Return the total of a complete pass, as counted here or by the loader."""
        known, total = self.known, self.batches
        by_loader = known is not None and known.kind == "counted" and self._is_counted_by_loader
        if known is not None and (known.unit != "batch" or by_loader):
            return replace(known, kind="counted", done=known.total)
        return TotalHint(kind="counted", total=total, done=total)


def _len(loader: Any) -> int | None:
    try:
        return len(loader)
    except (TypeError, NotImplementedError):
        return None


def _remember(loader: Any, batches: int) -> None:
    with suppress(TypeError):  # not hashable, or no weak references
        _last_totals[loader] = batches


def _recall(loader: Any) -> int | None:
    try:
        return _last_totals.get(loader)
    except TypeError:
        return None


class _Snapshot(NamedTuple):
    """The counters at the end of a step."""

    at_s: float
    tokens: int
    waited_s: float
    done: int


class Rate:
    """The recent speed of a loop, or the speed of the whole pass once it is over.

    `done` is always the number of units (batches or documents) finished, here at the start.
    """

    def __init__(self, meter: DataMeter, done: int = 0) -> None:
        self._meter = meter
        self._first = self._last = self._take(done)
        self._kept = deque([self._first], maxlen=_KEPT)

    def _take(self, done: int) -> _Snapshot:
        return _Snapshot(self._meter.clock(), self._meter.tokens, self._meter.waited_s, done)

    def step(self, done: Callable[[], int]) -> None:
        """Note the end of a step; `done` is called at most twice a second."""
        self._last = self._take(self._last.done)
        if self._last.at_s - self._kept[-1].at_s >= _APART_S:
            self._last = self._last._replace(done=done())
            self._kept.append(self._last)

    def finish(self, done: int) -> None:
        """Report the whole pass from now on, up to the last step."""
        self._last = self._last._replace(done=done)
        self._kept = deque([self._first])

    def rebase(self, done: int) -> None:
        """Set the units done at the start, which were unknown then."""
        self._first, self._last = self._first._replace(done=done), self._last._replace(done=done)
        self._kept = deque((snapshot._replace(done=done) for snapshot in self._kept), maxlen=_KEPT)

    @property
    def tokens_per_s(self) -> float:
        """Tokens per second."""
        return self._per_second(self._last.tokens - self._kept[0].tokens)

    @property
    def units_per_s(self) -> float:
        """Units per second, up to the last call of `done`."""
        oldest, newest = self._kept[0], self._last if len(self._kept) == 1 else self._kept[-1]
        seconds = newest.at_s - oldest.at_s
        return (newest.done - oldest.done) / seconds if seconds > 0 else 0.0

    @property
    def wait_share(self) -> float | None:
        """The share of the time spent waiting for data, 0 to 1; None before the first step."""
        steps = self._last is not self._first
        return self._per_second(self._last.waited_s - self._kept[0].waited_s) if steps else None

    def _per_second(self, amount: float) -> float:
        seconds = self._last.at_s - self._kept[0].at_s
        return amount / seconds if seconds > 0 else 0.0
