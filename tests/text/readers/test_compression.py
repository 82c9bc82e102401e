"""A compressed file gives all that was written, or is refused."""

from __future__ import annotations

import bz2
import gzip
import itertools
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from tdstream.core.errors import SourceError
from tdstream.text.readers.compression import open_bytes

CONTENT = b"".join(b"line %d of some text\n" % number for number in range(3000))
SKIPPABLE = b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc"  # a zstd frame without data


def zstd(content: bytes) -> bytes:
    """Compress without a checksum, the size of the content or anything else that could tell of a cut."""
    compressor = zstandard.ZstdCompressor(write_content_size=False, write_checksum=False)
    return compressor.compress(content)


PACK: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress, "zst": zstd, "zstd": zstd, "bz2": bz2.compress, "xz": lzma.compress,
}  # fmt: skip


def read(path: Path) -> bytes:
    """Return the content of a file."""
    with open_bytes(str(path)) as file:
        return file.read()


@pytest.fixture
def packed(tmp_path: Path) -> Callable[[str, bytes], Path]:
    """Return a function that writes a file with an ending."""

    def write(ending: str, content: bytes) -> Path:
        path = tmp_path / f"a.jsonl.{ending}"
        path.write_bytes(content)
        return path

    return write


@pytest.mark.parametrize("ending", PACK)
class TestEach:
    """Every compression."""

    def test_whole(self, packed: Callable[[str, bytes], Path], ending: str) -> None:
        """One stream, several, and none in an empty file."""
        pack = PACK[ending]
        assert read(packed(ending, pack(CONTENT))) == CONTENT
        assert read(packed(ending, pack(CONTENT[:777]) + pack(b"") + pack(CONTENT[777:]))) == CONTENT
        assert read(packed(ending, b"")) == b""

    @pytest.mark.parametrize("num_streams", [1, 3])
    def test_cut(self, packed: Callable[[str, bytes], Path], ending: str, num_streams: int) -> None:
        """Cut anywhere but between two streams, it is refused."""
        edges = [len(CONTENT) * number // num_streams for number in range(num_streams + 1)]
        streams = [PACK[ending](CONTENT[a:b]) for a, b in itertools.pairwise(edges)]
        whole = b"".join(streams)
        between = {len(b"".join(streams[:count])) for count in range(num_streams + 1)}
        cuts = {1, 2, 3, 4, 5, 6, 9, *range(10, len(whole), max(1, len(whole) // 60)), len(whole) - 1}
        cuts |= {edge + more for edge in between for more in (1, 3, 5) if 0 < edge + more < len(whole)}
        for cut in sorted(cuts - between):
            with pytest.raises(SourceError, match=r"a\.jsonl\.\w+ (was cut: it ends inside|is damaged)"):
                read(packed(ending, whole[:cut]))

    def test_something_else(self, packed: Callable[[str, bytes], Path], ending: str) -> None:
        """What is not compressed, and what follows compressed data, is refused."""
        with pytest.raises(SourceError, match=r"is not compressed with \w+, as its name says"):
            read(packed(ending, b'{"text": "a"}\n'))
        with pytest.raises(SourceError, match=r"something else after its \w+ data"):
            read(packed(ending, PACK[ending](CONTENT) + b'{"text": "a"}\n'))
        damaged = bytearray(PACK[ending](CONTENT))
        damaged[len(damaged) // 2 :] = b"\x00" * (len(damaged) - len(damaged) // 2)
        with pytest.raises(SourceError, match=r"is damaged|was cut"):
            read(packed(ending, bytes(damaged)))


def test_padding(packed: Callable[[str, bytes], Path]) -> None:
    """Zero bytes may follow gzip and xz; elsewhere they are not data."""
    for ending in ("gz", "xz"):
        assert read(packed(ending, PACK[ending](CONTENT) + bytes(8))) == CONTENT
    with pytest.raises(SourceError, match="something else after its zstd data"):
        read(packed("zst", zstd(CONTENT) + bytes(8)))


def test_zstd_frames(packed: Callable[[str, bytes], Path]) -> None:
    """Frames without data are passed over; a window of 2 GiB is accepted."""
    assert read(packed("zst", SKIPPABLE + zstd(CONTENT) + SKIPPABLE)) == CONTENT
    long = zstandard.ZstdCompressionParameters.from_level(3, window_log=31, enable_ldm=True)
    compressor = zstandard.ZstdCompressor(compression_params=long).compressobj()
    assert read(packed("zst", compressor.compress(CONTENT) + compressor.flush())) == CONTENT


def test_a_name_without_ending(tmp_path: Path) -> None:
    """The content tells; a text may begin with BZh."""
    (tmp_path / "data").write_bytes(gzip.compress(CONTENT))
    assert read(tmp_path / "data") == CONTENT
    (tmp_path / "data").write_bytes(b"BZhu")
    assert read(tmp_path / "data") == b"BZhu"
