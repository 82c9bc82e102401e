"""A verdict is kept whole, or not at all."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tdstream.text.encoders.verdict import Verdict, VerdictKey, cache_dir, read_verdict, write_verdict

KEY = VerdictKey(encoder="fastokens", version="1.0", oracle="tokenizers 1", proof=1, tokenizer="ab12")
VERDICT = Verdict(ok=True, failing=((3, 5), (0x10FFFF, 0x10FFFF)), num_failed=3)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put the user's cache into a directory of the test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def only_file() -> Path:
    """Return the one file of the cache."""
    (path,) = cache_dir().iterdir()
    return path


class TestVerdicts:
    """On disk and back."""

    @pytest.mark.parametrize("verdict", [VERDICT, Verdict(ok=False, why="it differs on 'a'")])
    def test_round_trip(self, verdict: Verdict) -> None:
        """What was kept is what is read, and nothing else lies surround."""
        write_verdict(KEY, verdict)
        assert read_verdict(KEY) == verdict
        assert only_file().suffix == ".json"

    def test_the_last_one_counts(self) -> None:
        """A later verdict takes the place of an earlier one."""
        write_verdict(KEY, VERDICT)
        write_verdict(KEY, Verdict(ok=False, why="later"))
        assert read_verdict(KEY) == Verdict(ok=False, why="later")

    @pytest.mark.parametrize(
        "change", [{"version": "1.1"}, {"oracle": "tokenizers 2"}, {"proof": 2}, {"tokenizer": "ab13"},
                   {"encoder": "gigatoken"}], ids=str
    )  # fmt: skip
    def test_another_key(self, change: dict[str, str]) -> None:
        """Of another tokenizer, version or proof nothing is known."""
        write_verdict(KEY, VERDICT)
        assert read_verdict(replace(KEY, **change)) is None

    @pytest.mark.parametrize(
        "content",
        [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"key": {}}', b'{"ok": true}'],
        ids=repr,
    )
    def test_garbage(self, content: bytes) -> None:
        """A file that is cut or holds something else is as good as none, and is replaced."""
        write_verdict(KEY, VERDICT)
        only_file().write_bytes(content)
        assert read_verdict(KEY) is None
        write_verdict(KEY, VERDICT)
        assert read_verdict(KEY) == VERDICT

    @pytest.mark.parametrize(
        "change", [{"ok": "yes"}, {"why": 3}, {"failing": [[5, 3]]}, {"failing": [[0, 1 << 30]]},
                   {"failing": [["a", "b"]]}, {"failing": 7}, {"num_failed": None}, {"key": {}}], ids=str
    )  # fmt: skip
    def test_wrong_values(self, change: dict[str, object]) -> None:
        """A file whose values cannot be is as good as none."""
        write_verdict(KEY, VERDICT)
        path = only_file()
        path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
        assert read_verdict(KEY) is None

    def test_no_place(self, home: Path) -> None:
        """Where nothing can be written, nothing is kept, and nobody is bothered."""
        (home / "cache").write_text("a file where a directory should be")
        write_verdict(KEY, VERDICT)
        assert read_verdict(KEY) is None

    def test_default_place(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without XDG_CACHE_HOME it is .cache in the home directory."""
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.setenv("HOME", str(home))
        assert cache_dir() == home / ".cache" / "tdstream" / "encoders"
