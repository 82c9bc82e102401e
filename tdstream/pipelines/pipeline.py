"""The composed nodes as a dataset that loaders take, and one pass over it that can be saved and resumed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from tdstream.core.errors import StateError
from tdstream.core.state import Identified, unwrap_state, wrap_state
from tdstream.distributed.epoch_dataset import EpochDataset, EpochPass
from tdstream.distributed.topology import Topology, Worker, check_group_agrees
from tdstream.nodes.base import Node, ReaderNode
from tdstream.nodes.collate import Collate
from tdstream.nodes.mixture_node import MixtureNode
from tdstream.nodes.shard_source import ShardSource
from tdstream.nodes.splitter import Splitter
from tdstream.schedule.mixture_plan import MixturePlan
from tdstream.schedule.partition import serves_rest

Shards = tuple[list[str], list[int]]
"""File names, and offsets in the stream of tokens with one more entry."""


class Pipeline(EpochDataset):
    """Indexed nodes > Splitter > Collate, as an IterableDataset. Made by `build`, or by hand from its nodes.

    Each `iter` is one pass over an epoch. The position belongs to the pass: StatefulDataLoader finds its
    state_dict() there, and a plain DataLoader does without. Epochs count themselves 0, 1, 2, ... unless
    `set_epoch` chooses.

    Args:
        indexed: The nodes left of the splitter, from left to right; the splitter reads the last one.
        splitter: Deals samples out to ranks and workers.
        collate: Makes tensors of them.
        strict: Whether to refuse a state of other data or settings; False only warns.
    """

    collate: Collate

    def __init__(
        self, indexed: Sequence[Node], splitter: Splitter, collate: Collate, *, strict: bool = True
    ) -> None:
        super().__init__(strict=strict)
        self.indexed, self.splitter, self.collate = tuple(indexed), splitter, collate
        self.cursor_name = splitter.name

    def __iter__(self) -> PipelineIterator:
        """Open one pass over the next epoch."""
        return PipelineIterator(self, self._enter_process())

    def __len__(self) -> int:
        """Items that this rank yields per epoch: batches, or samples.

        As `loader.dataset`, the samples of an epoch over all ranks, as trainers expect of a dataset.
        """
        if self.is_owned:
            return self.splitter.upstream.num_samples(self.epoch)
        return self.splitter.items_in(self.epoch)

    def check_ranks(self) -> None:
        """Refuse a process group that was made since, if it knows this process by another rank."""
        check_group_agrees(self.splitter.topology)

    def _topology(self) -> Topology:
        return self.splitter.topology

    def identified_nodes(self) -> Sequence[Identified]:
        """Return the nodes that decide content and order."""
        return (*self.indexed, self.collate)

    @property
    def seq_len(self) -> int:
        """T, tokens of a sample's input."""
        node = self.mixture
        shared = node.shared if node else {node.name: node.state_dict() for node in self.indexed}
        return int(shared["reader"]["seq_len"])

    @property
    def vocab_size(self) -> int | None:
        """Size of the vocabulary, the largest of a mixture's; None if a source does not tell it."""
        sizes = [getattr(source, "vocab_size", None) or 0 for source in self._sources().values()]
        return max(sizes) if all(sizes) else None

    @property
    def eos_token_id(self) -> int | None:
        """The id that ends documents; None if a source does not tell it, or they differ."""
        token_id: int | None = self._common("eos_token_id")
        return token_id

    @property
    def tokenizer_name_or_path(self) -> str:
        """The tokenizer's name on the hub or its directory; "" if unknown, or if sources differ."""
        return self._common("tokenizer_name_or_path") or ""

    @property
    def mixture(self) -> MixtureNode | None:
        """The mixture, if this pipeline reads one."""
        node = self.indexed[-1]
        return node if isinstance(node, MixtureNode) else None

    def plan_after(
        self, saved: dict[str, dict[str, Any]], place: tuple[int, int], global_batch: int
    ) -> MixturePlan | None:
        """Return the plan of a saved mixture that continues here from a place; None without a mixture."""
        node = self.mixture
        if node is None:
            return None
        try:
            return node.after(saved[node.name], place, global_batch, wrap=serves_rest(self.splitter.tail))
        except (TypeError, ValueError, OverflowError) as error:
            raise StateError(f"the state was cut or changed ({type(error).__name__}: {error}).") from None

    def follow(self, plan: MixturePlan | None) -> None:
        """Adopt what `plan_after` returned."""
        if self.mixture is not None and plan is not None:
            self.mixture.follow(plan)

    def check_mixture(self, saved: dict[str, dict[str, Any]]) -> None:
        """Refuse a state of a mixture with other sources or weights, where only one stream is resumed."""
        node = self.mixture
        found = node.changes(saved[node.name]) if node else []
        if found:
            raise StateError(
                f"the state's mixture differs: {'; '.join(found)}. A mixture changes at one place of the "
                f"whole run, which one process does not know; nothing was loaded. Load "
                f"tdstream.position_of(state) into a tdstream.loader."
            )

    def shards(self) -> dict[str, Shards]:
        """Return each source's shards, by its name, which is "" for one corpus."""
        found = {name: one for name, one in self._sources().items() if isinstance(one, ShardSource)}
        return {name: (source.files, source.offsets.tolist()) for name, source in found.items()}

    def readers(self) -> dict[str, ReaderNode]:
        """Return each source's reader, by its name, which is "" for one corpus."""
        node = self.mixture
        ordered = {"": self.indexed[-1]} if node is None else {n: node.parts[n].ordered for n in node.parts}
        return {name: order.upstream for name, order in ordered.items() if hasattr(order, "upstream")}

    def _sources(self) -> dict[str, Node]:
        """Return the origins of tokens by name, which is "" for one source."""
        node = self.mixture
        return {"": self.indexed[0]} if node is None else {n: node.parts[n].source for n in node.parts}

    def _common(self, name: str) -> Any:
        """Return an attribute that all sources share; None if they differ."""
        values = {getattr(source, name, None) for source in self._sources().values()}
        return values.pop() if len(values) == 1 else None

    @property
    def total_samples(self) -> int:
        """Samples of the corpus, over all ranks."""
        return len(self.splitter.upstream)

    def __repr__(self) -> str:
        """Return the nodes, from left to right."""
        return " > ".join(repr(node) for node in (*self.indexed, self.splitter, self.collate))


