"""A Python caller is told of options, not of flags."""

from __future__ import annotations

from functools import partial

import pytest

import tdstream
from tdstream.core.errors import OutputError, SourceError

RECORDS = [{"text": "a"}, {"text": None}]


def test_no_message_of_a_python_call_has_a_flag(tokenizer_dir, tmp_path):
    """A bad record, a field that is not there, a place that is in use: by prepare, count and cache_dir."""
    calls = [
        lambda **how: tdstream.prepare(RECORDS, tokenizer_dir, tmp_path / "corpus", **how),
        lambda **how: tdstream.count(RECORDS, tokenizer_dir, progress=False, cache_dir=tmp_path, **how),
        lambda **how: tdstream.build(RECORDS, tokenizer=tokenizer_dir, cache_dir=tmp_path / "cache", **how),
    ]
    calls = [partial(call, encoder="hf") for call in calls]
    for call in calls:
        with pytest.raises(SourceError, match=r"or pass skip_bad=True") as bad:
            call()
        with pytest.raises(SourceError, match=r"Name one with text_field=") as missing:
            call(text_field="body")
        assert "--" not in f"{bad.value} {missing.value}"
    assert "skip_bad=True to tdstream.prepare" in str(bad.value)
    tdstream.prepare(["a"], tokenizer_dir, tmp_path / "taken", encoder="hf")
    with pytest.raises(OutputError, match="overwrite=True") as taken:
        tdstream.prepare(["a", "b"], tokenizer_dir, tmp_path / "taken")
    assert "--" not in str(taken.value)


def test_a_cache_that_cannot_be_gone_on_with_says_what_to_remove(tokenizer_dir, tmp_path):
    """Its place is nobody's choice, so the message names it."""
    how = {"tokenizer": tokenizer_dir, "cache_dir": tmp_path, "seq_len": 2, "encoder": "hf"}
    tdstream.build(["a text"], **how)
    corpus = next(path for path in tmp_path.iterdir() if not path.name.startswith("."))
    (corpus / "meta.json").unlink()
    message = rf"overwrite=True to tdstream.prepare .*Here: remove {corpus}\."
    with pytest.raises(OutputError, match=message) as found:
        tdstream.build(["a text"], **how)
    assert "--" not in str(found.value)
