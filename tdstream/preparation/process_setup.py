"""Set-up of a process that only prepares: no torch, and freed memory goes back to the system."""

from __future__ import annotations

import ctypes
import os
import sys
from importlib import import_module

_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8  # Of glibc's mallopt.
_LARGE = 1 << 20


def set_up_process() -> None:
    """Set up a process of our own, never a caller's; call it before pyarrow, datasets and transformers.

    It imports only a part of transformers: the engine imports datasets while the encoder is loaded.
    """
    _return_memory()
    _hide_torch()


def _return_memory() -> None:
    """Let what is large be mapped by itself, and unmapped when it is freed, instead of leaving holes.

    glibc learns to keep ever larger pieces, and Arrow keeps all: some 100 MB, or twice the longest document.
    """
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # Other C libraries than glibc do without it.
        mallopt(_M_MMAP_THRESHOLD, _LARGE)
        mallopt(_M_ARENA_MAX, 2)


def _hide_torch() -> None:
    """Let datasets and transformers find no torch, unless it is there already.

    They import it where they can, which takes seconds and 200 MB; reading and tokenizing text needs none of
    it. Datasets asks the environment; transformers looks once, when it is imported.
    """
    if "torch" in sys.modules:
        return
    os.environ.setdefault("USE_TORCH", "0")
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")  # That no model can be used without it.
    sys.modules["torch"] = None  # type: ignore[assignment]  # importlib takes None for "not there"
    try:
        import_module("transformers.utils")
    finally:
        del sys.modules["torch"]
