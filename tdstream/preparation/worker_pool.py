"""Blocks of tokens from several processes, in the order of the batches.

Not a ProcessPoolExecutor: its workers outlive a parent that is killed, are stopped by the terminal's Ctrl-C
in the middle of a batch, and import what the caller's main module imports, torch among it. A worker here is
an interpreter of its own that ends when the other end of its connection closes, however that happens.
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

from tdstream.core.errors import TdstreamError, TokenizerError
from tdstream.core.read_ahead import ReadAhead
from tdstream.preparation.ledger import TokenBlock
from tdstream.preparation.tokenizing import make_block, tokenize
from tdstream.text.batches import TextBatch
from tdstream.text.encoders.encoder import Encoder
from tdstream.text.encoders.select import choose_encoder
from tdstream.text.network import in_one_line
from tdstream.text.tokenizer import fingerprint, load_tokenizer, unpack_tokenizer

PROGRAM = (
    "import sys; sys.path[:] = [path for path in sys.path if path]; "
    "from tdstream.preparation.process_setup import set_up_process; "
    "sys.argv[2:] == ['without_torch'] and set_up_process(); "
    "from tdstream.preparation.worker_pool import serve; serve(int(sys.argv[1]))"
)
"""What a worker's interpreter runs; its arguments are a connection's descriptor and "without_torch" or ""."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EncoderSetup:
    """What a worker needs to encode."""

    tokenizer: str
    """Name on the hub, or a local directory."""
    pickled: bytes = b""
    """The tokenizer itself, where the caller gave one; its name is then not used."""
    tokenizer_fingerprint: str
    """Which tokenizer it has to be."""
    encoder: str
    """The encoder that was asked for."""
    eos_token_id: int


def serve(descriptor: int) -> None:
    """Answer every list of texts with its tokens, until None arrives or the connection closes."""
    try:
        _serve(Connection(descriptor))
    except (EOFError, OSError):  # The parent has ended.
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
            answer: object = tokenize(encoder, texts, setup.eos_token_id)
        except TdstreamError as error:
            answer = error
        except Exception as error:  # A tokenizer may raise anything.
            answer = TdstreamError(f"The tokenizer failed: {in_one_line(error)}.")
        connection.send(answer)


def _encoder(setup: EncoderSetup) -> Encoder:
    tokenizer = unpack_tokenizer(setup.pickled) if setup.pickled else load_tokenizer(setup.tokenizer)
    if fingerprint(tokenizer) != setup.tokenizer_fingerprint:
        raise TokenizerError(
            f"Tokenizer {setup.tokenizer!r} has changed since the preparation began. Begin again."
        )
    try:
        return choose_encoder(tokenizer, setup.encoder)
    except TokenizerError:  # Another worker has just found that it is not exact.
        return choose_encoder(tokenizer, "hf")


_IN_FLIGHT = 3  # Batches per worker: one being encoded, one waiting, one being written.


class EncoderProcess:
    """A process that encodes, and the connection to it."""

    def __init__(self, setup: EncoderSetup) -> None:
        ours, theirs = Pipe()
        self.connection: Connection[Any, Any] = ours
        torch = "" if setup.pickled else "without_torch"  # A class of the caller's may need torch.
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, str(theirs.fileno()), torch],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=_environment(),
                start_new_session=True,  # Ctrl-C is for the parent; the worker ends with it.
            )
        with suppress(OSError):  # If it has ended already, `receive` says so.
            ours.send(setup)

    def receive(self) -> Any:
        """Return the next answer; raise TdstreamError if the process failed or has ended."""
        try:
            answer = self.connection.recv()
        except (EOFError, OSError):
            raise TdstreamError(
                f"A worker process ({self.process.pid}) ended {self._how()}. Nothing that it was given is "
                f"lost; use fewer processes or a smaller batch_size if memory ran out."
            ) from None
        if isinstance(answer, TdstreamError):
            raise answer
        return answer

    def _how(self) -> str:
        code = self.process.wait()
        return f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"

    def stop(self, *, at_once: bool) -> None:
        """End the process; `at_once` without waiting for what it is doing."""
        if at_once:
            self.process.kill()
        with suppress(OSError):
            self.connection.send(None)

    def join(self) -> None:
        """Close the connection, and wait for the end of the process."""
        self.connection.close()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _environment() -> dict[str, str]:
    """Return the environment of a worker: this process's module path, and one thread per worker."""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return {**os.environ, "PYTHONPATH": path, "RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}


class EncoderPool:
    """Blocks encoded by several processes, which take the batches in turn. Close it when done."""

    def __init__(self, batches: Iterator[TextBatch], setup: EncoderSetup, num_proc: int) -> None:
        self._sent: queue.Queue[TextBatch | None] = queue.Queue(num_proc * _IN_FLIGHT)
        self._stopped = threading.Event()
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
            with suppress(queue.Empty):  # Make room for the thread to notice.
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
                with suppress(OSError):  # It has ended; `receive` says how.
                    next(turns).connection.send(batch.texts)
                del batch  # It may be large; free it while waiting for the next.
        except BaseException as error:  # Raised where the blocks are taken.
            self._error = error
        finally:
            self._sent.put(None)

    def _blocks(self) -> Iterator[TokenBlock]:
        number = 0
        while (batch := self._sent.get()) is not None:
            tokens = self._workers[number % len(self._workers)].receive()
            yield make_block(batch, tokens)
            number += 1
        if self._error is not None:
            raise self._error
