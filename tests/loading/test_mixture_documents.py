"""Mixtures of sources that know documents: what batches say of them, and that each sample comes once."""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from loader_documents import KINDS, Kind
from loader_truth import SEED, SEQ_LEN, epoch_order

import tdstream
from helpers_documents import expected_fields, listed, stream_of

FEW = {"documents": 12, "document": 24, "pack": 24}
"""Documents of the smaller source, the first ones of the larger."""


def smaller(kind: Kind, documents: int) -> Kind:
    """Return the first documents alone, and the samples that lie in them."""
    lengths = kind.lengths[:documents]
    inside = [start for start in kind.starts if start + (not kind.ends_rows) * SEQ_LEN < sum(lengths)]
    return replace(kind, lengths=lengths, starts=tuple(inside))


class Reading:
    """Looks at every number of the batches of two sources, and keeps which samples they had."""

    def __init__(self, kinds: list[Kind]) -> None:
        self.kinds, self.log = kinds, defaultdict[int, list[int]](list)
        ends = [list(itertools.accumulate(kind.lengths)) for kind in kinds]
        self.streams = [stream_of(each, each[-1]) for each in ends]

    def read(self, batch: Any) -> None:
        """Look at a batch."""
        said, rows = listed(batch), []
        for source, (first, *_) in zip(said.pop("source_id"), said["input_ids"], strict=True):
            rows.append(self.kinds[source].row(self.streams[source], first - 1))
            self.log[source].append(self.kinds[source].starts.index(first - 1))
        tokens = [[place.token if place else 0 for place in row[:SEQ_LEN]] for row in rows]
        expected = {"input_ids": tokens, **expected_fields(rows)}
        if self.kinds[0].ends_rows:
            real = [[int(place is not None) for place in row[:SEQ_LEN]] for row in rows]
            expected |= {"attention_mask": real, "is_natural_stop": [row[-1] is None for row in rows]}
        assert said == expected


@pytest.mark.parametrize("name", sorted(KINDS))
def test_sources_that_know_documents_are_mixed(tmp_path: Path, name: str) -> None:
    """On two ranks, then on one with other weights: fields are right, each source has its own order."""
    kinds = [KINDS[name], smaller(KINDS[name], FEW[name])]
    sources = {
        label: kind.write(tmp_path / label) for label, kind in zip(("many", "few"), kinds, strict=True)
    }
    reading, state = Reading(kinds), None
    for weights, ranks, batch_size, steps in (((1, 1), 2, 2, 20), ((3, 1), 1, 3, 40), ((1, 2), 3, 1, 9)):
        mixture = tdstream.Mixture(
            sources, weights=dict(zip(sources, weights, strict=True)), stop="all"
        )  # fmt: skip
        loaders = [
            tdstream.loader(
                mixture, seq_len=SEQ_LEN, batch_size=batch_size, shuffle=True, seed=SEED, source_id=True,
                dp_rank=rank, dp_world_size=ranks, **KINDS[name].options,
            )
            for rank in range(ranks)
        ]  # fmt: skip
        for loader in loaders:
            if state is not None:
                loader.load_state_dict(state)
        for _, batches in zip(range(steps), zip(*loaders, strict=True), strict=False):
            for batch in batches:
                reading.read(batch)
        state = loaders[0].state_dict()
    for source, kind in enumerate(kinds):
        size, log = len(kind.starts), reading.log[source]
        order = (sample for epoch in itertools.count() for sample in epoch_order("feistel", epoch, size))
        assert log == list(itertools.islice(order, len(log)))
        assert len(log) == (40 + 90 + 9, 40 + 30 + 18)[source]
    assert len(kinds[1].starts) < len(reading.log[1])


def test_parts_know_their_documents(tmp_path: Path) -> None:
    """A range of each source's samples says of documents what the sources say alone, in every batch."""
    kinds = [KINDS["documents"], smaller(KINDS["documents"], FEW["documents"])]
    sources = {str(number): kind.write(tmp_path / str(number)) for number, kind in enumerate(kinds)}
    options: dict[str, Any] = {"seq_len": SEQ_LEN, "documents": True, "samples": slice(2, 9)}
    alone = {}
    for name, source in sources.items():
        for batch in tdstream.loader(source, batch_size=1, **options):
            (row,) = batch["input_ids"].tolist()
            alone[(name, *row)] = batch["document_ids"].tolist()[0], batch["position_ids"].tolist()[0]
    assert len({tuple(ids) for ids, _ in alone.values()}) > 1
    mixture = {name: (source, 1) for name, source in sources.items()}
    loader = tdstream.loader(mixture, batch_size=3, shuffle=True, source_id=True, **options)
    node = loader._pipeline.mixture
    assert node is not None
    assert node._plain is not None
    assert all(part.find_ends is not None for part in node.parts.values())
    seen = set()
    for _ in range(3):
        for batch in loader:
            said = listed(batch)
            rows = zip(
                said["source_id"], said["input_ids"], said["document_ids"], said["position_ids"], strict=True
            )
            for source, row, ids, positions in rows:
                assert (ids, positions) == alone[(str(source), *row)]
                seen.add((str(source), *row))
    assert seen == set(alone)
