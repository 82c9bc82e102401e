"""Write one file of a corpus durably: temporary name, fsync, rename."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tdstream.errors import CorpusError

_PIECE = 1 << 24  # Bytes that are read at once.


class ChunkFile:
    """One file that is being written under a temporary name."""

    def __init__(self, path: Path, *, kept: int = 0, width: int = 1) -> None:
        """Begin the file, or go on with what `sync` made durable.

        Args:
            path: Its name when it is complete.
            kept: Numbers to keep of what was written before.
            width: Bytes of a number.

        Raises:
            CorpusError: If there are fewer.
        """
        self.path = path
        self.num_items = kept
        self._temporary = path.with_name(path.name + ".tmp")
        self._hash = hashlib.sha256()
        if kept and path.exists():  # It was complete when the run ended that had begun it.
            os.replace(path, self._temporary)
        # Unbuffered: a buffer that did not reach a full disk would be written once more when it is closed.
        self._file = self._temporary.open("r+b" if kept else "wb", buffering=0)
        try:
            self._keep(kept * width)
        except BaseException:
            self._file.close()
            raise

    def _keep(self, num_bytes: int) -> None:
        left = num_bytes
        while left:
            content = self._file.read(min(left, _PIECE))
            if not content:
                raise CorpusError(
                    f"{self._temporary} has {num_bytes - left:,} bytes, but the journal promises "
                    f"{num_bytes:,}. Pass --overwrite without --resume to begin again."
                )
            self._hash.update(content)
            left -= len(content)
        self._file.truncate(num_bytes)

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

    def sync(self) -> None:
        """Make the bytes durable under the temporary name."""
        os.fsync(self._file.fileno())

    def commit(self) -> None:
        """Make the bytes durable and give them their name."""
        os.fsync(self._file.fileno())
        self._file.close()
        os.replace(self._temporary, self.path)

    def leave(self) -> None:
        """Close the file as it is, under its temporary name."""
        self._file.close()

    def abandon(self) -> None:
        """Close the file and give its room back."""
        self._file.close()
        with suppress(OSError):
            self._temporary.unlink(missing_ok=True)
