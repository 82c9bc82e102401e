"""State: a versioned envelope, and differences said by name."""

from __future__ import annotations

import logging

import pytest

from tdstream.core.errors import StateError
from tdstream.core.state import check_differences, differences, unwrap_state, wrap_state


class Thing:
    """Stands for a node."""

    name = "thing"

    def state_dict(self):
        return {"size": 1000}


def test_an_envelope_opens():
    """What was sealed comes back by node name."""
    assert unwrap_state(wrap_state([Thing()])) == {"thing": {"size": 1000}}


@pytest.mark.parametrize("state", [{}, {"epoch": 3}, [1], None, {"tdstream": "1", "nodes": {}}])
def test_what_is_no_state_is_refused(state):
    """The sentence shows what was given instead."""
    with pytest.raises(StateError, match="this is not a state of tdstream"):
        unwrap_state(state)


def test_a_newer_state_is_refused():
    """With both versions."""
    with pytest.raises(StateError, match="version 2, this tdstream reads up to 1"):
        unwrap_state({**wrap_state([Thing()]), "tdstream": 2})


@pytest.mark.parametrize("nodes", [None, [], {"thing": 3}])
def test_a_cut_state_is_refused(nodes):
    """Nothing is guessed."""
    with pytest.raises(StateError, match="has no 'nodes'"):
        unwrap_state({"tdstream": 1, "nodes": nodes})


def test_differences_are_phrases():
    """Numbers with separators, texts in quotes, and fields that only one side has."""
    found = differences("thing", {"size": 1000, "kind": "a", "old": 1}, {"size": 990, "kind": "b", "new": 2})
    assert found == [
        "thing.size was 1,000, is 990",
        "thing.kind was 'a', is 'b'",
        "thing.new was missing, is 2",
        "thing.old was 1, is missing",
    ]


def test_equal_identities_are_accepted():
    """Whatever the order of their fields."""
    check_differences(differences("thing", {"a": 1, "b": 2}, {"b": 2, "a": 1}))


def test_a_difference_is_refused_with_the_way_out():
    """All differences in one sentence, then what to do."""
    with pytest.raises(
        StateError, match=r"x was 1, is 2; y was 3, is 4\. .*nothing was loaded.*strict=False"
    ):
        check_differences(["x was 1, is 2", "y was 3, is 4"])


def test_without_strict_a_difference_is_a_warning(caplog):
    """The user has been told."""
    with caplog.at_level(logging.WARNING):
        check_differences(["x was 1, is 2"], strict=False)
    assert "x was 1, is 2" in caplog.text
