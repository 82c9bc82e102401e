"""Arrays mapped from files, and the check of a file's promised size."""

from __future__ import annotations

import errno
import gc
import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from tdstream.core.errors import CorpusError, CorpusNotFoundError
from tdstream.corpus.mapped_array import (
    MappedArray,
    check_size,
    find_size_fault,
    list_sizes,
    list_versions,
    map_array,
)

U2 = np.dtype("<u2")


@pytest.mark.parametrize(
    ("size", "kind", "text"),
    [
        (None, "missing", "is missing; meta.json promises 1,000 tokens in it."),
        (1990, "truncated", "has 1,990 bytes (995 tokens); meta.json promises 2,000 (1,000 tokens)."),
        (2001, "extended", "has 2,001 bytes (not a multiple of 2); meta.json promises 2,000 (1,000 tokens)."),
    ],
)
def test_a_wrong_size_is_described(size, kind, text):
    """What was found and what was promised, in bytes and in tokens."""
    fault = find_size_fault(size, 1000, U2)
    assert fault.kind == kind
    assert fault.text.endswith(text)


def test_a_wrong_size_is_refused(tmp_path):
    """A missing file is another error than one that was cut; the right size passes."""
    with pytest.raises(CorpusNotFoundError, match=r"x is missing; meta\.json promises 3 ends"):
        check_size(tmp_path / "x", None, 3, U2, "ends")
    with pytest.raises(CorpusError, match=r"x is truncated.*copy it again"):
        check_size(tmp_path / "x", 4, 3, U2)
    check_size(tmp_path / "x", 6, 3, U2)


def test_a_mapped_array_travels_as_its_path(tmp_path):
    """Pickled it is small; it cannot be written; a file that is gone is named."""
    np.arange(10_000, dtype=U2).tofile(tmp_path / "x")
    array = MappedArray(tmp_path / "x", U2)
    assert array.open().tolist() == list(range(10_000))
    assert not array.open().flags.writeable
    sent = pickle.dumps(array)
    assert len(sent) < 400
    assert pickle.loads(sent).open()[9_999] == 9_999
    (tmp_path / "x").unlink()
    with pytest.raises(CorpusError, match="x cannot be read any more"):
        pickle.loads(sent).open()


def test_an_empty_file_is_an_empty_array(tmp_path):
    """It cannot be mapped; of another length it is refused."""
    (tmp_path / "x").touch()
    assert map_array(tmp_path / "x", U2, 0).shape == (0,)
    with pytest.raises(CorpusError, match="had 3 tokens when the corpus was opened, has 0 now"):
        map_array(tmp_path / "x", U2, 3)


def test_only_files_have_sizes(tmp_path):
    """Directories are left out."""
    (tmp_path / "x").write_bytes(b"abc")
    (tmp_path / "y").mkdir()
    assert list_sizes(tmp_path) == {"x": 3}


def test_maps_hold_no_descriptor(tmp_path):
    """A process may have a thousand maps under a limit of 256 open files; a map ends with its array."""
    np.arange(10_000, dtype=U2).tofile(tmp_path / "x")
    before = len(os.listdir("/proc/self/fd"))
    arrays = [map_array(tmp_path / "x", U2) for _ in range(300)]
    assert len(os.listdir("/proc/self/fd")) == before
    assert Path("/proc/self/maps").read_text().count(f"{tmp_path}/x") == 300
    part = arrays[0][4000:4003]
    del arrays
    gc.collect()
    assert part.tolist() == [4000, 4001, 4002]
    assert Path("/proc/self/maps").read_text().count(f"{tmp_path}/x") == 1


@pytest.mark.parametrize("offset", [0, 1, 24, 4095, 4096, 5001])
def test_a_part_begins_at_any_byte(tmp_path, offset):
    """Aligned to a page or a number, or not."""
    (tmp_path / "x").write_bytes(bytes(offset) + np.arange(10_000, dtype="<u4").tobytes())
    version = list_versions(tmp_path)["x"]
    part = map_array(tmp_path / "x", np.dtype("<u4"), 9_999, offset=offset, version=version)
    assert part.tolist() == list(range(9_999))


@pytest.mark.parametrize(
    ("number", "advice"),
    [(errno.EMFILE, r"ulimit -n"), (errno.ENOMEM, "vm.max_map_count"), (errno.ENOENT, "moved or deleted")],
)
def test_why_a_map_fails(tmp_path, monkeypatch, number, advice):
    """A limit of the machine is not a corpus that was moved."""
    (tmp_path / "x").write_bytes(bytes(8))

    def fail(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("tdstream.corpus.mapped_array._map_bytes", fail)
    with pytest.raises(CorpusError, match=advice):
        map_array(tmp_path / "x", U2)
