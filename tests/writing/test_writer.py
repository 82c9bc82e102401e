"""A corpus writer cuts tokens into shards of one size, and shows readers all of them or none."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tdstream.core.errors import ConfigError, CorpusError, OutputError
from tdstream.corpus.meta import CorpusMeta, read_meta
from tdstream.writing.staging import check_output
from tdstream.writing.writer import CorpusWriter


def plan(tokens_per_chunk: int, dtype: str = "uint16") -> CorpusMeta:
    """Return the plan of a corpus."""
    return CorpusMeta(dtype=dtype, chunks=(), eos_token_id=0, tokens_per_chunk=tokens_per_chunk, vocab_size=9)


def write(
    output: Path, tokens: list[int], tokens_per_chunk: int = 4, *, overwrite: bool = False
) -> CorpusMeta:
    """Write a corpus in one call."""
    with CorpusWriter(output, plan(tokens_per_chunk), overwrite=overwrite) as writer:
        writer.append(np.array(tokens))
        return writer.finish(num_documents=1)


def names(directory: Path) -> list[str]:
    """Return what lies in a directory."""
    return sorted(path.name for path in directory.iterdir())


def contents(directory: Path) -> dict[str, bytes]:
    """Return every file under a directory."""
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


class TestCutting:
    """Where one shard ends and the next begins."""

    @pytest.mark.parametrize(
        ("num_tokens", "sizes"), [(1, [1]), (3, [3]), (4, [4]), (5, [4, 1]), (8, [4, 4]), (11, [4, 4, 3])]
    )
    def test_every_shard_is_full_but_the_last(
        self, tmp_path: Path, num_tokens: int, sizes: list[int]
    ) -> None:
        """Shards hold exactly tokens_per_chunk tokens, the last one the rest, and none is empty."""
        meta = write(tmp_path / "out", list(range(num_tokens)))

        assert [chunk.tokens for chunk in meta.chunks] == sizes
        files = [f"chunk_{number:06d}.bin" for number in range(len(sizes))]
        assert names(tmp_path / "out") == [*files, "meta.json"]
        assert [(tmp_path / "out" / file).stat().st_size for file in files] == [2 * size for size in sizes]

    def test_one_token_per_shard(self, tmp_path: Path) -> None:
        """With tokens_per_chunk=1 every token is a shard of its own."""
        write(tmp_path / "out", [7, 8, 9], tokens_per_chunk=1)

        shards = [(tmp_path / "out" / f"chunk_{number:06d}.bin").read_bytes() for number in range(3)]
        assert shards == [b"\x07\x00", b"\x08\x00", b"\x09\x00"]

    @settings(max_examples=40, deadline=None)
    @given(
        pieces=st.lists(st.lists(st.integers(0, 65_535), max_size=12), min_size=1, max_size=8).filter(any),
        tokens_per_chunk=st.integers(1, 15),
        dtype=st.sampled_from(["uint16", "uint32"]),
    )
    def test_pieces_do_not_matter(
        self,
        tmp_path_factory: pytest.TempPathFactory,
        pieces: list[list[int]],
        tokens_per_chunk: int,
        dtype: str,
    ) -> None:
        """However the tokens arrive, the shards joined together are all tokens in their order."""
        output = tmp_path_factory.mktemp("property") / "out"
        with CorpusWriter(output, plan(tokens_per_chunk, dtype)) as writer:
            for piece in pieces:
                writer.append(np.array(piece, np.int64))
            meta = writer.finish(num_documents=len(pieces))

        shards = [(output / chunk.file).read_bytes() for chunk in meta.chunks]
        flat = [token for piece in pieces for token in piece]
        little_endian = {"uint16": 2, "uint32": 4}[dtype]
        assert b"".join(shards) == b"".join(token.to_bytes(little_endian, "little") for token in flat)
        assert {len(shard) for shard in shards[:-1]} <= {tokens_per_chunk * little_endian}
        assert 0 < len(shards[-1]) <= tokens_per_chunk * little_endian


class TestMeta:
    """What meta.json says of the shards."""

    def test_checksums_are_of_the_files(self, tmp_path: Path) -> None:
        """The checksum taken while writing is the SHA-256 of the bytes on disk."""
        write(tmp_path / "out", list(range(11)))

        meta = json.loads((tmp_path / "out" / "meta.json").read_text())
        assert len(meta["chunk_checksums"]) == 3
        for name, checksum in meta["chunk_checksums"].items():
            assert checksum == "sha256:" + hashlib.sha256((tmp_path / "out" / name).read_bytes()).hexdigest()

    def test_it_says_what_was_written(self, tmp_path: Path) -> None:
        """Sizes, totals, plan and time stand in meta.json under the keys of the format."""
        before = int(time.time())
        write(tmp_path / "out", list(range(6)))

        meta = json.loads((tmp_path / "out" / "meta.json").read_text())
        assert meta["chunks"] == [
            {"file": "chunk_000000.bin", "tokens": 4},
            {"file": "chunk_000001.bin", "tokens": 2},
        ]
        assert (meta["total_tokens"], meta["tokens_per_chunk"], meta["dtype"]) == (6, 4, "uint16")
        assert (meta["num_documents"], meta["format_version"]) == (1, 1)
        assert type(meta["created_at_unix"]) is int
        assert before <= meta["created_at_unix"] <= time.time()


class TestRefusals:
    """What a writer does not write."""

    @pytest.mark.parametrize(("dtype", "limit"), [("uint16", 65_535), ("uint32", 4_294_967_295)])
    def test_an_id_must_fit(self, tmp_path: Path, dtype: str, limit: int) -> None:
        """The largest id that fits is written; one more is refused with both numbers, and nothing remains."""
        with CorpusWriter(tmp_path / "out", plan(4, dtype)) as writer:
            writer.append(np.array([limit]))
            with pytest.raises(
                CorpusError, match=rf"Token id {limit + 1:,} does not fit {dtype} .0 to {limit:,}"
            ):
                writer.append(np.array([1, limit + 1]))
            assert writer.num_tokens == 1
        assert not (tmp_path / "out").exists()

    def test_an_id_is_not_negative(self, tmp_path: Path) -> None:
        """A negative id is refused: it would become a large one in the unsigned file."""
        with (
            CorpusWriter(tmp_path / "out", plan(4)) as writer,
            pytest.raises(CorpusError, match=r"Token id -1 does"),
        ):
            writer.append(np.array([3, -1]))

    def test_ids_are_integers(self, tmp_path: Path) -> None:
        """An array of another kind is refused."""
        with (
            CorpusWriter(tmp_path / "out", plan(4)) as writer,
            pytest.raises(CorpusError, match=r"array of float64"),
        ):
            writer.append(np.array([1.5]))

    @pytest.mark.parametrize("tokens_per_chunk", [0, -3])
    def test_a_shard_holds_a_token(self, tmp_path: Path, tokens_per_chunk: int) -> None:
        """tokens_per_chunk below one, which could never end, is refused before the directory is made."""
        with pytest.raises(
            ConfigError, match=rf"tokens_per_chunk must be at least 1, got {tokens_per_chunk}"
        ):
            CorpusWriter(tmp_path / "out", plan(tokens_per_chunk))
        assert not (tmp_path / "out").exists()

    def test_a_corpus_holds_a_token(self, tmp_path: Path) -> None:
        """A corpus without tokens is refused, and nothing of it remains."""
        with (
            CorpusWriter(tmp_path / "a" / "out", plan(4)) as writer,
            pytest.raises(CorpusError, match=r"No token"),
        ):
            writer.finish(num_documents=0)
        assert names(tmp_path) == []


class TestOutputDirectory:
    """Which directories a corpus may be written to."""

    def test_an_empty_one_is_taken(self, tmp_path: Path) -> None:
        """A directory that exists and is empty needs no permission."""
        write(tmp_path, [1])
        assert names(tmp_path) == ["chunk_000000.bin", "meta.json"]

    @pytest.mark.parametrize(
        "checked_by", [check_output, lambda path, overwrite: CorpusWriter(path, plan(4), overwrite=overwrite)]
    )
    def test_a_used_one_is_not(self, tmp_path: Path, checked_by: Callable[..., Any]) -> None:
        """A directory that holds anything is refused, saying what it holds and what to do."""
        (tmp_path / "notes.txt").write_text("mine")
        with pytest.raises(OutputError, match=r"is not empty .it holds notes.txt.. Pass overwrite=True"):
            checked_by(tmp_path, overwrite=False)
        assert contents(tmp_path) == {"notes.txt": b"mine"}

    @pytest.mark.parametrize(
        "name", ["notes.txt", "chunk_00000.bin", "chunk_000000.bin.bak", "x/chunk_000000.bin", "meta.json"]
    )
    def test_overwrite_spares_what_is_not_ours(self, tmp_path: Path, name: str) -> None:
        """With overwrite, a directory that holds anything else than a corpus is refused and untouched."""
        write(tmp_path, [1, 2])
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
        before = contents(tmp_path)

        with pytest.raises(
            OutputError,
            match=rf"holds files that no preparation wrote: {name.partition('/')[0]}\. Nothing was",
        ):
            write(tmp_path, [3], overwrite=True)

        assert contents(tmp_path) == before

    def test_overwrite_spares_links_and_directories(self, tmp_path: Path) -> None:
        """A link or a directory with a shard's name is not a shard that a preparation wrote."""
        (tmp_path / "chunk_000000.bin").mkdir()
        (tmp_path / "chunk_000001.bin").symlink_to(__file__)
        with pytest.raises(OutputError, match=r"no preparation wrote: chunk_000000.bin, chunk_000001.bin\."):
            write(tmp_path, [3], overwrite=True)

    def test_overwrite_takes_along_what_was_made_from_the_corpus(self, tmp_path: Path) -> None:
        """It says nothing of the new one; a link or file of that name is not ours."""
        write(tmp_path, [3, 5])
        (tmp_path / ".tdstream" / "pack-1").mkdir(parents=True)
        (tmp_path / ".tdstream" / "chunk_000000.1.eos").write_bytes(bytes(8))
        write(tmp_path, [5], overwrite=True)
        assert not (tmp_path / ".tdstream").exists()
        (tmp_path / ".tdstream").write_text("a file")
        with pytest.raises(OutputError, match=r"files that no preparation wrote: \.tdstream"):
            write(tmp_path, [3], overwrite=True)

    def test_overwrite_leaves_no_surplus(self, tmp_path: Path) -> None:
        """A smaller corpus that replaces a larger one leaves none of its shards."""
        write(tmp_path, list(range(20)))
        write(tmp_path, [5], overwrite=True)
        assert contents(tmp_path).keys() == {"chunk_000000.bin", "meta.json"}
        assert (tmp_path / "chunk_000000.bin").read_bytes() == b"\x05\x00"

    def test_the_old_corpus_lives_until_the_new_one_is_whole(self, tmp_path: Path) -> None:
        """While the new shards are written, and if that fails, the old files are as they were."""
        write(tmp_path, list(range(9)))
        before = contents(tmp_path)

        with CorpusWriter(tmp_path, plan(2), overwrite=True) as writer:
            writer.append(np.array([1, 2, 3, 4, 5]))
            during = contents(tmp_path)

        assert {name: during[name] for name in before} == before
        assert contents(tmp_path) == before
        assert names(tmp_path) == [*sorted(before)]

    def test_a_file_is_no_directory(self, tmp_path: Path) -> None:
        """An output path that is a file, or lies under one, is refused and the file kept."""
        (tmp_path / "file").write_text("mine")
        with pytest.raises(OutputError, match=r"is a file, not a directory"):
            check_output(tmp_path / "file", overwrite=True)
        with pytest.raises(OutputError, match=rf"cannot be created: {tmp_path}/file is a file"):
            check_output(tmp_path / "file" / "out", overwrite=True)
        with pytest.raises(OutputError, match=r"is a file. Choose"):
            CorpusWriter(tmp_path / "file" / "out", plan(4))

    def test_permissions(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A place that may not be written is refused with a sentence, before and while writing."""
        monkeypatch.setattr(os, "access", lambda *_: False)
        with pytest.raises(OutputError, match=r"is not writable. Change its permissions"):
            check_output(tmp_path, overwrite=False)
        with pytest.raises(OutputError, match=r"cannot be created: .* is not writable"):
            check_output(tmp_path / "out", overwrite=False)

        def refuse(*_: Any, **__: Any) -> None:
            raise PermissionError(errno.EACCES, "Permission denied")

        monkeypatch.setattr(Path, "mkdir", refuse)
        with pytest.raises(OutputError, match=r"is not writable .Permission denied."):
            CorpusWriter(tmp_path / "out", plan(4))

    def test_two_at_once_are_refused(self, tmp_path: Path) -> None:
        """A second preparation into the same directory is refused at once, and the first goes on."""
        with CorpusWriter(tmp_path / "out", plan(4)) as writer:
            writer.append(np.array([1, 2, 3, 4, 5]))
            for refused in (
                lambda: check_output(tmp_path / "out", overwrite=False),
                lambda: write(tmp_path / "out", [9]),
            ):
                with pytest.raises(OutputError, match=r"Another preparation is writing into"):
                    refused()
            writer.finish(num_documents=1)
        assert contents(tmp_path / "out")["chunk_000001.bin"] == b"\x05\x00"

    def test_no_directory_is_left_after_a_failure(self, tmp_path: Path) -> None:
        """Directories that were made for a corpus that failed are removed again, older ones stay."""
        with CorpusWriter(tmp_path / "a" / "b", plan(2)) as writer:
            writer.append(np.array([1, 2, 3]))
        assert names(tmp_path) == []


class TestInterruptedMove:
    """A run that dies between the commit and the last rename."""

    @pytest.mark.parametrize("tokens_before", [0, 3, 20])
    def test_the_next_start_finishes_it(
        self, tmp_path: Path, tokens_before: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Wherever the move stops, no reader sees a meta.json that lies, and the next start completes it."""
        write(tmp_path / "whole", list(range(9)), tokens_per_chunk=2)
        whole = contents(tmp_path / "whole")
        real_replace, real_unlink = os.replace, Path.unlink
        for survived in range(100):
            output = tmp_path / f"killed_{survived}"
            if tokens_before:
                write(output, [1] * tokens_before, tokens_per_chunk=2)
            left = survived

            def dying(real: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
                nonlocal left
                if (output / ".preparing" / "meta.json").exists():  # noqa: B023
                    left -= 1
                    if left < 0:
                        raise SystemExit("killed")
                return real(*arguments, **named)

            monkeypatch.setattr(os, "replace", lambda *a: dying(real_replace, *a))
            monkeypatch.setattr(Path, "unlink", lambda *a, **k: dying(real_unlink, *a, **k))
            try:
                write(output, list(range(9)), tokens_per_chunk=2, overwrite=True)
                died = False
            except SystemExit:
                died = True
            finally:
                monkeypatch.undo()
            if not died:
                break
            if (output / "meta.json").exists():
                assert tokens_before  # the old corpus, of which nothing has been touched
                assert contents(output)["chunk_000000.bin"] == b"\x01\x00" * 2
            with pytest.raises(OutputError, match=r"is not empty"):
                check_output(output, overwrite=False)
            after = contents(output)
            del after["meta.json"]
            assert after == {name: content for name, content in whole.items() if name != "meta.json"}
            assert sum(chunk.tokens for chunk in read_meta(output / "meta.json").chunks) == 9
            assert not (output / ".preparing").exists()
        assert survived >= 6  # five shards and meta.json were each the last thing done once

    def test_an_error_in_the_move_keeps_the_new_corpus(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """If the disk fails in the move, the sentence says that the new corpus is safe, and it is."""
        real_replace = os.replace

        def fail(source: Path, target: Path) -> None:
            if Path(target).name == "chunk_000001.bin" and Path(target).parent == tmp_path / "out":
                raise OSError(errno.EIO, "Input/output error")
            real_replace(source, target)

        monkeypatch.setattr(os, "replace", fail)
        with pytest.raises(
            OutputError, match=r"Input/output error.*The new corpus is complete in .*start again"
        ):
            write(tmp_path / "out", list(range(9)))
        with pytest.raises(OutputError, match=r"Input/output error"):
            write(tmp_path / "out", list(range(9)))
        monkeypatch.undo()

        with pytest.raises(OutputError, match=r"is not empty"):
            check_output(tmp_path / "out", overwrite=False)
        assert read_meta(tmp_path / "out" / "meta.json").total_tokens == 9


KILLED = """
import sys, time
from pathlib import Path
import numpy as np
from tdstream.corpus.meta import CorpusMeta
from tdstream.writing.writer import CorpusWriter
plan = CorpusMeta(dtype="uint16", chunks=(), tokens_per_chunk=50)
with CorpusWriter(Path(sys.argv[1]), plan, overwrite=True) as writer:
    print("writing", flush=True)
    while True:
        writer.append(np.arange(33))
"""


class TestKill:
    """A run that dies of SIGKILL before the commit."""

    @pytest.mark.parametrize(("old", "moments"), [(False, [0.1]), (True, [0.0, 0.2])])
    def test_nothing_that_could_mislead_remains(
        self, tmp_path: Path, old: bool, moments: list[float]
    ) -> None:
        """After SIGKILL an old corpus is untouched, no new file is in place, and the next start works."""
        output = tmp_path / "out"
        if old:
            write(output, list(range(9)))
        before = contents(output) if old else {}
        for seconds in moments:
            with subprocess.Popen(
                [sys.executable, "-c", KILLED, str(output)], stdout=subprocess.PIPE
            ) as process:
                assert process.stdout is not None
                process.stdout.readline()
                time.sleep(seconds)
                process.kill()
            assert process.returncode == -signal.SIGKILL
            after = contents(output)
            assert {
                name: content for name, content in after.items() if not name.startswith(".preparing/")
            } == before
            assert ".preparing/meta.json" not in after
        assert any(name.startswith(".preparing/chunk_") for name in after)  # there was something to clean up

        write(output, [1, 2, 3, 4, 5], overwrite=old)

        assert contents(output).keys() == {"chunk_000000.bin", "chunk_000001.bin", "meta.json"}

    def test_the_next_start_gives_the_room_back(self, tmp_path: Path) -> None:
        """What a killed run left is removed before the next one writes, not after."""
        (tmp_path / ".preparing").mkdir()
        for name in ("lock", "chunk_000000.bin", "chunk_000001.bin.tmp", "meta.json.tmp"):
            (tmp_path / ".preparing" / name).write_bytes(b"left")
        with CorpusWriter(tmp_path, plan(4)):
            assert names(tmp_path / ".preparing") == ["lock"]

    def test_foreign_files_in_the_staging_directory_are_kept(self, tmp_path: Path) -> None:
        """A .preparing directory that holds files that no preparation wrote is refused."""
        (tmp_path / ".preparing").mkdir()
        (tmp_path / ".preparing" / "diary").write_text("mine")
        with pytest.raises(OutputError, match=r"no preparation wrote: diary"):
            write(tmp_path, [1])
        assert (tmp_path / ".preparing" / "diary").read_text() == "mine"


@pytest.fixture
def small_disk(tmp_path: Path) -> Any:
    """Mount a file system of 64 KiB."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system takes root; the file size limit below covers the writer")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(tmp_path)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("this machine does not let tests mount; the file size limit below covers the writer")
    yield tmp_path
    subprocess.run(["umount", str(tmp_path)], check=True)


class TestFullDisk:
    """A disk that fills up in the middle."""

    def test_it_is_said_and_cleaned_up(self, small_disk: Path) -> None:
        """A full disk ends in a sentence, the old corpus stays, and the room that was taken is given back."""
        write(small_disk / "out", list(range(9)))
        before = contents(small_disk)

        with pytest.raises(
            OutputError,
            match=r"No space left for .*out .the next shard takes 10,000 bytes, .* are free.. Free some",
        ):
            write(small_disk / "out", list(range(60_000)), tokens_per_chunk=5_000, overwrite=True)

        assert contents(small_disk) == before
        write(small_disk / "out", list(range(20_000)), overwrite=True, tokens_per_chunk=20_000)

    def test_a_write_that_is_cut_short_is_an_error(self, tmp_path: Path) -> None:
        """A write that the system accepts only in part goes on until the system says why."""
        old_limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        old_handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_001, old_limits[1]))
        try:
            with pytest.raises(OutputError, match=r"out cannot be written: File too large"):
                write(tmp_path / "out", list(range(60_000)), tokens_per_chunk=50_000)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, old_limits)
            signal.signal(signal.SIGXFSZ, old_handler)
        assert names(tmp_path) == []

    def test_a_shard_is_durable_before_it_has_its_name(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Each shard's bytes are on disk before it is renamed: a power cut leaves no name without bytes."""
        done: list[str] = []
        real_fsync, real_replace = os.fsync, os.replace

        def fsync(descriptor: int) -> None:
            done.append("sync " + Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
            real_fsync(descriptor)

        def replace(old: Path, new: Path) -> None:
            done.append("name " + Path(old).name)
            real_replace(old, new)

        monkeypatch.setattr(os, "fsync", fsync)
        monkeypatch.setattr(os, "replace", replace)
        write(tmp_path / "out", list(range(5)))

        for number in (0, 1):
            synced = done.index(f"sync chunk_00000{number}.bin.tmp")
            assert done[synced + 1] == f"name chunk_00000{number}.bin.tmp"
        assert (
            done.index("sync .preparing")
            < done.index("sync meta.json.tmp")
            < done.index("name meta.json.tmp")
        )

    def test_no_space_when_the_file_is_made_durable(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A disk that admits being full only at fsync is noticed before the shard gets its name."""

        def full(_: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(OutputError, match=r"No space left for"):
            write(tmp_path / "out", list(range(9)))
        assert names(tmp_path) == []
