"""Locks between processes, on file systems with locks and without."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

import tdstream
from tdstream.distributed import file_lock
from tdstream.distributed.file_lock import (
    Owner,
    describe_holder,
    is_locked,
    marker_names,
    remove_lock_files,
    try_lock,
    wait_for_lock,
)
from tdstream.writing.locks import LockedError, take_lock

UNSUPPORTED = ["ENOLCK", "ENOSYS", "EOPNOTSUPP", "EINVAL", "EACCES", "EBADF"]


@pytest.fixture(params=["", *UNSUPPORTED])
def locks(request, monkeypatch):
    """A file system with locks, or one whose flock fails."""
    if request.param:
        monkeypatch.setattr(fcntl, "flock", failing(getattr(errno, request.param)))
    return request.param


@pytest.fixture
def no_locks(monkeypatch):
    """A file system without locks."""
    monkeypatch.setattr(fcntl, "flock", failing(errno.ENOLCK))


def failing(number):
    """Return a flock that a file system does not have."""

    def flock(*_):
        raise OSError(number, os.strerror(number))

    return flock


def test_one_holds_it(locks, tmp_path):
    """Nobody else, not even shared, until it is closed; nothing stays behind that holds anyone up."""
    path = tmp_path / "lock"
    assert not is_locked(path)
    for _ in range(2):
        held = try_lock(path)
        assert try_lock(path) is None
        assert try_lock(path, shared=True) is None
        assert is_locked(path)
        assert f"process {os.getpid()} on " in describe_holder(path)
        held.close()
        held.close()
        assert not is_locked(path)
    assert os.listdir(tmp_path) == ["lock"]
    assert path.read_bytes() == b""


def test_several_share_it(locks, tmp_path):
    """And none has it alone before the last has closed it."""
    path = tmp_path / "lock"
    shared = [try_lock(path, shared=True) for _ in range(2)]
    for one in shared:
        assert try_lock(path) is None
        assert not is_locked(path)
        one.close()
    alone = try_lock(path)
    assert alone is not None
    alone.close()


def test_a_directory_removed_meanwhile(locks, tmp_path):
    """The holder may remove the directory; who comes next makes a new one, which the holder leaves alone."""
    held = take_lock(tmp_path / "work", tmp_path)
    remove_lock_files(tmp_path / "work" / "lock")
    (tmp_path / "work").rmdir()
    successor = take_lock(tmp_path / "work", tmp_path)
    held.close()
    with pytest.raises(LockedError, match=rf"writing into {tmp_path} \(process {os.getpid()} on "):
        take_lock(tmp_path / "work", tmp_path)
    successor.close()


def test_what_is_missing_is_said_once(no_locks, tmp_path, caplog):
    """By the directory, with the system's words."""
    for _ in range(2):
        take_lock(tmp_path / "work", tmp_path).close()
    said = [record.message for record in caplog.records]
    assert said == [
        f"{tmp_path}/work is on a file system without locks (No locks available): files that name their "
        f"process take their place."
    ]


