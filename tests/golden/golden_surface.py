"""What users can call: names, parameters, flags, attributes and exit codes, as data."""

from __future__ import annotations

import argparse
import contextlib
import inspect
import json
import shutil
from pathlib import Path
from typing import Any
from unittest import mock

from golden_cases import BY_NAME, TOKENIZER, command, texts_of
from golden_folder import read_json

import tdstream

LEFT_OUT = ["LazyPipeline"]
MADE_BY_FUNCTIONS = ["LiveLoader", "Loader", "Pipeline", "PrepareResult", "StreamPipeline", "View"]
"""Classes that nobody constructs by hand: their instances' attributes are recorded, not their parameters."""
ATTRIBUTES = {
    "loader": [
        "state_dict", "load_state_dict", "set_epoch", "skip", "locate", "mixture_stats", "epoch", "position",
        "batches_done", "tokens_done", "step", "dataset",
    ],
    "live loader": [
        "state_dict", "load_state_dict", "set_epoch", "epoch", "batches_done", "tokens_done", "step",
        "dataset",
    ],
    "pipeline": ["set_epoch", "epoch", "__len__", "__iter__"],
    "live pipeline": ["set_epoch", "epoch", "__iter__"],
    "reference dataset": ["set_epoch", "epoch", "total_samples", "__len__", "__iter__"],
    "pass over a pipeline": ["state_dict", "load_state_dict", "__next__"],
    "meter": ["report", "watch"],
    "meter report": [
        "steps", "seconds", "wait_s", "start_up_s", "wait_p50_s", "wait_p99_s", "wait_mean_s", "wait_share",
        "compute_mean_s", "starved", "tokens_per_s", "bytes_per_s", "verdict",
    ],
    "bar": ["set_postfix", "total", "n"],
    "steps": ["batches_per_epoch", "epochs", "grad_accum", "per_epoch", "total", "warmup_steps"],
    "count": ["documents", "tokens", "text_bytes", "samples", "batches"],
    "view": ["directory", "begin", "end", "by"],
    "mixture": ["names", "sources", "stop", "max_epochs"],
    "prepare": ["output_path", "counts", "meta", "seconds", "lengths", "val", "was_complete"],
    "prepare counts": ["records", "documents", "empty", "skipped", "tokens", "text_bytes"],
    "located": ["step", "epoch", "samples"],
    "located sample": ["rank", "position", "index", "source", "first_token", "pieces"],
    "located piece": ["shard", "first", "tokens", "document"],
}  # fmt: skip
"""What README promises of objects, and what trainers use."""
PREPARE_OPTIONS: dict[str, Any] = {
    "data_name": None, "split": "train", "data_files": (), "text_field": "text", "lines": False,
    "tokens_per_chunk": 100_000_000, "batch_size": 1000, "max_samples": None, "overwrite": False,
    "append": False, "skip_bad": False, "resume": False, "strip": False, "num_proc": 1, "encoder": "auto",
    "task": None, "num_tasks": None, "val_fraction": None, "val_documents": None, "doc_index": True,
}  # fmt: skip
"""The options of `tdstream.prepare`, which takes them as keywords."""
_LOCATE = ("locate", "--state", "feistel.json", "--step", "2")
_OUT = ("prepare", "--tokenizer", TOKENIZER, "--dataset", "texts/c.jsonl", "--output_path")
RUNS: list[tuple[str, ...]] = [
    (),
    ("--version",),
    ("--help",),
    ("no_such_command",),
    ("verify", "corpora/indexed"),
    ("verify", "corpora/appended", "--fast"),
    ("verify", "corpora/held_out", "--json"),
    ("verify", "corpora/merged", "--samples", "0"),
    ("verify", "corpora/legacy_text", "--tokenizer", TOKENIZER),
    ("verify", "corpora/bare_uint16", "--dtype", "uint16", "--eos", "0"),
    ("verify", "corpora/bare_uint16"),
    ("verify", "damaged"),
    ("verify", "damaged", "--fast"),
    ("verify", "short", "--fast"),
    ("verify", "no_such_directory"),
    ("verify", "corpora/indexed", "--no_such_flag"),
    ("inspect", "corpora/indexed"),
    ("inspect", "corpora/unindexed", "--json", "--documents", "1", "--seed", "3"),
    ("inspect", "corpora/bare_uint32", "--dtype", "uint32", "--eos", "0"),
    ("inspect", "no_such_directory"),
    ("inspect", "corpora/indexed", "--documents", "-1"),
    ("merge", "no_such_directory"),
    ("merge",),
    ("state", "feistel.json"),
    ("state", "feistel.json", "--json"),
    ("state", "no_such_file"),
    ("state", "texts/a.jsonl"),
    _LOCATE,
    (*_LOCATE, "--rank", "0", "--data", "corpora/legacy", "--json"),
    (*_LOCATE, "--decode"),
    ("locate", "--state", "feistel.json"),
    (*_LOCATE, "--data", "corpora/indexed"),
    (
        "bench",
        "corpora/legacy",
        "--seq_len",
        "16",
        "--batch_size",
        "2",
        "--workers",
        "0",
        "--seconds",
        "0.05",
    ),
    ("bench", "no_such_directory", "--seconds", "0.05"),
    (*_OUT, "new", "--encoder", "hf"),
    (*_OUT, "new", "--encoder", "hf"),
    (*_OUT, "new", "--encoder", "hf", "--resume"),
    (*_OUT, "new", "--encoder", "hf", "--append"),
    (*_OUT, "new", "--encoder", "hf", "--strip", "--resume"),
    (*_OUT, "new", "--encoder", "hf", "--overwrite"),
    (*_OUT, "other", "--encoder", "no_such_encoder"),
    (*_OUT, "other", "--tokens_per_chunk", "0"),
    (*_OUT, "other", "--tokens_per_chunk", "many"),
    (*_OUT, "other", "--val_fraction", "2"),
    (*_OUT, "other", "--val_fraction", "0.1", "--val_documents", "3"),
    (*_OUT, "other", "--task", "0"),
    (*_OUT, "other", "--text_field", "no_such_field"),
    (*_OUT, "other", "--lines"),
    ("prepare", "--dataset", "texts/no_such_file.jsonl", "--tokenizer", TOKENIZER, "--output_path", "other"),
    (
        "prepare",
        "--dataset",
        "texts/bad.jsonl",
        "--tokenizer",
        TOKENIZER,
        "--output_path",
        "other",
        "--encoder",
        "hf",
    ),
    ("prepare", "--dataset", "texts/c.jsonl", "--tokenizer", "./no_such_tokenizer", "--output_path", "other"),
    (
        "prepare",
        "--task",
        "0",
        "--num_tasks",
        "2",
        "--dataset",
        "texts/c.jsonl",
        "--tokenizer",
        TOKENIZER,
        "--output_path",
        "tasks",
        "--encoder",
        "hf",
    ),
    ("merge", "tasks"),
]
"""Commands whose exit codes are recorded; they run in this order."""
JSON_RUNS = [run for run in RUNS if "--json" in run]


