"""Keep the memory of one batch for the next, where malloc would give it back to the system in between."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

_LARGEST = 16 << 20  # bytes; glibc learns from no larger pieces than 32 MB


@lru_cache(maxsize=1)
def keep_freed_memory() -> None:
    """Let this process's malloc keep up to 32 MB that are free at its heap's end.

    glibc gives them back as soon as they are twice as much as the largest piece that was ever freed. A batch
    is several tensors, which together are more than twice one of them: each batch's pages would be asked for
    anew, and cleared by the kernel, which costs several times more than reading the batch. A piece that is
    freed once, and never written to, teaches it otherwise.
    """
    np.empty(_LARGEST, np.uint8)
