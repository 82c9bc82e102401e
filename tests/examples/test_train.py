"""The trainer learns, and a kill changes none of its losses: real processes, alone and under torchrun."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
import runpy
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import datasets
import numpy as np
import pytest
from transformers import ByT5Tokenizer

import tdstream

TRAIN = Path(__file__).parents[2] / "examples" / "train.py"
FORKED = Path(__file__).with_name("forked_script.py")
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--local_addr=127.0.0.1", "--nproc_per_node=2"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
SMALL = {"seq_len": 16, "grad_accum": 4, "width": 16, "depth": 1, "val_batches": 1, "lr": 1e-2}
GUESSING = r"validation loss ([\d.]+); guessing by frequency alone would reach ([\d.]+)"


def command(output_dir, launcher=(), **flags):
    """Return the command line of a training."""
    named = [f"--{name}" if value is True else f"--{name}={value}" for name, value in flags.items()]
    return [sys.executable, *launcher, str(TRAIN), f"--output_dir={output_dir}", *named]


def train(output_dir, launcher=(), **flags):
    """Train to the end, and return what was printed."""
    done = subprocess.run(
        command(output_dir, launcher, **flags), env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done


def train_until_killed(output_dir, at_step, launcher=(), **flags):
    """Train, and kill all processes as soon as a step is in the log."""
    job = subprocess.Popen(
        command(output_dir, launcher, **flags),
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        while at_step not in {step for step, _ in losses(output_dir)}:
            assert job.poll() is None, "it ended before it could be killed"
            time.sleep(0.002)
    finally:
        for pid in (*children_of(job.pid), job.pid):
            os.kill(pid, signal.SIGKILL)
        job.wait()


def children_of(parent):
    """Return the ids of a process's children; torchrun's ranks are in process groups of their own."""
    path = Path(f"/proc/{parent}/task/{parent}/children")
    return [int(pid) for pid in path.read_text().split()] if path.exists() else []


def losses(output_dir):
    """Return (step, loss) of every line of the log; the last one may be half written."""
    return [(record["step"], record["loss"]) for record in log_of(output_dir)]


def log_of(output_dir):
    """Return all whole lines of the log."""
    path = output_dir / "losses.jsonl"
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


class Forks:
    """Trainings that are forked from one process, which imports for seconds."""

    def __init__(self, process):
        self.process = process

    def start(self, output_dir, **flags):
        """Start a training; return its process id."""
        output_dir.mkdir(exist_ok=True)
        job = {"argv": command(output_dir, **flags)[1:], "output": str(output_dir / "printed.txt")}
        print(json.dumps(job), file=self.process.stdin, flush=True)
        return int(self.process.stdout.readline())

    def run(self, output_dir, **flags):
        """Run a training; return its exit code and what was printed."""
        self.start(output_dir, **flags)
        return int(self.process.stdout.readline()), (output_dir / "printed.txt").read_text()

    def train(self, output_dir, **flags):
        """Train to the end, and return what was printed."""
        code, printed = self.run(output_dir, **flags)
        assert code == 0, printed
        return printed

    def train_until_killed(self, output_dir, at_step, **flags):
        """Train, and kill the process as soon as a step is in the log."""
        pid = self.start(output_dir, **flags)
        try:
            while at_step not in {step for step, _ in losses(output_dir)}:
                assert not select.select([self.process.stdout], [], [], 0)[0], "it ended before the kill"
                time.sleep(0.002)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert int(self.process.stdout.readline()) == -signal.SIGKILL


@pytest.fixture
def forks():
    """Yield the process that trainings are forked from."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": ENVIRONMENT}
    with subprocess.Popen([sys.executable, str(FORKED)], **pipes) as process:
        yield Forks(process)
        process.stdin.close()


@pytest.fixture
def corpus(make_corpus):
    """Return 17 x 84 tokens that follow a rule: 76 samples of 16 + 1 to train on, and 8 to validate."""
    directory = make_corpus(17 * 84)
    tokens = (np.arange(17 * 84) ** 2 % 23).astype("<u4")
    (directory / "chunk_000000.bin").write_bytes(tokens.tobytes())
    meta = json.loads((directory / "meta.json").read_text())
    (directory / "meta.json").write_text(json.dumps({**meta, "vocab_size": 23}))
    return directory


def flags_of(corpus, **more):
    """Three epochs of 76 samples, 4 batches to a step; a checkpoint every second step."""
    flags = {"data": corpus, "epochs": 3, "batch_size": 4, "save_every": 2, "val_every": 3, "val_share": 0.1}
    return {**SMALL, **flags, **more}


