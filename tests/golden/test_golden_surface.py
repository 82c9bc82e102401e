"""Everything that earlier versions offered is still there, with the same defaults; there may be more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from golden_cases import command
from golden_folder import HERE, copy_of, read_json
from golden_surface import ATTRIBUTES, LEFT_OUT, _there, described, flags, keys_of, make_damage, objects

import tdstream

FOLDERS = [folder.name for folder in sorted(HERE.glob("v*")) if (folder / "surface.json").exists()]
pytestmark = pytest.mark.parametrize("folder", FOLDERS)


def stored(folder: str) -> dict[str, Any]:
    """Return the recorded surface."""
    return read_json(HERE / folder / "surface.json")


def test_names(folder: str) -> None:
    """Public names are of the same kind, take the same parameters, and errors are the same built-in ones."""
    for name, before in stored(folder)["names"].items():
        assert hasattr(tdstream, name), name  # a name that a class had before is still found
        now = described(name)
        assert now["kind"] == before["kind"], name
        assert set(before.get("bases", [])) <= set(now.get("bases", [])), name
        parameters = {parameter["name"]: parameter for parameter in now.get("parameters", [])}
        for parameter in before.get("parameters", []):
            # A function that took any keyword may name those that it takes.
            by_name = parameter["kind"] == "VAR_KEYWORD" and parameter["name"] not in parameters
            assert by_name or parameters.get(parameter["name"]) == parameter, name
        order = [parameter["name"] for parameter in before.get("parameters", []) if _by_place(parameter)]
        places = [parameter["name"] for parameter in now.get("parameters", []) if _by_place(parameter)]
        assert places[: len(order)] == order, name
        added = [
            parameters[new]
            for new in parameters.keys() - {old["name"] for old in before.get("parameters", [])}
        ]
        assert all("default" in parameter or parameter["kind"].startswith("VAR") for parameter in added), name


def _by_place(parameter: dict[str, str]) -> bool:
    return parameter["kind"].startswith("POSITIONAL")


def test_attributes(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects that users are given have what README promises of them; `prepare` takes the same options."""
    monkeypatch.chdir(copy_of(HERE / folder, tmp_path / folder))
    found = objects()
    for name, before in stored(folder)["attributes"].items():
        assert set(before) <= set(_there(found[name], ATTRIBUTES[name])), name


def test_flags(folder: str) -> None:
    """Each subcommand has the same flags, with the same defaults and choices."""
    for program, commands in stored(folder)["flags"].items():
        now = flags(program)
        for command_name, before in commands.items():
            arguments = {tuple(argument["names"]): argument for argument in now[command_name]}
            for argument in before:
                assert _same(arguments.get(tuple(argument["names"])), argument), (
                    program,
                    command_name,
                    argument,
                )


def _same(now: dict[str, Any] | None, before: dict[str, Any]) -> bool:
    """Return whether an argument is the same; it may have more choices."""
    if now is None or {**now, "choices": None} != {**before, "choices": None}:
        return False
    return before["choices"] is None or set(before["choices"]) <= set(now["choices"] or before["choices"])


def test_exit_codes(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Good runs, wrong flags, refusals and damage end with the same codes, and JSON has the same keys."""
    monkeypatch.chdir(copy_of(HERE / folder, tmp_path / folder))
    make_damage()
    recorded = stored(folder)
    for words, before in recorded["exit codes"]:
        code, out, err = command(*words)
        assert code == before, (words, err)
        if code == 1 and words[0] != "verify":
            assert len(err.strip().splitlines()) >= 1  # a sentence
            assert "Traceback" not in err
        if " ".join(words) in recorded["json"]:
            assert set(recorded["json"][" ".join(words)]) <= set(keys_of(json.loads(out)))


def test_what_may_leave(folder: str) -> None:
    """Only these names were left out of the record."""
    assert LEFT_OUT == ["LazyPipeline"]
    assert not set(LEFT_OUT) & stored(folder)["names"].keys()
