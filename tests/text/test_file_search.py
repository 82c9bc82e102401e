"""The files that a dataset means: places, links, leftovers, odd names, and random layouts."""

from __future__ import annotations

import os
import re
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tdstream.core.errors import ConfigError, OutputError, SourceError
from tdstream.text.files import FileList, check_apart, find_files
from tdstream.text.options import TextOptions


def touch(root: Path, *names: str) -> Path:
    """Make empty files below a directory."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


def find(dataset: Path | str, **named: Any) -> FileList:
    """Find the files of a local dataset."""
    files = find_files(TextOptions(dataset=str(dataset), **named))
    assert files is not None
    return files


def names(files: FileList, root: Path) -> list[str]:
    """Return the files relative to a directory."""
    return [os.path.relpath(file, root) for file in files.files]


class TestPlaces:
    """However a directory is spelled, its files are meant."""

    @pytest.mark.parametrize(
        ("working_directory", "dataset"),
        [
            ("data", "."),
            ("data", "./"),
            ("data/b", ".."),
            ("data", "../data"),
            (".", "data"),
            (".", "data/"),
            (".", "./data"),
            (".", "data/b/../../data"),
            (".", "link"),
            (".", "above/data"),
            ("link/b", ".."),
            (".", "data/**"),
            ("data/b", "../**/*.jsonl"),
            (".", "link/**/*.jsonl"),
        ],
    )
    def test_spellings(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, working_directory: str, dataset: str
    ) -> None:
        """Relative paths, dots, and links to a directory or to one above it."""
        touch(tmp_path, "data/a.jsonl", "data/b/c.jsonl", "other.jsonl")
        (tmp_path / "link").symlink_to("data")
        (tmp_path / "above").symlink_to(tmp_path)
        monkeypatch.chdir(tmp_path / working_directory)
        found = [os.path.realpath(file) for file in find(dataset).files]
        assert found == [str(tmp_path / "data/a.jsonl"), str(tmp_path / "data/b/c.jsonl")]

    def test_dots_after_a_link(self, tmp_path: Path) -> None:
        """`link/..` is the directory above that to which the link leads."""
        touch(tmp_path, "far/away/a.jsonl", "far/b.jsonl", "b.jsonl")
        (tmp_path / "link").symlink_to("far/away")
        assert find(tmp_path / "link/../b.jsonl").files == (str(tmp_path / "far/b.jsonl"),)
        assert find(f"{tmp_path}/link/../*.jsonl").files == (str(tmp_path / "far/b.jsonl"),)

    @pytest.mark.parametrize(
        "name", ["json", "parquet", "csv", "text", "arrow", "xml", "imagefolder", "webdataset"]
    )
    def test_directories_called_like_formats(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        """Such a name is a format only together with data_files."""
        touch(tmp_path, f"{name}/a.jsonl", "b.jsonl")
        monkeypatch.chdir(tmp_path)
        for spelling in (name, f"./{name}", f"{name}/", str(tmp_path / name)):
            assert names(find(spelling), tmp_path) == [f"{name}/a.jsonl"]
        monkeypatch.chdir(tmp_path / name)
        assert names(find("."), tmp_path) == [f"{name}/a.jsonl"]
        assert names(find(f"../{name}", data_files=("a.jsonl",)), tmp_path) == [f"{name}/a.jsonl"]

    def test_formats_with_data_files(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """With data_files, the name is the format, and the files are relative to the working directory."""
        touch(tmp_path, "json/a.jsonl", "b.jsonl", "c.log")
        monkeypatch.chdir(tmp_path)
        assert names(find("json", data_files=("b.jsonl",)), tmp_path) == ["b.jsonl"]
        assert names(find("./json", data_files=("a.jsonl",)), tmp_path) == ["json/a.jsonl"]
        mixed = find("json", data_files=("b.jsonl", "c.log"))
        assert (names(mixed, tmp_path), mixed.format) == (["b.jsonl", "c.log"], "json")
        logs = find("text", data_files=("*.log",))
        assert (names(logs, tmp_path), logs.format) == (["c.log"], "text")

    @pytest.mark.parametrize(
        "name", ["a[1]", "b*", "c?", "d%20e", "f#g", "h::i", "j\nk", "l m", "ä中", "~n", "-o"]
    )
    def test_odd_names(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        """What exists is a path, not a pattern: as a directory, a file, and in data_files."""
        touch(
            tmp_path,
            f"{name}/x.jsonl",
            f"{name}.jsonl",
            "a1/x.jsonl",
            "a1.jsonl",
            "bb/x.jsonl",
            "bb.jsonl",
            "cc.jsonl",
        )
        monkeypatch.chdir(tmp_path)
        assert names(find(name), tmp_path) == [f"{name}/x.jsonl"]
        assert names(find(f"{name}.jsonl"), tmp_path) == [f"{name}.jsonl"]
        assert names(find("json", data_files=(f"{name}.jsonl",)), tmp_path) == [f"{name}.jsonl"]
        assert names(find(name, data_files=("*.jsonl",)), tmp_path) == [f"{name}/x.jsonl"]
        assert names(find(f"{name}/*.jsonl"), tmp_path) == [f"{name}/x.jsonl"]

    def test_only_what_does_not_exist_is_a_pattern(self, tmp_path: Path) -> None:
        """Brackets match where no file has just this name."""
        touch(tmp_path, "f1.jsonl")
        assert names(find(tmp_path / "f[1].jsonl"), tmp_path) == ["f1.jsonl"]
        touch(tmp_path, "f[1].jsonl")
        assert names(find(tmp_path / "f[1].jsonl"), tmp_path) == ["f[1].jsonl"]
        assert names(find(tmp_path, data_files=("f[1].jsonl",)), tmp_path) == ["f[1].jsonl"]


class TestLinks:
    """Links are followed, and no file is read twice."""

    @pytest.mark.parametrize("dataset", ["data", "data/**", "data/**/*.jsonl"])
    def test_linked_directories(self, tmp_path: Path, dataset: str) -> None:
        """A link to a directory elsewhere is followed; one to a directory that is read already is not."""
        touch(tmp_path, "elsewhere/e.jsonl", "data/2024-01/a.jsonl", "data/2024-02/b.jsonl")
        (tmp_path / "data/more").symlink_to("../elsewhere")
        (tmp_path / "data/latest").symlink_to("2024-02")
        (tmp_path / "data/2023").symlink_to("2024-02")
        files = find(tmp_path / dataset)
        assert names(files, tmp_path / "data") == ["2024-01/a.jsonl", "2024-02/b.jsonl", "more/e.jsonl"]
        left_out = {os.path.basename(path[:-1]): reason for path, reason in files.left_out}
        assert left_out == dict.fromkeys(("2023", "latest"), "already read under another path")
        assert "2 already read under another path (2023/, latest/)" in files.describe()

    @pytest.mark.parametrize("dataset", ["data", "data/**/*.jsonl"])
    def test_circles(self, tmp_path: Path, dataset: str) -> None:
        """Links to the directory itself and to one above are left out, however many there are."""
        touch(tmp_path, "data/a.jsonl", "data/b/c.jsonl", "outside.jsonl")
        for number in range(5):
            (tmp_path / f"data/b/up{number}").symlink_to("../.." if number == 0 else "..")
            (tmp_path / f"data/self{number}").symlink_to(".")
        files = find(tmp_path / dataset)
        assert names(files, tmp_path / "data") == ["a.jsonl", "b/c.jsonl"]
        assert {left.reason for left in files.left_out} == {"leading back up"}
        assert len(files.left_out) == 10

    def test_linked_files(self, tmp_path: Path) -> None:
        """Soft and hard links to one file are one file; a link's own name tells its format."""
        touch(tmp_path, "blobs/9f86d0", "data/b.jsonl")
        (tmp_path / "data/a.jsonl").symlink_to("b.jsonl")
        (tmp_path / "data/c.jsonl").hardlink_to(tmp_path / "data/b.jsonl")
        (tmp_path / "data/d.jsonl").symlink_to("../blobs/9f86d0")
        files = find(tmp_path / "data")
        assert names(files, tmp_path / "data") == ["b.jsonl", "d.jsonl"]
        assert [os.path.basename(left.path) for left in files.left_out] == ["a.jsonl", "c.jsonl"]

    @pytest.mark.parametrize("dataset", ["data", "data/*", "data/**", "data/**/*.jsonl", "data/gone.jsonl"])
    @pytest.mark.parametrize("target", ["nowhere", "gone.jsonl"])
    def test_dangling_links(self, tmp_path: Path, dataset: str, target: str) -> None:
        """A link that leads nowhere, or to itself, is refused by name."""
        touch(tmp_path, "data/a.jsonl")
        (tmp_path / "data/gone.jsonl").symlink_to(target)
        with pytest.raises(
            SourceError, match=rf"data/gone\.jsonl is a link to {target}, which cannot be read"
        ):
            find(tmp_path / dataset)

    @pytest.mark.parametrize("dataset", ["data", "data/**/*.jsonl"])
    def test_dangling_directory(self, tmp_path: Path, dataset: str) -> None:
        """So is a link to a directory that is not there."""
        touch(tmp_path, "data/a.jsonl")
        (tmp_path / "data/2024-03").symlink_to("/not/mounted/2024-03")
        with pytest.raises(SourceError, match=r"2024-03 is a link to /not/mounted/2024-03"):
            find(tmp_path / dataset)

    def test_dangling_links_that_are_no_data(self, tmp_path: Path) -> None:
        """An editor's lock on a file is such a link."""
        touch(tmp_path, "a.jsonl")
        (tmp_path / ".#a.jsonl").symlink_to("user@host.4711")
        (tmp_path / "a.jsonl.lock").symlink_to("nowhere")
        assert names(find(tmp_path), tmp_path) == ["a.jsonl"]