class PipelineIterator(EpochPass):
    """One pass over an epoch, for one process; the only thing in a pipeline that moves."""

    def __init__(self, pipeline: Pipeline, worker: Worker) -> None:
        super().__init__(pipeline, worker)
        self._pipeline, self._indexed = pipeline, pipeline.indexed  # which a setting may replace meanwhile
        self._splitter = pipeline.splitter.begin(self._opened.epoch, worker, self._opened.start)

    def __next__(self) -> dict[str, Tensor]:
        """Return the next batch or sample of this stream; after an error, the same one is tried again."""
        self._end_if_exhausted()  # an epoch without any item
        splitter = self._splitter
        item, step = self._pipeline.collate(splitter.read(), travels=self._travels), splitter.step
        try:
            splitter.advance()
            self._end_if_exhausted()
            return item
        except BaseException:  # an interrupt: the item did not reach the caller
            splitter.step, self._ended = step, False
            raise

    def state_dict(self) -> dict[str, Any]:
        """Return the state of this stream: {"tdstream": version, "nodes": {name: identity and cursor}}."""
        return wrap_state([*self._indexed, self._splitter, self._pipeline.collate])

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to the place of a saved state; its epoch wins over an earlier `set_epoch`."""
        saved = unwrap_state(state)
        self._pipeline.compare(saved)
        self._pipeline.check_mixture(saved)
        splitter = self._splitter
        splitter.load_state_dict(saved[splitter.name])
        self._restore(splitter.epoch, ended=splitter.exhausted, writes=splitter.ends_epoch)

    def _is_last(self) -> bool:
        return self._splitter.ends_epoch

    def _end_if_exhausted(self) -> None:
        if self._splitter.exhausted:
            self._end()
