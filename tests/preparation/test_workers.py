"""Several processes make the same corpus as one, and leave nothing behind when one of them dies."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers_text import corpus_bytes, expected_tokens, write_jsonl
from tdstream.core.errors import SourceError, TdstreamError, TokenizerError
from tdstream.preparation import tokenizing as worker
from tdstream.preparation.engine import prepare_corpus
from tdstream.preparation.options import PrepareOptions
from tdstream.preparation.tokenizing import EncoderPool, EncoderSetup, Marks, tokenize
from tdstream.text import batches as records
from tdstream.text.batches import TextBatch, TextBatches
from tdstream.text.encoders.encoder import HfEncoder
from tdstream.text.records import SegmentPlace
from tdstream.text.tokenizer import fingerprint, load_tokenizer, pack_tokenizer

TEXTS = [f"{'self ' * (number * 13 % 50)}{number}" for number in range(200)]


def batch(number: int, *texts: str) -> TextBatch:
    """Return a batch of some texts."""
    rows, sizes = np.arange(len(texts)), np.array([len(text) for text in texts], np.int64)
    return TextBatch(list(texts), len(texts), SegmentPlace(0, number), rows, sizes)


@pytest.fixture
def setup(tokenizer_dir: Path) -> EncoderSetup:
    """Return how workers are to encode in these tests."""
    tokenizer = load_tokenizer(str(tokenizer_dir))
    return EncoderSetup(
        tokenizer=str(tokenizer_dir),
        tokenizer_fingerprint=fingerprint(tokenizer),
        encoder="hf",
        marks=Marks(0),
    )


@pytest.fixture
def in_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers be threads, which begin at once."""

    class Process:
        pid = 1

        def __init__(self, command: list[str], **named: Any) -> None:
            descriptor = os.dup(int(command[-2]))
            self._thread = threading.Thread(target=self._serve, args=(descriptor,), daemon=True)
            self._thread.start()

        def _serve(self, descriptor: int) -> None:
            with suppress(EOFError, OSError):
                worker._serve(worker.Connection(descriptor))

        def wait(self, timeout: float | None = None) -> int:
            self._thread.join(timeout)
            return -9

        def kill(self) -> None:
            """A thread ends when its connection does."""

    monkeypatch.setattr(worker.subprocess, "Popen", Process)


@pytest.mark.usefixtures("in_threads")
class TestPool:
    """Workers that take batches in turn."""

    @pytest.mark.parametrize("num_proc", [1, 2, 3, 7])
    def test_order(self, tokenizer_dir: Path, setup: EncoderSetup, num_proc: int) -> None:
        """Blocks come in the order of the batches, whatever worker they were with; empty ones too."""
        batches = [batch(number, *TEXTS[number * 3 : number * 3 + number % 4]) for number in range(40)]
        pool = EncoderPool(iter(batches), setup, num_proc)
        blocks = list(pool)
        pool.close()
        encoder = HfEncoder(load_tokenizer(str(tokenizer_dir)))
        assert [block.begin.row for block in blocks] == list(range(40))
        for block, given in zip(blocks, batches, strict=True):
            tokens = tokenize(encoder, given.texts, Marks(0))
            assert block.ids.tolist() == tokens.ids.tolist()
            assert block.documents.ends.tolist() == tokens.ends.tolist()
            assert block.num_records == given.num_records

    def test_bounded(self, setup: EncoderSetup) -> None:
        """However much there is to read, only some batches per worker are read ahead."""
        taken: list[int] = []

        def batches() -> Iterator[TextBatch]:
            for number in range(10_000):
                taken.append(number)
                yield batch(number, "x" * 1000)

        pool = EncoderPool(batches(), setup, 2)
        next(iter(pool))
        time.sleep(0.5)
        pool.close()
        assert len(taken) < 2 * 3 + 10

    def test_an_error_of_the_source(self, setup: EncoderSetup) -> None:
        """What was read before an error of the source is handed out, then the error."""

        def batches() -> Iterator[TextBatch]:
            yield batch(0, "a")
            yield batch(1, "b")
            raise SourceError("broken")

        pool = EncoderPool(batches(), setup, 2)
        blocks = iter(pool)
        assert [next(blocks).begin.row, next(blocks).begin.row] == [0, 1]
        with pytest.raises(SourceError, match="broken"):
            next(blocks)
        pool.close()

    def test_another_tokenizer(self, setup: EncoderSetup) -> None:
        """A worker that finds another tokenizer than the one that was asked for says so."""
        pool = EncoderPool(
            iter([batch(0, "a")]),
            EncoderSetup(
                **{
                    **{name: getattr(setup, name) for name in EncoderSetup.__slots__},
                    "tokenizer_fingerprint": "x",
                }
            ),
            2,
        )
        with pytest.raises(TokenizerError, match="has changed since the preparation began"):
            list(pool)
        pool.close()

    def test_an_error_of_the_tokenizer(self, setup: EncoderSetup, monkeypatch: pytest.MonkeyPatch) -> None:
        """Whatever the tokenizer raises reaches the caller in a sentence."""

        def fail(*_: Any) -> None:
            raise RuntimeError("no\nway")

        monkeypatch.setattr(worker, "tokenize", fail)
        pool = EncoderPool(iter([batch(0, "a")]), setup, 1)
        with pytest.raises(TdstreamError, match=r"^The tokenizer failed: no way\.$"):
            list(pool)
        pool.close()