LEFTOVERS = [
    "a.jsonl.bak", "a.jsonl.tmp", "a.jsonl.part", "a.jsonl.crdownload", "a.jsonl~", ".a.jsonl.swp",
    "a.jsonl.old", "a.jsonl.1", "a.jsonl.gz.aria2", "#a.jsonl#", "~$a.csv", "._a.jsonl", ".hidden/b.jsonl",
    "__MACOSX/b.jsonl", "_temporary/0/b.jsonl", "dataset_infos.json", "dataset_info.json", "README.md",
    "readme.txt", "LICENSE.txt", "_SUCCESS", "_metadata", "meta.json", "config.json", "notes.pdf",
    "state.json", "archive.tar", "a", "jsonl",
]  # fmt: skip


class TestLeftovers:
    """What lies beside data is left out, counted and named."""

    @pytest.mark.parametrize("leftover", LEFTOVERS)
    def test_beside_a_file(self, tmp_path: Path, leftover: str) -> None:
        """Each is left out of a directory and of patterns that match it, and said."""
        touch(tmp_path, "a.jsonl", leftover)
        files = find(tmp_path)
        assert names(files, tmp_path) == ["a.jsonl"]
        assert len(files.left_out) == 1
        assert files.describe().startswith("2 files (1 jsonl, 1 left out: 1 ")
        assert names(find(tmp_path / "**"), tmp_path) == ["a.jsonl"]
        assert names(find(tmp_path / "*"), tmp_path) == ["a.jsonl"]
        assert names(find(tmp_path, data_files=("*",)), tmp_path) == ["a.jsonl"]
        assert names(find("json", data_files=(f"{tmp_path}/**/*",)), tmp_path) == ["a.jsonl"]

    def test_description(self, tmp_path: Path) -> None:
        """One line names the formats, and what is left out by reason."""
        touch(
            tmp_path, *(f"{number}.jsonl.gz" for number in range(1198)), "a.bak", "x.tmp", ".b", "a.jsonl.bak"
        )
        assert find(tmp_path).describe() == (
            "1,202 files (1,198 jsonl.gz, 4 left out: 1 hidden (.b), 2 of unknown ending (a.bak, x.tmp), "
            "1 temporary (a.jsonl.bak))"
        )

    def test_nothing_else(self, tmp_path: Path) -> None:
        """Where there is nothing else, that is said."""
        with pytest.raises(SourceError, match=r"doesn't contain any data files: it holds no file\. Expected"):
            find(tmp_path)
        touch(tmp_path, "a.jsonl.bak", "README.md")
        with pytest.raises(
            SourceError,
            match=r"holds only 1 describing data \(.*README\.md\), 1 temporary \(.*a\.jsonl\.bak\), all",
        ):
            find(tmp_path)
        with pytest.raises(
            SourceError, match=r"a\.jsonl\.bak is of no known kind; expected one of \.parquet"
        ):
            find(tmp_path / "a.jsonl.bak")

    @pytest.mark.parametrize(
        "name",
        ["a.JSONL", "a.Json.GZ", "a.ndjson.zst", "a.jsonl.zstd", "a.json.bz2", "a.jsonl.xz", "_a.jsonl"],
    )
    def test_known_endings(self, tmp_path: Path, name: str) -> None:
        """Endings are known in capitals too, and with each compression."""
        files = find(touch(tmp_path, name))
        assert (names(files, tmp_path), files.format) == ([name], "json")
        assert find(tmp_path / name).files == files.files

    def test_said_once(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """A process says it once; what may be missed is a warning."""
        files = find(touch(tmp_path, "a.jsonl", "a.jsonl.bak"))
        for _ in range(3):
            files.log("data")
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert "1 left out: 1 temporary (a.jsonl.bak)" in caplog.text


class TestSpecial:
    """What cannot be read, or only once."""

    @pytest.mark.parametrize("dataset", ["data", "data/p.jsonl", "data/*"])
    def test_pipes_and_sockets(self, tmp_path: Path, dataset: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """They are refused at once, not waited for."""
        (tmp_path / "data").mkdir()
        os.mkfifo(tmp_path / "data/p.jsonl")
        with pytest.raises(
            SourceError, match=r"p\.jsonl is no regular file but a pipe, which can be read only"
        ):
            find(tmp_path / dataset)
        (tmp_path / "data/p.jsonl").unlink()
        monkeypatch.chdir(tmp_path / "data")
        with socket.socket(socket.AF_UNIX) as opened:
            opened.bind("p.jsonl")
            with pytest.raises(SourceError, match=r"p\.jsonl is no regular file but a socket"):
                find(tmp_path / dataset)
        with pytest.raises(SourceError, match=r"/dev/null is no regular file but a device"):
            find("/dev/null")

    @pytest.mark.parametrize("pattern", ["", "/**/*.jsonl", "/*/*.jsonl"])
    def test_unreadable(self, pattern: str) -> None:
        """A directory that cannot be listed, and a file that cannot be read, are refused by name."""
        with tempfile.TemporaryDirectory() as name, as_nobody_in(Path(name)) as (root, become):
            touch(root, "a.jsonl", "shut/b.jsonl")
            (root / "shut").chmod(0)
            with (
                become(),
                pytest.raises(SourceError, match=r"Directory .*/shut cannot be listed: Permission"),
            ):
                find(f"{root}{pattern}")
            (root / "shut").chmod(0o755)
            (root / "shut/b.jsonl").chmod(0)
            with (
                become(),
                pytest.raises(SourceError, match=r"shut/b\.jsonl cannot be read: permission denied"),
            ):
                find(f"{root}{pattern}")

    @pytest.mark.parametrize(
        "name", ["x\0y", "y" * 300, "a.jsonl/", "nowhere/*.jsonl", "~nobody/*.jsonl", "[", "**"]
    )
    def test_names_of_nothing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        """Names that mean no file raise nothing but errors of our own."""
        monkeypatch.chdir(touch(tmp_path, "a.jsonl/b.md").joinpath("a.jsonl"))
        with suppress(SourceError):
            assert find_files(TextOptions(dataset=name)) is None


@contextmanager
def as_nobody_in(root: Path) -> Iterator[Any]:
    """Yield a directory that all may read, and a context in which root's rights are given up."""
    root.chmod(0o755)

    @contextmanager
    def become() -> Iterator[None]:
        user = os.geteuid()
        if user == 0:
            os.seteuid(65534)
        try:
            yield
        finally:
            os.seteuid(user)

    yield root, become


class TestDataFiles:
    """Names, patterns and directories in data_files."""

    def test_directories(self, tmp_path: Path) -> None:
        """A directory means all files below it; names of splits do not matter there."""
        touch(tmp_path, "x/train/b.jsonl", "x/test/a.jsonl", "x/test/a.jsonl.bak", "y.jsonl")
        assert names(find(tmp_path, data_files=("y.jsonl", "x")), tmp_path) == [
            "y.jsonl", "x/test/a.jsonl", "x/train/b.jsonl",
        ]  # fmt: skip

    def test_twice(self, tmp_path: Path) -> None:
        """Patterns that overlap are refused, also by way of a link; names may be repeated."""
        touch(tmp_path, "a.jsonl", "b/c.jsonl")
        (tmp_path / "link.jsonl").symlink_to("a.jsonl")
        for overlapping in (("a.jsonl", "*.jsonl"), ("*.jsonl", "li*"), (".", "b/c.jsonl")):
            with pytest.raises(ConfigError, match=r"jsonl twice\. Each file may match only one pattern"):
                find(tmp_path, data_files=overlapping)
        assert names(find(tmp_path, data_files=("a.jsonl", "./a.jsonl")), tmp_path) == ["a.jsonl"] * 2

    def test_formats(self, tmp_path: Path) -> None:
        """Of a directory with several formats data_files chooses one."""
        touch(tmp_path, "a.jsonl", "b.csv", "c.tsv")
        with pytest.raises(
            SourceError, match=r"holds files of several kinds, such as .*a\.jsonl and .*b\.csv"
        ):
            find(tmp_path)
        assert find(tmp_path, data_files=("*.tsv",)).format == "tsv"

    def test_urls(self) -> None:
        """URLs are for `datasets`."""
        assert find_files(TextOptions(dataset="json", data_files=("hf://datasets/a/b/c.jsonl",))) is None

    def test_split(self, tmp_path: Path) -> None:
        """Files that are named are the split train."""
        touch(tmp_path, "a.jsonl")
        for named in ({"dataset": tmp_path / "*.jsonl"}, {"dataset": tmp_path, "data_files": ("a.jsonl",)}):
            with pytest.raises(SourceError, match=r"split='test' chooses among the splits of a directory"):
                find(**named, split="test")


class TestApart:
    """What is written does not lie in what is read."""

    @pytest.mark.parametrize("output", ["data/out", "data", "data/b/out", "link/out", "data/../data/out"])
    def test_inside(self, tmp_path: Path, output: str) -> None:
        """However the places are spelled."""
        touch(tmp_path, "data/a.jsonl", "data/b/c.jsonl")
        (tmp_path / "link").symlink_to("data")
        for options in (
            TextOptions(dataset=str(tmp_path / "data")),
            TextOptions(dataset=str(tmp_path / "link")),
            TextOptions(dataset="json", data_files=(str(tmp_path / "data"),)),
        ):
            with pytest.raises(
                OutputError, match=r"lies in .*, which is read with all that is in it\. Choose"
            ):
                check_apart(options, tmp_path / output)

    @pytest.mark.parametrize("dataset", ["data", "data/*.jsonl", "data/a.jsonl", "some/name"])
    def test_outside(self, tmp_path: Path, dataset: str) -> None:
        """Beside it, above it, and for files that are named."""
        touch(tmp_path, "data/a.jsonl")
        check_apart(TextOptions(dataset=str(tmp_path / dataset)), tmp_path / "data-out")
        check_apart(TextOptions(dataset=str(tmp_path / "data/*.jsonl")), tmp_path / "data/out")
        check_apart(TextOptions(dataset=str(tmp_path / "data/a.jsonl")), tmp_path / "data/out")


DIRECTORIES = ["a", "b", "a/c", "a/c/d", ".h", "b/__p", "outside"]
FILES = [
    "1.jsonl",
    "2.JSON",
    "3.ndjson.gz",
    "4.bak",
    "5.jsonl.tmp",
    ".6.jsonl",
    "meta.json",
    "_7.jsonl",
    "8.pdf",
]
PLACES = st.sampled_from([".", *DIRECTORIES])
LAYOUTS = st.fixed_dictionaries(
    {
        "files": st.lists(st.tuples(PLACES, st.sampled_from(FILES)), max_size=12, unique=True),
        "links": st.lists(st.tuples(PLACES, st.sampled_from(["l1", "l2", "l3"]), PLACES), max_size=6),
        "file_links": st.lists(
            st.tuples(PLACES, st.sampled_from(["0.jsonl", "9.jsonl"]), PLACES, st.sampled_from(FILES)),
            max_size=4,
        ),
    }
)  # fmt: skip


def build(top: Path, layout: dict[str, Any]) -> Path:
    """Build a layout; all of it is below data, but what is in outside."""
    for name in DIRECTORIES:
        place(top, name).mkdir(parents=True, exist_ok=True)
    for directory, name in layout["files"]:
        place(top, directory).joinpath(name).touch()
    for directory, name, target in layout["links"]:
        link(place(top, directory) / name, place(top, target))
    for directory, name, target, file in layout["file_links"]:
        if (place(top, target) / file).exists():
            link(place(top, directory) / name, place(top, target) / file)
    return top / "data"


def place(top: Path, name: str) -> Path:
    """Return where a directory of a layout is."""
    return top / name if name == "outside" else top / "data" / name


def link(path: Path, target: Path) -> None:
    """Make a link, unless there is something."""
    if not os.path.lexists(path):
        path.symlink_to(target)


IS_DATA = re.compile(
    r"[^.].*\.(parquet|json|jsonl|ndjson|csv|tsv|txt)(\.(gz|zst|zstd|bz2|xz))?", re.IGNORECASE
)


def is_data(name: str) -> bool:
    """Return whether a file of this name is read."""
    return IS_DATA.fullmatch(name) is not None and name != "meta.json"


def reach(root: str, directory: str, seen: set[str]) -> Iterator[str]:
    """Yield the real paths of all data that visible names lead to, through each real directory once."""
    for name in sorted(os.listdir(directory)):
        path = os.path.join(directory, name)
        real = os.path.realpath(path)
        if not os.path.isdir(path):
            if is_data(name):
                yield real
        elif not name.startswith((".", "__")) and real not in seen and not f"{root}/".startswith(f"{real}/"):
            seen.add(real)
            yield from reach(root, path, seen)


def check_layout(layout: dict[str, Any]) -> None:
    """Compare what is found with the model."""
    with tempfile.TemporaryDirectory() as top:
        root = str(build(Path(top).resolve(), layout))
        expected = set(reach(root, root, {root}))
        if not expected:
            with pytest.raises(SourceError, match=r"doesn't contain any data files"):
                find(root)
            return
        (Path(top) / "entry").symlink_to(root)
        for dataset in (root, f"{root}/**", f"{top}/entry", f"{top}/entry/**"):
            found = [file.replace(f"{top}/entry", root) for file in find(dataset).files]
            assert sorted(map(os.path.realpath, found)) == sorted(expected)  # all of them, each once
            assert found == sorted(found)
            visible = {real for real in expected if not re.search(r"/(\.|__)", real[len(root) :])}
            own = {real for real in visible if real.startswith(root) and is_data(os.path.basename(real))}
            assert own <= set(found)  # under its own name


@given(layout=LAYOUTS)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_random_layouts(layout: dict[str, Any]) -> None:
    """Each file that visible names lead to is found once, under its own name if that is visible, in order."""
    check_layout(layout)


@pytest.mark.exhaustive
@given(layout=LAYOUTS)
@settings(max_examples=5000, deadline=None, suppress_health_check=list(HealthCheck))
def test_many_random_layouts(layout: dict[str, Any]) -> None:
    """The same for thousands of layouts."""
    check_layout(layout)
