"""Errors: one root, familiar classes, and whole after the way from a worker to the trainer."""

from __future__ import annotations

import pytest
from torch._utils import ExceptionWrapper

from tdstream.core import errors

CLASSES = [
    cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, errors.TdstreamError)
]


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_an_error_survives_the_way_from_a_worker(cls):
    """It reaches the trainer as the same class, with its message."""
    try:
        raise cls("what was found, what to do")
    except cls:
        wrapped = ExceptionWrapper(where="in a worker")
    with pytest.raises(cls, match="what was found, what to do"):
        wrapped.reraise()


@pytest.mark.parametrize(
    "cls", [cls for cls in CLASSES if cls is not errors.TdstreamError], ids=lambda c: c.__name__
)
def test_an_error_is_what_a_caller_would_expect(cls):
    """A ValueError, an OSError where a file is meant, a RuntimeError where the moment is wrong."""
    assert issubclass(cls, (ValueError, OSError, RuntimeError))
