"""Make golden files that do not exist yet; those that exist are never touched.

    PYTHONPATH=. python tests/golden/make.py            # from the root of the repository, whose code is used

All work is done in a copy of the golden folder; what is new there at the end is copied back. To add a case,
add it to `golden_cases.py` and run this. To see what a case holds, read its JSON file; states are compressed
(zcat).
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from golden_cases import (
    BY_NAME,
    CASES,
    CHECKPOINTS,
    COUNTS,
    CROSSINGS,
    FORMAT,
    KILLED,
    KILLED_LIST,
    OUTPUTS,
    RANKED,
    TOKENIZER,
    WIDE_OUTPUT,
    Case,
    Checkpoint,
    Killed,
    advance,
    counted,
    files_digest,
    first_of,
    located,
    make_wide_tokenizer,
    many_counts,
    open_many,
    ran,
    take,
    texts_of,
    write_many,
    written,
)
from golden_folder import HERE, copy_of, set_times
from golden_surface import clear_damage, surface

import tdstream

WORDS = [
    "self",
    "def",
    "json",
    "return",
    "x",
    "=",
    "\u00e9t\u00e9",
    "\u65e5\u672c",
    "\U0001f600",
    "None,",
    "{}",
    "\n",
]


# What everything else is made from.


def make_tokenizer() -> None:
    """Train a byte-level BPE of 400 ids on the standard library's json module."""
    sys.path.insert(0, str(HERE.parent))
    from helpers_text import train_tokenizer

    train_tokenizer(Path(TOKENIZER))


def make_texts() -> None:
    """Write texts in each format: many short documents, some empty, some with white space at their ends."""
    Path("texts").mkdir(exist_ok=True)
    for name, documents, seed in (("a", 110, 1), ("b", 60, 2), ("c", 45, 3)):
        chance = random.Random(seed)
        texts = [
            " ".join(chance.choices(WORDS, k=chance.choice([0, 1, 3, 8, 15, 16, 17, 40])))
            for _ in range(documents)
        ]
        texts[3:5] = ["  white space at both ends\n", "\t"]
        lines = "".join(json.dumps({"id": number, "text": text}) + "\n" for number, text in enumerate(texts))
        write(f"texts/{name}.jsonl", lines.encode())
    texts = texts_of("c")
    write("texts/c.jsonl.gz", gzip.compress(Path("texts/c.jsonl").read_bytes(), mtime=0))
    write("texts/lines.txt", "".join(text.replace("\n", " ") + "\n" for text in texts).encode())
    bad = [
        json.dumps({"text": None if number % 9 == 4 else text}) + "\n" for number, text in enumerate(texts)
    ]
    write("texts/bad.jsonl", "".join(bad).encode())
    if not Path("texts/table.csv").exists():
        with open("texts/table.csv", "w", newline="", encoding="utf-8") as file:
            rows = [[number, f"title {number}", text] for number, text in enumerate(texts)]
            csv.writer(file).writerows([["id", "title", "body"], *rows])
    if not Path("texts/table.parquet").exists():
        table = pa.Table.from_pylist([{"meta": {"body": text}} for text in texts])
        pq.write_table(table, "texts/table.parquet", row_group_size=10)


