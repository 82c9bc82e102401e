"""The options that decide how samples are cut from a source and ordered."""

from __future__ import annotations

from dataclasses import dataclass

from tdstream.core.checks import check_bool, check_int
from tdstream.core.errors import ConfigError

CUTS = ("stream", "document", "pack")


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleSpec:
    """How samples are cut from a source and ordered; the fields are `build`'s arguments."""

    seq_len: int
    stride: int | None = None
    cut: str = "stream"
    min_tail_len: int | None = None
    pad_id: int | None = None
    documents: bool = False
    samples: slice | None = None
    shuffle: bool | str = False
    seed: int = 42
    order: str = "feistel"
    block_samples: int = 1024

    def __post_init__(self) -> None:
        for name, least in (("seq_len", 1), ("stride", 1), ("min_tail_len", 0)):
            value = getattr(self, name)
            if value is not None or name == "seq_len":
                object.__setattr__(self, name, check_int(name, value, at_least=least))  # the class is frozen
        check_bool("documents", self.documents)
        if self.cut not in CUTS:
            raise ConfigError(f'cut must be "stream", "document" or "pack", got {self.cut!r}.')
        if self.stride is not None and self.cut == "pack":
            raise ConfigError('stride has no meaning with cut="pack": its rows never overlap. Leave it out.')
        if self.min_tail_len is not None and self.cut != "document":
            raise ConfigError(f'min_tail_len belongs to cut="document", not to cut="{self.cut}".')

    @property
    def marks_ends(self) -> bool:
        """Whether rows mark the ends of documents."""
        return self.documents or self.cut == "pack"
