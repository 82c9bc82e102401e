"""The table of formats on their page is true: every format, what export writes, versions that are pinned."""

from __future__ import annotations

import re
from pathlib import Path

from golden_truth import READABLE
from test_reading import MAKERS

from tdstream.exchange.targets import TARGETS
from tdstream.formats.recognize import NAMES

ROOT = Path(__file__).parent.parent.parent
EXPORTED_AS = {"nanogpt": "raw"}


def read_table() -> dict[str, list[str]]:
    """Return the cells of each format's row."""
    table = (
        (ROOT / "docs" / "formats.md")
        .read_text(encoding="utf-8")
        .split("| read in place |")[1]
        .split("\n\n")[0]
    )
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", table, re.MULTILINE)
    return {name: cells.split(" | ") for name, cells in rows}


def test_every_format_has_its_row() -> None:
    """And is read in place, by its documents, and resumed, in the tests of reading."""
    table = read_table()
    assert table.keys() == set(NAMES)
    assert {cells[0] for cells in table.values()} == {cells[2] for cells in table.values()} == {"yes"}
    tried = {
        "raw" if name == "nanogpt" else name
        for name in (str(maker.id).split("-")[0].split("_")[0] for maker in MAKERS)
    }
    assert table.keys() <= tried


def test_what_export_writes() -> None:
    """A format is marked if and only if export has it."""
    marked = {name for name, cells in read_table().items() if cells[3].startswith("yes")}
    assert marked == {EXPORTED_AS.get(name, name) for name in TARGETS}


def test_the_versions_are_those_of_the_golden_files() -> None:
    """Each named package and version is the one that the oracles install, and a golden set names it."""
    pins = dict(
        re.findall(r"^([\w-]+)==(\S+)", (ROOT / "tests/formats/constraints.txt").read_text(), re.MULTILINE)
    )
    named = [pair for cells in read_table().values() for pair in re.findall(r"([\w-]+) (\d[\d.]+)", cells[4])]
    assert len(named) == 6
    writers = " ".join(golden.writer for golden in READABLE)
    for package, version in named:
        assert pins[package] == version
        assert package.removeprefix("ai2-").split("-")[0] in writers