def make_corpora() -> None:
    """Write a corpus of each kind that a reader may meet."""
    set_times(Path())
    prepare("indexed", "texts/a.jsonl", "--tokens_per_chunk", "900")
    prepare("unindexed", "texts/a.jsonl", "--tokens_per_chunk", "700", "--no_doc_index")
    if not Path("corpora/appended").exists():
        prepare("appended", "texts/b.jsonl", "--tokens_per_chunk", "600")
        append("appended", "texts/c.jsonl", "--tokens_per_chunk", "600")
        append("appended", "texts/lines.txt", "--tokens_per_chunk", "600", "--lines")
    prepare("held_out", "texts/a.jsonl", "--tokens_per_chunk", "800", "--val_fraction", "0.4")
    if not Path("corpora/merged").exists():
        for task in range(2):
            more = ("--task", str(task), "--num_tasks", "2")
            append("merged", "texts/[bc].jsonl", "--tokens_per_chunk", "800", *more, how=())
        ran("merge", "corpora/merged")
    reference("legacy", np.arange(1900, dtype="<u2"), [500, 37, 700, 3, 660])
    reference("legacy_uint32", np.arange(70_000, 71_900, dtype="<u4"), [900, 900, 100])
    tokens = b"".join(path.read_bytes() for path in sorted(Path("corpora/unindexed").glob("*.bin")))
    text_tokens = np.frombuffer(tokens, "<u2")
    reference(
        "legacy_text", text_tokens, [1000, 1000, len(text_tokens) - 2000], tokenizer=TOKENIZER, fast=True
    )
    bare("bare_uint16", np.arange(1900, dtype="<u2"), {"part_10.bin": 900, "part_2.bin": 1000})
    bare("bare_uint32", np.arange(70_000, 71_900, dtype="<u4"), {"a.bin": 20, "b.bin": 1880})
    set_times(Path())


def prepare(name: str, dataset: str, *flags: str) -> None:
    """Prepare a corpus, if there is none."""
    if not Path("corpora", name).exists():
        append(name, dataset, *flags, how=())


def append(name: str, dataset: str, *flags: str, how: tuple[str, ...] = ("--append",)) -> None:
    """Prepare a corpus, or append to it."""
    words = [
        "--dataset",
        dataset,
        "--tokenizer",
        TOKENIZER,
        "--encoder",
        "hf",
        "--output_path",
        f"corpora/{name}",
    ]
    ran("prepare", *words, *flags, *how)


def reference(name: str, tokens: Any, sizes: list[int], tokenizer: str = "gpt2", fast: bool = False) -> None:
    """Write a corpus as the reference tool does: its keys in meta.json, and no others."""
    files = {f"chunk_{number:06d}.bin": size for number, size in enumerate(sizes)}
    if Path("corpora", name).exists():
        return
    bare(name, tokens, files)
    meta = {
        "created_at_unix": 1_700_000_000,
        "tokenizer_name_or_path": tokenizer,
        "is_fast": fast,
        "dtype": tokens.dtype.name,
        "eos_token_id": 0,
        "tokens_per_chunk": max(sizes),
        "chunks": [{"file": file, "tokens": size} for file, size in files.items()],
        "total_tokens": len(tokens),
    }
    Path("corpora", name, "meta.json").write_text(json.dumps(meta, indent=2))


def bare(name: str, tokens: Any, files: dict[str, int]) -> None:
    """Write shards without meta.json."""
    if Path("corpora", name).exists():
        return
    Path("corpora", name).mkdir(parents=True)
    borders = np.cumsum([0, *files.values()])
    assert borders[-1] == len(tokens)
    for file, (first, last) in zip(files, pairwise(borders), strict=True):
        Path("corpora", name, file).write_bytes(tokens[first:last].tobytes())


# What comes out of it.


def make_orders(case: Case) -> dict[str, Any]:
    """Return the first batches of epochs 0 and 1, alone and for each of two ranks."""
    made: dict[str, Any] = {}
    for rank in [None, 0, 1] if case.name in RANKED else [None]:
        more = {} if rank is None else {"dp_rank": rank, "dp_world_size": 2}
        loader = case.stateful(0, **more) if case.by_samples else case.loader(**more)
        found: dict[str, Any] = {}
        if not case.live:
            found["length"] = len(loader)
        for epoch in (0, 1):
            found[f"epoch {epoch}"] = take(first_of(loader, epoch))
        made["alone" if rank is None else f"rank {rank} of 2"] = found
    return made


POINTS = ["in epoch 0", "in epoch 1", "at the end of epoch 0"]


