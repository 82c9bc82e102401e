"""Token streams for language-model pre-training that resume exactly after a kill at any step."""

import importlib
import typing

if typing.TYPE_CHECKING:
    from tdstream.compat import DistributedDataset
    from tdstream.core.errors import (
        ConfigError,
        CorpusError,
        CorpusNotFoundError,
        GeometryError,
        OutputError,
        SourceError,
        StaleIteratorError,
        StateError,
        TdstreamError,
        TokenizerError,
    )
    from tdstream.exchange.adopt import adopt
    from tdstream.exchange.convert import ConvertResult, convert
    from tdstream.exchange.export import ExportResult, export
    from tdstream.loading.loader import Loader, loader
    from tdstream.loading.portable_state import position_of
    from tdstream.loading.stream_loader import StreamLoader
    from tdstream.monitor.meter import DataMeter
    from tdstream.monitor.progress import progress
    from tdstream.monitor.steps import steps
    from tdstream.nodes.batch import Batch
    from tdstream.pipelines.build import build
    from tdstream.pipelines.mixture import Mixture
    from tdstream.pipelines.pipeline import Pipeline
    from tdstream.pipelines.views import View, split
    from tdstream.preparation.api import prepare
    from tdstream.preparation.count import count
    from tdstream.preparation.result import PrepareResult
    from tdstream.streams.stream_pipeline import StreamPipeline

__all__ = [
    "Batch",
    "ConfigError",
    "ConvertResult",
    "CorpusError",
    "CorpusNotFoundError",
    "DataMeter",
    "DistributedDataset",
    "ExportResult",
    "GeometryError",
    "Loader",
    "Mixture",
    "OutputError",
    "Pipeline",
    "PrepareResult",
    "SourceError",
    "StaleIteratorError",
    "StateError",
    "StreamLoader",
    "StreamPipeline",
    "TdstreamError",
    "TokenizerError",
    "View",
    "adopt",
    "build",
    "convert",
    "count",
    "export",
    "loader",
    "position_of",
    "prepare",
    "progress",
    "split",
    "steps",
]

_HOMES = {
    "Batch": "tdstream.nodes.batch",
    "ConfigError": "tdstream.core.errors",
    "ConvertResult": "tdstream.exchange.convert",
    "CorpusError": "tdstream.core.errors",
    "CorpusNotFoundError": "tdstream.core.errors",
    "DataMeter": "tdstream.monitor.meter",
    "DistributedDataset": "tdstream.compat",
    "ExportResult": "tdstream.exchange.export",
    "GeometryError": "tdstream.core.errors",
    "Loader": "tdstream.loading.loader",
    "Mixture": "tdstream.pipelines.mixture",
    "OutputError": "tdstream.core.errors",
    "Pipeline": "tdstream.pipelines.pipeline",
    "PrepareResult": "tdstream.preparation.result",
    "SourceError": "tdstream.core.errors",
    "StaleIteratorError": "tdstream.core.errors",
    "StateError": "tdstream.core.errors",
    "StreamLoader": "tdstream.loading.stream_loader",
    "StreamPipeline": "tdstream.streams.stream_pipeline",
    "TdstreamError": "tdstream.core.errors",
    "TokenizerError": "tdstream.core.errors",
    "View": "tdstream.pipelines.views",
    "adopt": "tdstream.exchange.adopt",
    "build": "tdstream.pipelines.build",
    "convert": "tdstream.exchange.convert",
    "count": "tdstream.preparation.count",
    "export": "tdstream.exchange.export",
    "loader": "tdstream.loading.loader",
    "position_of": "tdstream.loading.portable_state",
    "prepare": "tdstream.preparation.api",
    "progress": "tdstream.monitor.progress",
    "split": "tdstream.pipelines.views",
    "steps": "tdstream.monitor.steps",
}


_FORMER = {"LiveLoader": "StreamLoader"}
"""Names that are still found, under which released versions had these."""


_ROOMS = ("nodes", "testing")
"""Public modules."""


def __getattr__(name: str) -> typing.Any:
    """Import a public name when it is first used: preparing and checking a corpus need no torch."""
    if name in _ROOMS:
        return importlib.import_module(f"tdstream.{name}")
    name = _FORMER.get(name, name)
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_ROOMS})
