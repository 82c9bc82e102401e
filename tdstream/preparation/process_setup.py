"""Set-up of a process that only prepares: no torch, and freed memory returns to the system."""

from __future__ import annotations

import ctypes
import os
import sys
from importlib import import_module

_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8  # parameters of glibc's mallopt
_LARGE = 1 << 20  # bytes


def set_up_process() -> None:
    """Set up a process of our own, never a caller's, before it imports pyarrow, datasets or transformers.

    Imports only a part of transformers: the engine imports datasets later, while the encoder is loaded.
    """
    _return_memory()
    _hide_torch()


def _return_memory() -> None:
    """Map large allocations separately, so that freeing them returns the memory and leaves no holes.

    By default glibc keeps ever larger blocks and Arrow keeps all: 100 MB, or twice the longest document.
    """
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # None unless the C library is glibc
        mallopt(_M_MMAP_THRESHOLD, _LARGE)
        mallopt(_M_ARENA_MAX, 2)


def _hide_torch() -> None:
    """Hide torch from datasets and transformers, unless it is already imported.

    They import it if they can, which takes seconds and 200 MB, and text needs none of it. Datasets reads the
    environment; transformers looks for torch once, when it is imported.
    """
    if "torch" in sys.modules:
        return
    os.environ.setdefault("USE_TORCH", "0")
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")  # that models need torch
    sys.modules["torch"] = None  # type: ignore[assignment]  # importlib reads None as "not installed"
    try:
        import_module("transformers.utils")
    finally:
        del sys.modules["torch"]
