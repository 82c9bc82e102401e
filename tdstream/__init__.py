"""Token streams for language-model pre-training that can be killed at any step and go on exactly."""

from tdstream.batch import Batch
from tdstream.build import build
from tdstream.compat import DistributedDataset
from tdstream.errors import (
    ConfigError,
    CorpusError,
    CorpusNotFoundError,
    GeometryError,
    OutputError,
    SourceError,
    StateError,
    TdstreamError,
    TokenizerError,
)
from tdstream.pipeline import Pipeline

__all__ = [
    "Batch",
    "ConfigError",
    "CorpusError",
    "CorpusNotFoundError",
    "DistributedDataset",
    "GeometryError",
    "OutputError",
    "Pipeline",
    "SourceError",
    "StateError",
    "TdstreamError",
    "TokenizerError",
    "build",
]
