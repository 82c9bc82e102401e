"""Find out within seconds whether the hub can be reached, because the libraries take a minute to notice."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from urllib.parse import urlsplit

from huggingface_hub import constants

_PROXIES = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")


def hub_is_unreachable(timeout_s: float = 5.0) -> bool:
    """Return whether connecting to the hub is certain to fail.

    Args:
        timeout_s: How long to wait for a connection.

    Returns:
        False if it can be reached, or if that cannot be told (behind a proxy).
    """
    if any(os.environ.get(name) for name in _PROXIES):
        return False
    endpoint = urlsplit(os.environ.get("HF_ENDPOINT") or constants.ENDPOINT)
    port = endpoint.port or (80 if endpoint.scheme == "http" else 443)
    try:
        socket.create_connection((endpoint.hostname or "", port), timeout=timeout_s).close()
    except OSError:
        return True
    return False


def looks_like_a_path(name: str) -> bool:
    """Return whether a name can only be meant as a path: names on the hub are ``name`` or ``owner/name``."""
    return (
        name.startswith((".", "/", "~")) or name.endswith("/") or name.count("/") > 1 or Path(name).exists()
    )


def in_one_line(error: BaseException, limit: int = 300) -> str:
    """Return what another library said, as part of a sentence.

    Args:
        error: Its exception.
        limit: Characters to keep at most.
    """
    text = " ".join(str(error).split()) or type(error).__name__
    return (text if len(text) <= limit else text[:limit] + "...").rstrip(".")
