"""The command prepares a corpus, or says in one sentence on stderr why it does not."""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import time
from dataclasses import fields
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helpers_text import corpus_bytes, expected_tokens, train_tokenizer, write_jsonl
from tdstream.cli.arguments import read_options, whole_number
from tdstream.cli.main import main
from tdstream.cli.prepare import add_parser
from tdstream.corpus.meta import CorpusMeta, read_meta
from tdstream.preparation.options import GROUPS
from tdstream.writing.writer import CorpusWriter

SCRIPT = Path(__file__).parents[2] / "prepare" / "fineweb_edu.py"


class TestWholeNumber:
    """Numbers on the command line."""

    @pytest.mark.parametrize(
        ("text", "number"),
        [
            ("1000", 1000),
            ("1e8", 100_000_000),
            ("100_000_000", 100_000_000),
            ("2.5e3", 2500),
            ("1E2", 100),
            ("-5", -5),
        ],
    )
    def test_spellings(self, text: str, number: int) -> None:
        """Every usual spelling of a whole number is one, exactly and as an int."""
        assert whole_number(text) == number
        assert type(whole_number(text)) is int

    @pytest.mark.parametrize("text", ["1.5", "1e-3", "many", "", "nan", "inf", "1e400", "0x10"])
    def test_others(self, text: str) -> None:
        """What is no whole number is refused by what was typed."""
        with pytest.raises(argparse.ArgumentTypeError, match=rf"^expected a whole number .*, got '{text}'$"):
            whole_number(text)


@pytest.fixture
def arguments(tmp_path: Path, tokenizer_dir: Path) -> list[str]:
    """Return the arguments that prepare three documents into tmp_path/out."""
    write_jsonl(tmp_path / "a.jsonl", [{"text": "one"}, {"text": ""}, {"text": "three"}])
    return [
        "prepare", "--tokenizer", str(tokenizer_dir), "--dataset", str(tmp_path / "a.jsonl"),
        "--output_path", str(tmp_path / "out"),
    ]  # fmt: skip


