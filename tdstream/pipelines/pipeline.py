"""The composed nodes as a dataset that loaders take, and one pass over it that can be saved and resumed."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch import Tensor
from torch.utils.data import IterableDataset

from tdstream.core.errors import StateError
from tdstream.core.state import check_identities, unwrap_state, wrap_state
from tdstream.distributed.shared_epoch import Pass, SharedEpoch
from tdstream.distributed.topology import current_worker
from tdstream.distributed.watchdog import watch_parent
from tdstream.nodes.base import Node, ReaderNode
from tdstream.nodes.collate import Collate
from tdstream.nodes.mixture_node import MixtureNode
from tdstream.nodes.shard_source import ShardSource
from tdstream.nodes.splitter import Splitter
from tdstream.schedule.mixture_plan import MixturePlan
from tdstream.schedule.run_cursor import RunSpan

Shards = tuple[list[str], list[int]]
"""Their file names, and their offsets in the stream of tokens with one more entry."""


class Pipeline(IterableDataset[dict[str, Tensor]]):
    """Indexed nodes > Splitter > Collate, as an IterableDataset.

    Each `iter` is one pass over an epoch. The position belongs to the pass: StatefulDataLoader finds its
    state_dict() there, and a plain DataLoader does without. Epochs count themselves 0, 1, 2, ... unless
    `set_epoch` chooses. Made by `build`.

    Args:
        indexed: The nodes left of the splitter, from left to right; the splitter reads the last one.
        splitter: How samples are dealt out.
        collate: How they leave.
        strict: Whether a state of other data or settings is refused, or only warned of.
    """

    def __init__(
        self, indexed: Sequence[Node], splitter: Splitter, collate: Collate, *, strict: bool = True
    ) -> None:
        self.indexed, self.splitter, self.collate = tuple(indexed), splitter, collate
        self.strict = strict
        self._clock = SharedEpoch()

    def __iter__(self) -> PipelineIterator:
        """Open one pass over the next epoch."""
        worker = current_worker()
        if worker.is_process:
            watch_parent()
        opened = self._clock.open(in_worker=worker.is_process)
        splitter = self.splitter.begin(opened.epoch, worker, opened.start)
        return PipelineIterator(
            self, splitter, opened, travels=worker.is_process or self.collate.stays_packed
        )

    def __len__(self) -> int:
        """Items that this rank yields per epoch: batches, or samples."""
        return self.splitter.items_in(self.epoch)

    @property
    def epoch(self) -> int:
        """The epoch that the next pass serves, or that the running one is in; right after a resume, too."""
        return self._clock.epoch

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next pass, also in workers that already live.

        Raises:
            ConfigError: If it is not an integer of at least 0.
        """
        self._clock.set_epoch(epoch)

    def begin_at(self, epoch: int, position: int) -> int:
        """Choose the epoch of the next pass and where in it that begins; for a loader that counts itself.

        Returns:
            A number that `asked_since` compares with.
        """
        self._clock.set_epoch(epoch, position)
        return self.generation

    @property
    def generation(self) -> int:
        """How often an epoch was chosen."""
        return self._clock.generation

    def asked_since(self, generation: int) -> int | None:
        """Return the epoch that `set_epoch` chose after a `begin_at`, if it did."""
        return self._clock.epoch if self._clock.generation > generation else None

    def identities(self) -> dict[str, dict[str, Any]]:
        """Return what decides content and order, by node: all but how samples are dealt out."""
        return {node.name: node.state_dict() for node in (*self.indexed, self.collate)}

    def compare(self, saved: dict[str, dict[str, Any]]) -> None:
        """Compare saved identities with this pipeline's.

        Raises:
            StateError: If a node is missing, or strict and a field differs; all differences in one sentence.
        """
        nodes = (*self.indexed, self.collate)
        check_identities(saved, nodes, cursor=self.splitter.name, strict=self.strict)

    @property
    def seq_len(self) -> int:
        """T, tokens of a sample's input."""
        node = self.mixture
        shared = node.shared if node else {node.name: node.state_dict() for node in self.indexed}
        return int(shared["reader"]["seq_len"])

    @property
    def mixture(self) -> MixtureNode | None:
        """The mixture, if this pipeline reads one."""
        node = self.indexed[-1]
        return node if isinstance(node, MixtureNode) else None

    def plan_after(self, saved: dict[str, dict[str, Any]], place: tuple[int, int]) -> MixturePlan | None:
        """Return what becomes of this pipeline's mixture if a saved one goes on here; None without one.

        Raises:
            StateError: If the state was cut.
        """
        node = self.mixture
        if node is None:
            return None
        try:
            dealing = saved[self.splitter.name]
            global_batch = int(dealing.get("batch_size", 1)) * int(dealing.get("dp_world_size", 1))
            if dealing.get("history"):  # the steps that there were; the one who saved may have made none
                global_batch = RunSpan(*map(int, dealing["history"][-1])).global_batch
            wrap = self.splitter.tail == "wrap"
            return node.after(saved[node.name], place, max(global_batch, 1), wrap=wrap)
        except (TypeError, ValueError, OverflowError) as error:
            raise StateError(f"the state was cut or changed ({type(error).__name__}: {error}).") from None

    def follow(self, plan: MixturePlan | None) -> None:
        """Take on what `plan_after` returned."""
        if self.mixture is not None and plan is not None:
            self.mixture.follow(plan)

    def refuse_changes(self, saved: dict[str, dict[str, Any]]) -> None:
        """Refuse a state of a mixture with other sources or weights, where one stream alone is resumed.

        Raises:
            StateError: If they differ.
        """
        node = self.mixture
        found = node.changes(saved[node.name]) if node else []
        if found:
            raise StateError(
                f"the state's mixture is another: {'; '.join(found)}. A mixture changes at one place of the "
                f"whole run, which one process does not know; nothing was loaded. Load "
                f"tdstream.position_of(state) into a tdstream.loader."
            )

    def shards(self) -> dict[str, Shards]:
        """Return each source's shards, by its name, which is "" where there is only one."""
        node = self.mixture
        sources = (
            {"": self.indexed[0]} if node is None else {name: node.parts[name].source for name in node.parts}
        )
        found = {name: source for name, source in sources.items() if isinstance(source, ShardSource)}
        return {name: (source.files, source.offsets.tolist()) for name, source in found.items()}

    def readers(self) -> dict[str, ReaderNode]:
        """Return, by source, the readers that documents tell where samples lie."""
        node = self.mixture
        ordered = {"": self.indexed[-1]} if node is None else {n: node.parts[n].ordered for n in node.parts}
        return {name: order.upstream for name, order in ordered.items() if hasattr(order, "upstream")}

    @property
    def total_samples(self) -> int:
        """Samples of the corpus, over all ranks."""
        return len(self.splitter.upstream)

    def __repr__(self) -> str:
        """Return the nodes, from left to right."""
        return " > ".join(repr(node) for node in (*self.indexed, self.splitter, self.collate))


