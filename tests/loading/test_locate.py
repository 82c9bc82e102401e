"""Locate: a state alone says which tokens any step of the run had, or will have."""

from __future__ import annotations

import json
import time
import warnings
from dataclasses import asdict

import numpy as np
import pytest
import torch

import tdstream
from helpers_documents import write_indexed
from tdstream.cli.main import main
from tdstream.core.errors import ConfigError
from tdstream.loading.locate import locate_step, read_cursor


def flat(rows_by_rank):
    """Return the rows of all ranks, rank after rank."""
    return [row for rows in rows_by_rank for row in rows]


def run(corpus, legs, **options):
    """Run through (world, batch_size, steps) legs, with a reload at each change; return {step: rows by rank}.

    Rows are told by their first token, whose value is its place in the corpus.
    """
    log, state = {}, None
    for world, batch_size, steps in legs:
        ranks = [
            tdstream.loader(
                corpus, seq_len=5, batch_size=batch_size, dp_rank=r, dp_world_size=world, **options
            )
            for r in range(world)
        ]
        for rank in ranks:
            if state is not None:
                rank.load_state_dict(state)
        iterators = [iter(rank) for rank in ranks]
        for _ in range(steps):
            step = ranks[0].step
            try:
                log[step] = [next(iterator)["input_ids"][:, 0].tolist() for iterator in iterators]
            except StopIteration:
                iterators = [iter(rank) for rank in ranks]
                log[step] = [next(iterator)["input_ids"][:, 0].tolist() for iterator in iterators]
        state = json.loads(json.dumps(ranks[0].state_dict()))
    return log, state


LEGS = [(2, 4, 10), (1, 8, 7), (3, 4, 30), (1, 2, 9)]  # 366 samples an epoch: the third leg crosses its end


@pytest.mark.parametrize("options", [{"shuffle": True}, {}, {"shuffle": "block", "block_samples": 16}])
def test_every_step_is_where_it_was(make_corpus, options):
    """Over changes of world and batch size and an epoch's end, for the global batch and for each rank."""
    corpus = make_corpus(1000, 700, 500)
    log, state = run(corpus, LEGS, **options)
    cursor, pipeline = read_cursor(state)
    assert len(log) == 56
    for step, ranks in log.items():
        whole = locate_step(cursor, pipeline, step)
        assert [sample.first_token for sample in whole.samples] == flat(ranks)
        for rank, rows in enumerate(ranks):
            part = locate_step(cursor, pipeline, step, rank)
            assert [sample.first_token for sample in part.samples] == rows
            assert {sample.rank for sample in part.samples} == {rank}


def test_the_future_is_known(make_corpus):
    """Steps to come, over the next epochs, are what will be served."""
    corpus = make_corpus(1000)
    loader = tdstream.loader(corpus, seq_len=5, batch_size=4, shuffle=True)
    foreseen = [[s.first_token for s in loader.locate(step).samples] for step in range(3 * len(loader))]
    served = [batch["input_ids"][:, 0].tolist() for _ in range(3) for batch in loader]
    assert foreseen == served


@pytest.mark.parametrize(
    "options",
    [{"documents": True}, {"samples": slice(11, 90)}, {"by": "samples"}, {"by": "documents"}],
    ids=str,
)
def test_parts_and_documents_are_where_they_are(tmp_path, options):
    """A part's first sample is not the corpus's; the state alone knows as much as the loader."""
    source = write_indexed(tmp_path / "corpus", range(7, 900, 7), 900, [400])
    options = {"seq_len": 5, "batch_size": 4, "shuffle": True, **options}
    if "by" in options:
        source = tdstream.split(source, [0.4, 0.6], by=options.pop("by"))[1]
    loader = tdstream.loader(source, **options)
    cursor, pipeline = read_cursor(loader.state_dict())
    steps = range(2 * len(loader))
    foreseen = [[s.first_token for s in loader.locate(step).samples] for step in steps]
    by_state = [[s.first_token for s in locate_step(cursor, pipeline, step).samples] for step in steps]
    served = [(batch["input_ids"][:, 0] - 1).tolist() for _ in range(2) for batch in loader]
    assert foreseen == by_state == served


CUTS = [
    {"cut": "document", "min_tail_len": 1}, {"cut": "document", "stride": 3, "documents": True},
    {"cut": "pack"}, {"cut": "pack", "samples": slice(5, 60)}, {"cut": "document", "samples": slice(9, 70)},
]  # fmt: skip


