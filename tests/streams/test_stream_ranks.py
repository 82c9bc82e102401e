"""Ranks and workers read each record once, end an epoch at one step, and go on from a state of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import stream_job
import torch
from helpers_stream import BATCH_SIZE, SEQ_LEN, ids_of, some_texts
from torchdata.stateful_dataloader import StatefulDataLoader

import tdstream
from tdstream.core.errors import ConfigError, GeometryError, StateError
from tdstream.distributed import end_of_epoch as agreement

JOB = Path(__file__).with_name("stream_job.py")
TEXTS = some_texts(300)
# Ranks are forked from torchrun's own process, and so need not import the libraries each.
FORKING_TORCHRUN = (
    "import transformers.models.auto, torchdata.stateful_dataloader; from tdstream import loader; "
    "from torch.distributed.run import main; main()"
)


def loader(tokenizer, **options):
    """Return a loader over a live stream."""
    settings = {"seq_len": SEQ_LEN, "batch_size": BATCH_SIZE, "shuffle_buffer": 40} | options
    return tdstream.loader(lambda: iter(TEXTS), tokenizer=tokenizer, **settings)


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("workers", [0, 2])
def test_each_record_is_read_by_one_stream(tokenizer_dir, ranks, workers):
    """With windows of single documents: all ranks together have every document, once."""
    texts = [f"w{number} w{number} w{number}" for number in range(2, 242)]
    options = {
        "seq_len": 4,
        "batch_size": 1,
        "cut": "document",
        "shuffle_buffer": 40,
        "tokenizer": tokenizer_dir,
    }
    found = []
    for rank in range(ranks):
        pipeline = tdstream.build(lambda: iter(texts), dp_rank=rank, dp_world_size=ranks, **options)
        found += [ids_of(batch)[0][0] for batch in StatefulDataLoader(pipeline, num_workers=workers)]
    assert sorted(found) == list(range(2, 242))


def torchrun(directory, tokenizer, *options, code=0):
    """Run the job with two ranks; it must end as it should, and not hang."""
    paths = [str(JOB.parent), str(JOB.parent.parent), *sys.path]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "OMP_NUM_THREADS": "1",
    }
    arguments = ["--directory", str(directory), "--tokenizer", str(tokenizer), *options]
    command = [
        sys.executable,
        "-c",
        FORKING_TORCHRUN,
        *("--standalone", "--nproc_per_node=2", "--run_path", "--start_method=fork"),
        str(JOB),
        *arguments,
    ]
    done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True, timeout=100)
    assert (done.returncode == 0) == (code == 0), done.stderr
    return done.stderr


def logs_of(directory, rank):
    """Return {step: (epoch, ids)}; what was trained twice must have been the same."""
    steps = {}
    for path in sorted(directory.glob(f"log-*-{rank}.jsonl")):
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            found = (entry["epoch"], entry["ids"])
            assert steps.setdefault(entry["step"], found) == found
    return steps


def expected_of(tokenizer, rank, workers):
    """Return the batches of two epochs on a rank that nobody stops."""
    options = {"tokenizer": tokenizer, "seq_len": SEQ_LEN, "batch_size": BATCH_SIZE, "shuffle_buffer": 40}
    alone = tdstream.loader(stream_job.texts, num_workers=workers, dp_rank=rank, dp_world_size=2, **options)
    return [[ids_of(batch) for batch in alone] for _ in range(2)]


@pytest.mark.parametrize(
    "options",
    [["--workers", "2"], pytest.param(["--workers", "0", "--bare"], marks=pytest.mark.exhaustive)],
)
def test_ranks_end_together_and_go_on_exactly(tokenizer_dir, tmp_path, options):
    """Streams of very different lengths, two epochs, killed at step 8 and started again.

    Both ranks end both epochs with the shorter stream's last batch; up to there each has what it has alone.
    """
    torchrun(tmp_path, tokenizer_dir, *options, "--die-at", "8", code=1)
    torchrun(tmp_path, tokenizer_dir, *options)
    ranks = [expected_of(tokenizer_dir, rank, int(options[1])) for rank in range(2)]
    lengths = [min(map(len, epochs)) for epochs in zip(*ranks, strict=True)]
    assert lengths[0] < max(len(epochs[0]) for epochs in ranks) / 2
    for rank, epochs in enumerate(ranks):
        together = [(number, ids) for number in range(2) for ids in epochs[number][: lengths[number]]]
        assert logs_of(tmp_path, rank) == dict(enumerate(together))


def test_workers_that_cannot_agree_are_refused(tokenizer_dir, monkeypatch):
    """A bare StatefulDataLoader with workers on several ranks would hang; it says what to use."""
    monkeypatch.setattr(agreement, "is_initialized", lambda: True)
    pipeline = tdstream.build(
        lambda: iter(TEXTS), tokenizer=tokenizer_dir, batch_size=2, dp_rank=0, dp_world_size=2
    )
    with pytest.raises(
        ConfigError, match=r"Use tdstream\.loader\(source, \.\.\.\), num_workers=0, or cache_dir=\.\.\."
    ):
        next(iter(StatefulDataLoader(pipeline, num_workers=1)))


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"num_workers": 2}, "num_workers was 0, is 2"),
        ({"batch_size": 2}, "batch_size was 4, is 2"),
        ({"dp_rank": 1, "dp_world_size": 2}, "dp_world_size was 1, is 2"),
    ],
)
def test_another_geometry_is_refused(tokenizer_dir, other, named, monkeypatch):
    """The sentence says what differs, and offers cache_dir."""
    # A loader gives each worker that could not start five seconds to end by itself.
    monkeypatch.setattr(torch.utils.data._utils, "MP_STATUS_CHECK_INTERVAL", 0.3)
    saved = loader(tokenizer_dir)
    next(iter(saved))
    with pytest.raises(GeometryError, match=rf"{named}.*cache_dir=\.\.\."):
        loader(tokenizer_dir, **other).load_state_dict(saved.state_dict())


def test_another_ranks_state_is_refused(tokenizer_dir):
    """Each rank goes on from its own state."""
    ranks = [loader(tokenizer_dir, dp_rank=rank, dp_world_size=2) for rank in range(2)]
    with pytest.raises(GeometryError, match=r"dp_rank was 0, is 1.*each rank from its own state"):
        ranks[1].load_state_dict(ranks[0].state_dict())


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"seed": 1}, "shuffle.seed was 42, is 1"),
        ({"shuffle_buffer": 50}, "shuffle.num_documents was 40, is 50"),
        ({"seq_len": 16}, "chunk.seq_len was 8, is 16"),
        ({"cut": "document"}, "chunk.cut was 'stream', is 'document'"),
    ],
)
def test_other_settings_are_refused(tokenizer_dir, other, named):
    """Loading compares what decides content and order; strict=False only warns."""
    state = loader(tokenizer_dir).state_dict()
    with pytest.raises(StateError, match=named):
        loader(tokenizer_dir, **other).load_state_dict(state)
    loader(tokenizer_dir, strict=False, **other).load_state_dict(state)


def test_states_of_the_two_worlds_are_told_apart(tokenizer_dir, make_corpus):
    """A corpus's state does not load into a live stream, nor the other way round."""
    corpus = tdstream.loader(make_corpus(500), seq_len=SEQ_LEN, batch_size=BATCH_SIZE)
    live = loader(tokenizer_dir)
    with pytest.raises(StateError, match="another kind of pipeline"):
        live.load_state_dict(corpus.state_dict())
    with pytest.raises(StateError):
        corpus.load_state_dict(live.state_dict())


def test_ranks_without_a_process_group_are_warned_of(tokenizer_dir, caplog):
    """Nobody can ask the others; that may be meant, but it is said once."""
    list(loader(tokenizer_dir, dp_rank=0, dp_world_size=2))
    assert caplog.text.count("they cannot agree") == 1


def test_single_samples_have_no_loader(tokenizer_dir):
    """tdstream.loader counts batches."""
    with pytest.raises(ConfigError, match="needs batch_size"):
        loader(tokenizer_dir, batch_size=None)
