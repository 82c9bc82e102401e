"""Texts on which encoders that agree on ordinary text are known to differ."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

import numpy as np

PLAIN = frozenset([*range(0x20, 0x7F), 0x09, 0x0A, 0x0D])
"""Code points that every document has; an encoder that fails on these is of no use."""
_TESTED = ((0, 0xD7FF), (0xE000, 0x1FFFF), (0x20000, 0x2FA1F), (0x30000, 0x3347F), (0xE0000, 0xE01FF))
# Long runs of characters that no rule distinguishes; tested in fewer surroundings.
_ALIKE = (
    (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xE000, 0xF8FF), (0x17000, 0x18CFF),
    (0x20000, 0x2FA1F), (0x30000, 0x3347F),
)  # fmt: skip
_DECOMPOSED = 0x30000  # No character from here on can be taken apart.
_CODES_PER_TEXT = 64
_SPACES = (
    "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2003\u2007\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)
_WRITING = [
    (
        "The quick brown fox doesn't jump; it's 3.14 o'clock, isn't it?  They'll say I'd've been "
        "WE'RE.\n\n\tDone."
    ),
    "def f(x):\n    return {'a': x[0] ** 2}  # comment\r\n\r\n\t\tif x != None and y<=3: pass;;",
    (
        "na\u00efve fa\u00e7ade \u00dcber stra\u00dfe \u0130stanbul \u0131\u017f \ufb01\ufb02 \u1e9e "
        "\u01c5 \u212a\u212b"
    ),
    (
        "\u041f\u0440\u0438\u0432\u0435\u0442, \u03ba\u03cc\u03c3\u03bc\u03b5\u03c2! "
        "\u05e9\u05b8\u05dc\u05d5\u05b9\u05dd "
        "\u0645\u064e\u0631\u0652\u062d\u064e\u0628\u064b\u0627 \u0928\u092e\u0938\u094d\u0924\u0947 "
        "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35"
    ),
    (
        "\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8\u3002\u4e2d\u6587\uff0c\ud55c\uad6d\uc5b4 "
        "\u1112\u1161\u11ab \uff21\uff11\uff9e"
    ),
    (
        "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f44d\U0001f3fd \U0001f1e9\U0001f1ea "
        "\u2764\ufe0f 1\ufe0f\u20e3 "
        "\U0001f3f4\U000e0067\U000e0062\U000e007f"
    ),
    ("a\0b \0\0 \ufeffBOM \ufeff\ufeff x\u200dy\u200cz\u00adw\u2060v \u202eabc\u202c \ufffd\ufffe\uffff"),
    (
        "e\u0301 \u00e9 e\u0323\u0302 \u1ec7 a\u030a \u0344 q\u0307\u0323 \u0f73 \u1100\u1161 \u212b "
        "\u2126 \u0958 \ufb2c"
    ),
    (
        "1234567890123 1,234.5 0x1F 1e-9 \u00bd \u2167 \u0664\u0662 \u3007 \U0001d7d9 9\u00b2 v2.0.1-rc3 "
        "100% $5 #7"
    ),
    (
        "don't DON'T don\u2019t 's 'S '\u017f '\u017f\u017f x'\u017fy '\u212a 'll 'LL 've 'Ve 're 'RE 'd "
        "'D 'm 'M 't 'T"
    ),
    ("https://example.org/a_b?c=d&e=%20#f me@x.io C:\\dir\\n ~/.x ___ --- === *** ((( )))!!! ...... ?!?!"),
    (
        "\u2581 \u2581a \u0120 \u010a \u0120a ##a </w> <0x0A> <0xFF> [UNK] <unk> <s> </s> [CLS] [SEP] "
        "[MASK] <pad>"
    ),
]


def code_points() -> list[int]:
    """Return the code points to test: all planes in use, also those newer than this Python's tables."""
    return [code for first, last in _TESTED for code in range(first, last + 1)]