@pytest.fixture(params=CUTS, ids=str)
def cut_loader(tmp_path, monkeypatch, request):
    """Return a loader over samples that documents decide; the corpus's tokens are 1, 2, 3, ..."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    corpus = write_indexed(tmp_path / "corpus", ENDS, 900, [333, 333, 400])
    return tdstream.loader(corpus, seq_len=5, batch_size=4, shuffle=True, **request.param)


ENDS = sorted({*range(7, 900, 7), *range(3, 900, 11)})


def tokens_of(sample):
    """Return the tokens that are in a sample's pieces, by the shards' borders, and check their documents."""
    borders = {"chunk_000000.bin": 0, "chunk_000002.bin": 333, "chunk_000003.bin": 400}
    found = []
    for piece in sample.pieces:
        first = borders[piece.shard] + piece.first
        own = range(first, first + piece.tokens)
        assert {sum(end <= place for end in ENDS) for place in own} == {piece.document}
        found += [place + 1 for place in own]
    return found


def test_samples_that_documents_decide_are_located(cut_loader):
    """All tokens of a row, whatever its documents, and the label behind it where the document goes on."""
    steps = [cut_loader.locate(step).samples for step in range(2 * len(cut_loader))]
    for samples, batch in zip(steps, (batch for _ in range(2) for batch in cut_loader), strict=True):
        for number, sample in enumerate(samples):
            found, here = tokens_of(sample), batch["attention_mask"][number] == 1
            row = batch["input_ids"][number][here].tolist()
            assert found[: len(row)] == row
            assert found[len(row) :] in ([], batch["labels"][number, -1:].tolist())
            assert sample.first_token == row[0] - 1


def test_the_command_locates_them_with_the_corpus(cut_loader, tmp_path, capsys):
    """It finds the same; without the corpus it asks for it, and everything else is told."""
    next(iter(cut_loader))
    path = tmp_path / "state.json"
    path.write_text(json.dumps(cut_loader.state_dict()))
    assert main(["locate", "--state", str(path), "--step", "0"]) == 1
    assert "begin where documents do, which the state does not tell. Name the corpus with --data" in (
        capsys.readouterr().err
    )
    where = ["locate", "--state", str(path), "--step", "0", "--data", str(tmp_path / "corpus")]
    assert main([*where, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["samples"]
    assert found == [{**asdict(sample), "pieces": [asdict(piece) for piece in sample.pieces]}
                     for sample in cut_loader.locate(0).samples]  # fmt: skip
    assert main(where) == 0
    assert f" (document {found[0]['pieces'][0]['document']})" in capsys.readouterr().out
    cursor, _ = read_cursor(cut_loader.state_dict())
    assert cursor.lengths.num_samples(0) == cut_loader._pipeline.total_samples
    assert main(["state", str(path)]) == 0
    assert f"20 of {cursor.lengths.num_samples(0) * 5:,} in this epoch" in capsys.readouterr().out


def test_samples_of_mixtures_that_documents_decide_are_located(tmp_path, monkeypatch, capsys):
    """In their own source."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    corpus = write_indexed(tmp_path / "corpus", ENDS, 900, [333, 333, 400])
    sources = {"a": (corpus, 0.3), "b": (corpus, 0.7)}
    loader = tdstream.loader(sources, seq_len=5, batch_size=4, shuffle=True, cut="pack", source_id=True)
    for step, batch in zip(range(20), loader, strict=False):
        for number, sample in enumerate(loader.locate(step).samples):
            row = batch["input_ids"][number][batch["attention_mask"][number] == 1].tolist()
            assert tokens_of(sample)[: len(row)] == row
            assert sample.source == "ab"[int(batch["source_id"][number])]
    (tmp_path / "state.json").write_text(json.dumps(loader.state_dict()))
    assert main(["locate", "--state", str(tmp_path / "state.json"), "--step", "0"]) == 1
    assert "the state does not tell. Ask loader.locate." in capsys.readouterr().err  # --data names one corpus


