"""Token streams for language-model pre-training that can be killed at any step and go on exactly."""

import importlib
import sys
import types
import typing

if typing.TYPE_CHECKING:
    from tdstream.batch import Batch
    from tdstream.build import build
    from tdstream.compat import DistributedDataset
    from tdstream.count import count
    from tdstream.errors import (
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
    from tdstream.live_loader import LiveLoader
    from tdstream.loader import Loader
    from tdstream.make_loader import loader
    from tdstream.mixtures.mixture import Mixture
    from tdstream.monitor.meter import DataMeter
    from tdstream.pipeline import Pipeline
    from tdstream.portable import position_of
    from tdstream.preparation.result import PrepareResult
    from tdstream.prepare import prepare
    from tdstream.progress import progress
    from tdstream.sources.lazy import LazyPipeline
    from tdstream.steps import steps
    from tdstream.streams.pipeline import StreamPipeline
    from tdstream.views import View, split

__all__ = [
    "Batch",
    "ConfigError",
    "CorpusError",
    "CorpusNotFoundError",
    "DataMeter",
    "DistributedDataset",
    "GeometryError",
    "LazyPipeline",
    "LiveLoader",
    "Loader",
    "Mixture",
    "OutputError",
    "Pipeline",
    "PrepareResult",
    "SourceError",
    "StaleIteratorError",
    "StateError",
    "StreamPipeline",
    "TdstreamError",
    "TokenizerError",
    "View",
    "build",
    "count",
    "loader",
    "position_of",
    "prepare",
    "progress",
    "split",
    "steps",
]

_HOMES = {
    "Batch": "tdstream.batch",
    "ConfigError": "tdstream.errors",
    "CorpusError": "tdstream.errors",
    "CorpusNotFoundError": "tdstream.errors",
    "DataMeter": "tdstream.monitor.meter",
    "DistributedDataset": "tdstream.compat",
    "GeometryError": "tdstream.errors",
    "LazyPipeline": "tdstream.sources.lazy",
    "LiveLoader": "tdstream.live_loader",
    "Loader": "tdstream.loader",
    "Mixture": "tdstream.mixtures.mixture",
    "OutputError": "tdstream.errors",
    "Pipeline": "tdstream.pipeline",
    "PrepareResult": "tdstream.preparation.result",
    "SourceError": "tdstream.errors",
    "StaleIteratorError": "tdstream.errors",
    "StateError": "tdstream.errors",
    "StreamPipeline": "tdstream.streams.pipeline",
    "TdstreamError": "tdstream.errors",
    "TokenizerError": "tdstream.errors",
    "View": "tdstream.views",
    "build": "tdstream.build",
    "count": "tdstream.count",
    "loader": "tdstream.make_loader",
    "position_of": "tdstream.portable",
    "prepare": "tdstream.prepare",
    "progress": "tdstream.progress",
    "split": "tdstream.views",
    "steps": "tdstream.steps",
}


class _FrontPage(types.ModuleType):
    """This module: what defines a public name is imported when that is first asked for.

    So the commands that prepare and check a corpus do without torch, whose import takes seconds and 200 MB.
    """

    def __getattr__(self, name: str) -> typing.Any:
        if name not in _HOMES:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(_HOMES[name]), name)
        setattr(self, name, value)
        return value

    def __setattr__(self, name: str, value: typing.Any) -> None:
        """Set an attribute; but ``build`` is the function, also after the module build was imported."""
        if not (name in _HOMES and isinstance(value, types.ModuleType)):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_HOMES})


sys.modules[__name__].__class__ = _FrontPage
