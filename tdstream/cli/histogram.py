"""Draw how long documents are: as text, or as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tdstream.corpus.lengths import LengthStatistics
from tdstream.errors import ConfigError, OutputError

BAR_WIDTH = 40


def text_histogram(statistics: LengthStatistics) -> list[str]:
    """Return lines with the lengths, the documents and a bar of each bin.

    Args:
        statistics: The lengths.
    """
    ranges = [_range(low, high) for low, high, _ in statistics.histogram]
    counts = [f"{count:,}" for _, _, count in statistics.histogram]
    most = max(count for _, _, count in statistics.histogram)
    left = max(map(len, ranges))
    right = max(map(len, counts))
    # Rounded up: a bin that is not empty is seen.
    bars = ["#" * -(-count * BAR_WIDTH // most) for _, _, count in statistics.histogram]
    return [
        f"{lengths:>{left}}  {count:>{right}}  {stroke}".rstrip()
        for lengths, count, stroke in zip(ranges, counts, bars, strict=True)
    ]


def _range(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,}-{high:,}"


def figure_class() -> Any:
    """Return matplotlib's Figure, which draws without a display.

    Raises:
        ConfigError: If matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigError("--plot needs matplotlib: pip install 'tdstream[plot]'.") from error
    return Figure


def plot_histogram(statistics: LengthStatistics, path: Path, title: str) -> None:
    """Write a picture of the lengths as PNG.

    Args:
        statistics: The lengths.
        path: Where to.
        title: What stands above it.

    Raises:
        ConfigError: If matplotlib is not installed.
        OutputError: If the file cannot be written.
    """
    figure = figure_class()(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    places = range(len(statistics.histogram))
    axes.bar(places, [count for _, _, count in statistics.histogram], width=0.95)
    axes.set_xticks(
        places, [_range(low, high) for low, high, _ in statistics.histogram], rotation=45, ha="right"
    )
    axes.set(xlabel="tokens in a document", ylabel="documents", title=title)
    try:
        figure.savefig(path, format="png", dpi=120)
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror or error}.") from error