class PipelineIterator(Iterator[dict[str, Tensor]]):
    """One pass over an epoch, for one process; the only thing in a pipeline that moves."""

    def __init__(self, pipeline: Pipeline, splitter: Splitter, opened: Pass, *, travels: bool) -> None:
        self._pipeline = pipeline
        self._splitter = splitter
        self._opened = opened
        self._travels = travels
        self._end_noted = False

    def __next__(self) -> dict[str, Tensor]:
        """Return the next batch or sample of this stream."""
        self._note_end()  # of an epoch that has no item at all
        item = self._pipeline.collate(self._splitter.read(), travels=self._travels)
        self._splitter.advance()
        self._note_end()
        return item

    def state_dict(self) -> dict[str, Any]:
        """Return the state of this stream: {"tdstream": version, "nodes": {name: identity and cursor}}."""
        return wrap_state([*self._pipeline.indexed, self._splitter, self._pipeline.collate])

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to the place of a saved state; a `set_epoch` before is overruled until the state's epoch ends.

        Raises:
            StateError: If the state belongs to other data or settings, or is no state; nothing is loaded.
            GeometryError: If it was saved with other ranks, workers or batches; nothing is loaded.
        """
        saved = unwrap_state(state)
        self._pipeline.compare(saved)
        self._pipeline.refuse_changes(saved)
        self._splitter.load_state_dict(saved[self._splitter.name])
        self._restore_clock()

    def _note_end(self) -> None:
        """Move the clock, once, when this stream has handed out its rank's last item."""
        if self._splitter.exhausted and self._splitter.ends_epoch and not self._end_noted:
            self._pipeline._clock.close(self._opened)
            self._end_noted = True

    def _restore_clock(self) -> None:
        """Bring the state's epoch to the main process and to later passes, from one process of this rank."""
        epoch, generation = self._splitter.epoch, self._opened.generation
        self._end_noted = self._splitter.exhausted
        if self._splitter.ends_epoch:
            generation = self._pipeline._clock.restore(epoch + 1 if self._end_noted else epoch)
        self._opened = Pass(epoch, generation)


class LazyPipeline(IterableDataset[dict[str, Tensor]]):
    """A Pipeline over text that is tokenized at the first need: an iteration, a length, a state.

    Workers receive it ready: what a fork, or a spawned process, would make once more in each of them is made
    before. Everything that a Pipeline has, it has. Made by `build`.

    Args:
        make: Makes the pipeline.
    """

    def __init__(self, make: Callable[[], Pipeline]) -> None:
        self._make = make
        self._made: Pipeline | None = None
        _waiting.add(self)

    @property
    def made(self) -> Pipeline:
        """The pipeline."""
        if self._made is None:
            _waiting.discard(self)
            self._made = self._make()
        return self._made

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        """Open one pass over the next epoch."""
        return iter(self.made)

    def __bool__(self) -> bool:
        """Be true: to ask is no reason to tokenize."""
        return True

    def __len__(self) -> int:
        """Items that this rank yields per epoch: batches, or samples."""
        return len(self.made)

    def __repr__(self) -> str:
        """Return the nodes, from left to right, if they are there."""
        return "LazyPipeline(not tokenized yet)" if self._made is None else repr(self._made)

    def __getattr__(self, name: str) -> Any:
        """Return what the pipeline has."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.made, name)

    def __getstate__(self) -> dict[str, Any]:
        return {"_make": None, "_made": self.made}


_waiting: weakref.WeakSet[LazyPipeline] = weakref.WeakSet()


def _make_all() -> None:
    for pipeline in list(_waiting):
        pipeline.made  # noqa: B018 - made for its effect: a child would make it again, and so would each sibling


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_make_all)
