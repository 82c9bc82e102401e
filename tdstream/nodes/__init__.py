"""The nodes of a pipeline, one per file; no node imports another. The names here are public and stable.

    source = ShardSource("data/corpus")
    reader = MemmapReader(source, seq_len=2048)
    order = EpochPermutation(reader, shuffle=True, seed=42)
    pipeline = Pipeline((source, reader, order), Splitter(order, batch_size=8), Collate(batched=True))

makes the pipeline of `build("data/corpus", seq_len=2048, shuffle=True, seed=42, batch_size=8)`.

Each name is imported when it is first used, since `Pipeline` is in a higher room. `__init__.pyi` lists the
same names for type checkers.
"""

import importlib
import typing

_HOMES = {
    "Collate": "tdstream.nodes.collate",
    "DocumentCut": "tdstream.schedule.windows",
    "DocumentEnds": "tdstream.corpus.document_ends",
    "DocumentFields": "tdstream.nodes.document_fields",
    "DocumentMarks": "tdstream.nodes.document_marks",
    "DocumentRows": "tdstream.nodes.rows",
    "DocumentSource": "tdstream.nodes.base",
    "DocumentWindows": "tdstream.nodes.document_windows",
    "EpochPermutation": "tdstream.nodes.epoch_permutation",
    "IdentityState": "tdstream.core.state",
    "IndexedNode": "tdstream.nodes.base",
    "MarkedRows": "tdstream.nodes.rows",
    "MemmapReader": "tdstream.nodes.memmap_reader",
    "Node": "tdstream.nodes.base",
    "OrderedNode": "tdstream.nodes.base",
    "PackOptions": "tdstream.corpus.pack_plan",
    "PackedDocuments": "tdstream.nodes.packed_documents",
    "Pipeline": "tdstream.pipelines.pipeline",
    "PlanByReading": "tdstream.nodes.base",
    "ReadByPlanning": "tdstream.nodes.base",
    "ReadPlan": "tdstream.nodes.base",
    "ReaderNode": "tdstream.nodes.base",
    "RowEnds": "tdstream.nodes.rows",
    "SampleRange": "tdstream.nodes.sample_range",
    "ShardSource": "tdstream.nodes.shard_source",
    "Splitter": "tdstream.nodes.splitter",
    "StreamReader": "tdstream.nodes.base",
    "TokenArray": "tdstream.nodes.base",
    "TokenSource": "tdstream.nodes.base",
    "TokenStream": "tdstream.nodes.base",
    "Topology": "tdstream.distributed.topology",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> typing.Any:
    """Import a public name when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
