"""A set of code points finds the texts that hold one of them."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tdstream.text.encoders.code_points import CodePoints

ANY_TEXT = st.text(st.characters(codec=None), max_size=12)


class TestCodePoints:
    """A set, its ranges, and the texts it finds."""

    def test_ranges(self) -> None:
        """Neighbours become one range, and ranges become the same set again."""
        points = CodePoints([5, 3, 4, 9, 0x10FFFF])
        assert points.ranges() == [(3, 5), (9, 9), (0x10FFFF, 0x10FFFF)]
        assert len(points) == 5
        assert CodePoints.from_ranges(points.ranges()).ranges() == points.ranges()
        assert CodePoints().ranges() == []

    def test_holders(self) -> None:
        """The places of the texts that hold one are given, in order."""
        points = CodePoints([0x17F, 0x1F600])
        assert points.find_holders(["plain", "\u017f", "caf\u00e9 \u0180", "", "a\U0001f600b\u017f"]) == [
            1,
            4,
        ]

    @pytest.mark.parametrize("code", [0, 0x7F, 0x80, 0x7FF, 0x800, 0xD800, 0xFFFF, 0x10000, 0x10FFFF])
    def test_borders_of_the_encoding(self, code: int) -> None:
        """Code points at the borders of UTF-8's lengths are found, their neighbours are not."""
        points = CodePoints([code])
        neighbours = [chr(other) for other in (code - 1, code + 1) if 0 <= other <= 0x10FFFF]
        assert points.find_holders([f"x{chr(code)}y", *neighbours]) == [0]

    def test_a_long_text(self) -> None:
        """One character at the end of a text of millions is found."""
        points = CodePoints([0x4E01])
        assert points.find_holders(["\u4e00" * 2_500_000 + "\u4e01", "\u4e00" * 2_500_000]) == [0]

    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # A busy machine is no fault.
    @given(codes=st.lists(st.integers(0, 0x10FFFF), max_size=5), texts=st.lists(ANY_TEXT, max_size=5))
    def test_any_texts(self, codes: list[int], texts: list[str]) -> None:
        """It finds what looking at every character finds."""
        codes += [ord(char) for text in texts[:2] for char in text[:1]]
        right = [place for place, text in enumerate(texts) if {ord(char) for char in text} & set(codes)]
        assert CodePoints(codes).find_holders(texts) == right


def test_all_but_some() -> None:
    """The complement holds everything else, and finds it in texts."""
    points = CodePoints.all_but([ord("a"), ord("b"), 0x10FFFF])
    assert points.ranges() == [(0, ord("a") - 1), (ord("c"), 0x10FFFE)]
    assert points.find_holders(["ab", "abc", "", "\u00e9", "\U0010ffff"]) == [1, 3]