class TestMain:
    """The command in this process."""

    def test_success(
        self, tmp_path: Path, tokenizer_dir: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        """It returns 0, writes the corpus, and ends with a summary on stderr; stdout stays empty."""
        assert main([*arguments, "--tokens_per_chunk", "1e1"]) == 0

        expected = expected_tokens(tokenizer_dir, ["one", "", "three"], "<u2")
        assert corpus_bytes(tmp_path / "out") == expected.tobytes()
        assert read_meta(tmp_path / "out" / "meta.json").tokens_per_chunk == 10
        printed = capsys.readouterr()
        assert printed.out == ""
        lines = printed.err.splitlines()
        last = next(number for number, line in enumerate(lines) if line.startswith("3 documents (1 empty"))
        lengths, summary = lines[last - 1 : last + 1]
        assert lengths == (
            "3 records = 3 documents + 0 skipped; tokens per document: min 0, median 1.0, mean 1.3, max 3; "
            "1.14 bytes per token"
        )
        assert summary.startswith(
            f"3 documents (1 empty, 0 bad ones skipped), {len(expected)} tokens in 1 shard"
        )
        assert summary.endswith(f": {tmp_path / 'out'}")

    def test_bar(self, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        """The bar shows documents, tokens and their rate, and a percentage where the total is known."""
        assert main([*arguments, "--max_samples", "2"]) == 0
        bar = [line for line in capsys.readouterr().err.splitlines() if "Preparing" in line][-1]
        assert "Preparing: 100%" in bar
        assert "2.00/2.00" in bar
        assert " tokens, " in bar
        assert bar.rstrip("]").endswith("tok/s")

    @pytest.mark.parametrize(
        ("more", "sentence"),
        [
            (["--tokens_per_chunk", "0"], "tokens_per_chunk must be an integer of at least 1, got 0."),
            (["--batch_size", "-1"], "batch_size must be an integer of at least 1, got -1."),
            (["--max_samples", "-5"], "max_samples must be an integer of at least 1, got -5."),
            (
                ["--text_field", "body"],
                "The records have no field 'body'; their fields are: text. Name one with --text_field.",
            ),
            (
                ["--tokenizer", "./nowhere"],
                "Tokenizer './nowhere' not found: there is no such directory. Pass one that "
                "tokenizer.save_pretrained has written, or a name on the hub.",
            ),
            (
                ["--dataset", "./nowhere"],
                "Dataset './nowhere' not found: there is no such file or directory.",
            ),
        ],
    )
    def test_error(
        self,
        tmp_path: Path,
        arguments: list[str],
        more: list[str],
        sentence: str,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        """An error is one sentence on stderr and exit code 1, and nothing is written."""
        assert main([*arguments, *more]) == 1
        *told, error = capsys.readouterr().err.splitlines()
        assert error == f"tdstream: error: {sentence}"
        assert [line for line in told if not line.endswith("1 file (1 jsonl)")] == []
        assert not (tmp_path / "out").exists()

    def test_a_reader_that_fails_is_quiet(
        self, tmp_path: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        """What another library logs about a broken file does not stand around our sentence."""
        (tmp_path / "a.jsonl").write_text('{"text": "a"}\n{"text": \n')
        assert main(arguments) == 1
        printed = capsys.readouterr().err
        *_, error = printed.splitlines()
        assert error.startswith("tdstream: error: Record 1 ")
        assert "Traceback" not in printed

    def test_used_directory(
        self, tmp_path: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        """A second run into the same directory is refused, with --overwrite it replaces the corpus."""
        assert main(arguments) == 0
        before = corpus_bytes(tmp_path / "out")
        capsys.readouterr()

        assert main(arguments) == 1
        assert (
            "is not empty (it holds chunk_000000.bin, chunk_000000.ends, meta.json). Pass"
            in capsys.readouterr().err
        )
        assert corpus_bytes(tmp_path / "out") == before

        write_jsonl(tmp_path / "a.jsonl", [{"text": "another"}])
        assert main([*arguments, "--overwrite"]) == 0
        assert corpus_bytes(tmp_path / "out") != before

    def test_skip_bad(self, tmp_path: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        """With --skip_bad a record without text is counted in the summary."""
        write_jsonl(tmp_path / "a.jsonl", [{"text": "a"}, {"text": None}])
        assert main(arguments) == 1
        assert "Record 1 (counted from 0)" in capsys.readouterr().err
        assert main([*arguments, "--skip_bad"]) == 0
        assert "1 document (0 empty, 1 bad ones skipped)" in capsys.readouterr().err

    def test_data_files(self, tmp_path: Path, tokenizer_dir: Path, arguments: list[str]) -> None:
        """--data_files takes several files, --lines and --split reach the source."""
        for name in ("a", "b"):
            (tmp_path / f"{name}.txt").write_text(f"{name}1\n{name}2\n")
        files = [str(tmp_path / "b.txt"), str(tmp_path / "a.txt")]
        assert (
            main([*arguments, "--dataset", "text", "--data_files", *files, "--lines", "--split", "train"])
            == 0
        )
        expected = expected_tokens(tokenizer_dir, ["b1", "b2", "a1", "a2"], "<u2")
        assert corpus_bytes(tmp_path / "out") == expected.tobytes()

    @pytest.mark.parametrize(
        "argv", [["prepare", "--tokens_per_chunk", "1.5"], ["prepare", "--what"], [], ["brew"]]
    )
    def test_usage(self, argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        """Wrong usage exits with 2."""
        with pytest.raises(SystemExit) as caught:
            main(argv)
        assert caught.value.code == 2
        assert "error: " in capsys.readouterr().err

    def test_interrupt(
        self,
        tmp_path: Path,
        arguments: list[str],
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        """Ctrl-C is one line and exit code 130, and nothing is left."""

        def interrupted(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(CorpusWriter, "append", interrupted)
        assert main(arguments) == 130
        assert (
            capsys.readouterr().err.splitlines()[-1] == "Interrupted. No unfinished corpus was left behind."
        )
        assert not (tmp_path / "out").exists()

    def test_resume(
        self,
        tmp_path: Path,
        tokenizer_dir: Path,
        arguments: list[str],
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        """Ctrl-C says what is safe; a plain start is refused and loses nothing; --resume completes, twice."""
        arguments += ["--tokens_per_chunk", "2", "--batch_size", "1", "--encoder", "hf"]
        real = CorpusWriter.append

        def interrupted(self: CorpusWriter, *given: object, **named: object) -> None:
            if self.num_tokens:
                raise KeyboardInterrupt
            real(self, *given, **named)

        with monkeypatch.context() as patch:
            patch.setattr(CorpusWriter, "append", interrupted)
            assert main(arguments) == 130
        safe = "1 documents, 2 tokens are safe"
        said = capsys.readouterr().err
        assert f"Interrupted. {safe}: start again with --resume to continue after them." in said
        assert main(arguments) == 1
        assert f"holds an unfinished preparation: {safe}. Pass --resume" in capsys.readouterr().err

        assert main([*arguments, "--resume"]) == 0
        expected = expected_tokens(tokenizer_dir, ["one", "", "three"], "<u2")
        assert corpus_bytes(tmp_path / "out") == expected.tobytes()
        assert "3 documents (1 empty, 0 bad ones skipped), 7 tokens in 4 shards" in capsys.readouterr().err
        assert main([*arguments, "--resume"]) == 0
        assert "Complete already, there is nothing to resume: 3 documents, 7 tok" in capsys.readouterr().err

    def test_tasks(
        self, tmp_path: Path, tokenizer_dir: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        """--task prepares a share and says how to go on; merge refuses what is missing, and then merges."""
        for task in ("1", "0"):
            assert main([*arguments, "--encoder", "hf", "--task", task, "--num_tasks", "2"]) == 0
            assert f"When all have ended: tdstream merge {tmp_path / 'out'}" in capsys.readouterr().err
            if task == "1":
                assert main(["merge", str(tmp_path / "out")]) == 1
                assert "lacks the shards of 1 of 2 tasks: 0. Start those" in capsys.readouterr().err
        assert main(["merge", str(tmp_path / "out")]) == 0
        assert capsys.readouterr().err.startswith("3 documents, 7 tokens in 2 shards of uint16: ")
        expected = expected_tokens(tokenizer_dir, ["one", "", "three"], "<u2")
        assert corpus_bytes(tmp_path / "out") == expected.tobytes()

    def test_the_handler_is_put_back(self, arguments: list[str]) -> None:
        """A program that calls main keeps its own handling of SIGTERM."""
        before = signal.getsignal(signal.SIGTERM)
        main([*arguments, "--batch_size", "0"])
        assert signal.getsignal(signal.SIGTERM) is before

    def test_version(self, capsys: pytest.CaptureFixture[str]) -> None:
        """--version prints it."""
        with pytest.raises(SystemExit) as caught:
            main(["--version"])
        assert caught.value.code == 0
        assert capsys.readouterr().out.startswith("tdstream ")


NOTHING_HEAVY = """
import sys, tdstream
before = set(sys.modules)
from tdstream.cli.main import main
from tdstream.cli.prepare import add_parser
code = main(["prepare", "--batch_size", "0"])
print(sorted({"torch", "datasets", "transformers", "pyarrow", "tqdm"} & (set(sys.modules) - before)))
sys.exit(code)
"""


def test_a_refused_flag_loads_nothing_heavy() -> None:
    """The command and the check of its flags do not import what preparing needs."""
    done = subprocess.run([sys.executable, "-c", NOTHING_HEAVY], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "[]\n")
    assert done.stderr == "tdstream: error: batch_size must be an integer of at least 1, got 0.\n"


def test_script(tmp_path: Path, tokenizer_dir: Path) -> None:
    """The script takes the command's flags, and leaving a stream early does not abort the interpreter."""
    pq.write_table(pa.table({"text": ["some text"] * 20_000}), tmp_path / "a.parquet", row_group_size=100)
    command = [sys.executable, str(SCRIPT), "--tokenizer", str(tokenizer_dir), "--max_samples", "5"]
    command += ["--dataset", str(tmp_path / "a.parquet"), "--output_path", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (
        corpus_bytes(tmp_path / "out") == expected_tokens(tokenizer_dir, ["some text"] * 5, "<u2").tobytes()
    )


ENDINGS = {signal.SIGINT: 130, signal.SIGTERM: 143}
Stopped = dict[signal.Signals, tuple[int, str, Path]]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Stopped:
    """Stop two preparations in the middle; return exit code, stderr and output directory of each."""
    place = tmp_path_factory.mktemp("stopped")
    tokenizer = train_tokenizer(place / "tokenizer")
    write_jsonl(place / "a.jsonl", [{"text": "some text of some length"}] * 50_000)
    runs = {}
    for number in ENDINGS:
        with CorpusWriter(
            place / number.name, CorpusMeta(dtype="uint16", chunks=(), tokens_per_chunk=2)
        ) as writer:
            writer.append(np.array([1, 2, 3]))
            writer.finish(num_documents=1)
        command = [
            sys.executable,
            str(SCRIPT),
            "--tokenizer",
            str(tokenizer),
            "--dataset",
            str(place / "a.jsonl"),
        ]
        command += ["--output_path", str(place / number.name), "--overwrite", "--batch_size", "5"]
        command += ["--tokens_per_chunk", "100"]
        runs[number] = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=_mind_ctrl_c)  # noqa: PLW1509
    try:
        for number, run in runs.items():
            _wait_for(place / number.name / ".preparing" / "chunk_000001.bin", run)
            run.send_signal(number)  # at once: the other one does not wait
        said = {number: run.communicate(timeout=60)[1] for number, run in runs.items()}
    finally:
        for run in runs.values():
            run.kill()
            run.__exit__(None, None, None)  # closes its pipe and waits, also if a wait above has failed
    return {number: (run.returncode, said[number], place / number.name) for number, run in runs.items()}


def _mind_ctrl_c() -> None:
    """Undo what a shell does to the jobs that it starts in the background: they ignore SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _wait_for(path: Path, run: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while not path.exists():
        assert time.monotonic() < deadline
        assert run.poll() is None
        time.sleep(0.02)


@pytest.mark.parametrize("number", ENDINGS)
def test_stopped(stopped: Stopped, number: signal.Signals) -> None:
    """Ctrl-C exits with 130 and a line, SIGTERM with 143; the older corpus and what is safe are kept."""
    code, said, output = stopped[number]
    assert code == ENDINGS[number]
    assert "Traceback" not in said
    assert ("\nInterrupted. " in said) is (number == signal.SIGINT)
    assert (" tokens are safe: start again with --resume to continue" in said) is (number == signal.SIGINT)
    assert json.loads((output / "meta.json").read_text())["total_tokens"] == 3
    assert corpus_bytes(output) == b"\1\0\2\0\3\0"
    assert sorted(path.name for path in output.iterdir()) == [
        ".preparing",
        "chunk_000000.bin",
        "chunk_000001.bin",
        "meta.json",
    ]


WITHOUT_TORCH = """
import sys
from tdstream.cli.main import main
from tdstream.cli.prepare import add_parser
code = main()
print([name for name in ("torch", "datasets", "pandas") if name in sys.modules])
sys.exit(code)
"""


def test_a_process_of_its_own_does_without_torch(tmp_path: Path, tokenizer_dir: Path) -> None:
    """The command prepares local files without importing torch or datasets, and says nothing about that."""
    write_jsonl(tmp_path / "a.jsonl", [{"text": "a"}])
    flags = ["--dataset", "a.jsonl", "--tokenizer", str(tokenizer_dir), "--output_path", "out"]
    command = [sys.executable, "-c", WITHOUT_TORCH, "prepare", *flags, "--encoder", "hf"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
    assert "torch" not in done.stderr.lower()


def test_every_option_has_its_flag() -> None:
    """What a preparation can be told, the command can be told, with the same default."""
    parser = argparse.ArgumentParser()
    add_parser(parser.add_subparsers())
    arguments = parser.parse_args(["prepare"])
    flags = {name: value for name, value in vars(arguments).items() if name not in ("run", "dry_run")}
    options = {field.name: field for group in GROUPS for field in fields(group)}
    without = {"given", "given_tokenizer", "is_named", "skipped_files"}  # of objects, and found out by a run
    assert flags.keys() == options.keys() - without
    assert read_options(arguments, *GROUPS) == {name: options[name].default for name in flags}
