"""A tqdm progress bar with the exact total of the epoch, tokens per second, and the share of waiting."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, MutableMapping
from typing import TYPE_CHECKING, Any, ClassVar

from tqdm import tqdm

from tdstream.distributed.topology import Topology, resolve_topology
from tdstream.monitor.epoch_total import EpochTotal
from tdstream.monitor.meter import DataMeter
from tdstream.monitor.rate import Rate

if TYPE_CHECKING:
    _Tqdm = tqdm[Any]
else:
    _Tqdm = tqdm  # generic for type checkers only

_ON_TERMINAL_S, _IN_FILE_S = 0.1, 30.0  # between two updates of the bar; between two lines
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

    The total is `len(loader)`. A loader without a length is asked for its `total_hint()` (see
    `tdstream.streams.total_hint`): batches counted before, or documents, or an estimate. In a second pass,
    the batches of the first are an estimate. Estimates are marked `~`. After a resume the bar starts where
    the epoch was left. A complete pass ends at 100 %.

    After the keys of `set_postfix` come `tok/s`, tokens per second of all data-parallel ranks, assuming that
    they are as fast as this one, and `wait`, the share of the time in which the loop waited for data. Both
    cover about the last half minute, and the whole pass once it is over.

    Only rank 0 shows a bar. If the output is neither a terminal nor a notebook (a log file), one line is
    written per `mininterval`, and nothing else.

    Args:
        loader: Anything that yields batches: `tdstream.loader`, StatefulDataLoader, DataLoader, any iterable.
        epoch: Names the bar "Epoch {epoch}". It is a label only: the bar never calls `set_epoch`.
        desc: Another name for the bar.
        meter: Measures the waits, over several passes if several bars share it; by default each bar has its
            own, `bar.meter`.
        **tqdm_options: Passed to tqdm. The default `mininterval` is 0.1 s on a terminal or in a notebook,
            else 30 s.
    """
    if desc is None and epoch is not None:
        desc = f"Epoch {epoch}"
    return Progress(loader, meter=meter or DataMeter(), desc=desc, **tqdm_options)


class Progress(_Tqdm):
    """The bar returned by `progress`."""

    monitor_interval = 0  # no monitor thread, which would be alive when workers fork; each step checks itself
    _line_at: ClassVar[float | None] = None  # when any bar last wrote a line

    def __init__(self, loader: Iterable[Any], *, meter: DataMeter, **options: Any) -> None:
        self.meter = meter
        self._ranks = _data_parallel_size(loader)
        self._unit, self._bar_format = options.get("unit"), options.get("bar_format")
        self._epoch_total = EpochTotal(loader, total=options.get("total"), initial=options.get("initial"))
        self._start_rate()
        self._is_over = False
        file: Any = options.setdefault("file", None) or sys.stderr
        self._in_lines = not (file.isatty() or _is_notebook(file))
        if self._in_lines:
            options["leave"] = False  # tqdm would end the bar with an empty line
            Progress._line_at = Progress._line_at or time.monotonic()
        options.setdefault("mininterval", _IN_FILE_S if self._in_lines else _ON_TERMINAL_S)
        options.setdefault("disable", resolve_topology().dp_rank != 0)
        options = {"unit": "batch", "miniters": 1, "initial": self._epoch_total.batches, **options}
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
        """Start where the loader stands now: a state may have been loaded since the bar was made."""
        self._epoch_total.start()
        if self.n != self._epoch_total.batches:
            self.initial = self.n = self.last_print_n = self._epoch_total.batches
            self.refresh()
        self._start_rate()

    def _start_rate(self) -> None:
        """Measure speed from here on."""
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
        if self._in_lines:
            self.display()
        self.close()

    def _done(self) -> int:
        """Return what is done, in the unit that is shown."""
        known = self._epoch_total.update()
        return self._epoch_total.batches if known is None else known.done

    @property
    def format_dict(self) -> MutableMapping[str, Any]:
        """What tqdm shows, with the true total, and tokens and waits after the postfix."""
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
        """Yield tokens and waits, unless the keys of set_postfix include them."""
        given = self.postfix or ""
        if self._rate.tokens_per_s and "tok/s=" not in given:
            yield f"tok/s={self.format_sizeof(self._ranks * self._rate.tokens_per_s).strip()}"
        share = self._rate.wait_share
        if share is not None and "wait=" not in given:
            yield f"wait={100 * share:.0f}%"

    def display(self, msg: str | None = None, pos: int | None = None) -> bool:  # type: ignore[override]  # tqdm returns it, its stubs say None
        """Draw the bar, or write a line if one is due; called by tqdm."""
        if not self._in_lines:
            return bool(super().display(msg, pos))
        now = time.monotonic()
        if msg == "" or now - (Progress._line_at or 0) < self.mininterval:
            return False
        Progress._line_at = now
        self.fp.write(f"{self}\n")
        self.fp.flush()
        return True


def _is_notebook(file: Any) -> bool:
    """Return whether a stream is a notebook cell, which redraws a line as a terminal does."""
    return type(file).__module__.partition(".")[0] == "ipykernel"


def _data_parallel_size(loader: Any) -> int:
    """Return the number of ranks that read different batches."""
    pipeline = getattr(loader, "dataset", None)
    known = getattr(getattr(pipeline, "splitter", pipeline), "topology", None)
    return known.dp_world_size if isinstance(known, Topology) else resolve_topology().dp_world_size
