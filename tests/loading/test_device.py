"""Batches are copied ahead of the trainer, in order, and unpacked where they arrive."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch

import tdstream
from tdstream.core.errors import ConfigError
from tdstream.loading.device import Transfer, copy_batch
from tdstream.nodes.batch import Batch, PackedBatch
from tdstream.nodes.collate import inputs_and_labels


class Marked:
    """Stands for a mover: it marks what it was given, and what has arrived."""

    def __init__(self, device):
        self.device = device

    def start(self, batch):
        return f"moved {batch}"

    def finish(self, moved):
        return f"{moved}, arrived"


def test_batches_are_moved_in_the_thread(monkeypatch):
    """And received in the trainer's, in order; the end of a pass ends the thread."""
    monkeypatch.setattr("tdstream.loading.device.Mover", Marked)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    transfer, threads = Transfer("cuda", prefetch=2), set()

    def batches():
        for number in range(5):
            threads.add(threading.current_thread().name)
            yield number

    assert list(transfer.begin(batches())) == [f"moved {n}, arrived" for n in range(5)]
    assert threads == {"tdstream-ahead"}
    endless = transfer.begin(iter(int, 1))
    assert next(endless) == "moved 0, arrived"
    transfer.end()
    assert not any(thread.name == "tdstream-ahead" for thread in threading.enumerate())


@pytest.mark.parametrize("dtype", ["<u2", "<u4"])
def test_a_packed_batch_is_unpacked_where_it_arrives(dtype):
    """What is copied are the stored rows; on the device they become the same tensors as here."""
    rows = np.array([[1, 2, 3], [65535, 0, 7]], dtype=dtype)
    copied = []
    moved = copy_batch(PackedBatch(inputs_and_labels, rows), lambda t: copied.append(t.dtype) or t.clone())
    assert [str(kind) for kind in copied] == [f"torch.uint{8 * np.dtype(dtype).itemsize}"]
    assert type(moved) is Batch
    assert moved["input_ids"].tolist() == [[1, 2], [65535, 0]]
    assert moved["labels"].tolist() == [[2, 3], [0, 7]]
    assert all(tensor.dtype == torch.int64 and tensor.is_contiguous() for tensor in moved.values())


def test_any_other_batch_is_copied_by_tensor():
    """A user's own fields come along."""
    batch = Batch(input_ids=torch.arange(3), mask=torch.ones(3))
    moved = copy_batch(batch, lambda tensor: tensor.clone())
    assert moved.keys() == {"input_ids", "mask"}
    assert moved["mask"] is not batch["mask"]


@pytest.mark.parametrize("device", [None, "cpu", torch.device("cpu")])
def test_on_the_cpu_nothing_is_done(device):
    """No thread, the same iterator."""
    transfer = Transfer(device, prefetch=2)
    source = iter([1, 2])
    assert not transfer.needed
    assert transfer.begin(source) is source
    transfer.end()


def test_bad_devices_are_refused(make_corpus):
    """With what was asked for."""
    with pytest.raises(ConfigError, match="prefetch must be an integer of at least 1, got 0"):
        Transfer("cpu", prefetch=0)
    with pytest.raises(ConfigError, match="device='toaster' is not a device"):
        tdstream.loader(make_corpus(100), seq_len=4, batch_size=2, device="toaster")
    if not torch.cuda.is_available():
        with pytest.raises(ConfigError, match="device='cuda' is not available"):
            tdstream.loader(make_corpus(100), seq_len=4, batch_size=2, device="cuda")


@pytest.fixture
def pretended_cuda(monkeypatch):
    """Let the CPU stand for a CUDA device: all but the copy itself is the real thing."""

    class Copies:
        def __init__(self, device):
            self.device = device

        def start(self, batch):
            return copy_batch(batch, lambda tensor: tensor.clone())

        def finish(self, moved):
            return moved

    monkeypatch.setattr("tdstream.loading.device.Mover", Copies)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_the_state_counts_what_was_given(make_corpus, pretended_cuda, num_workers):
    """Not what lies ready; a resume goes on with the very next batch, and a running loop can skip."""
    options = {"seq_len": 4, "batch_size": 2, "num_workers": num_workers, "device": "cuda", "prefetch": 4}
    corpus = make_corpus(205)
    whole = [batch["input_ids"].tolist() for batch in tdstream.loader(corpus, seq_len=4, batch_size=2)]
    first = tdstream.loader(corpus, **options)
    iterator = iter(first)
    assert [next(iterator)["input_ids"].tolist() for _ in range(3)] == whole[:3]
    assert first.position == 6
    second = tdstream.loader(corpus, **options)
    second.load_state_dict(first.state_dict())
    assert [batch["input_ids"].tolist() for batch in second] == whole[3:]
    first.skip(5)
    assert [batch["input_ids"].tolist() for batch in iterator] == whole[8:]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
@pytest.mark.parametrize("num_workers", [0, 2])
def test_batches_are_on_the_device(make_corpus, num_workers):
    """The same values as on the CPU, ready on the trainer's stream."""
    corpus = make_corpus(2005, dtype="uint16")
    here = list(tdstream.loader(corpus, seq_len=4, batch_size=2))
    there = list(tdstream.loader(corpus, seq_len=4, batch_size=2, num_workers=num_workers, device="cuda"))
    assert all(batch["input_ids"].is_cuda for batch in there)
    assert [batch["labels"].cpu().tolist() for batch in there] == [batch["labels"].tolist() for batch in here]
