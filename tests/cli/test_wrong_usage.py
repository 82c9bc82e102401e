"""Wrong usage of the command line: what was meant, in one sentence, and no corpus taken for a checkpoint."""

from __future__ import annotations

import json

import pytest

import tdstream
from tdstream.cli.main import main


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (
            "prepare --datset x",
            "tdstream prepare: error: there is no flag --datset. Did you mean --dataset? ",
        ),
        ("prepare --tokeniser=x", "there is no flag --tokeniser. Did you mean --tokenizer? "),
        ("prepare texts.jsonl", "'texts.jsonl' has no flag. Name what to read with --dataset, "),
        ("verify a b", "tdstream verify: error: 'b' is one argument too many. "),
        ("inspect a --qqq", "there is no flag --qqq. 'tdstream inspect --help' lists what it takes."),
    ],
)
def test_an_unknown_argument_is_named_with_the_nearest_flag(argv, said, capsys):
    """By the command it was given to, with exit code 2 and without a page of usage."""
    with pytest.raises(SystemExit) as end:
        main(argv.split())
    assert end.value.code == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


@pytest.fixture
def state_file(make_corpus, tmp_path):
    """Return a state's file, and its corpus."""
    corpus = make_corpus(70, 30)
    loader = tdstream.loader(corpus, seq_len=4, batch_size=2)
    next(iter(loader))
    (tmp_path / "state.json").write_text(json.dumps(loader.state_dict()))
    return tmp_path / "state.json", corpus


def test_locate_names_the_other_corpus(state_file, make_corpus, capsys):
    """And the flag that the command has, not an argument of a function."""
    other = make_corpus(100, name="other")
    assert main(["locate", "--state", str(state_file[0]), "--step", "0", "--data", str(other)]) == 1
    error = capsys.readouterr().err
    assert f"{other} is not the corpus of the state: " in error
    assert "with --data." in error
    assert "strict" not in error


@pytest.mark.parametrize("command", [["state"], ["locate", "--step", "0", "--state"]])
def test_a_corpus_is_no_checkpoint(command, state_file, capsys):
    """Neither its directory nor its meta.json."""
    for path in (state_file[1], state_file[1] / "meta.json"):
        assert main([*command, str(path)]) == 1
        assert f"{path} is a corpus, not a checkpoint. " in capsys.readouterr().err


def test_no_documents_are_none(make_corpus, capsys):
    """0 shows none, 1 the first and a random one; in JSON as well."""
    corpus = str(make_corpus(100))
    assert main(["inspect", corpus, "--documents", "0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["documents"] == []


def test_one_shard_is_singular(make_corpus, capsys):
    """One shard, 100 tokens."""
    main(["verify", str(make_corpus(100))])
    assert ": 1 shard, 100 tokens\n" in capsys.readouterr().out