def test_it_learns_more_than_frequencies(tmp_path):
    """50 small steps on the standard library beat the entropy of its bytes, computed here once more."""
    done = train(tmp_path, tiny=True, max_steps=50)
    loss, entropy = map(float, re.search(GUESSING, done.stdout).groups())
    tokens = np.fromfile(tmp_path / "corpus" / "chunk_000000.bin", "<u2")
    samples = len(tokens) // 65
    held_out = tokens[: samples * 65].reshape(samples, 65)[round(0.9 * samples) :][: 20 * 16, 1:]
    shares = np.unique(held_out, return_counts=True)[1] / held_out.size
    assert entropy == pytest.approx(-(shares * np.log(shares)).sum(), abs=1e-3)
    assert loss < entropy - 0.1
    assert re.search("The (loader|trainer) is", done.stdout)
    assert [step for step, _ in losses(tmp_path)] == list(range(1, 51))


def test_a_kill_changes_no_loss(tmp_path, corpus, forks):
    """Killed in the second epoch and started again: the losses are the same to the last bit."""
    flags = flags_of(corpus)  # 19 batches: the last step of an epoch has three
    forks.train(tmp_path / "whole", **flags)
    forks.train_until_killed(tmp_path / "killed", 7, **flags)
    printed = forks.train(tmp_path / "killed", **flags)
    whole = losses(tmp_path / "whole")
    assert [step for step, _ in whole] == list(range(1, 16))
    assert [record["epoch"] for record in log_of(tmp_path / "whole")] == [0] * 5 + [1] * 5 + [2] * 5
    assert set(losses(tmp_path / "killed")) == set(whole)
    assert "resuming after step" in printed


@pytest.mark.exhaustive
def test_a_kill_changes_no_loss_of_two_ranks(tmp_path, corpus):
    """Under torchrun, killed twice, with loader workers; 9 batches an epoch, the last step has one."""
    flags = flags_of(corpus, num_workers=1)
    train(tmp_path / "whole", TORCHRUN, **flags)
    for step in (3, 7):
        train_until_killed(tmp_path / "killed", step, TORCHRUN, **flags)
    done = train(tmp_path / "killed", TORCHRUN, **flags)
    whole = losses(tmp_path / "whole")
    assert [step for step, _ in whole] == list(range(1, 10))
    assert set(losses(tmp_path / "killed")) == set(whole)
    assert done.stdout.count("resuming after step") == 1


@pytest.mark.exhaustive
def test_a_kill_changes_no_loss_of_a_stream(tmp_path):
    """Text that is tokenized while it is read, in an order of its own; a step may take from two epochs."""
    texts = [
        {"text": " ".join(str(word**2 % 97) for word in range(number, 2 * number))} for number in range(60)
    ]
    (tmp_path / "texts").mkdir()
    for part in range(2):
        lines = "".join(json.dumps(text) + "\n" for text in texts[part::2])
        (tmp_path / "texts" / f"{part}.jsonl").write_text(lines)
    ByT5Tokenizer(extra_ids=0).save_pretrained(tmp_path / "bytes")
    flags = flags_of(tmp_path / "texts", streaming=True, tokenizer=tmp_path / "bytes", val_documents=20)
    flags |= {"max_steps": 40}
    train(tmp_path / "whole", **flags)
    train_until_killed(tmp_path / "killed", 21, **flags)
    train(tmp_path / "killed", **flags)
    whole = losses(tmp_path / "whole")
    assert [step for step, _ in whole] == list(range(1, 41))
    assert log_of(tmp_path / "whole")[-1]["epoch"] > 0
    assert set(losses(tmp_path / "killed")) == set(whole)


@pytest.mark.parametrize("kind", ["jsonl", "jsonl.gz", "parquet", "txt"])
def test_a_file_is_streamed(tmp_path, kind, monkeypatch):
    """What is opened for --streaming: each kind of file gives its documents, the first two held out."""
    texts = [f"document {number}" for number in range(6)]
    path = tmp_path / f"texts.{kind}"
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    if kind == "parquet":
        datasets.Dataset.from_dict({"text": texts}).to_parquet(path)
    else:
        content = "\n".join(texts) if kind == "txt" else lines
        with (gzip.open if kind.endswith("gz") else open)(path, "wt") as file:
            file.write(content)
    monkeypatch.setattr(sys, "argv", [str(TRAIN), f"--data={path}", "--streaming", "--val_documents=2"])
    trainer, opened = runpy.run_path(str(TRAIN)), []
    (tmp_path / "meta.json").write_text('{"vocab_size": 9}')
    trainer["open_data"].__globals__["prepared"] = lambda options, text: opened.append(list(text)) or tmp_path
    monkeypatch.setattr(tdstream, "loader", lambda source, **_: opened.append(source))
    assert trainer["open_data"](trainer["parse_arguments"](), "cpu")[2] == 9
    assert [record["text"] for record in opened[0]] == texts[:2]
    assert [record["text"] for record in opened[1]] == texts[2:]