def test_a_worker_does_without_torch(tokenizer_dir: Path, setup: EncoderSetup) -> None:
    """A worker's process has not loaded torch, unless the tokenizer is a caller's own."""
    loaded = []
    for pickled in (b"", pack_tokenizer(load_tokenizer(str(tokenizer_dir)))):
        only = worker.EncoderProcess(replace(setup, pickled=pickled))
        only.connection.send(["a"])
        only.receive()
        loaded.append("libtorch" in Path(f"/proc/{only.process.pid}/maps").read_text())
        only.stop(at_once=False)
        only.join()
    assert loaded == [False, True]


def workers_of_this_process() -> list[int]:
    """Return the workers that run for this process."""
    found = []
    for child in Path("/proc").glob("[0-9]*"):
        try:
            command = (child / "cmdline").read_bytes()
            parent = int((child / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if b"tdstream.preparation.tokenizing" in command and parent == os.getpid():
            found.append(int(child.name))
    return found


class TestProcesses:
    """Real processes."""

    @pytest.fixture
    def prepare(self, tmp_path: Path, tokenizer_dir: Path) -> Callable[..., Any]:
        """Return a function that prepares 200 documents with two processes."""
        write_jsonl(tmp_path / "a.jsonl", [{"text": text} for text in TEXTS])

        def run(**named: Any) -> Any:
            given = {
                "dataset": str(tmp_path / "a.jsonl"), "tokenizer": str(tokenizer_dir), "encoder": "hf",
                "output_path": tmp_path / "out", "num_proc": 2, "batch_size": 5, "tokens_per_chunk": 100,
                **named,
            }  # fmt: skip
            return prepare_corpus(PrepareOptions.of(**given))

        return run

    def test_a_worker_that_dies(
        self,
        tmp_path: Path,
        tokenizer_dir: Path,
        prepare: Callable[..., Any],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """A worker's death is a sentence; what is safe stays, no worker does, and resume goes on."""
        real = TextBatches.batches

        def batches(self: TextBatches) -> Iterator[Any]:
            for number, item in enumerate(real(self)):
                if number == 20:
                    deadline = time.monotonic() + 60
                    while not (tmp_path / "out/.preparing/chunk_000003.bin").exists():
                        assert time.monotonic() < deadline
                        time.sleep(0.01)
                    os.kill(workers_of_this_process()[0], signal.SIGKILL)
                yield item

        with monkeypatch.context() as patch:
            patch.setattr(TextBatches, "batches", batches)
            with pytest.raises(
                TdstreamError,
                match=r"A worker process \(\d+\) ended by SIGKILL.* tokens are safe: start again",
            ):
                prepare()
        assert workers_of_this_process() == []
        prepare(resume=True, num_proc=1)
        assert corpus_bytes(tmp_path / "out") == expected_tokens(tokenizer_dir, TEXTS, "<u2").tobytes()


class TestPieces:
    """Batches that hold much text."""

    def test_a_piece_is_held_by_nothing_else(self) -> None:
        """When a piece has been handed out, the batch that it was part of does not hold its texts."""
        long = "x" * (records._MOST_BYTES - 1)
        whole = batch(0, long + "a", long + "b", "c")
        pieces = records._split_batch(whole)
        first = next(pieces)
        assert (len(first.texts), whole.texts) == (1, ["", long + "b", "c"])
        assert [len(piece.texts) for piece in pieces] == [1, 1]
        assert whole.texts == ["", "", ""]

    def test_they_are_divided(
        self, tmp_path: Path, tokenizer_dir: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A batch is divided between texts where it is large, and nothing is lost, bad records neither."""
        monkeypatch.setattr(records, "_MOST_BYTES", 100)
        rows: list[Any] = [{"text": text} for text in TEXTS]
        for place in (0, 50, 51, 200):
            rows.insert(place, {"text": None})
        write_jsonl(tmp_path / "a.jsonl", rows)
        sizes: list[int] = []
        real = records._split_batch

        def pieces(given: TextBatch) -> Iterator[TextBatch]:
            for piece in real(given):
                sizes.append(sum(map(len, piece.texts)))
                assert len(piece.texts) == 1 or sizes[-1] <= 100
                assert (piece.sizes == [len(text) for text in piece.texts]).all()
                yield piece

        monkeypatch.setattr(records, "_split_batch", pieces)
        options = PrepareOptions.of(
            dataset=str(tmp_path / "a.jsonl"), tokenizer=str(tokenizer_dir), encoder="hf", skip_bad=True,
            output_path=tmp_path / "out", tokens_per_chunk=100,
        )  # fmt: skip
        counts = prepare_corpus(options).counts
        assert len(sizes) > 100
        assert (counts.documents, counts.skipped) == (200, 4)
        assert counts.text_bytes == sum(map(len, TEXTS))
        assert corpus_bytes(tmp_path / "out") == expected_tokens(tokenizer_dir, TEXTS, "<u2").tobytes()
