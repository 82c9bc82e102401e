"""The envelope of a state, and the comparison of saved identities with present ones.

A state holds JSON types only and is built anew by each call: a loader's worker sends only the differences
from its last state, and a list changed in place would equal itself and never be sent.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Protocol

from tdstream.core.errors import StateError
from tdstream.core.state_schema import check_nesting, equal, shorten

logger = logging.getLogger(__name__)

STATE_KEY = "tdstream"
STATE_VERSION = 1


class Identified(Protocol):
    """Anything with an entry in a state."""

    @property
    def name(self) -> str:
        """The key of the entry: "source", "reader", "permutation", ..."""

    def state_dict(self) -> dict[str, Any]:
        """Return the identity, and the position if there is one; JSON types, built anew."""

    def differences(self, saved: dict[str, Any]) -> list[str]:
        """Return a phrase for each way in which a saved identity differs."""


class IdentityState:
    """The state of a node without a position: an identity, which loading compares."""

    name: str

    def state_dict(self) -> dict[str, Any]:
        """Return the identity: JSON types, built anew."""
        raise NotImplementedError

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Raise StateError if a saved identity differs from this node's."""
        check_differences(self.differences(state))

    def differences(self, saved: dict[str, Any]) -> list[str]:
        """Return a phrase for each field of a saved identity that differs from this node's."""
        return differences(self.name, saved, self.state_dict())


def wrap_state(nodes: Sequence[Identified]) -> dict[str, Any]:
    """Return {"tdstream": version, "nodes": {name: the node's state}}."""
    return {STATE_KEY: STATE_VERSION, "nodes": {node.name: node.state_dict() for node in nodes}}


def unwrap_state(state: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the nodes' entries in a state; refuse anything else, and states of newer versions."""
    check_nesting(state)
    version = state.get(STATE_KEY) if isinstance(state, dict) else None
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise StateError(
            f"this is not a state of tdstream (no {STATE_KEY!r} version in it): {shorten(state)}. "
            f"Load what state_dict() returned."
        )
    if version > STATE_VERSION:
        raise StateError(
            f"the state has version {shorten(version)}, this tdstream reads up to {STATE_VERSION}. "
            f"Install the tdstream that saved it, or a newer one."
        )
    nodes = state.get("nodes")
    if not isinstance(nodes, dict) or not all(
        isinstance(name, str) and isinstance(part, dict) for name, part in nodes.items()
    ):
        raise StateError(
            f"the state has no 'nodes', so it was truncated or changed: {shorten(state)}. Load what "
            f"state_dict() returned."
        )
    return nodes


def differences(name: str, saved: dict[str, Any], current: dict[str, Any]) -> list[str]:
    """Return a phrase for each field of a node's identity that differs: "permutation.seed was 1, is 2"."""
    fields = [field for field in {**current, **saved} if not equal(saved.get(field), current.get(field))]
    return [f"{name}.{field} was {_show(saved, field)}, is {_show(current, field)}" for field in fields]


def check_differences(found: Sequence[str], *, strict: bool = True) -> None:
    """Raise StateError with all phrases of `differences`, if there are any; log them if not strict."""
    if not found:
        return
    message = f"the state belongs to other data or settings: {'; '.join(found)}."
    if strict:
        raise StateError(
            f"{message} Resuming would repeat or lose samples; nothing was loaded. Build with the data and "
            f"settings of the state, or pass strict=False to resume anyway."
        )
    logger.warning("%s Resuming anyway, because strict=False.", message)


def check_identities(
    saved: dict[str, dict[str, Any]], nodes: Sequence[Identified], *, cursor: str, strict: bool
) -> None:
    """Compare saved identities with those of nodes; the state must also have the entry `cursor`."""
    missing = [name for name in (*(node.name for node in nodes), cursor) if name not in saved]
    if missing:
        raise StateError(
            f"the state has no entry for {', '.join(missing)}; it belongs to another kind of pipeline. "
            f"Build the pipeline that saved it."
        )
    check_differences(
        [phrase for node in nodes for phrase in node.differences(saved[node.name])], strict=strict
    )


def _show(part: dict[str, Any], field: str) -> str:
    if field not in part:
        return "missing"
    value = part[field]
    small = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**64
    return f"{value:,}" if small else shorten(value)
