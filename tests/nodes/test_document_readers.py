"""The readers that know documents: DocumentMarks, DocumentWindows, PackedDocuments."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from helpers_documents import write_indexed
from tdstream.core.errors import CorpusError, StateError
from tdstream.corpus import derived as window_counts
from tdstream.corpus.derived import WindowCounts, count_windows
from tdstream.corpus.document_ends import DocumentEnds
from tdstream.distributed.topology import resolve_topology
from tdstream.nodes.document_windows import DocumentWindows
from tdstream.nodes.epoch_permutation import EpochPermutation
from tdstream.nodes.splitter import Splitter
from tdstream.pipelines.compose import compose_corpus
from tdstream.schedule.windows import DocumentCut, SampleSpec

LENGTHS = np.random.default_rng(3).integers(1, 12, 40)
ENDS = np.cumsum(LENGTHS)
TOTAL = int(ENDS[-1])


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def make_reader(tmp_path):
    """Return a function that writes a corpus of the tokens 1, 2, 3, ... and returns its reader."""

    def make(ends=ENDS, total=TOTAL, borders=(50, 50, 120), **cut):
        directory = tmp_path / f"corpus{len(ends)}-{total}"
        if not directory.exists():
            write_indexed(directory, list(ends), total, borders)
        return compose_corpus(directory, SampleSpec(**{"seq_len": 4, **cut}))[1]

    return make


class Positions:
    """A source and its stream, whose tokens are their positions."""

    dtype = np.dtype("<u4")

    def open(self):
        """Return the stream."""
        return self

    def slices(self, starts, lengths):
        """Return positions."""
        return [np.arange(start, start + length) for start, length in zip(starts, lengths, strict=True)]


def rows_of(reader):
    """Return the tokens of all samples, without padding."""
    rows = reader.read(np.arange(len(reader)))
    return [row[:length].tolist() for row, length in zip(rows.tokens, rows.lengths, strict=True)]


@pytest.mark.parametrize(("block", "pieces"), [(1, 1), (3, 2), (3, 100), (64, 2)])
def test_windows_are_found_whatever_the_blocks(monkeypatch, block, pieces):
    """In any order, from blocks that hold many documents, one, or none that gives a window."""
    monkeypatch.setattr(window_counts, "_BLOCKS", pieces)
    ends, cut = DocumentEnds.of(ENDS, TOTAL), DocumentCut(4, 4, 3)
    counts = WindowCounts(count_windows(ends, cut, (0, 40), block=block), block=block)
    reader = DocumentWindows(Positions(), ends, cut, counts=counts)
    begins = ENDS - LENGTHS
    expected = [
        list(range(begin + first, min(begin + first + 5, begin + length)))
        for begin, length in zip(begins.tolist(), LENGTHS.tolist(), strict=True)
        if length - 1 >= 3
        for first in range(0, length, 4)
        if first == 0 or length - first >= 3
    ]
    # A full window's fifth token is a label only where a window of the document follows.
    found = rows_of(reader)
    assert [row[:4] for row in found] == [row[:4] for row in expected]
    order = np.random.default_rng(0).permutation(len(reader))
    shuffled = reader.read(order)
    assert shuffled.tokens[:, 0].tolist() == [found[index][0] for index in order]


def test_what_is_dropped_is_counted():
    """Documents too short for a window, and ends of documents that are."""
    ends = DocumentEnds.of(np.array([3, 5, 14]), 16)
    reader = DocumentWindows(Positions(), ends, DocumentCut(4, 4, 2))
    assert rows_of(reader) == [[0, 1, 2], [5, 6, 7, 8, 9], [9, 10, 11, 12], [14, 15]]
    counts = reader.counts
    assert (counts.dropped_documents, counts.dropped_tokens) == (1, 3)  # tokens 3 and 4; token 13


def test_windows_of_many_documents_take_little_memory():
    """8 bytes for 8 documents, not a list of windows."""
    ends = DocumentEnds.of(np.arange(1, 300_001) * 2, 600_000)
    reader = DocumentWindows(Positions(), ends, DocumentCut(4, 4, 1))
    assert len(reader) == 300_000
    assert reader.counts.firsts.nbytes < 300_000 * 8 / 7
    rows = reader.read(np.array([299_999, 131_072, 0]))
    assert rows.tokens[:, :2].tolist() == [[599_998, 599_999], [262_144, 262_145], [0, 1]]


def test_counts_of_many_documents_are_kept(make_reader, monkeypatch, tmp_path):
    """And mapped, in each process; those of other windows or documents are others."""
    plain = make_reader(cut="document")
    expected = plain.read(np.arange(len(plain))).tokens.tolist()
    monkeypatch.setattr(window_counts, "MANY_DOCUMENTS", 40)
    made, count = [], window_counts.count_windows
    monkeypatch.setattr(window_counts, "count_windows", lambda *given: made.append(given) or count(*given))
    for _ in range(2):
        reader = pickle.loads(pickle.dumps(make_reader(cut="document")))
        assert reader.read(np.arange(len(reader))).tokens.tolist() == expected
        assert reader.counts.dropped_documents == plain.counts.dropped_documents
    assert len(made) == 1
    assert len(make_reader(cut="document", stride=2)) > len(reader)
    assert len(made) == 2
    kept = sorted((tmp_path / f"corpus40-{TOTAL}" / ".tdstream").glob("windows-*.i8"))
    assert [path.stat().st_size for path in kept] == [64, 64]
    kept[0].write_bytes(bytes(8))
    kept[1].write_bytes(bytes(8))
    assert len(make_reader(cut="document")) == len(plain)
    assert len(made) == 3
    arrived = pickle.dumps(reader)
    for path in kept:
        path.unlink()
    with pytest.raises(CorpusError, match="cannot be read any more"):
        len(pickle.loads(arrived))


@pytest.mark.parametrize("cut", ["document", "pack"])
def test_places_behind_a_row_hold_the_pad_id(make_reader, cut):
    """The corpus's end-of-text token, which is 0 here."""
    reader = make_reader(
        ends=[2], total=3, borders=(), cut=cut, **({"min_tail_len": 0} if cut == "document" else {})
    )
    rows = reader.read(np.arange(len(reader)))
    assert rows.tokens[0].tolist() == ([1, 2, 0, 0, 0] if cut == "document" else [1, 2, 3, 0, 0])