def make_states(case: Case) -> list[dict[str, Any]]:
    """Return states of each kind of loader at each point, and what comes next."""
    made = []
    for rank in [None, 0, 1] if case.name in RANKED else [None]:
        more = {} if rank is None else {"dp_rank": rank, "dp_world_size": 2}
        kinds = [("loader", 0)] * (not case.by_samples) + [("stateful", 0), ("stateful", 2)]
        if case.live and not case.by_samples:
            kinds.append(("loader", 2))
        for kind, workers in kinds:
            if rank is not None and workers:
                continue
            for point in POINTS if rank is None else POINTS[:1]:
                made.append(state_at(case, kind, workers, point, more))
    return made


def batches_of_epoch(case: Case, kind: str, workers: int, more: dict[str, Any]) -> int:
    """Return how many batches an epoch has."""
    loader = opened(case, kind, workers, more)
    return take(loader, 400 if case.live else 2 * len(loader) + 9).index("end")


def opened(case: Case, kind: str, workers: int, more: dict[str, Any]) -> Any:
    """Return a loader, or a StatefulDataLoader, of a case."""
    return case.loader(num_workers=workers, **more) if kind == "loader" else case.stateful(workers, **more)


def state_at(case: Case, kind: str, workers: int, point: str, more: dict[str, Any]) -> dict[str, Any]:
    """Return a state, taken at some point, and what comes next."""
    in_epoch = batches_of_epoch(case, kind, workers, more)
    batches = {"in epoch 0": 7, "in epoch 1": in_epoch + 5, "at the end of epoch 0": in_epoch}[point]
    loader = opened(case, kind, workers, more)
    kept = advance(loader, batches)
    state = loader.state_dict()
    del kept
    assert_json(state)
    again = opened(case, kind, workers, more)
    again.load_state_dict(state)
    return {
        "loader": kind, "num_workers": workers, "options": more, "point": point, "state": state,
        "then": take(again),
    }  # fmt: skip


def make_crossing(crossing: Any) -> dict[str, Any]:
    """Return a state, what comes next elsewhere, a state of that, and what comes then."""
    loader = BY_NAME[crossing.saved].loader(**crossing.before)
    kept = advance(loader, crossing.batches)
    state = loader.state_dict()
    del kept
    target = BY_NAME[crossing.loaded]
    loader = target.loader(**crossing.after)
    loader.load_state_dict(state)
    then = take(loader)
    loader = target.loader(**crossing.after)
    loader.load_state_dict(state)
    if crossing.skip:
        loader.skip(crossing.skip)
    kept = advance(loader, crossing.more)
    later = loader.state_dict()
    del kept
    loader = target.loader(**crossing.after)
    loader.load_state_dict(later)
    assert_json(state)
    assert_json(later)
    return {"state": state, "then": then, "later": later, "later then": take(loader)}


def make_output(commands: list[list[str]]) -> dict[str, Any]:
    """Return what some commands write."""
    shutil.rmtree("out", ignore_errors=True)
    set_times(Path("texts"))
    for words in commands:
        ran(*words)
    found = written(Path("out"))
    shutil.rmtree("out")
    return found


def kill_in_the_move(words: list[str]) -> bool:
    """Start a process, and kill it when it moves what it has written; return whether some is moved."""
    process = subprocess.Popen(words, stderr=subprocess.DEVNULL)
    while process.poll() is None:
        if os.path.exists("out/.preparing/meta.json"):
            process.send_signal(signal.SIGKILL)
            break
    process.wait()
    return Path("out/.preparing/meta.json").exists() and Path("out/chunk_000000.bin").exists()


def kill(words: list[str], directory: Path, safe: int) -> bool:
    """Start a process, and kill it when so many chunks are safe; return whether it was in the middle."""
    journal = directory / "journal.jsonl"
    process = subprocess.Popen(words, stderr=subprocess.DEVNULL)
    while process.poll() is None:
        if journal.exists() and journal.read_bytes().count(b"\n") > safe:
            process.send_signal(signal.SIGKILL)
            break
    process.wait()
    return process.returncode == -signal.SIGKILL and b"done" not in journal.read_bytes().splitlines()[-1]


