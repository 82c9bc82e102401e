"""Token streams for language-model pre-training that can be killed at any step and go on exactly."""

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
from tdstream.loader import Loader, loader
from tdstream.meter import DataMeter
from tdstream.pipeline import Pipeline
from tdstream.portable import position_of
from tdstream.preparation.result import PrepareResult
from tdstream.prepare import prepare
from tdstream.progress import progress
from tdstream.steps import steps
from tdstream.views import View, split

__all__ = [
    "Batch",
    "ConfigError",
    "CorpusError",
    "CorpusNotFoundError",
    "DataMeter",
    "DistributedDataset",
    "GeometryError",
    "Loader",
    "OutputError",
    "Pipeline",
    "PrepareResult",
    "SourceError",
    "StaleIteratorError",
    "StateError",
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
