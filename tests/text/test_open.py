"""What is asked of `datasets`, by what the options name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tdstream.text import open_datasets as source
from tdstream.text.options import TextOptions


@pytest.mark.parametrize(
    ("named", "path", "settings"),
    [
        ({}, "HuggingFaceFW/fineweb-edu", {"name": "sample-10BT"}),
        ({"dataset": "some/data"}, "some/data", {"name": "sample-10BT"}),
        ({"dataset": "some/data", "data_name": "en"}, "some/data", {"name": "en"}),
        ({"dataset": "some/data", "data_name": ""}, "some/data", {}),
        (
            {"dataset": "some/data", "data_files": ("a*", "b")},
            "some/data",
            {"name": "sample-10BT", "data_files": ["a*", "b"]},
        ),
        (
            {"dataset": "json", "data_files": ("s3://a/b*",), "data_name": "x"},
            "json",
            {"data_files": ["s3://a/b*"], "name": "x"},
        ),
    ],
)
def test_data_name(
    named: dict[str, Any], path: str, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dataset on the hub is read in its configuration sample-10BT unless told otherwise."""
    monkeypatch.setattr(source, "hub_is_unreachable", lambda: False)
    request = source._make_request(TextOptions(**named))
    assert (request.path, request.settings) == (path, settings)


def test_a_local_directory_has_no_data_name(tmp_path: Path) -> None:
    """For a directory a configuration is asked for only when it was given."""
    (tmp_path / "a").touch()
    assert source._make_request(TextOptions(dataset=str(tmp_path))).settings == {}
    named = TextOptions(dataset=str(tmp_path), data_name="en", data_files=("a",))
    given = source._make_request(named)
    assert given.settings == {"name": "en", "data_files": [str(tmp_path / "a")]}
