"""A progress bar that tells the truth: how much of the epoch is done, tokens per second, and who waits."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, MutableMapping
from typing import TYPE_CHECKING, Any, ClassVar

from tqdm import tqdm

from tdstream.distributed.topology import Topology, resolve_topology
from tdstream.monitor.epoch_total import Extent
from tdstream.monitor.meter import DataMeter
from tdstream.monitor.rate import Pace

if TYPE_CHECKING:
    _Tqdm = tqdm[Any]
else:
    _Tqdm = tqdm  # which is generic for type checkers only

_ON_TERMINAL_S, _IN_FILE_S = 0.1, 30.0  # between two drawings; between two lines
_GUESSED = "{l_bar}{bar}| {n_fmt}/~{total_fmt} [{elapsed}<{remaining}, {rate_fmt}{postfix}]"


def progress(
    loader: Iterable[Any],
    *,
    epoch: int | None = None,
    desc: str | None = None,
    meter: DataMeter | None = None,
    **tqdm_options: Any,
) -> Progress:
    """Return a tqdm over one pass of a loader, with the epoch's true total.

    The total is `len(loader)`. A loader without a length is asked for its `total_hint()` (see
    `tdstream.streams.total_hint`): batches that were counted before, or documents, or an estimate; of a
    second pass, the batches of the first are one. Estimates are marked `~`. After a resume the bar begins
    where the epoch was left. What has run to its end is at 100 %.

    Behind the keys of `set_postfix` stand `tok/s`, tokens of all data-parallel ranks per second, taking the
    other ranks to be as fast as this one, and `wait`, the share of the time in which the loop waited for
    data: both of about the last half minute, and of the whole pass when it is over.

    Only rank 0 shows anything. Where the output is neither a terminal nor a notebook (a log file), there is
    one line per `mininterval` and nothing else.

    Args:
        loader: Anything that yields batches: `tdstream.loader`, StatefulDataLoader, DataLoader, any iterable.
        epoch: Names the bar "Epoch {epoch}". A label: `set_epoch` is never called by the bar.
        desc: Another name.
        meter: Measures the waits, over several passes if it is handed to several bars; by default the bar
            has one of its own, `bar.meter`.
        **tqdm_options: Passed to tqdm. `mininterval` is by default 0.1 s on a terminal or in a notebook, else
            30 s.
    """
    if desc is None and epoch is not None:
        desc = f"Epoch {epoch}"
    return Progress(loader, meter=meter or DataMeter(), desc=desc, **tqdm_options)


class Progress(_Tqdm):
    """The bar that `progress` returns.

    Args:
        loader: What it runs over.
        meter: Measures the waits.
        **options: tqdm's.
    """

    monitor_interval = 0  # tqdm's monitor is a thread, alive when workers are forked; each step looks itself
    _line_at: ClassVar[float | None] = None  # when the last line was written, by any bar

    def __init__(self, loader: Iterable[Any], *, meter: DataMeter, **options: Any) -> None:
        self.meter = meter
        self._ranks = _data_parallel_size(loader)
        self._unit, self._bar_format = options.get("unit"), options.get("bar_format")
        self._extent = Extent(loader, total=options.get("total"), initial=options.get("initial"))
        self._follow()
        self._is_over = False
        file: Any = options.setdefault("file", None) or sys.stderr
        self._in_lines = not (file.isatty() or _is_notebook(file))
        if self._in_lines:
            options["leave"] = False  # tqdm would end the bar with an empty line
            Progress._line_at = Progress._line_at or time.monotonic()
        options.setdefault("mininterval", _IN_FILE_S if self._in_lines else _ON_TERMINAL_S)
        options.setdefault("disable", resolve_topology().dp_rank != 0)
        options = {"unit": "batch", "miniters": 1, "initial": self._extent.batches, **options}
        super().__init__(loader, **options)

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches of one pass."""
        batches = self.meter.watch(self.iterable)
        if self.disable:
            yield from batches
            return
        self._begin()
        whole = False
        try:
            for batch in batches:
                self._extent.take()
                yield batch
                self._step()
            whole = True
        finally:
            self._finish(whole)

    @property
    def format_dict(self) -> MutableMapping[str, Any]:
        """What is shown, by name: tqdm's, with the true total, and tokens and waits behind the postfix."""
        shown: MutableMapping[str, Any] = super().format_dict
        if "rate" not in shown:  # a bar that was never shown
            return shown
        known = self._extent.ask()
        shown["n"] = self._extent.batches
        if known is not None:
            shown["n"], shown["total"] = known.done, known.total
            shown["bar_format"] = self._bar_format or (None if known.is_exact else _GUESSED)
        if known is not None and known.unit != "batch":
            shown["unit"], shown["rate"] = self._unit or known.unit, self._pace.units_per_s or None
            shown["initial"] = self._before
        elif self._is_over:
            shown["rate"] = None  # which stands for all batches by the whole time
        shown["postfix"] = ", ".join(part for part in (str(self.postfix or ""), *self._own_postfix()) if part)
        return shown

    def display(self, msg: str | None = None, pos: int | None = None) -> bool:  # type: ignore[override]  # tqdm returns it, its stubs say None
        """Draw the bar, or write a line where it is time for one; tqdm calls it."""
        if not self._in_lines:
            return bool(super().display(msg, pos))
        now = time.monotonic()
        if msg == "" or now - (Progress._line_at or 0) < self.mininterval:
            return False
        Progress._line_at = now
        self.fp.write(f"{self}\n")
        self.fp.flush()
        return True

    def _begin(self) -> None:
        """Begin the pass where the loader stands now: a state may have been loaded since the bar was made."""
        self._extent.begin()
        if self.n != self._extent.batches:
            self.initial = self.n = self.last_print_n = self._extent.batches
            self.refresh()
        self._follow()

    def _follow(self) -> None:
        """Measure speed from here on, as far as it is known where that is."""
        known = self._extent.ask()
        self._is_blind = known is None or not (known.is_exact or known.done)
        self._before = self._done()
        self._pace = Pace(self.meter, self._before)

    def _step(self) -> None:
        self._extent.put()
        if self._is_blind and self._extent.ask() is not None:
            self._is_blind, self._before = False, self._done()
            self._pace.rebase(self._before)
        self._pace.step(self._done)
        self.update(self._extent.batches - self.n)

    def _finish(self, whole: bool) -> None:
        self._extent.finish(whole=whole)
        self._pace.finish(self._done())
        self.n, self._is_over = self._extent.batches, True
        if self._in_lines:
            self.display()
        self.close()

    def _done(self) -> int:
        """Return what is done, in the units that are shown."""
        known = self._extent.ask()
        return self._extent.batches if known is None else known.done

    def _own_postfix(self) -> Iterator[str]:
        """Yield what the bar adds to the keys of set_postfix, unless those have it."""
        given = self.postfix or ""
        if self._pace.tokens_per_s and "tok/s=" not in given:
            yield f"tok/s={self.format_sizeof(self._ranks * self._pace.tokens_per_s).strip()}"
        share = self._pace.wait_share
        if share is not None and "wait=" not in given:
            yield f"wait={100 * share:.0f}%"


def _is_notebook(file: Any) -> bool:
    """Return whether a stream is a notebook's cell, which draws over a line as a terminal does."""
    return type(file).__module__.partition(".")[0] == "ipykernel"


def _data_parallel_size(loader: Any) -> int:
    """Return how many ranks are given other batches than this one, and itself."""
    pipeline = getattr(loader, "dataset", None)
    known = getattr(getattr(pipeline, "splitter", pipeline), "topology", None)
    return known.dp_world_size if isinstance(known, Topology) else resolve_topology().dp_world_size
