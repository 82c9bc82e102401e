"""Write one file of a corpus durably: temporary name, fsync, rename."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


class ChunkFile:
    """One file that is being written under a temporary name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.num_items = 0
        self._temporary = path.with_name(path.name + ".tmp")
        # Unbuffered: a buffer that did not reach a full disk would be written once more when it is closed.
        self._file = self._temporary.open("wb", buffering=0)
        self._hash = hashlib.sha256()

    @property
    def checksum(self) -> str:
        """SHA-256 of the bytes written so far, as meta.json spells it."""
        return f"sha256:{self._hash.hexdigest()}"

    def write(self, stored: NDArray[Any]) -> None:
        """Write numbers that are already in the storage type, shape [num_items]."""
        content = np.ascontiguousarray(stored).data.cast("B")
        self._hash.update(content)
        while content:
            content = content[self._file.write(content) :]
        self.num_items += len(stored)

    def commit(self) -> None:
        """Make the bytes durable and give them their name."""
        os.fsync(self._file.fileno())
        self._file.close()
        os.replace(self._temporary, self.path)

    def abandon(self) -> None:
        """Close the file and give its room back."""
        self._file.close()
        with suppress(OSError):
            self._temporary.unlink(missing_ok=True)