@pytest.mark.exhaustive
def test_two_ranks_learn_what_one_does(tmp_path, corpus):
    """The same global batches: 2 x 2 rows, or 4 rows at once; sums are taken in another order."""
    train(tmp_path / "one", **flags_of(corpus))
    train(tmp_path / "two", TORCHRUN, **flags_of(corpus, batch_size=2))
    one, two = (np.array(losses(tmp_path / name)) for name in ("one", "two"))
    assert one.shape == (15, 2)
    np.testing.assert_allclose(one, two, rtol=1e-3)


def test_the_end_of_a_run_is_shown(tmp_path, corpus, forks):
    """A complete run says so, and another model does not continue it."""
    flags = flags_of(corpus, max_steps=3)
    printed = forks.train(tmp_path, **flags)
    again = forks.train(tmp_path, **flags)
    assert "this run is complete" in again
    assert re.search(GUESSING, printed).group() in again
    assert "Nothing was measured" not in again

    code, refused = forks.run(tmp_path, **flags | {"width": 32})
    assert code == 1
    assert re.search(r"train: .*checkpoint.pt is of another model: .*'width': 16.*'width': 32", refused)
    assert "Traceback" not in refused
    assert "resuming" not in forks.train(tmp_path, **flags | {"width": 32, "resume": "never"})


@pytest.mark.parametrize(("streaming", "done", "step", "max_steps", "total"), [
    (False, 0, 0, 3, 12),  # of an epoch of 19 batches, 4 to a step: 100 % are 3 steps
    (False, 8, 2, 3, 12),
    (False, 0, 5, 10, 19),  # the whole epoch, whose last step has 3
    (False, 0, 0, 0, 19),
    (True, 0, 0, 10, 40),
    (True, 3, 5, 10, 20),  # 23 batches in, 3 of them in this epoch: 20 made steps, and 17 are to come
    (True, 0, 0, 0, None),  # the loader has a count
])  # fmt: skip
def test_the_bar_ends_where_the_run_or_its_epoch_ends(streaming, done, step, max_steps, total):
    """The total of a pass, in batches, those before a resume included."""
    options = SimpleNamespace(grad_accum=4, max_steps=max_steps, streaming=streaming)
    batches = MagicMock(batches_done=done, step=23 if done else 0, __len__=lambda _: 19)
    steps = SimpleNamespace(total=max_steps or 10)
    run = SimpleNamespace(options=options, loader=batches, steps=steps, step=step)
    assert runpy.run_path(str(TRAIN))["Trainer"].batches_of_pass(run) == total


def test_a_typo_ends_in_a_sentence(tmp_path, corpus, forks):
    """The name, and what to do; never a traceback."""
    ByT5Tokenizer(extra_ids=0).save_pretrained(tokenizer := tmp_path / "bytes")
    for flags, said in (
        ({"data": "no/corpus", "tokenizer": tokenizer}, "no/corpus"),
        ({"data": "no/corpus"}, "--data no/corpus is no corpus: to read it as text, pass --tokenizer"),
        ({"data": "texts.jsonl", "streaming": True, "tokenizer": "x"}, "--data texts.jsonl cannot be opened"),
        ({"data": corpus, "seq_len": 10_000}, "fewer than the 10,001 of one sample"),
    ):
        code, printed = forks.run(tmp_path / "run", **flags, max_steps=1)
        assert code == 1
        assert re.search(r"^train: ", printed, re.MULTILINE)
        assert said in printed
        assert "Traceback" not in printed


def test_the_defaults_of_two_trials_share_no_directory(monkeypatch):
    """--tiny, and then --data as the next line of the docstring has it."""
    trainer = runpy.run_path(str(TRAIN))
    found = []
    for flags in (["--tiny"], ["--data=data/corpus"]):
        monkeypatch.setattr(sys, "argv", ["train.py", *flags])
        found.append(trainer["parse_arguments"]().output_dir)
    assert found == [Path("runs/tiny"), Path("runs/train")]