def group_codes(codes: list[int]) -> Iterator[list[int]]:
    """Cut code points into groups, each for one text."""
    for begin in range(0, len(codes), _CODES_PER_TEXT):
        yield codes[begin : begin + _CODES_PER_TEXT]


def surround(codes: list[int], *, fully: bool = True) -> str:
    """Return code points alone, doubled, between letters, and beside apostrophes, digits, capitals and signs.

    Long runs of characters that no rule distinguishes get fewer surroundings; so do all unless `fully`.
    """
    return "".join(_few(chr(code)) if not fully or _is_alike(code) else _many(chr(code)) for code in codes)


def make_single_texts(codes: list[int]) -> list[str]:
    """Return code points each as a text, without those that no rule distinguishes."""
    return [chr(code) for code in codes if not _is_alike(code)]


def _many(char: str) -> str:
    return f" {char}{char} a{char}b'{char}A{char}1{char}.{char}=\n"


def _few(char: str) -> str:
    return f"{char}{char}a{char} "


def _is_alike(code: int) -> bool:
    return any(first <= code <= last for first, last in _ALIKE)


def make_hard_texts(specials: list[str]) -> list[str]:
    """Return short and long texts of all kinds; `specials` are strings that are tokens of their own."""
    return [
        *["", " ", "a", "\n", "\0", "\ufeff", *_WRITING, "\n".join(_WRITING), "".join(_WRITING).upper()],
        *[unicodedata.normalize(form, text) for text in _WRITING for form in ("NFC", "NFD", "NFKC", "NFKD")],
        *_runs(),
        *_spaces(),
        *_marks(),
        *_special_texts(specials),
        *_mixtures(specials),
    ]


def _runs() -> list[str]:
    """Return long runs, and very long words."""
    units = [*"aA0 \n\t=-_'\0\u00e9\u4e00\U0001f600\u200d\u3000", "\r\n", "e\u0301", "ab", "a1", " \n"]
    lengths = (2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1000)
    runs = [f"{unit * length}b" for unit in units for length in lengths]
    long = [(unit * 30_000)[:30_000] for unit in ("a", "abcde", " ", "\u4e00\u4e8c", "x\u0301")]
    return [*runs, *long, "".join(chr(97 + (place * place) % 26) for place in range(20_000))]


def _spaces() -> list[str]:
    pairs = [f"a{one}{two}b {one}{two}\n{one}" for one in _SPACES for two in _SPACES]
    tails = [f"x{space * 2}" for space in _SPACES] + [f"{space * 2}x" for space in _SPACES]
    return [*pairs, *tails]


def _marks() -> Iterator[str]:
    """Yield combining marks in different orders, and every character that can be taken apart, taken apart."""
    for code in range(_DECOMPOSED):
        char = chr(code)
        if unicodedata.combining(char):
            yield f"e{char} a\u0301{char}b A{char}\u0323 {char}\u0301{char} \u00e9{char}\u0300"
        elif not 0xAC00 <= code <= 0xD7A3 and unicodedata.decomposition(char)[:1] not in ("", "<"):
            apart = unicodedata.normalize("NFD", char)
            yield f"{apart} a{apart}b {char}\u0301{apart}\u0323"


def _special_texts(specials: list[str]) -> Iterator[str]:
    for text in specials:
        yield text
        yield f"a{text}b {text} {text}{text}\n{text}\n '{text}' 1{text}2 \u4e00{text}\u00e9  {text}  ."
        yield f"{text[:-1]} {text[1:]} {text[:-1]}{text} {text.upper()} {text.lower()} {text[:3]}"


def _mixtures(specials: list[str], count: int = 400) -> Iterator[str]:
    """Yield texts of pieces from all of these, the same ones every time."""
    draw = np.random.default_rng(20)
    words = [word for text in _WRITING for word in text.split(" ")]
    pieces = [*words, *_SPACES, *specials[:20], " ", " ", "\n", "the", " of", "'s", "ing", "1", "23"]
    for _ in range(count):
        yield "".join(pieces[place] for place in draw.integers(0, len(pieces), 60))
