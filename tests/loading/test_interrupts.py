"""Ctrl-C at any place of our code: no batch is lost or comes twice, and the state is where the trainer is.

One test raises KeyboardInterrupt before each line, or each bytecode, between a loader's call and its return;
another sends real signals to a loop.
"""

from __future__ import annotations

import dis
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from helpers_stream import some_texts

import tdstream
from tdstream.core.errors import StaleIteratorError

TEXTS = list(some_texts(60))
RETURN = dis.opmap["RETURN_VALUE"]  # Python delivers no signal there


def texts():
    """Return the texts anew."""
    return iter(TEXTS)


@pytest.fixture(params=["corpus", "live"])
def make(request, counting, tokenizer_dir) -> Callable[..., Any]:
    """Return a function that makes a loader over a corpus, or over a live stream."""

    def make(workers: int = 0):
        options = {"seq_len": 3, "batch_size": 8, "num_workers": workers}
        if request.param == "corpus":
            return tdstream.loader(counting, shuffle=True, **options)
        return tdstream.loader(texts, tokenizer=str(tokenizer_dir), shuffle_buffer=8, **options)

    return make


def ids(batch) -> list[list[int]]:
    """Return a batch's inputs."""
    return batch["input_ids"].tolist()


class Interrupt:
    """Raises KeyboardInterrupt at the n-th line, or bytecode, of our code that is run."""

    def __init__(self, number: int, event: str) -> None:
        self.left, self.event, self.process = number, event, os.getpid()

    def __enter__(self) -> Interrupt:
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _trace(self, frame, event, _argument):
        if os.getpid() != self.process:  # a worker
            sys.settrace(None)
            return None
        if event == "call":
            own = "/tdstream/" in frame.f_code.co_filename or "/utils/data/" in frame.f_code.co_filename
            own |= "/stateful_dataloader/" in frame.f_code.co_filename
            if not own or frame.f_code.co_name == "__del__":
                return None
            frame.f_trace_opcodes = self.event == "opcode"
        elif event == self.event and frame.f_code.co_code[frame.f_lasti] != RETURN:
            self.left -= 1
            if self.left < 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return self._trace


def walk(make: Callable[..., Any], taken: int, event: str, step: int, workers: int = 0) -> int:
    """Interrupt the call for the batch after `taken` ones at every `step`-th place; return how many."""
    loader = make(workers)
    whole = [ids(batch) for batch in loader]
    begin, other = make(workers).state_dict(), make(workers)
    number = 0
    while True:
        loader.load_state_dict(begin)
        iterator = iter(loader)
        for expected in whole[:taken]:
            assert ids(next(iterator)) == expected
        try:
            with Interrupt(number, event):
                batch = next(iterator, None)
        except KeyboardInterrupt:
            pass
        else:
            assert (ids(batch) if batch else None) == (whole[taken] if taken < len(whole) else None)
            return number
        state = loader.state_dict()
        done = state["nodes"]["splitter" if "splitter" in state["nodes"] else "stream"]["step"]
        assert (done, loader.step) == (taken, taken), number
        try:
            again = next(iterator, None)
        except StaleIteratorError:
            again = next(iter(loader), None)
        if taken < len(whole):
            assert ids(again) == whole[taken], number
            other.load_state_dict(state)
            assert ids(next(iter(other))) == whole[taken], number
        number += step


@pytest.mark.parametrize("taken", [0, 3])
def test_every_line(make, taken):
    """The first batch of a pass, and a later one."""
    assert walk(make, taken, "line", 11 if taken == 0 else 1) > 30


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # torch's, of half an iterator
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("taken", [0, 3, 1_000])
def test_every_bytecode(make, taken, workers):
    """Also with workers, and at the epoch's end."""
    assert walk(make, taken, "opcode", 1 if workers == 0 else 13, workers) > 100


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # torch's, of half an iterator
@pytest.mark.parametrize("taken", [0, 3])
def test_with_workers(make, taken):
    """Some lines of a call that takes a batch from two workers."""
    walk(make, taken, "line", 60 if taken == 0 else 12, 2)


@pytest.mark.exhaustive
def test_a_batch_of_a_worker(make):
    """A few lines of the same."""
    walk(make, 3, "line", 150, 2)


@pytest.mark.parametrize("taken", [0, 3])
@pytest.mark.parametrize("live", [False, True])
def test_a_pipeline_without_a_loader(counting, tokenizer_dir, live, taken):
    """The pass that `build` makes tries the same batch again."""
    options = {"seq_len": 3, "batch_size": 8}
    if live:
        pipeline = tdstream.build(texts, tokenizer=str(tokenizer_dir), shuffle_buffer=8, **options)
    else:
        pipeline = tdstream.build(counting, shuffle=True, **options)
    pipeline.set_epoch(0)
    whole = [ids(batch) for batch in pipeline]
    number, interrupted = 0, True
    while interrupted:
        pipeline.set_epoch(0)
        iterator = iter(pipeline)
        for expected in whole[:taken]:
            assert ids(next(iterator)) == expected
        try:
            with Interrupt(number, "line"):
                batch = next(iterator)
            interrupted = False
        except KeyboardInterrupt:
            batch = next(iterator)
        assert ids(batch) == whole[taken], number
        number += 1 if taken else 9
    assert number > 20


def pelt(stop: threading.Event, seed: int) -> None:
    """Send this process SIGINT again and again, at odd times."""
    random_ = random.Random(seed)
    while not stop.wait(random_.expovariate(1) * (0.3 if seed else 0.03)):
        os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.exhaustive)])
def test_real_signals(make, workers):
    """A loop that is interrupted all the time gets each batch exactly once, and the state knows which."""
    whole = [ids(batch) for batch in make()] if workers == 0 else [ids(batch) for batch in make(workers)]
    armed, stop, loader = [False], threading.Event(), make(workers)
    received: list[Any] = []
    interrupts = 0

    def handle(*_: object) -> None:
        if armed[0]:
            armed[0] = False
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, handle)
    sender = threading.Thread(target=pelt, args=(stop, workers))
    sender.start()
    try:
        until = time.monotonic() + 60
        while time.monotonic() < until and (interrupts < 8 * (1 + workers) or len(received) < 30):
            try:
                armed[0] = True
                for batch in loader:
                    received.append(batch)
                armed[0] = False
            except KeyboardInterrupt:
                interrupts += 1
            assert loader.step == len(received)
            loader.load_state_dict(loader.state_dict())
    finally:
        stop.set()
        sender.join()
        signal.signal(signal.SIGINT, before)
    assert len(received) >= 30
    first = [ids(batch) for batch in received[: len(whole)]]
    assert first == whole[: len(first)]
