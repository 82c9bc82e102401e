"""Files as streams of bytes, decompressed on the fly; a compressed stream that was cut is refused."""

from __future__ import annotations

import bz2
import importlib
import importlib.util
import io
import lzma
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, BinaryIO, cast
from weakref import WeakValueDictionary

from tdstream.core.errors import SourceError

_PIECE = 64 << 10  # bytes of a compressed file that are read at once
_HEAD = 8  # bytes that tell a compression
_WINDOW = 1 << 31  # of zstd --long=31, the largest there is


@dataclass(frozen=True, slots=True)
class _Codec:
    """A compression: how its files begin, and what decompresses one stream of it."""

    name: str
    endings: tuple[str, ...]
    magic: bytes
    make: Callable[[], Any]
    allows_zeros: bool = False
    """Whether zero bytes may follow the last stream, as padding."""

    def matches(self, head: bytes) -> bool:
        """Return whether a file that begins with these bytes is compressed so."""
        return head.startswith(self.magic) or (self.name == "zstd" and _is_skippable(head))


def _is_skippable(head: bytes) -> bool:
    """Return whether a zstd frame without data begins here."""
    return len(head) >= 4 and head[0] & 0xF0 == 0x50 and head[1:4] == b"\x2a\x4d\x18"


def _make_zstd() -> Any:
    zstandard: Any = importlib.import_module("zstandard")
    return zstandard.ZstdDecompressor(max_window_size=_WINDOW).decompressobj()


_CODECS = (
    _Codec("gzip", (".gz", ".gzip"), b"\x1f\x8b", lambda: zlib.decompressobj(wbits=31), allows_zeros=True),
    _Codec("zstd", (".zst", ".zstd"), b"\x28\xb5\x2f\xfd", _make_zstd),
    _Codec("bzip2", (".bz2",), b"BZh", bz2.BZ2Decompressor),
    _Codec("xz", (".xz",), b"\xfd7zXZ\x00", lzma.LZMADecompressor, allows_zeros=True),
)


_opened: WeakValueDictionary[str, BinaryIO] = (
    WeakValueDictionary()
)  # path -> its latest file, if still in use


def bytes_read(path: str) -> int:
    """Return how many bytes of a file that is being read, as they are on disk, were taken; 0 if unknown."""
    file = _opened.get(path)
    return 0 if file is None or file.closed else file.tell()


def open_bytes(path: str) -> BinaryIO:
    """Open a file for reading, decompressed if it is compressed; an empty file is an empty stream.

    Raises:
        SourceError: If the name says that the file is compressed and it is not, or zstandard is missing.
            Reading raises it where compressed data is cut, damaged, or followed by something else.
    """
    file = open(path, "rb")  # noqa: SIM115 - the caller closes it
    _opened[path] = file
    try:
        codec = _find_codec(path, _peek(file))
        if codec is None:
            return file
        stream = _Decompressed(path, file, codec)
        return cast("BinaryIO", io.BufferedReader(stream, _PIECE))
    except BaseException:
        file.close()
        raise


def _peek(file: BinaryIO) -> bytes:
    head = file.read(_HEAD)
    file.seek(0)
    return head


def _find_codec(path: str, head: bytes) -> _Codec | None:
    codec = next((codec for codec in _CODECS if codec.matches(head)), None)
    named = next((codec for codec in _CODECS if path.lower().endswith(codec.endings)), None)
    if named is not None and codec is not named and head:
        cut = named.magic.startswith(head)
        raise SourceError(
            f"{path} was cut: it ends inside its first {named.name} header. Make it again, or copy it again."
            if cut
            else f"{path} is not compressed with {named.name}, as its name says. Rename or repair it."
        )
    if codec is not None and codec.name == "bzip2" and named is None:
        return None  # "BZh" may begin a text
    if codec is not None and codec.name == "zstd":
        _check_zstandard(path)
    return codec


def _check_zstandard(path: str) -> None:
    if importlib.util.find_spec("zstandard") is None:
        raise SourceError(f"{path} is compressed with zstd: pip install 'tdstream[zstd]'.")


class _Decompressed(io.RawIOBase):
    """The content of a compressed file: one or more streams, one after another."""

    def __init__(self, path: str, file: BinaryIO, codec: _Codec) -> None:
        self._path, self._file, self._codec = path, file, codec
        self._decoder: Any = None
        self._packed = b""
        self._ready = memoryview(b"")
        self._num_streams = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, target: Any) -> int:
        """Fill a buffer; return 0 at the end of the file."""
        while not self._ready:
            if not self._advance():
                return 0
        count = min(len(target), len(self._ready))
        target[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()

    def _advance(self) -> bool:
        """Decompress a piece; return False at the end of the file."""
        packed = self._packed or self._file.read(_PIECE)
        self._packed = b""
        if not packed:
            if self._decoder is not None:
                raise self._cut()
            return False
        if self._decoder is None:
            packed = self._begin_stream(packed)
        try:
            self._ready = memoryview(self._decoder.decompress(packed)) if packed else self._ready
        except Exception as error:  # each library has its own
            raise SourceError(
                f"{self._path} is damaged: its {self._codec.name} data cannot be read ({error}). "
                f"Make it again."
            ) from error
        if self._decoder is not None and self._decoder.eof:
            self._packed, self._decoder = bytes(self._decoder.unused_data), None
            self._num_streams += 1
        return True

    def _begin_stream(self, packed: bytes) -> bytes:
        """Return what belongs to the stream that begins here; nothing if only padding was left."""
        if self._num_streams and self._codec.allows_zeros:
            packed = packed.lstrip(b"\0")
        if not packed:
            return packed
        if len(packed) < _HEAD:
            packed += self._file.read(_PIECE)
        if not self._codec.matches(packed[:_HEAD]):
            if self._codec.magic.startswith(packed):
                raise self._cut()
            raise SourceError(
                f"{self._path} holds something else after its {self._codec.name} data. Repair it."
            )
        self._decoder = self._codec.make()
        return packed

    def _cut(self) -> SourceError:
        return SourceError(
            f"{self._path} was cut: it ends inside its {self._codec.name} data. Make it again, or "
            f"copy it again."
        )
