"""The fastest exact encoder is taken; one that was asked for by name is taken or refused."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import pytest
from helpers_encoder import Wrong, by_call, split
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from helpers_text import EOS
from tdstream.core.errors import ConfigError, TokenizerError
from tdstream.text.encoders import encoder as fast_encoders
from tdstream.text.encoders import select
from tdstream.text.encoders.select import choose_encoder, choose_in_background
from tdstream.text.encoders.verdict import cache_dir

TEXTS = ["def load", "", "na\u00efve \u017f", f"a{EOS}b"]


class Packages:
    """Fast encoders that are not there, or behave as they are told."""

    def __init__(self) -> None:
        self.kinds: dict[str, Any] = {}
        self.loaded: list[str] = []
        self.contents: list[str] = []
        self.versions = "1.0"

    def version(self, name: str) -> str:
        if name not in self.kinds:
            raise fast_encoders.PackageNotFoundError(name)
        return self.versions

    def load(self, name: str, content: str) -> Any:
        self.loaded.append(name)
        self.contents.append(content)
        encoder = self.kinds[name]
        if isinstance(encoder, Exception):
            raise encoder
        return encoder


@pytest.fixture
def tokenizer(tokenizer_dir: Path) -> Any:
    """Return a byte-level BPE of 400 ids."""
    return AutoTokenizer.from_pretrained(tokenizer_dir)


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Packages:
    """Return what stands in for the packages; the cache is empty, and little is tested."""
    fake = Packages()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(fast_encoders, "version", fake.version)
    monkeypatch.setattr(fast_encoders, "load_fast", fake.load)
    monkeypatch.setattr(select, "make_probe_tokenizer", lambda content: None)
    monkeypatch.setattr(select, "code_points", lambda: list(range(0x250)))
    monkeypatch.setattr(select, "make_texts", lambda specials, words: [*specials, *words, "plain"])
    return fake


class TestAuto:
    """Nothing was asked for by name."""

    def test_nothing_installed(
        self, tokenizer: Any, packages: Packages, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Without the packages it is the tokenizer itself; one line says so, and how to get them."""
        with caplog.at_level(logging.INFO):
            encoder = choose_encoder(tokenizer)
        assert encoder.name == "hf"
        (record,) = caplog.records
        assert record.getMessage().startswith("Encoder hf, the tokenizer itself")
        assert "pip install 'tdstream[fast]'" in record.getMessage()

    def test_the_first_exact_one(
        self, tokenizer: Any, packages: Packages, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Fastokens comes first; gigatoken is not even loaded then."""
        packages.kinds = {name: Wrong(tokenizer) for name in fast_encoders.FAST_ENCODERS}
        with caplog.at_level(logging.INFO):
            encoder = choose_encoder(tokenizer)
        assert encoder.name == "fastokens"
        assert packages.loaded == ["fastokens"]
        assert "Encoder fastokens 1.0" in caplog.records[-1].getMessage()
        assert split(encoder.encode(TEXTS)) == by_call(tokenizer, TEXTS)

    @pytest.mark.parametrize("fault", ["does not load", "is not exact", "is not installed"])
    def test_the_second(self, tokenizer: Any, packages: Packages, fault: str) -> None:
        """If fastokens cannot be used, gigatoken is tried."""
        other = Wrong(tokenizer)
        other.name = "gigatoken"
        packages.kinds = {"fastokens": Wrong(tokenizer, lambda text, _: "e" in text), "gigatoken": other}
        if fault == "does not load":
            packages.kinds["fastokens"] = TokenizerError("no")
        elif fault == "is not installed":
            del packages.kinds["fastokens"]
        assert choose_encoder(tokenizer).name == "gigatoken"

    def test_none_is_exact(
        self, tokenizer: Any, packages: Packages, caplog: pytest.LogCaptureFixture
    ) -> None:
        """If none can be used it is the tokenizer, and the line gives both reasons."""
        wrong = Wrong(tokenizer, lambda text, _: "e" in text)
        packages.kinds = {"fastokens": wrong, "gigatoken": TokenizerError("Refused.")}
        with caplog.at_level(logging.INFO):
            encoder = choose_encoder(tokenizer)
        assert encoder.name == "hf"
        assert split(encoder.encode(TEXTS)) == by_call(tokenizer, TEXTS)
        last = caplog.records[-1].getMessage()
        assert "'fastokens' is not exact" in last
        assert "Refused." in last


class TestByName:
    """One was asked for."""

    def test_hf(self, tokenizer: Any, packages: Packages) -> None:
        """The tokenizer itself needs no proof."""
        assert choose_encoder(tokenizer, "hf").name == "hf"
        assert packages.loaded == []

    def test_not_installed(self, tokenizer: Any, packages: Packages) -> None:
        """Without the package it is said what to install."""
        with pytest.raises(ConfigError, match=r"'gigatoken' needs .* pip install 'tdstream\[fast\]'"):
            choose_encoder(tokenizer, "gigatoken")

    def test_not_exact(self, tokenizer: Any, packages: Packages) -> None:
        """One that is not exact is refused, and it is said on what."""
        packages.kinds = {"fastokens": Wrong(tokenizer, lambda text, _: "e" in text)}
        with pytest.raises(
            TokenizerError, match="'fastokens' is not exact for this tokenizer: it differs on"
        ):
            choose_encoder(tokenizer, "fastokens")

    def test_a_class_of_its_own(self, tokenizer_dir: Path, packages: Packages) -> None:
        """A tokenizer that does more than its backend is refused: nobody else could know what."""

        class Shouting(PreTrainedTokenizerFast):
            def __call__(self, text: Any, **named: Any) -> Any:
                return super().__call__([item.upper() for item in text], **named)

        tokenizer = Shouting.from_pretrained(tokenizer_dir)
        packages.kinds = {"fastokens": Wrong(tokenizer)}
        with pytest.raises(TokenizerError, match="Shouting does more than its backend"):
            choose_encoder(tokenizer, "fastokens")
        assert choose_encoder(tokenizer).name == "hf"

    def test_the_effective_tokenizer(self, tokenizer: Any, packages: Packages) -> None:
        """It is given what AutoTokenizer has made, changes too, without truncation and padding."""
        tokenizer.add_tokens(["<added later>"])
        tokenizer._tokenizer.enable_truncation(4)
        tokenizer._tokenizer.enable_padding(length=9)
        packages.kinds = {"fastokens": Wrong(tokenizer)}
        choose_encoder(tokenizer, "fastokens")
        (content,) = packages.contents
        assert "<added later>" in content
        assert '"truncation":null,"padding":null' in content


class TestVerdict:
    """What was found out is known the next time."""

    def proofs(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """Count the proofs."""
        counted: list[int] = []
        real = select.prove

        def prove(*given: Any) -> Any:
            counted.append(1)
            return real(*given)

        monkeypatch.setattr(select, "prove", prove)
        return counted

    def test_once(self, tokenizer: Any, packages: Packages, monkeypatch: pytest.MonkeyPatch) -> None:
        """The proof is made once per tokenizer and version, and what failed is routed from the cache too."""
        proofs = self.proofs(monkeypatch)
        packages.kinds = {"fastokens": Wrong(tokenizer, lambda text, _: "\u017f" in text)}
        for _ in range(3):
            assert split(choose_encoder(tokenizer, "fastokens").encode(TEXTS)) == by_call(tokenizer, TEXTS)
        assert len(proofs) == 1
        packages.versions = "1.1"
        choose_encoder(tokenizer, "fastokens")
        assert len(proofs) == 2

    def test_a_refusal_too(self, tokenizer: Any, packages: Packages, monkeypatch: pytest.MonkeyPatch) -> None:
        """That one is not exact is remembered with its reason."""
        proofs = self.proofs(monkeypatch)
        packages.kinds = {"fastokens": Wrong(tokenizer, lambda text, _: "e" in text)}
        for _ in range(2):
            with pytest.raises(TokenizerError, match="differs on ordinary text"):
                choose_encoder(tokenizer, "fastokens")
        assert len(proofs) == 1

    def test_a_damaged_cache(
        self, tokenizer: Any, packages: Packages, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A damaged verdict is found out again."""
        proofs = self.proofs(monkeypatch)
        packages.kinds = {"fastokens": Wrong(tokenizer)}
        choose_encoder(tokenizer, "fastokens")
        (path,) = cache_dir().iterdir()
        path.write_text(path.read_text()[:-20])
        choose_encoder(tokenizer, "fastokens")
        assert len(proofs) == 2

    def test_splitting_special_tokens(
        self, tokenizer_dir: Path, packages: Packages, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A tokenizer that takes special tokens apart is another tokenizer, though its file is the same."""
        proofs = self.proofs(monkeypatch)
        plain = AutoTokenizer.from_pretrained(tokenizer_dir)
        packages.kinds = {"fastokens": Wrong(plain)}
        choose_encoder(plain, "fastokens")
        splitting = AutoTokenizer.from_pretrained(tokenizer_dir, split_special_tokens=True)
        with pytest.raises(TokenizerError, match="not exact"):
            choose_encoder(splitting, "fastokens")
        assert len(proofs) == 2

    def test_a_fault_while_running(self, tokenizer: Any, packages: Packages) -> None:
        """An encoder that was found wrong while running is not used again."""
        packages.kinds = {"fastokens": Wrong(tokenizer, lambda text, _: "only once" in text)}
        encoder = choose_encoder(tokenizer)
        assert split(encoder.encode(["only once"])) == by_call(tokenizer, ["only once"])
        assert encoder.name == "fastokens+hf"
        assert choose_encoder(tokenizer).name == "hf"
        with pytest.raises(TokenizerError, match=r"document 0 .* got other ids"):
            choose_encoder(tokenizer, "fastokens")


class TestMeanwhile:
    """A fast encoder that is known to be exact is loaded while something else goes on."""

    def test_loaded_in_the_background(
        self, tokenizer: Any, packages: Packages, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The body goes on before the encoder is there."""
        packages.kinds = {"fastokens": Wrong(tokenizer)}
        choose_encoder(tokenizer)
        opened = threading.Event()

        def load(name: str, content: str) -> Any:
            assert opened.wait(10)
            return packages.load(name, content)

        monkeypatch.setattr(fast_encoders, "load_fast", load)
        with choose_in_background(tokenizer, "auto") as chosen:
            opened.set()
            encoder = chosen()
        assert encoder.name == "fastokens"
        assert packages.loaded == ["fastokens", "fastokens"]
        assert split(encoder.encode(TEXTS)) == by_call(tokenizer, TEXTS)

    def test_no_proof_before_the_body_has_had_its_say(self, tokenizer: Any, packages: Packages) -> None:
        """What takes a proof waits until the encoder is asked for; an error of the body does not wait."""
        packages.kinds = {"fastokens": Wrong(tokenizer)}
        with pytest.raises(ConfigError, match="no such file"), choose_in_background(tokenizer, "auto"):
            raise ConfigError("no such file")
        assert packages.loaded == []
        with choose_in_background(tokenizer, "auto") as chosen:
            assert chosen().name == "fastokens"
        assert packages.loaded == ["fastokens"]

    def test_the_same_choice(self, tokenizer: Any, packages: Packages) -> None:
        """It is the choice of `choose_encoder`, and its refusals."""
        packages.kinds = {"fastokens": Wrong(tokenizer, lambda text, _: "e" in text)}
        for name, expected in (("hf", "hf"), ("auto", "hf")):
            for _ in range(2):  # Before and after the proof.
                with choose_in_background(tokenizer, name) as chosen:
                    assert chosen().name == expected
        with (
            choose_in_background(tokenizer, "fastokens") as chosen,
            pytest.raises(TokenizerError, match="'fastokens' is not exact"),
        ):
            chosen()
