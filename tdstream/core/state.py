"""The envelope of a state, and the comparison of what was saved with what is here.

A state holds JSON types only and is built fresh at each call: a loader's worker sends the difference to the
state it sent before, and a list or array that was changed in place would equal itself and never be sent.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Protocol

from tdstream.core.errors import StateError

logger = logging.getLogger(__name__)

STATE_KEY = "tdstream"
STATE_VERSION = 1


class Identified(Protocol):
    """Anything that has a part in a state."""

    @property
    def name(self) -> str:
        """The key of its part."""

    def state_dict(self) -> dict[str, Any]:
        """Return its identity, and its position if it has one."""

    def differences(self, saved: dict[str, Any]) -> list[str]:
        """Return a phrase for each way in which a saved identity differs."""


def wrap_state(nodes: Sequence[Identified]) -> dict[str, Any]:
    """Return {"tdstream": version, "nodes": {name: the node's state}}."""
    return {STATE_KEY: STATE_VERSION, "nodes": {node.name: node.state_dict() for node in nodes}}


def unwrap_state(state: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the nodes' parts of a state.

    Raises:
        StateError: If it is no state of tdstream, or one of a newer version.
    """
    if not isinstance(state, dict) or not isinstance(state.get(STATE_KEY), int):
        raise StateError(
            f"this is not a state of tdstream (no {STATE_KEY!r} version in it): {_short(state)}. "
            f"Load what state_dict() returned."
        )
    if state[STATE_KEY] > STATE_VERSION:
        raise StateError(
            f"the state has version {state[STATE_KEY]}, this tdstream reads up to {STATE_VERSION}. "
            f"Install the tdstream that saved it, or a newer one."
        )
    nodes = state.get("nodes")
    if not isinstance(nodes, dict) or not all(isinstance(part, dict) for part in nodes.values()):
        raise StateError(f"the state has no 'nodes', so it was cut or changed: {_short(state)}.")
    return nodes


def differences(name: str, saved: dict[str, Any], current: dict[str, Any]) -> list[str]:
    """Return a phrase for each field of a node's identity that differs: "permutation.seed was 1, is 2"."""
    fields = [field for field in {**current, **saved} if saved.get(field) != current.get(field)]
    return [f"{name}.{field} was {_show(saved, field)}, is {_show(current, field)}" for field in fields]


def check_differences(found: Sequence[str], *, strict: bool = True) -> None:
    """Refuse a state whose identity differs, or only warn.

    Args:
        found: Phrases of `differences`; nothing happens if there are none.
        strict: Whether to raise rather than to log a warning.

    Raises:
        StateError: If strict and anything differs.
    """
    if not found:
        return
    message = f"the state belongs to other data or settings: {'; '.join(found)}."
    if strict:
        raise StateError(
            f"{message} Going on would repeat or lose samples; nothing was loaded. Build with what the state "
            f"was saved with, or pass strict=False to go on all the same."
        )
    logger.warning("%s Going on, since strict=False.", message)


def check_identities(
    saved: dict[str, dict[str, Any]], nodes: Sequence[Identified], *, cursor: str, strict: bool
) -> None:
    """Compare saved identities with those of nodes.

    Args:
        saved: The nodes' parts of a state.
        nodes: Those that hold an identity.
        cursor: The part that says where the state stands, which has to be there.
        strict: Whether to refuse a difference, rather than to warn.

    Raises:
        StateError: If a part is missing, or strict and a field differs; all differences in one sentence.
    """
    missing = [name for name in (*(node.name for node in nodes), cursor) if name not in saved]
    if missing:
        raise StateError(
            f"the state has nothing of {', '.join(missing)}; it belongs to another kind of pipeline."
        )
    check_differences(
        [phrase for node in nodes for phrase in node.differences(saved[node.name])], strict=strict
    )


def _show(part: dict[str, Any], field: str) -> str:
    if field not in part:
        return "missing"
    value = part[field]
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else _short(value)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


class IdentityState:
    """What a node shares whose state is an identity alone: loading it compares."""

    name: str

    def state_dict(self) -> dict[str, Any]:
        """Return the identity, JSON types, built fresh."""
        raise NotImplementedError

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Compare a saved identity with this node's.

        Raises:
            StateError: If a field differs.
        """
        check_differences(self.differences(state))

    def differences(self, saved: dict[str, Any]) -> list[str]:
        """Return a phrase for each field of a saved identity that is not this node's."""
        return differences(self.name, saved, self.state_dict())
