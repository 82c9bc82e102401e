"""The base of both loaders: StatefulDataLoader underneath, one valid iterator, hooks of trainers."""

from __future__ import annotations

import copy
import pickle
import weakref
from collections.abc import Iterator
from typing import Any, NoReturn, TypeVar

from torchdata.stateful_dataloader import StatefulDataLoader

from tdstream.core.checks import check_int
from tdstream.core.errors import ConfigError, StaleIteratorError
from tdstream.distributed.shared_memory import explain_limits, explain_worker_error
from tdstream.loading.device import Transfer
from tdstream.loading.torchdata_workarounds import WorkerSeeds, silence_set_vital, stop_workers
from tdstream.nodes.batch import Batch, hand_on

_Base = TypeVar("_Base", bound="LoaderBase")


class LoaderBase(StatefulDataLoader):  # type: ignore[misc]  # torchdata is not typed
    """A StatefulDataLoader that only runs the workers; the loader on top decides what a pass is.

    A pass begins when its first batch is asked for, so an epoch chosen or a state loaded until then counts.
    """

    use_stateful_dataloader = True  # accelerate then saves and loads the state
    _was_prepared = False  # by accelerate

    @property
    def _is_accelerate_prepared(self) -> bool:
        """Asked by accelerate's prepare(): it takes the loader as it is, and builds none over its dataset."""
        self._was_prepared = True
        return True

    @_is_accelerate_prepared.setter
    def _is_accelerate_prepared(self, value: bool) -> None:
        self._was_prepared = value

    _given: dict[str, Any]
    """The arguments that make an equal loader of an equal pipeline."""

    def __init__(
        self, pipeline: Any, *, batch_size: int | None, transfer: Transfer, options: dict[str, Any]
    ) -> None:
        if batch_size is None:
            raise ConfigError(
                "tdstream.loader needs batch_size: single samples have no global order and no steps to count."
            )
        if not options.get("in_order", True):
            raise ConfigError("in_order=False gives up the order that the state counts on. Leave it out.")
        self._seeds = WorkerSeeds()
        with silence_set_vital():
            super().__init__(
                pipeline, batch_size=None, collate_fn=hand_on,
                **{"generator": self._seeds.generator, **options},
            )  # fmt: skip
        self._pipeline, self._transfer = pipeline, transfer
        pipeline.collate.stays_packed = transfer.needed
        self._generation = 0  # of the pipeline's epoch, when the last pass was opened
        self._newest_iterator = 0
        self._batches: Iterator[Any] = iter(())
        pipeline.give_to(self)
        _hook_sampler(self)

    def __deepcopy__(self: _Base, memo: dict[int, Any]) -> _Base:
        """Return a loader of its own at the same place, without workers and iterators."""
        pipeline, arguments = copy.deepcopy((self._pipeline, self._given), memo)
        return _rebuild(type(self), pipeline, arguments, copy.deepcopy(self.state_dict()))

    def __copy__(self: _Base) -> _Base:
        """Return a deep copy: two loaders that share workers would take each other's batches."""
        return copy.deepcopy(self)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Pickle the place, and what makes an equal loader; another process opens its own files."""
        parts = (type(self), self._pipeline, self._given, self.state_dict())
        try:
            return _unpickle, (pickle.dumps(parts, protocol),)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise ConfigError(
                f"the loader cannot be pickled, since its source or an argument cannot ({error}). Define "
                f"functions at the top level of a module, or make the loader in the process that uses it."
            ) from error

    def __iter__(self) -> Iterator[Batch]:
        """Return an iterator over one epoch or its rest; it begins when its first batch is asked for."""
        return LoaderIterator(self)

    def __getitem__(self, index: Any) -> NoReturn:
        """Refuse to be the dataset of another loader, as in `Trainer(train_dataset=loader)`."""
        raise ConfigError(
            "a tdstream.loader is iterated, not indexed: another loader cannot read it as its dataset. "
            "Iterate it. In transformers' Trainer, use TdstreamTrainerMixin of "
            "tdstream.integrations.transformers."
        )

    def __bool__(self) -> bool:
        """Always true, so that `if loader:` does not call `__len__`."""
        return True

    @property
    def epoch(self) -> int:
        """The epoch being served; at its end still this one."""
        raise NotImplementedError

    @property
    def vocab_size(self) -> int | None:
        """Size of the vocabulary, for the model's embedding; None if the source does not tell it."""
        size: int | None = self._pipeline.vocab_size
        return size

    @property
    def eos_token_id(self) -> int | None:
        """The id that ends documents; None if the source does not tell it, or sources differ."""
        token_id: int | None = self._pipeline.eos_token_id
        return token_id

    @property
    def tokenizer_name_or_path(self) -> str:
        """The tokenizer's name on the hub or its directory; "" if unknown, or if sources differ."""
        name: str = self._pipeline.tokenizer_name_or_path
        return name

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next pass; after a load, the epoch of the state keeps its position.

        Raises:
            ConfigError: If it is not an integer of at least 0.
        """
        self._choose(check_int("epoch", epoch, at_least=0))

    def _choose(self, epoch: int) -> None:
        """Choose the epoch of the next pass."""
        raise NotImplementedError

    def _begin_pass(self) -> None:
        """Open the pass that is due."""
        raise NotImplementedError

    def _take(self) -> Batch | None:
        """Return the next batch of the pass, and count it; None at its end."""
        raise NotImplementedError

    def _mark(self) -> Any:
        """Return the place before the next batch, for `_go_back`."""
        raise NotImplementedError

    def _go_back(self, mark: Any) -> None:
        """Return to a place: the batch after it did not reach the trainer. The pass is failed then."""
        raise NotImplementedError

    def _fail_pass(self) -> None:
        """Arrange that a new iterator resumes where this one failed."""

    def _leave_pass(self) -> None:
        """Note that the pass has no iterator any more."""

    def _retire_iterator(self) -> int:
        """Make the present iterator stale and return the number of the next one."""
        self._newest_iterator += 1
        self._leave_pass()
        return self._newest_iterator

    def _open_workers(self) -> Iterator[Any]:
        """Return the batches of a new pass of StatefulDataLoader's."""
        with explain_limits(), self._seeds.follow(), self._pipeline.opened_by_owner():
            return iter(super().__iter__())

    def _drop_workers(self) -> None:
        """Drop StatefulDataLoader's iterator, and with it the workers."""
        self._batches = iter(())
        stop_workers(self)
        super().load_state_dict({})