HOLD = """
import errno, fcntl, os, sys, time
from pathlib import Path
from tdstream.distributed.file_lock import try_lock
def flock(*_):
    raise OSError(errno.ENOLCK, "No locks available")
fcntl.flock = flock
locks = [try_lock(Path(sys.argv[1]), shared=True) if sys.argv[2] == "shared" else try_lock(Path(sys.argv[1]))]
print(flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("kind", ["shared", "alone"])
def test_a_killed_holder_is_taken_over(no_locks, tmp_path, kind):
    """Its file stays, and names a process that has ended."""
    path = tmp_path / "lock"
    environment = {**os.environ, "PYTHONPATH": str(Path(tdstream.__file__).parent.parent)}
    command = [sys.executable, "-c", HOLD, str(path), kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as holder:
        holder.stdout.readline()
        assert try_lock(path) is None
        assert f"process {holder.pid} on " in describe_holder(path)
        holder.send_signal(signal.SIGKILL)
    held = try_lock(path)
    assert held is not None
    held.close()
    assert os.listdir(tmp_path) == ["lock"]


@pytest.mark.parametrize(
    ("changes", "over"),
    [
        ({}, False),
        ({"start": "1"}, True),  # the process id was used again
        ({"pid": 2**22 + 1}, True),
        ({"host": "elsewhere", "pid": 2**22 + 1}, False),
        ({"machine": "another boot", "pid": 2**22 + 1}, False),
    ],
)
def test_whose_time_is_over(no_locks, tmp_path, changes, over):
    """Only on the same machine can it be known; else the file to remove is named."""
    path, marker = tmp_path / "lock", tmp_path / "owner.lock"
    marker.write_text(json.dumps(asdict(replace(Owner.here(), **changes))))
    found = try_lock(path)
    assert (found is not None) == over
    if {"host", "machine"} & set(changes):
        assert describe_holder(path).endswith(f"if that process has ended, remove {marker}")


def test_whoever_waits_says_for_whom(locks, tmp_path, monkeypatch, caplog):
    """After some seconds, and then once in a while."""
    monkeypatch.setattr(file_lock, "_FIRST_WORD_S", 0.05)
    monkeypatch.setattr(file_lock, "_POLL_S", 0.01)
    held = try_lock(tmp_path / "lock")
    caplog.clear()
    threading.Timer(0.2, held.close).start()
    taken = wait_for_lock(tmp_path / "lock", "making tea")
    assert taken is not None
    taken.close()
    said = [record.message for record in caplog.records]
    assert len(said) == 1
    assert said[0].startswith(f"Waiting for another process that is making tea (process {os.getpid()} on ")


def test_nobody_waits_for_the_unknown(no_locks, tmp_path):
    """Of another machine nobody can tell; what is only made twice goes on."""
    (tmp_path / "owner.lock").write_text(json.dumps(asdict(replace(Owner.here(), host="elsewhere"))))
    assert wait_for_lock(tmp_path / "lock", "making tea") is None


def test_a_record_that_cannot_be_read(no_locks, tmp_path):
    """It may be one that is being written."""
    (tmp_path / "owner.lock").write_bytes(b"{")
    assert try_lock(tmp_path / "lock") is None
    assert describe_holder(tmp_path / "lock").startswith("another process; its file system has no locks")


def test_without_hard_links(no_locks, tmp_path, monkeypatch):
    """Some of these file systems have none either."""

    def link(*_):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    held = try_lock(tmp_path / "lock")
    assert try_lock(tmp_path / "lock") is None
    held.close()
    assert os.listdir(tmp_path) == ["lock"]


def test_an_abandoned_lock_goes_to_one(no_locks, tmp_path):
    """However many find it at once."""
    ended = replace(Owner.here(), pid=2**22 + 1)
    for number in range(15):
        path = tmp_path / str(number) / "lock"
        path.parent.mkdir()
        (path.parent / "owner.lock").write_text(json.dumps(asdict(ended)))
        begin, (reading, writing) = time.monotonic() + 0.02, os.pipe()
        children = []
        for _ in range(4):
            if not (child := os.fork()):
                while time.monotonic() < begin:
                    pass
                os.write(writing, b"0" if file_lock.try_lock(path) is None else b"1")
                signal.pause()  # who has it lives on
            children.append(child)
        results = b"".join(os.read(reading, 1) for _ in children)
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        assert sorted(results) == list(b"0001")


def test_the_names_beside_a_lock():
    """What a preparation may remove."""
    assert marker_names("lock") == r"(owner|(?:shared|new|stale)-[0-9a-f]{16})\.lock"


def test_an_owner_that_nobody_collects(no_locks, tmp_path):
    """Killed, but still in the list of processes, as under a first process that does not ask."""
    path = tmp_path / "lock"
    child = subprocess.Popen(["sleep", "60"])
    try:
        owner = replace(Owner.here(), pid=child.pid, start=file_lock._start_of(child.pid))
        path.with_name("owner.lock").write_text(json.dumps(asdict(owner)))
        assert try_lock(path) is None
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        lock = try_lock(path)
        assert lock is not None
        lock.close()
    finally:
        child.kill()
        child.wait()