def make_killed(case: Killed) -> dict[str, Any]:
    """Kill preparations, keep what they leave, and return what an uninterrupted run writes."""
    set_times(Path("texts"))
    kept = Path("killed", case.name, "out")
    while not kept.exists():
        shutil.rmtree("out", ignore_errors=True)
        for words in case.before:
            ran(*words)
        if case.in_the_move:
            if kill_in_the_move([sys.executable, "-m", "tdstream", *case.killed[0]]):
                shutil.copytree("out", kept)
            continue
        places = [f"task_{task:05d}" if len(case.killed) > 1 else "" for task in range(len(case.killed))]
        if all(
            kill([sys.executable, "-m", "tdstream", *words], Path("out/.preparing", place), 4)
            for words, place in zip(case.killed, places, strict=True)
        ):
            check_identity(case, Path("out/.preparing", places[0]))
            shutil.copytree("out", kept)
        else:
            print("too late", flush=True)
    return make_output(case.uninterrupted())


def check_identity(case: Killed, directory: Path) -> None:
    """Make sure that a journal knows its input files as `files_digest` says."""
    header = json.loads((directory / "journal.jsonl").read_text().splitlines()[0])
    assert header["identity"]["files"] == files_digest(case.inputs)


def make_killed_list() -> dict[str, Any]:
    """Kill a preparation that a program has begun."""
    kept, given = Path("killed/list/out"), "from golden_cases import *; "
    code = f"{given} tdstream.prepare(texts_of('a'), TOKENIZER, 'out', **{KILLED_LIST!r})"
    while not kept.exists():
        shutil.rmtree("out", ignore_errors=True)
        if kill([sys.executable, "-c", code], Path("out/.preparing"), 4):
            shutil.copytree("out", kept)
    shutil.rmtree("out")
    tdstream.prepare(texts_of("a"), TOKENIZER, "out", **KILLED_LIST)
    found = written(Path("out"))
    shutil.rmtree("out")
    return found


def make_checkpoint(checkpoint: Checkpoint) -> dict[str, Any]:
    """Write a file with a loader's state; return the state, what comes next, and where steps are."""
    path = Path("checkpoints", checkpoint.name)
    case = BY_NAME[checkpoint.case]
    if checkpoint.name == "train.pt":
        script = HERE.parents[1] / "examples/train.py"
        flags = "--seq_len 16 --batch_size 4 --width 8 --depth 1 --max_steps 7 --save_every 4 --val_batches 1"
        words = [
            sys.executable,
            str(script),
            "--data",
            "corpora/indexed",
            "--val_share",
            "0.2",
            "--output_dir",
            "run",
        ]
        subprocess.run(
            [*words, *flags.split()], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        shutil.move("run/checkpoint.pt", path)
        shutil.rmtree("run")
    else:
        loader = case.stateful(2) if checkpoint.name == "stateful.pt" else case.loader()
        kept = advance(loader, 9)
        content = {"step": 9, "model": {"weight": torch.zeros(3)}, "loader": loader.state_dict()}
        del kept
        if path.suffix == ".pt":
            torch.save(content, path)
        elif path.suffix == ".json":
            path.write_text(json.dumps({"step": 9, "loaders": [content["loader"]]}))
        else:
            from torch.distributed.checkpoint import save

            save(content, checkpoint_id=path, no_dist=True)
    state = json.loads(ran("state", str(path), "--json"))
    loader = case.loader()
    loader.load_state_dict(state)
    return {
        "state": state,
        "then": take(loader),
        "located": [located(str(path), *words) for words in checkpoint.locate],
    }


def make_elsewhere() -> dict[str, Any]:
    """Keep what is made from a corpus in the user's cache, because it cannot be kept beside it."""
    corpus = Path("elsewhere").absolute()
    shutil.copytree("corpora/unindexed", corpus, ignore=shutil.ignore_patterns(".tdstream"))
    (corpus / ".tdstream").write_text("")
    set_times(corpus)
    then = take(tdstream.loader(corpus, **BY_NAME["pack"].arguments()))
    (own,) = Path(os.environ["XDG_CACHE_HOME"], "tdstream/corpora").iterdir()
    assert own.name == hashlib.sha256(str(corpus).encode()).hexdigest()[:16]
    shutil.copytree(own, "user_cache")
    shutil.rmtree(corpus)
    return {"then": then}


def make_many() -> dict[str, Any]:
    """Count the windows of very many documents; only the file's name and hash are kept."""
    directory = Path("many")
    write_many(directory)
    loader = open_many(directory)
    (file,) = directory.glob(".tdstream/*.i8")
    content = file.read_bytes()
    assert content == many_counts()
    found = {
        "file": file.name,
        "sha256": hashlib.sha256(content).hexdigest(),
        "length": len(loader),
        "then": take(loader),
    }
    shutil.rmtree(directory)
    return found


def make_surface() -> dict[str, Any]:
    """Return the public surface."""
    found = surface()
    clear_damage()
    return found


def make_wide_output() -> dict[str, Any]:
    """Return what a vocabulary of more than 65,536 ids gives."""
    make_wide_tokenizer()
    found = make_output([WIDE_OUTPUT])
    shutil.rmtree("wide_tokenizer")
    return found


def assert_json(state: Any) -> None:
    """Make sure that a state is the same after it was a JSON file, tuples and all."""
    assert repr(json.loads(json.dumps(state))) == repr(state)


def write(name: str, content: bytes) -> None:
    """Write a file, if there is none."""
    if not Path(name).exists():
        Path(name).write_bytes(content)


def once(name: str, make: Any, *given: Any) -> None:
    """Write what a function returns, as JSON, if the file does not exist."""
    path = Path(name)
    if path.exists():
        return
    print(name, flush=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    content = (json.dumps(make(*given), separators=(",", ":")) + "\n").encode()
    path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)


PARTS = {
    "cache", "checkpoints", "corpora", "counts", "counts.json", "crossings", "elsewhere.json", "killed",
    "many.json",
    "orders", "outputs", "states", "surface.json", "texts", TOKENIZER, "user_cache",
}  # fmt: skip


def copy_back(folder: Path) -> None:
    """Copy what is new into the golden folder; nothing there is overwritten, and no scratch file is kept."""
    for path in sorted(path for part in PARTS for path in [Path(part), *Path(part).rglob("*")]):
        target = folder / path
        if path.is_file() and path.suffix != ".lock" and not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)