@pytest.mark.parametrize("cut", ["document", "pack"])
def test_the_command_says_that_a_part_by_documents_is_for_a_loader(tmp_path, monkeypatch, capsys, cut):
    """The state does not tell where the part ends; nobody is sent to name the corpus in vain."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    corpus = write_indexed(tmp_path / "corpus", ENDS, 900, [333, 333, 400])
    part = tdstream.split(corpus, [0.5, 0.5], by="documents")[1]
    state = tdstream.loader(part, seq_len=5, batch_size=4, cut=cut).state_dict()
    (tmp_path / "state.json").write_text(json.dumps(state))
    where = ["locate", "--state", str(tmp_path / "state.json"), "--step", "0"]
    assert main(where) == 1
    assert "the state does not tell. Ask loader.locate." in capsys.readouterr().err
    assert main([*where, "--data", str(corpus)]) == 1
    assert "a range of documents and does not say which is the last" in capsys.readouterr().err


def test_the_command_prints_no_place_that_it_does_not_know(make_corpus, tmp_path, capsys):
    """Of a mixture of parts of corpora the state tells samples, not tokens."""
    part = tdstream.split(make_corpus(300), [0.5, 0.5])[1]
    state = tdstream.loader({"a": (part, 1)}, seq_len=5, batch_size=1).state_dict()
    (tmp_path / "state.json").write_text(json.dumps(state))
    assert main(["locate", "--state", str(tmp_path / "state.json"), "--step", "3"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == ["  rank 0  position 3  a  sample 3"]


def test_a_sample_over_a_border_has_two_pieces(make_corpus):
    """Shard, first token in it, and number of tokens, of each piece."""
    loader = tdstream.loader(make_corpus(8, 20), seq_len=5, batch_size=1)
    pieces = loader.locate(1).samples[0].pieces
    assert [(p.shard, p.first, p.tokens) for p in pieces] == [
        ("chunk_000000.bin", 6, 2),
        ("chunk_000001.bin", 0, 4),
    ]


def test_skipped_batches_belong_to_no_step(make_corpus):
    """The step after a skip is located behind it."""
    loader = tdstream.loader(make_corpus(1000), seq_len=4, batch_size=2)
    iterator = iter(loader)
    next(iterator)
    loader.skip(5)
    rows = next(iterator)["input_ids"][:, 0].tolist()
    assert rows == [60, 65]
    assert [s.first_token for s in loader.locate(1).samples] == rows


def test_a_trillion_tokens_take_no_time(make_corpus):
    """Locating is arithmetic: at 10^12 tokens a step in the 100th epoch is found within 100 ms."""
    loader = tdstream.loader(make_corpus(1000), seq_len=5, batch_size=4, shuffle=True)
    state = loader.state_dict()
    state["nodes"]["source"].update(total_tokens=10**12, shard_tokens="100000000x10000", num_shards=10_000)
    started = time.process_time()
    cursor, pipeline = read_cursor(state)
    located = locate_step(cursor, pipeline, 100 * (10**12 // 6) // 4)
    assert time.process_time() - started < 0.1
    assert located.epoch == 100


def test_what_cannot_be_located_is_refused(make_corpus):
    """A step before the state's memory, a rank that was not there, a step below 0."""
    loader = tdstream.loader(make_corpus(1000), seq_len=5, batch_size=4)
    state = loader.state_dict()
    state["nodes"]["splitter"].update(step=10, history=[[7, 0, 0, 4, 4]])
    cursor, pipeline = read_cursor(state)
    with pytest.raises(ConfigError, match="step 3 is before step 7"):
        locate_step(cursor, pipeline, 3)
    with pytest.raises(ConfigError, match="rank must be 0 to 0 at step 8, got 1"):
        locate_step(cursor, pipeline, 8, rank=1)
    with pytest.raises(ConfigError, match="step must be an integer of at least 0, got -1"):
        loader.locate(-1)


# The commands.


@pytest.fixture
def checkpoint(make_corpus, tmp_path):
    """Return a corpus and a checkpoint of a run over it, as a trainer saves it."""
    corpus = make_corpus(1000, 700, 500)
    log, state = run(corpus, LEGS, shuffle=True)
    torch.save({"model": {"w": torch.ones(3)}, "trainer": [{"loader": state}]}, tmp_path / "checkpoint.pt")
    return corpus, tmp_path / "checkpoint.pt", log, state


def test_state_says_where_a_run_stands(checkpoint, capsys):
    """Epoch, position, tokens, percent, identities."""
    _, path, _, state = checkpoint
    assert main(["state", str(path)]) == 0
    out = capsys.readouterr().out
    position = state["position"]
    assert f"epoch        {state['epoch']}\n" in out
    assert f"position     {position} of 366 samples ({position / 366:.1%})" in out
    assert f"tokens       {5 * position:,} of 1,830 in this epoch" in out
    assert "step         56" in out
    assert "seed=42" in out
    assert "total_tokens=2200" in out


