"""Every option of `build` and `loader` of a wrong type is refused in one sentence; numpy's own are taken."""

from __future__ import annotations

import inspect
import json

import numpy as np
import pytest

import tdstream
from helpers_corpus import write_corpus
from helpers_documents import write_indexed
from tdstream.core.errors import ConfigError

NAN = float("nan")
NO_FLAGS = ["yes", "True", 1, 0, 1.0, -1, NAN, [True], b"x", None]
NO_NUMBERS = ["8", 1.5, True, np.bool_(True), -1, NAN, np.float64(2), [1], b"8"]
FLAGS = {
    "documents": {}, "cross_document_labels": {"documents": True}, "strict": {}, "source_id": {},
    "prepend_bos": {}, "shuffle": {}, "pin_memory": {}, "persistent_workers": {},
}  # fmt: skip
WHOLE = {
    "seq_len": {}, "batch_size": {}, "seed": {}, "stride": {}, "min_tail_len": {"cut": "document"},
    "cu_seqlens_capacity": {"documents": True}, "block_samples": {"shuffle": "block"}, "num_proc": {},
    "shuffle_buffer": {}, "dp_rank": {"dp_world_size": 3}, "dp_world_size": {"dp_rank": 0}, "num_workers": {},
    "prefetch": {}, "prefetch_factor": {}, "eos_token_id": {},
}  # fmt: skip
NO_NONE = ("seq_len", "seed", "block_samples", "num_proc", "num_workers", "prefetch")
WORDS = ("cut", "order", "labels", "tail", "encoder", "kind", "text_field", "dtype", "cache_dir", "format")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Return a corpus of a few documents."""
    return write_indexed(tmp_path_factory.mktemp("types") / "corpus", [3, 4, 11, 20, 33, 40], 60, [17, 30])


def made(corpus, **options):
    """Return a loader over small batches."""
    return tdstream.loader(corpus, **{"seq_len": 4, "batch_size": 2, **options})


@pytest.mark.parametrize("name", FLAGS)
def test_what_is_neither_true_nor_false_is_refused(corpus, name):
    """Even what Python takes for true: it may be the text of a setting that says "no"."""
    for value in NO_FLAGS:
        with pytest.raises(ConfigError, match=rf"^{name} must be True"):
            made(corpus, **FLAGS[name], **{name: value})


@pytest.mark.parametrize("name", WHOLE)
def test_what_is_no_whole_number_is_refused(corpus, name):
    """As text, as a fraction, as a truth value, and below zero."""
    for value in [*NO_NUMBERS, *([None] if name in NO_NONE else [])]:
        with pytest.raises(ConfigError, match=rf"^{name} must be an integer of at least \d"):
            made(corpus, **WHOLE[name], **{name: value})


@pytest.mark.parametrize("cut", ["stream", "document", "pack"])
@pytest.mark.parametrize("name", ["seq_len", "stride"])
def test_numbers_are_refused_whatever_the_cut(corpus, name, cut):
    """Before any cut looks at them."""
    for value in NO_NUMBERS:
        with pytest.raises(ConfigError, match=rf"^{name} must be an integer of at least 1"):
            made(corpus, cut=cut, **{name: value})


def test_eos_first_is_true_false_or_not_said(corpus):
    """None is the format's habit."""
    for value in NO_FLAGS[:-1]:
        with pytest.raises(ConfigError, match=r"^eos_first must be True"):
            made(corpus, eos_first=value)


@pytest.mark.parametrize("name", WORDS)
def test_what_is_none_of_the_words_is_refused(corpus, name):
    """And the words are named."""
    for value in [1.5, True, -1, NAN, [1]]:
        with pytest.raises(ConfigError, match=rf"^{name} must be "):
            made(corpus, **{name: value})


@pytest.mark.parametrize("value", ["8", None, -1, NAN, float("inf"), True, [1]])
def test_what_is_no_time_is_refused(corpus, value):
    """A fraction of a second is one."""
    with pytest.raises(ConfigError, match=r"^timeout must be a number of seconds"):
        made(corpus, timeout=value)
    assert made(corpus, timeout=1.5).timeout == 1.5


@pytest.mark.parametrize("value", [1.5, True, [1], "yes"])
def test_what_is_no_device_is_refused(corpus, value):
    """With the value, and why."""
    with pytest.raises(ConfigError, match=r"^device=.* is not a device: "):
        made(corpus, device=value)


def test_what_is_no_function_is_refused(corpus):
    """Before a worker would call it."""
    with pytest.raises(ConfigError, match="worker_init_fn must be a function"):
        made(corpus, worker_init_fn="f")


def test_every_option_is_looked_at_here():
    """A new one must be sorted in."""
    known = {*FLAGS, *WHOLE, *WORDS, "timeout", "device", "worker_init_fn", "samples", "tokenizer"}
    elsewhere = {"source", "multiprocessing_context", "eos_first"}  # DataLoader looks at the second
    names = {*inspect.signature(tdstream.build).parameters, *inspect.signature(tdstream.loader).parameters}
    assert names - known == elsewhere


@pytest.mark.parametrize(
    "options",
    [
        {"stride": np.int64(2), "documents": np.bool_(True), "shuffle": np.bool_(True)},
        {"cut": "document", "min_tail_len": np.int16(1), "stride": np.uint8(3), "strict": np.bool_(True)},
        {"cut": "pack", "cu_seqlens_capacity": np.int64(20), "cross_document_labels": np.bool_(True)},
    ],
)
def test_numbers_and_truth_values_of_numpy_are_taken(corpus, options):
    """And states hold plain ones, which JSON knows."""
    sizes = {"seq_len": np.int64(4), "batch_size": np.int32(2), "seed": np.uint16(7)}
    loader = made(corpus, **sizes, **options)
    plain = made(corpus, seed=7, **{name: getattr(value, "item", lambda value=value: value)()
                                    for name, value in options.items()})  # fmt: skip
    assert json.loads(json.dumps(loader.state_dict())) == plain.state_dict()
    assert [batch["labels"].tolist() for batch in loader] == [batch["labels"].tolist() for batch in plain]


@pytest.mark.parametrize("options", [{"documents": True}, {"cut": "document"}, {"cut": "pack"}])
def test_bare_shards_have_no_documents(tmp_path, options):
    """There is no meta.json, and the sentence does not speak as if there were one."""
    corpus = write_corpus(tmp_path / "corpus", np.arange(60, dtype="<u2"), [60])
    (corpus / "meta.json").unlink()
    with pytest.raises(
        ConfigError, match=r"has no meta\.json, does not tell where documents end\. Pass eos_token_id="
    ):
        made(corpus, dtype="uint16", **options)


@pytest.mark.parametrize("source", [{"a": "corpus"}, ["corpus"], None, 5])
def test_only_the_directory_of_a_corpus_is_split(source):
    """What else `build` takes is refused at once, not when it is built."""
    with pytest.raises(
        ConfigError, match=f"split takes the directory of a corpus, got a {type(source).__name__}"
    ):
        tdstream.split(source, [0.5, 0.5])


def test_a_part_is_not_split_again(corpus):
    """It can be divided into more parts at once."""
    part, _ = tdstream.split(corpus, [0.9, 0.1])
    with pytest.raises(ConfigError, match=r"already, and a part.*Divide the corpus once"):
        tdstream.split(part, [0.5, 0.5])
