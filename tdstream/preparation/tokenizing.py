"""Blocks of tokens from batches of text, encoded in a thread or in several processes.

The processes are no ProcessPoolExecutor: its workers outlive a killed parent, are stopped in the middle of a
batch by the terminal's Ctrl-C, and import what the caller's main module imports, torch included. A worker
here is a separate interpreter that ends when the other end of its connection closes, for whatever reason.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import cycle
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tdstream.core.errors import TdstreamError, TokenizerError
from tdstream.core.read_ahead import ReadAhead
from tdstream.preparation.ledger import TokenBlock
from tdstream.preparation.result import DocumentCounts
from tdstream.text.batches import TextBatch
from tdstream.text.encoders.encoder import Encoded, Encoder
from tdstream.text.encoders.select import choose_encoder
from tdstream.text.network import in_one_line
from tdstream.text.tokenize import join_documents
from tdstream.text.tokenizer import fingerprint, load_tokenizer, unpack_tokenizer

_IN_FLIGHT = 3  # batches per worker: one being encoded, one waiting, one being written


@dataclass(frozen=True, slots=True)
class BatchTokens:
    """The tokens of a batch of texts.

    The documents "a b" and "", with the ids [5, 7] and [] and the end-of-text id 0, have the ids [5, 7, 0, 0]
    and the ends [3, 4].
    """

    ids: NDArray[Any]
    """Tokens of all documents, each with its BOS token, if any, and end-of-text; [num_tokens]."""
    ends: NDArray[np.int64]
    """End of each document among them, after its end-of-text token; [num_documents]."""
    holding: NDArray[np.bool_]
    """Whether each text contains the end-of-text token, [num_documents]."""
    encoder: str = ""
    """Name of the encoder."""


_NOTHING = BatchTokens(np.zeros(0, np.uint32), np.zeros(0, np.int64), np.zeros(0, np.bool_))


@dataclass(frozen=True, slots=True)
class Marks:
    """The ids that stand in each document beside those of its text."""

    eos_token_id: int
    bos_token_id: int | None = None


def tokenize(encoder: Encoder, texts: list[str], marks: Marks) -> BatchTokens:
    """Return the tokens of texts, possibly none."""
    return add_marks(encoder.encode(texts), marks, encoder.name) if texts else _NOTHING


def add_marks(encoded: Encoded, marks: Marks, encoder: str) -> BatchTokens:
    """Return encoded documents, empty ones included, each with its BOS token, if any, and end-of-text."""
    documents = join_documents(encoded, marks.eos_token_id, marks.bos_token_id)
    holding = np.zeros(len(documents.ends), np.bool_)
    places = np.flatnonzero(encoded.ids == marks.eos_token_id)
    holding[np.searchsorted(encoded.offsets, places, side="right") - 1] = True
    return BatchTokens(documents.tokens.astype(np.uint32, copy=False), documents.ends, holding, encoder)


def make_block(batch: TextBatch, tokens: BatchTokens, marks: Marks) -> TokenBlock:
    """Return the tokens of a batch with its places; the texts are no longer needed."""
    bos_tokens = int(marks.bos_token_id is not None)
    return TokenBlock(
        ids=tokens.ids,
        documents=DocumentCounts(tokens.ends, batch.sizes, tokens.holding, bos_tokens),
        begin=batch.begin,
        num_records=batch.num_records,
        rows=batch.rows,
        bytes_read=batch.bytes_read,
        encoder=tokens.encoder,
    )


class Overlapped:
    """Blocks made in this process: one thread reads ahead, another encodes. Close it when done."""

    def __init__(self, batches: Iterator[TextBatch], encoder: Encoder, marks: Marks) -> None:
        def encode(batch: TextBatch) -> TokenBlock:
            if not batch.texts:
                return make_block(batch, _NOTHING, marks)
            encoded = encoder.encode(batch.texts)
            batch.texts.clear()  # free them before the ids are copied
            return make_block(batch, add_marks(encoded, marks, encoder.name), marks)

        self._read = ReadAhead(batches)
        self._encoded = ReadAhead(map(encode, self._read))  # map: a generator would keep its last block alive

    def __iter__(self) -> Iterator[TokenBlock]:
        return iter(self._encoded)

    def close(self) -> None:
        """Stop both threads."""
        self._read.close()
        self._encoded.close()


PROGRAM = (
    "import sys; sys.path[:] = [path for path in sys.path if path]; "
    "from tdstream.preparation.process_setup import set_up_process; "
    "sys.argv[2:] == ['without_torch'] and set_up_process(); "
    "from tdstream.preparation.tokenizing import serve; serve(int(sys.argv[1]))"
)
"""Program of a worker; its arguments are the descriptor of a connection, and "without_torch" or ""."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EncoderSetup:
    """Everything that a worker needs to encode."""

    tokenizer: str
    """Name on the hub or local directory."""
    pickled: bytes = b""
    """The caller's tokenizer object, if any; the name is then unused."""
    tokenizer_fingerprint: str
    """Fingerprint that the loaded tokenizer must have."""
    encoder: str
    """Name of the encoder."""
    marks: Marks