def test_state_reads_every_kind_of_file(checkpoint, tmp_path, capsys, make_corpus):
    """torch.save, JSON, torch.distributed.checkpoint, StatefulDataLoader's own: the same state."""
    import torch.distributed.checkpoint as dcp
    from torchdata.stateful_dataloader import StatefulDataLoader

    corpus, path, _, state = checkpoint
    (tmp_path / "state.json").write_text(json.dumps({"loader": state}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there is no process group
        dcp.save(
            {"loader": state, "model": {"w": torch.ones(3), "lists": [1, {"a": 2}]}},
            checkpoint_id=tmp_path / "d",
        )
    plain = StatefulDataLoader(tdstream.build(corpus, seq_len=5, batch_size=4), num_workers=2)
    next(iter(plain))
    torch.save([plain.state_dict()], tmp_path / "plain.pt")
    for file in (path, tmp_path / "state.json", tmp_path / "d"):
        assert main(["state", str(file), "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == state
    assert main(["state", str(tmp_path / "plain.pt")]) == 0
    assert "position     4 of 366 samples" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "does not exist"),
        ("{", "looks like JSON but is not valid"),
        ('{"epoch": 3}', "there is no state"),
        ("text", "neither JSON nor a file of torch.save"),
        ("", "neither JSON nor a file of torch.save"),
    ],
)
def test_state_refuses_what_is_none(tmp_path, capsys, content, message):
    """In one sentence that names the file."""
    path = tmp_path / "file"
    if content is not None:
        path.write_text(content)
    assert main(["state", str(path)]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert str(path) in error


def test_state_refuses_a_directory_that_is_no_checkpoint(tmp_path, capsys):
    """With what was expected."""
    assert main(["state", str(tmp_path)]) == 1
    assert "is not a directory of torch.distributed.checkpoint" in capsys.readouterr().err


def test_locate_prints_a_step(checkpoint, capsys):
    """Without the corpus, from the state alone, and equal to what the run consumed."""
    _, path, log, _ = checkpoint
    assert main(["locate", "--state", str(path), "--step", "12", "--json"]) == 0
    located = json.loads(capsys.readouterr().out)
    assert [sample["first_token"] for sample in located["samples"]] == flat(log[12])
    assert main(["locate", "--state", str(path), "--step", "12", "--rank", "0"]) == 0
    assert f"tokens from {log[12][0][0]:,}  chunk_00000" in capsys.readouterr().out


def test_locate_decodes(tmp_path, capsys):
    """With the corpus, the text of the rows, by the tokenizer that prepared it."""
    from transformers import AutoTokenizer

    from helpers_text import train_tokenizer

    tokenizer = AutoTokenizer.from_pretrained(train_tokenizer(tmp_path / "tokenizer"))
    (tmp_path / "texts.jsonl").write_text(
        json.dumps({"text": "the quick brown fox jumps over the lazy dog " * 20})
    )
    flags = ["--dataset", str(tmp_path / "texts.jsonl"), "--tokenizer", str(tmp_path / "tokenizer")]
    assert main(["prepare", *flags, "--output_path", str(tmp_path / "corpus")]) == 0
    loader = tdstream.loader(tmp_path / "corpus", seq_len=8, batch_size=2, shuffle=True)
    (tmp_path / "state.json").write_text(json.dumps(loader.state_dict()))
    batch = next(iter(loader))
    rows = torch.cat([batch["input_ids"], batch["labels"][:, -1:]], dim=1)
    capsys.readouterr()
    where = ["--state", str(tmp_path / "state.json"), "--step", "0", "--data", str(tmp_path / "corpus")]
    assert main(["locate", *where, "--decode", "--json"]) == 0
    texts = [sample["text"] for sample in json.loads(capsys.readouterr().out)["samples"]]
    assert texts == [tokenizer.decode(row.tolist()) for row in rows]


def test_locate_refuses(checkpoint, capsys, make_corpus):
    """Decoding without a corpus or tokenizer, a foreign corpus, a step long forgotten."""
    _, path, _, _ = checkpoint
    assert main(["locate", "--state", str(path), "--step", "1", "--decode"]) == 1
    assert "Pass the corpus directory with --data" in capsys.readouterr().err
    other = make_corpus(999, 701, 500, name="other")
    assert main(["locate", "--state", str(path), "--step", "1", "--data", str(other)]) == 1
    assert "shard chunk_000000.bin had 1,000 tokens, has 999" in capsys.readouterr().err
    assert main(["locate", "--state", str(path), "--step", "1", "--rank", "5"]) == 1
    assert "rank must be 0 to 1 at step 1, got 5" in capsys.readouterr().err


def test_token_places_are_real(make_corpus):
    """The pieces, read by hand from the shard files, are the row."""
    corpus = make_corpus(100, 3, 200)
    loader = tdstream.loader(corpus, seq_len=7, batch_size=3, shuffle=True)
    for step, batch in enumerate(loader):
        for sample, row in zip(loader.locate(step).samples, batch["input_ids"].tolist(), strict=True):
            read = [np.fromfile(corpus / p.shard, "<u4")[p.first : p.first + p.tokens] for p in sample.pieces]
            assert np.concatenate(read)[:-1].tolist() == row
