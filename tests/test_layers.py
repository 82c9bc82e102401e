"""The house has floors: a module imports only from lower ones."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import tdstream

ROOT = Path(tdstream.__file__).parent
FLOORS = (  # each room imports only from rooms above it
    ("core",),
    ("distributed",),
    ("schedule",),
    ("corpus",),
    ("writing", "text", "formats"),
    ("verification", "preparation", "exchange", "nodes"),
    ("streams",),
    ("pipelines",),
    ("loading",),
    ("monitor",),
    ("cli", "compat", "integrations", "testing"),
    ("__main__",),
)
SHARED_BY_NODES = {"base", "batch", "document_fields", "rows"}
HEAVY = {
    "datasets": {"text"},
    "pyarrow": {"text", "formats", "exchange"},
    "transformers": {"text", "integrations"},
    "accelerate": {"integrations"},
    "lightning": {"integrations"},
    "torchtitan": {"integrations"},
}


def modules() -> list[Path]:
    """Return every module of the package but its front page."""
    return sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")


def imports(path: Path) -> set[str]:
    """Return the dotted names of all modules that a file imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} has a relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
    return found


def room(dotted: str) -> str:
    """Return the top-level room of a dotted name: tdstream.nodes.collate -> nodes."""
    return dotted.split(".")[1]


def floor(name: str) -> int:
    """Return the floor a room is on."""
    return next(number for number, rooms in enumerate(FLOORS) if name in rooms)


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_imports_only_from_lower_floors(path):
    """Arrows go down; rooms of one floor do not know each other; inside a room arrows are its own."""
    own = path.relative_to(ROOT).with_suffix("").parts[0]
    for dotted in sorted(name for name in imports(path) if name.split(".")[0] == "tdstream"):
        assert dotted != "tdstream", f"{path} imports the package root"
        assert room(dotted) == own or floor(room(dotted)) < floor(own), f"{path} imports {dotted}"


@pytest.mark.parametrize("path", sorted((ROOT / "nodes").glob("*.py")), ids=lambda path: path.stem)
def test_nodes_do_not_know_their_neighbours(path):
    """A node knows what a neighbour promises, not which one it is."""
    found = {dotted.split(".")[2] for dotted in imports(path) if dotted.startswith("tdstream.nodes.")}
    assert found <= SHARED_BY_NODES


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_heavy_packages_are_imported_in_their_room_only(path):
    """Training does not import what only preparation needs."""
    for dotted in imports(path):
        rooms = HEAVY.get(dotted.split(".")[0])
        assert rooms is None or path.relative_to(ROOT).parts[0] in rooms, f"{path} imports {dotted}"


def test_there_is_no_import_cycle():
    """The modules can be put in an order in which each imports only earlier ones."""
    names = {
        ".".join(("tdstream", *path.relative_to(ROOT).with_suffix("").parts)): path for path in modules()
    }
    edges = {name: {other for other in imports(path) if other in names} for name, path in names.items()}
    while edges:
        leaves = {name for name, targets in edges.items() if not targets & edges.keys()}
        assert leaves, f"a cycle among {sorted(edges)}"
        edges = {name: targets for name, targets in edges.items() if name not in leaves}


def test_the_library_has_no_assert():
    """Users' mistakes raise sentences; `python -O` changes nothing."""
    asserting = [
        f"{path}:{node.lineno}"
        for path in modules()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Assert)
    ]
    assert not asserting


def test_the_public_names_are_sorted_and_real():
    """__all__ is the whole public surface: sorted, each name there, nothing public besides."""
    assert tdstream.__all__ == sorted(tdstream.__all__)
    for name in tdstream.__all__:
        getattr(tdstream, name)
    exported = {
        name
        for name, value in vars(tdstream).items()
        if not name.startswith("_") and getattr(value, "__module__", None) and not hasattr(value, "__path__")
    }
    assert exported == set(tdstream.__all__)


LIGHT = """
import json, sys
import tdstream
heavy = [name for name in ("torch", "datasets", "transformers", "pyarrow") if name in sys.modules]
tdstream.count
heavy += [name for name in ("transformers",) if name in sys.modules]
import tdstream.pipelines.build, tdstream.preparation.api
from tdstream import *
print(json.dumps([heavy, callable(tdstream.build), callable(tdstream.prepare), build is tdstream.build]))
"""


def test_the_front_page_imports_what_is_asked_for():
    """`import tdstream` loads nothing heavy, and a function is never mistaken for the module of its name.

    The name `tdstream.count` loads no transformers until it is called.
    """
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [[], True, True, True]


def test_every_public_name_is_found_where_the_front_page_says():
    """The three lists of the front page are one, and each name comes from the module that defines it."""
    assert list(tdstream._HOMES) == tdstream.__all__
    for name, home in tdstream._HOMES.items():
        assert getattr(tdstream, name).__module__ == home, name
    assert set(tdstream.__all__) <= set(dir(tdstream))
    with pytest.raises(AttributeError, match="'tdstream' has no attribute 'nothing'"):
        tdstream.nothing  # noqa: B018


def test_the_type_checker_sees_the_public_names():
    """The imports that only a type checker reads are those of the front page's list."""
    tree = ast.parse((ROOT / "__init__.py").read_text(encoding="utf-8"))
    found = {
        alias.name: node.module
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert found == tdstream._HOMES