def main() -> None:
    """Make what is missing."""
    assert Path(tdstream.__file__).is_relative_to(HERE.parents[1]), "set PYTHONPATH to this repository"
    folder = HERE / FORMAT
    with tempfile.TemporaryDirectory() as temporary, contextlib.ExitStack() as at_the_end:
        work = Path(temporary, FORMAT)
        folder.mkdir(exist_ok=True)
        copy_of(folder, work)
        os.chdir(work)
        at_the_end.callback(copy_back, folder)  # what was made is kept, even if a later case fails
        os.environ["PYTHONPATH"] = os.pathsep.join(
            [str(HERE), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        )
        os.environ["XDG_CACHE_HOME"] = str(Path(temporary, "xdg"))
        if not Path(TOKENIZER).exists():
            make_tokenizer()
        make_texts()
        make_corpora()
        for case in CASES:
            once(f"orders/{case.name}.json", make_orders, case)
            once(f"states/{case.name}.json.gz", make_states, case)
        for crossing in CROSSINGS:
            once(f"crossings/{crossing.name}.json", make_crossing, crossing)
        for output in OUTPUTS:
            once(f"outputs/{output.name}.json", make_output, output.commands)
        once("outputs/wide.json", make_wide_output)
        for killed in KILLED:
            once(f"killed/{killed.name}/expected.json", make_killed, killed)
        once("killed/list/expected.json", make_killed_list)
        Path("checkpoints").mkdir(exist_ok=True)
        for checkpoint in CHECKPOINTS:
            once(f"checkpoints/{checkpoint.name}.expected.json", make_checkpoint, checkpoint)
        once("counts.json", lambda: [counted(options) for options in COUNTS])
        once("elsewhere.json", make_elsewhere)
        once("many.json", make_many)
        once("surface.json", make_surface)


if __name__ == "__main__":
    main()