def surface() -> dict[str, Any]:
    """Return all of it; the working directory is a golden folder's copy."""
    make_damage()
    return {
        "names": {name: described(name) for name in tdstream.__all__ if name not in LEFT_OUT},
        "attributes": {name: sorted(_there(thing, ATTRIBUTES[name])) for name, thing in objects().items()},
        "prepare options": {name: repr(value) for name, value in PREPARE_OPTIONS.items()},
        "flags": {"tdstream": flags("tdstream"), "prepare/fineweb_edu.py": flags("prepare/fineweb_edu.py")},
        "exit codes": [[list(words), command(*words)[0]] for words in RUNS],
        "json": {" ".join(words): keys_of(json.loads(command(*words)[1])) for words in JSON_RUNS},
    }


def described(name: str) -> dict[str, Any]:
    """Return what a public name is."""
    thing = getattr(tdstream, name)
    if not inspect.isclass(thing):
        return {"kind": "function", "parameters": parameters_of(thing)}
    if issubclass(thing, BaseException):
        return {"kind": "exception", "bases": [base.__name__ for base in thing.__mro__[1:-1]]}
    if name in MADE_BY_FUNCTIONS:
        return {"kind": "class"}
    if name == "Batch":
        return {"kind": "class", "bases": [base.__name__ for base in thing.__mro__[1:-1]]}
    return {"kind": "class", "parameters": parameters_of(thing)}


def parameters_of(thing: Any) -> list[dict[str, str]]:
    """Return name, kind and default of each parameter."""
    return [
        {"name": parameter.name, "kind": parameter.kind.name}
        | ({} if parameter.default is parameter.empty else {"default": repr(parameter.default)})
        for parameter in inspect.signature(thing).parameters.values()
    ]