def serve(descriptor: int) -> None:
    """Answer each list of texts with its tokens, until None arrives or the connection closes."""
    try:
        _serve(Connection(descriptor))
    except (EOFError, OSError):  # the parent has ended
        os._exit(1)


def _serve(connection: Connection[Any, Any]) -> None:
    setup: EncoderSetup = connection.recv()
    encoder: Encoder | None = None
    while True:
        texts = connection.recv()
        if texts is None:
            return
        try:
            encoder = encoder or _encoder(setup)
            answer: object = tokenize(encoder, texts, setup.marks)
        except TdstreamError as error:
            answer = error
        except Exception as error:  # a tokenizer may raise anything
            answer = TdstreamError(f"The tokenizer failed: {in_one_line(error)}.")
        connection.send(answer)


def _encoder(setup: EncoderSetup) -> Encoder:
    tokenizer = unpack_tokenizer(setup.pickled) if setup.pickled else load_tokenizer(setup.tokenizer)
    if fingerprint(tokenizer) != setup.tokenizer_fingerprint:
        raise TokenizerError(
            f"Tokenizer {setup.tokenizer!r} has changed since the preparation began. Start again."
        )
    try:
        return choose_encoder(tokenizer, setup.encoder)
    except TokenizerError:  # another worker has just found it inexact
        return choose_encoder(tokenizer, "hf")


class EncoderProcess:
    """A worker process and the connection to it."""

    def __init__(self, setup: EncoderSetup) -> None:
        path = os.pathsep.join(entry for entry in sys.path if entry)
        one_thread = {"RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
        ours, theirs = Pipe()
        self.connection: Connection[Any, Any] = ours
        torch = "" if setup.pickled else "without_torch"  # the caller's class may need torch
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, str(theirs.fileno()), torch],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONPATH": path, **one_thread},
                start_new_session=True,  # Ctrl-C stops the parent, and so the worker
            )
        with suppress(OSError):  # if it has already ended, `receive` raises
            ours.send(setup)

    def receive(self) -> Any:
        """Return the next answer; raise TdstreamError if the process failed or has ended."""
        try:
            answer = self.connection.recv()
        except (EOFError, OSError):
            raise TdstreamError(
                f"A worker process ({self.process.pid}) ended {self._how()}. No text is lost; "
                f"use fewer processes or a smaller batch_size if memory ran out."
            ) from None
        if isinstance(answer, TdstreamError):
            raise answer
        return answer

    def _how(self) -> str:
        code = self.process.wait()
        return f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"

    def stop(self, *, at_once: bool) -> None:
        """End the process; `at_once` interrupts its current batch."""
        if at_once:
            self.process.kill()
        with suppress(OSError):
            self.connection.send(None)

    def join(self) -> None:
        """Close the connection and wait for the process to end."""
        self.connection.close()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class EncoderPool:
    """Blocks in the order of the batches, which several processes encode in turn. Close it when done."""

    def __init__(self, batches: Iterator[TextBatch], setup: EncoderSetup, num_proc: int) -> None:
        self._sent: queue.Queue[TextBatch | None] = queue.Queue(num_proc * _IN_FLIGHT)
        self._stopped, self._marks = threading.Event(), setup.marks
        self._error: BaseException | None = None
        self._workers = [EncoderProcess(setup) for _ in range(num_proc)]
        self._read = ReadAhead(batches)
        self._sender = threading.Thread(target=self._send, daemon=True)
        self._sender.start()
        self._encoded = ReadAhead(self._blocks())

    def __iter__(self) -> Iterator[TokenBlock]:
        return iter(self._encoded)

    def close(self) -> None:
        """Stop all processes and threads."""
        at_once = self._sender.is_alive() or not self._sent.empty()
        self._stopped.set()
        for worker in self._workers:
            worker.stop(at_once=at_once)
        self._read.close()
        while self._sender.is_alive():
            with suppress(queue.Empty):  # make room, so that the thread notices
                self._sent.get(timeout=0.05)
        with suppress(queue.Full):
            self._sent.put_nowait(None)
        self._encoded.close()
        for worker in self._workers:
            worker.join()

    def _send(self) -> None:
        try:
            turns = cycle(self._workers)
            for batch in self._read:
                self._sent.put(replace(batch, texts=[]))
                if self._stopped.is_set():
                    break
                with suppress(OSError):  # it has ended; `receive` raises
                    next(turns).connection.send(batch.texts)
                del batch  # free a possibly large batch while waiting for the next
        except BaseException as error:  # raised where the blocks are taken
            self._error = error
        finally:
            self._sent.put(None)

    def _blocks(self) -> Iterator[TokenBlock]:
        number = 0
        while (batch := self._sent.get()) is not None:
            tokens = self._workers[number % len(self._workers)].receive()
            yield make_block(batch, tokens, self._marks)
            number += 1
        if self._error is not None:
            raise self._error
