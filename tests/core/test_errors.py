"""Errors: one root, familiar classes, and whole after the way from a worker to the trainer."""

from __future__ import annotations

import pickle

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


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_options_are_spelled_for_python_or_as_flags(cls):
    """A switch is True or a bare flag, others take a value; what a value holds is left as it is."""
    hint = 'Pass {overwrite} without {resume}, {text_field:...}, {encoder:"auto" or "hf"}, or remove {place}.'
    error = cls("In a {b}, --resume.", hint, place="out/{overwrite}--resume")
    kept = "or remove out/{overwrite}--resume."
    assert str(error) == (
        f"In a {{b}}, --resume. Pass overwrite=True without resume=True, text_field=..., "
        f'encoder="auto" or "hf", {kept}'
    )
    assert error.spelled(errors.as_flag) == (
        f"In a {{b}}, --resume. Pass --overwrite without --resume, --text_field, --encoder auto or hf, {kept}"
    )
    assert error.options == {"overwrite", "resume", "text_field", "encoder"}


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_hints_are_added_and_survive_pickling(cls):
    """So a process that prepares for another one can tell what to do, and each says it in its own words."""
    error = cls("Found.", "Pass {resume}.")
    error.add_hint("Here: remove {place}.", place="a/b")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is cls
    for one in (error, again):
        assert str(one) == "Found. Pass resume=True. Here: remove a/b."
        assert one.spelled(errors.as_flag) == "Found. Pass --resume. Here: remove a/b."
    error.spell(lambda name, value: f"{name}!")
    assert str(error) == "Found. Pass resume!. Here: remove a/b."