def objects() -> dict[str, Any]:
    """Return one object of each kind that users are given."""
    loader = BY_NAME["mixture"].loader()
    pipeline = tdstream.build("corpora/indexed", seq_len=16, batch_size=4)
    meter = tdstream.DataMeter()
    for _ in meter.watch(tdstream.loader("corpora/indexed", seq_len=16, batch_size=4)):
        pass
    result = tdstream.prepare(texts_of("c"), TOKENIZER, "prepared", **{**PREPARE_OPTIONS, "encoder": "hf"})
    shutil.rmtree("prepared")
    plain = tdstream.loader("corpora/indexed", seq_len=16, batch_size=4)
    located = plain.locate(0)
    live = BY_NAME["live_function"]
    return {
        "loader": loader,
        "live loader": live.loader(),
        "pipeline": pipeline,
        "live pipeline": tdstream.build(live.source(), **live.arguments()),
        "reference dataset": tdstream.DistributedDataset("corpora/legacy", 16),
        "pass over a pipeline": iter(pipeline),
        "meter": meter,
        "meter report": meter.report(),
        "bar": tdstream.progress(plain, disable=True),
        "steps": tdstream.steps(100, 2, 3),
        "count": tdstream.count(texts_of("c"), TOKENIZER, encoder="hf", cache_dir="counted", progress=False),
        "view": tdstream.split("corpora/indexed", [0.5])[0],
        "mixture": tdstream.Mixture({"a": ("corpora/indexed", 1)}),
        "prepare": result,
        "prepare counts": result.counts,
        "located": located,
        "located sample": located.samples[0],
        "located piece": located.samples[0].pieces[0],
    }


def _there(thing: Any, names: list[str]) -> list[str]:
    found = thing if isinstance(thing, dict) else {name: True for name in names if _has(thing, name)}
    return [name for name in names if name in found]


def _has(thing: Any, name: str) -> bool:
    with contextlib.suppress(tdstream.TdstreamError):
        return hasattr(thing, name)
    return True


def flags(program: str) -> dict[str, Any]:
    """Return, for each subcommand, its arguments with defaults, choices, and how many words they take."""
    parser = parser_of(program)
    choices = next(
        action for action in parser._actions if isinstance(action, argparse._SubParsersAction)
    ).choices
    if program != "tdstream":
        choices = {"prepare": choices["prepare"]}
    return {
        name: [argument_of(action, inner) for action in inner._actions] for name, inner in choices.items()
    }


def parser_of(program: str) -> argparse.ArgumentParser:
    """Return the parser that a program uses, caught when it begins to parse."""
    seen: list[argparse.ArgumentParser] = []

    def parse_args(self: argparse.ArgumentParser, *given: Any) -> Any:
        seen.append(self)
        raise SystemExit(0)

    with mock.patch.object(argparse.ArgumentParser, "parse_args", parse_args):
        if program == "tdstream":
            command()
        else:
            with contextlib.suppress(SystemExit):
                runpy_path(program)
    return seen[0]


def runpy_path(program: str) -> None:
    """Run a script of the repository in this process."""
    import runpy

    runpy.run_path(str(Path(__file__).parents[2] / program), run_name="__main__")


def argument_of(action: argparse.Action, parser: argparse.ArgumentParser) -> dict[str, Any]:
    """Return what a flag, or a word without one, takes."""
    default = action.default
    if isinstance(default, str) and action.type is not None:
        default = parser._get_value(action, default)
    return {
        "names": sorted(action.option_strings) or [action.dest],
        "default": str(default),
        "choices": None if action.choices is None else [str(choice) for choice in action.choices],
        "nargs": action.nargs,
        "required": action.required,
    }


def make_damage() -> None:
    """Write what the recorded commands need: two damaged corpora, and a state."""
    for name in ("damaged", "short", "new", "other", "tasks"):
        shutil.rmtree(name, ignore_errors=True)
    for name in ("damaged", "short"):
        shutil.copytree("corpora/indexed", name)
        path = Path(name, "chunk_000001.bin")
        content = bytearray(path.read_bytes())
        content[20] ^= 1
        path.write_bytes(content if name == "damaged" else content[:-2])
    stored = read_json(Path("states/feistel.json.gz"))[0]
    Path("feistel.json").write_text(json.dumps(stored["state"]))


def clear_damage() -> None:
    """Remove what the recorded commands needed and wrote."""
    for name in ("damaged", "short", "new", "other", "tasks", "counted"):
        shutil.rmtree(name, ignore_errors=True)
    Path("feistel.json").unlink()


def keys_of(value: Any) -> list[str]:
    """Return the keys of a JSON object."""
    return sorted(value)