class LoaderIterator(Iterator[Batch]):
    """One pass over a loader."""

    def __init__(self, loader: LoaderBase) -> None:
        self._loader, self._number = loader, loader._retire_iterator()
        self._begun = self._over = False

    def __next__(self) -> Batch:
        """Return the next batch."""
        if self._number != self._loader._newest_iterator:
            raise StaleIteratorError(
                "stale iterator: since it was made, another one was made, a state was loaded, or it failed. "
                "Continuing would mix two positions; make a new one with iter(loader)."
            )
        if self._over:
            raise StopIteration
        loader = self._loader
        if not self._begun:
            try:
                loader._pipeline.check_ranks()
                loader._begin_pass()
                self._begun = True
            except BaseException as error:
                self._fail(error)
                raise
        mark = loader._mark()
        try:
            batch = loader._take()
            if batch is not None:
                return batch  # nothing after this can be interrupted and lose a batch that was counted
        except BaseException as error:
            loader._go_back(mark)
            self._fail(error)
            raise
        self._over = True
        raise StopIteration

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        """Refuse to be copied or pickled."""
        raise ConfigError(
            "an iterator of a loader is a pass that is running, and cannot be copied or pickled. Copy or "
            "pickle the loader, which resumes at the same place, or keep loader.state_dict()."
        )

    def _fail(self, error: BaseException) -> None:
        self._loader._newest_iterator += 1  # continuing would skip what failed
        self._loader._fail_pass()
        limit = explain_worker_error(error) if self._loader.num_workers else ""
        if limit:
            raise RuntimeError(limit) from error
        if isinstance(error, (ConnectionError, EOFError)):  # what a killed worker leaves of its pipe
            raise RuntimeError(f"a worker of the loader died: {type(error).__name__} {error}.") from error

    def __del__(self) -> None:
        """Note that a loop was left early: its iterator goes with it."""
        if self._number == self._loader._newest_iterator:
            self._loader._leave_pass()


def _rebuild(kind: type[_Base], pipeline: Any, arguments: dict[str, Any], state: dict[str, Any]) -> _Base:
    """Return a loader at the place of a state."""
    loader = kind(pipeline, **arguments)
    loader.load_state_dict(state)
    return loader


def _unpickle(parts: bytes) -> LoaderBase:
    kind, pipeline, arguments, state = pickle.loads(parts)  # noqa: S301 - inside a pickle that is loaded
    loader: LoaderBase = _rebuild(kind, pipeline, arguments, state)
    return loader


def _hook_sampler(loader: LoaderBase) -> None:
    """Give the loader's sampler the set_epoch() that trainers call (Lightning does, with its own count).

    Only a later epoch counts: the trainer may count from 0 again in a resumed run. The loader is known by a
    weak reference, since a cycle would keep workers alive.
    """
    weak = weakref.ref(loader)

    def set_epoch(epoch: int) -> None:
        alive = weak()
        if alive is not None and epoch > alive.epoch:
            alive.set_epoch(epoch)

    loader.sampler.set_epoch = set_epoch
