"""Say what was found, what was expected, and what to do: every error that tdstream raises.

TdstreamError
├── ConfigError (ValueError)              an argument or flag is out of range, or two do not go together
├── CorpusError (ValueError)              the files of a corpus do not agree with what they promise
├── CorpusNotFoundError (FileNotFoundError)   there is no corpus at that place
├── StateError (ValueError)               a state belongs to other data or settings, or is no state of ours
├── GeometryError (ValueError)            ranks, workers or samples do not fit together
├── StaleIteratorError (RuntimeError)     an iterator that a newer one, or a loaded state, has overtaken
├── SourceError (ValueError)              text to be prepared cannot be found, read or used
├── TokenizerError (ValueError)           a tokenizer cannot be found or cannot do what is needed
└── OutputError (OSError)                 the result cannot be written

Each is also the built-in that a caller would expect, and takes one string: an exception of a loader's
worker process reaches the trainer only if it can be rebuilt from its message alone.
"""

from __future__ import annotations


class TdstreamError(Exception):
    """Anything that tdstream refuses or cannot do."""


class ConfigError(TdstreamError, ValueError):
    """An argument or flag has a value that cannot be used, or two of them exclude each other."""


class CorpusError(TdstreamError, ValueError):
    """A corpus is damaged, unfinished, or does not hold what its meta.json promises."""


class CorpusNotFoundError(TdstreamError, FileNotFoundError):
    """A directory, or a shard that meta.json lists, is not there."""


class StateError(TdstreamError, ValueError):
    """A state was saved with other data or settings, by a newer version, or is not a state."""


class GeometryError(TdstreamError, ValueError):
    """World size, worker count or number of samples do not fit together, or differ from a state's."""


class StaleIteratorError(TdstreamError, RuntimeError):
    """An iterator was used after a newer one was made, after a state was loaded, or after it had failed."""


class SourceError(TdstreamError, ValueError):
    """A text source cannot be found or reached, or holds a record that is not text."""


class TokenizerError(TdstreamError, ValueError):
    """A tokenizer cannot be found or reached, or has no end-of-text token."""


class OutputError(TdstreamError, OSError):
    """The output directory is in use, holds other things, or has no room left."""
