"""The tokenizer of whole words, and a cache of its own, for the tests of this folder."""

from __future__ import annotations

from helpers_stream import tokenizer_dir, user_cache

__all__ = ["tokenizer_dir", "user_cache"]
