"""Show how far a preparation is."""

from __future__ import annotations

from typing import Any

from tqdm import tqdm

from tdstream.preparation.counts import Counts


class Bar:
    """A progress bar over documents that also shows tokens and tokens per second."""

    def __init__(self, *, visible: bool = True, desc: str = "Preparing") -> None:
        self._bar: Any = None
        self._visible, self._desc = visible, desc
        self._tokens_before = 0

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Leave the bar as it is; what is printed next stands below it."""
        if self._bar is not None:
            self._bar.close()

    def begin(self, total: int | None, done: Counts) -> None:
        """Show the bar, at the place where earlier runs have stopped."""
        self._tokens_before = done.tokens
        self._bar = tqdm(
            total=total,
            initial=done.records,
            disable=not self._visible,
            unit=" doc",
            unit_scale=True,
            dynamic_ncols=True,
            desc=self._desc,
        )

    def advance(self, num_records: int, counts: Counts) -> None:
        """Move the bar."""
        if not self._visible:
            return
        elapsed = self._bar.format_dict["elapsed"] or 1e-9
        rate = self._bar.format_sizeof((counts.tokens - self._tokens_before) / elapsed)
        tokens = self._bar.format_sizeof(counts.tokens)
        self._bar.set_postfix_str(f"{tokens} tokens, {rate} tok/s", refresh=False)
        self._bar.update(num_records)
