"""A tokenizer is found or refused with a sentence, and is known by its fingerprint."""

from __future__ import annotations

import hashlib
import socket
from pathlib import Path

import pytest
from helpers_encoder import CharTokenizer
from tokenizers import Tokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from helpers_text import EOS, numbers_tokenizer, train_tokenizer
from tdstream.core.errors import TokenizerError
from tdstream.text.tokenizer import describe_tokenizer, fingerprint, load_tokenizer


class TestLoad:
    """Which tokenizers are taken."""

    def test_local(self, tokenizer_dir: Path) -> None:
        """A directory that a tokenizer was saved to is loaded."""
        assert load_tokenizer(str(tokenizer_dir)).eos_token == EOS

    @pytest.mark.parametrize("name", ["./nowhere", "/no/where", "~/nowhere-at-all", "a/b/c"])
    def test_no_such_directory(self, name: str) -> None:
        """A path that does not exist is not looked for on the hub."""
        with pytest.raises(
            TokenizerError, match=rf"^Tokenizer '{name}' not found: there is no such directory"
        ):
            load_tokenizer(name)

    def test_not_a_tokenizer(self, tmp_path: Path) -> None:
        """A directory without a tokenizer is refused, with what the library says of it."""
        with pytest.raises(TokenizerError, match=r"cannot be loaded from there: .+"):
            load_tokenizer(str(tmp_path))

    def test_unreachable(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A name that is not in the cache is refused at once when the hub does not answer."""
        monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
        for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.delenv(name, raising=False)
        with pytest.raises(
            TokenizerError, match=r"'no-one/nothing' is neither a local directory nor in the local cache"
        ):
            load_tokenizer("no-one/nothing")

    def test_no_eos(self, tmp_path: Path) -> None:
        """A tokenizer without an end-of-text token is refused with the remedy."""
        with pytest.raises(TokenizerError, match=r"has no end-of-text token.*Set its eos_token and save it"):
            load_tokenizer(str(train_tokenizer(tmp_path, eos=False)))


class TestPlan:
    """What is known before anything is written."""

    @pytest.mark.parametrize(
        ("vocab_size", "dtype"), [(400, "uint16"), (65_536, "uint16"), (65_537, "uint32")]
    )
    def test_dtype_follows_the_vocabulary(self, tmp_path: Path, vocab_size: int, dtype: str) -> None:
        """Up to 65,536 ids are stored in 16 bits, more in 32."""
        ids = {"<unk>": 0, "<eos>": 1, **{f"w{number}": number for number in range(2, vocab_size)}}
        known = describe_tokenizer(load_tokenizer(str(numbers_tokenizer(tmp_path, ids))), "mine")
        assert (known["vocab_size"], known["dtype"], known["eos_token_id"]) == (vocab_size, dtype, 1)

    def test_dtype_follows_the_largest_id(self, tmp_path: Path) -> None:
        """A vocabulary may have holes: three tokens with the ids 0, 1 and 70,000 need 32 bits."""
        tokenizer = load_tokenizer(str(numbers_tokenizer(tmp_path, {"<unk>": 0, "<eos>": 1, "a": 70_000})))
        known = describe_tokenizer(tokenizer, "mine")
        assert (known["vocab_size"], known["dtype"], known["eos_token_id"]) == (70_001, "uint32", 1)

    def test_the_eos_counts(self, tmp_path: Path) -> None:
        """An end-of-text id beyond all others decides as well."""
        tokenizer = load_tokenizer(str(numbers_tokenizer(tmp_path, {"<unk>": 0, "<eos>": 65_536})))
        known = describe_tokenizer(tokenizer, "mine")
        assert (known["vocab_size"], known["dtype"]) == (65_537, "uint32")

    @pytest.mark.parametrize("wrong", [-1, 1 << 32])
    def test_ids_that_no_corpus_holds(self, wrong: int) -> None:
        """Ids beyond 32 bits, or below 0, are refused before anything is written."""
        tokenizer = CharTokenizer()
        tokenizer.get_vocab = lambda: {"a": wrong, "<e>": 300}  # type: ignore[method-assign]
        with pytest.raises(TokenizerError, match=f"has the id {wrong:,}; a corpus holds ids of 0 to"):
            describe_tokenizer(tokenizer, "mine")


class TestFingerprint:
    """The hash of what decides the ids."""

    def test_fast(self, tokenizer_dir: Path) -> None:
        """It is the SHA-256 of the backend's own serialisation."""
        tokenizer = AutoTokenizer.from_pretrained(tokenizer_dir)
        expected = hashlib.sha256(tokenizer._tokenizer.to_str().encode()).hexdigest()
        assert fingerprint(tokenizer) == f"sha256:{expected}"

    def test_truncation_and_padding_do_not_count(self, tokenizer_dir: Path) -> None:
        """Settings that a preparation does not apply do not change it, and are not changed by it."""
        backend = Tokenizer.from_file(str(tokenizer_dir / "tokenizer.json"))
        backend.enable_truncation(3)
        backend.enable_padding(length=9, pad_id=0, pad_token=EOS)
        changed = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=EOS)
        plain = PreTrainedTokenizerFast(tokenizer_file=str(tokenizer_dir / "tokenizer.json"), eos_token=EOS)
        assert fingerprint(changed) == fingerprint(plain)
        assert changed._tokenizer.truncation["max_length"] == 3

    def test_one_more_token_is_another(self, tokenizer_dir: Path) -> None:
        """A tokenizer with one more token has another one, fast or slow."""
        for tokenizer in (AutoTokenizer.from_pretrained(tokenizer_dir), CharTokenizer()):
            before = fingerprint(tokenizer)
            assert before == fingerprint(tokenizer)
            assert before.startswith("sha256:")
            tokenizer.add_tokens(["one more"])
            assert fingerprint(tokenizer) != before


def test_the_probe_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub whose name cannot be resolved counts as unreachable; behind a proxy nobody can tell."""
    from tdstream.text.network import hub_is_unreachable

    def fail(*_: object, **__: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "create_connection", fail)
    for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    assert hub_is_unreachable()
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    assert not hub_is_unreachable()
