"""Keep torch out of a process that only prepares: its import takes seconds and 200 MB."""

from __future__ import annotations

import os
import sys
from importlib import import_module


def leave_torch_out() -> None:
    """Import datasets and transformers in such a way that they find no torch, unless it is there already.

    They import it where they can; reading and tokenizing text needs none of it. Only for a process of our
    own, never for a caller's: they do not look for it again.
    """
    if "torch" in sys.modules:
        return
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")  # That no model can be used without it.
    sys.modules["torch"] = None  # type: ignore[assignment]
    try:
        for name in ("datasets", "transformers.utils"):
            import_module(name)
    finally:
        del sys.modules["torch"]
