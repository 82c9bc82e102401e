"""Retries after network failures, and whether the hub can be reached.

`datasets` retries only opening and reading remote files over HTTP, 20 times. Here reading is retried whatever
a live stream is made of: a user's function, a file system that is mounted, or an object store.
"""

from __future__ import annotations

import http.client
import logging
import os
import socket
import time
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import urlsplit

from huggingface_hub import constants

from tdstream.core.errors import SourceError, TdstreamError

logger = logging.getLogger(__name__)

_PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0)  # seconds before each retry; after the last one the error is final
_NETWORK = {"aiohttp", "botocore", "httpcore", "httpx", "huggingface_hub", "requests", "urllib3"}
_FINAL = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, TdstreamError)
_FINAL_STATUS = range(400, 500)
_TRANSIENT_STATUS = {408, 425, 429}
_PROXIES = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")
_Result = TypeVar("_Result")


def retry_transient(read: Callable[[], _Result], what: str) -> _Result:
    """Return the result of a function, called again after each transient error, up to six times in all.

    The function must begin where its last call began; `what` it reads is for the log. Raises SourceError if
    the last call failed by a transient error as well.
    """
    tries = 0
    while True:
        try:
            return read()
        except Exception as error:
            if not _is_transient(error):
                raise
            tries += 1
            if tries > len(_PAUSES):
                raise SourceError(
                    f"{what} could not be read, after {tries} tries: {type(error).__name__}: {error}. Resume "
                    f"from the last checkpoint when it can be reached again."
                ) from error
            pause = _PAUSES[tries - 1]
            logger.warning(
                "Reading %s failed (%s: %s); trying again in %g s (%d of %d).",
                what, type(error).__name__, error, pause, tries, len(_PAUSES),
            )  # fmt: skip
        time.sleep(pause)


def _is_transient(error: BaseException) -> bool:
    """Return whether an error may be gone at the next try: one of the network, not a missing file."""
    if isinstance(error, _FINAL):
        return False
    status = getattr(error, "status", None) or getattr(getattr(error, "response", None), "status_code", None)
    if status in _FINAL_STATUS and status not in _TRANSIENT_STATUS:
        return False
    of_network = type(error).__module__.split(".")[0] in _NETWORK
    return of_network or isinstance(error, (OSError, http.client.HTTPException))


def hub_is_unreachable(timeout_s: float = 5.0) -> bool:
    """Return whether connecting to the hub is certain to fail; False behind a proxy, where nothing is."""
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
    """Return whether a name can only be a path: names on the hub are ``name`` or ``owner/name``."""
    return (
        name.startswith((".", "/", "~")) or name.endswith("/") or name.count("/") > 1 or os.path.exists(name)
    )


def in_one_line(error: BaseException, limit: int = 300) -> str:
    """Return another library's message as part of a sentence, cut after so many characters."""
    text = " ".join(str(error).split()) or type(error).__name__
    return (text if len(text) <= limit else text[:limit] + "...").rstrip(".")
