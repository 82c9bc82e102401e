"""Files derived from a corpus: their modes, and disks that take no more."""

from __future__ import annotations

import errno
import os
import resource
import signal
import stat
from pathlib import Path

import pytest

from tdstream.core.errors import OutputError
from tdstream.corpus.derived import taking_turns, whole_file


@pytest.mark.parametrize("umask", [0o002, 0o007, 0o022, 0o027, 0o077])
def test_modes_follow_the_umask(tmp_path: Path, umask: int) -> None:
    """As those of any other file: a group may renew them, strangers may read them, if the user wants it."""
    before = os.umask(umask)
    try:
        with taking_turns(tmp_path, "plan"), whole_file(tmp_path / "plan") as file:
            file.write(b"12")
    finally:
        os.umask(before)
    for name in ("plan", "plan.lock"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o666 & ~umask


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
@pytest.mark.parametrize("name", ["fsync", "replace"])
def test_a_full_disk(tmp_path: Path, code: int, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One sentence with the place, and nothing is left there."""

    def fail(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, name, fail)
        with (
            pytest.raises(OutputError, match=rf"written to {tmp_path} \({os.strerror(code)}\)\. Free some"),
            taking_turns(tmp_path, "plan"),
            whole_file(tmp_path / "plan") as file,
        ):
            file.write(b"12")
    assert [path.name for path in tmp_path.iterdir()] == ["plan.lock"]


def test_a_write_that_does_not_fit(tmp_path: Path) -> None:
    """A real limit on the size of files."""
    limits, handler = (
        resource.getrlimit(resource.RLIMIT_FSIZE),
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN),
    )
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with (
            pytest.raises(OutputError, match=r"\(File too large\)"),
            taking_turns(tmp_path, "plan"),
            whole_file(tmp_path / "plan") as file,
        ):
            file.write(bytes(100_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert [path.name for path in tmp_path.iterdir()] == ["plan.lock"]