@pytest.mark.parametrize("cut", ["stream", "document", "pack"])
def test_a_reader_reads_the_same_where_it_arrives(make_reader, cut):
    """A pickled one is small, whatever it has mapped."""
    reader = make_reader(cut=cut, documents=True)
    indices = np.arange(len(reader))[::-1]
    here, arrived = reader.read(indices), pickle.loads(pickle.dumps(reader)).read(indices)
    assert here.tokens.tolist() == arrived.tokens.tolist()
    assert here.ends.places.tolist() == arrived.ends.places.tolist()
    assert len(pickle.dumps(reader)) < 4_000


@pytest.mark.parametrize("cut", ["stream", "document", "pack"])
@pytest.mark.parametrize("samples", [None, slice(3, None)])
def test_a_plan_reads_what_the_reader_does(make_reader, cut, samples):
    """Items of several sizes, in any order, and one that is read again after it failed."""
    reader = make_reader(cut=cut, documents=True, samples=samples)
    order = np.random.default_rng(0).permutation(len(reader))
    bounds = [0, 3, 4, 9, len(order)]
    plan = reader.plan(order, bounds)
    for item in (0, 1, 1, 3, 2):
        found, expected = plan.read(item), reader.read(order[bounds[item] : bounds[item + 1]])
        assert found.tokens.tolist() == expected.tokens.tolist()
        assert found.ends.counts.tolist() == expected.ends.counts.tolist()
        assert found.ends.places.tolist() == expected.ends.places.tolist()
        for name in ("lengths", "overlaps", "stops") if cut != "stream" else ():
            assert getattr(found, name).tolist() == getattr(expected, name).tolist()


@pytest.mark.parametrize("cut", ["stream", "document", "pack"])
def test_the_splitter_plans_a_pass_once(make_reader, cut, monkeypatch):
    """Through the permutation and a range of samples, so that a pass works each sample out once."""
    reader = make_reader(cut=cut, documents=True, samples=slice(2, None))
    inner, planned = type(reader.upstream), []
    plan = inner.plan
    monkeypatch.setattr(inner, "plan", lambda *given: planned.append(len(given[1])) or plan(*given))
    splitter = Splitter(EpochPermutation(reader, shuffle=True), topology=resolve_topology(0, 1), batch_size=2)
    for _ in range(len(splitter)):
        splitter.read()
        splitter.advance()
    assert planned == [len(splitter) * 2]


@pytest.mark.parametrize("cut", ["stream", "document", "pack"])
def test_other_documents_are_refused(make_reader, cut):
    """A state of the same tokens with other ends, or of another cut, is not this one's."""
    reader = make_reader(cut=cut, documents=True)
    reader.load_state_dict(reader.state_dict())
    with pytest.raises(StateError, match=r"reader\.documents was 40, is 30"):
        make_reader(ends=ENDS[10:], cut=cut, documents=True).load_state_dict(reader.state_dict())
    other = make_reader(cut="pack" if cut == "document" else "document", documents=True)
    with pytest.raises(StateError, match=r"reader\.cut was"):
        other.load_state_dict(reader.state_dict())


def test_windows_are_told_apart_by_their_cut(make_reader):
    """Another stride or min_tail_len is another set of windows."""
    state = make_reader(cut="document").state_dict()
    with pytest.raises(StateError, match=r"reader\.stride was 4, is 2; reader\.min_tail_len was 1, is 2"):
        make_reader(cut="document", stride=2, min_tail_len=2).load_state_dict(state)


def test_marks_know_the_plain_samples(make_reader):
    """A state without documents=True is another one, since labels differ."""
    plain, marked = make_reader(), make_reader(documents=True)
    assert plain.read(np.array([3])).tolist() == marked.read(np.array([3])).tokens.tolist()
    with pytest.raises(StateError, match=r"reader\.documents was missing, is 40"):
        marked.load_state_dict(plain.state_dict())
    with pytest.raises(StateError, match=r"reader\.documents was 40, is missing"):
        plain.load_state_dict(marked.state_dict())


def test_readers_show_themselves(make_reader):
    """In a pipeline's line."""
    assert "DocumentMarks(40 documents)" in repr(make_reader(documents=True))
    assert "DocumentWindows(" in repr(make_reader(cut="document"))
    assert "rows of 4 tokens" in repr(make_reader(cut="pack"))


def test_a_corpus_without_tokens_cannot_be_packed(make_reader):
    """Nor cut into windows."""
    with pytest.raises(CorpusError, match="nothing to pack"):
        make_reader(ends=[], total=0, borders=(), cut="pack")
    with pytest.raises(CorpusError, match="none of the 0 documents"):
        make_reader(ends=[], total=0, borders=(), cut="document")
