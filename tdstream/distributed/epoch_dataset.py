"""The base of the pipelines: a dataset whose epoch all processes of a rank share, and one pass over it."""

from __future__ import annotations

import copy
import multiprocessing
import os
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from torch.utils.data import IterableDataset, get_worker_info

from tdstream.core.errors import ConfigError
from tdstream.core.state import Identified, check_identities
from tdstream.distributed.shared_epoch import Pass, SharedEpoch
from tdstream.distributed.topology import Topology, Worker, check_dealt_once, current_worker

# A worker that waits to write into a full pipe, or that a fork server started, outlives a trainer killed with
# SIGKILL for ever. A thread that looks twice a second ends it. Two signs are needed: under fork and spawn the
# parent's process id changes; under forkserver the parent is the fork server, which stays alive, but
# multiprocessing's parent process reports the end of the trainer.

_POLL_SECONDS = 0.5
_watched: set[int] = set()  # process ids, since a forked child inherits this set but not the thread


def watch_parent() -> None:
    """Start the thread in this worker process, once; it ends the process with os._exit."""
    if os.getpid() in _watched:
        return
    _watched.add(os.getpid())
    threading.Thread(target=_watch, args=(os.getppid(),), name="tdstream-watchdog", daemon=True).start()


def _watch(parent_pid: int) -> None:
    parent = multiprocessing.parent_process()
    while os.getppid() == parent_pid and (parent is None or parent.is_alive()):
        time.sleep(_POLL_SECONDS)
    os._exit(1)


class EpochDataset(IterableDataset[dict[str, Tensor]]):
    """Epochs that count themselves 0, 1, 2, ... unless `set_epoch` chooses; and the identities of nodes."""

    collate: Any
    cursor_name: str
    """The part of a state that is a place rather than an identity."""

    def __init__(self, *, strict: bool) -> None:
        self.strict = strict
        self._clock = SharedEpoch()
        self._owner: weakref.ref[Any] | None = None
        self._is_opening = self._is_foreign = False

    def __bool__(self) -> bool:
        """Always true, so that `if pipeline:` does not call `__len__`."""
        return True

    @property
    def epoch(self) -> int:
        """The epoch that the next pass serves, or that the running one is in; right after a resume, too."""
        return self._clock.epoch

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next pass, also in workers that are already running.

        Raises:
            ConfigError: If it is not an integer of at least 0.
        """
        self._clock.set_epoch(epoch)

    @property
    def generation(self) -> int:
        """How often an epoch was chosen."""
        return self._clock.generation

    def begin_at(self, epoch: int, position: int) -> int:
        """Choose the next pass's epoch and first position; return the generation, for `asked_since`."""
        self._clock.set_epoch(epoch, position)
        return self.generation

    def asked_since(self, generation: int) -> int | None:
        """Return the epoch that `set_epoch` chose after a generation; None if it chose none."""
        return self._clock.epoch if self._clock.generation > generation else None

    def identified_nodes(self) -> Sequence[Identified]:
        """Return the nodes that decide content and order, which is all but how samples are dealt out."""
        raise NotImplementedError

    def identities(self) -> dict[str, dict[str, Any]]:
        """Return what decides content and order, by node."""
        return {node.name: node.state_dict() for node in self.identified_nodes()}

    def compare(self, saved: dict[str, dict[str, Any]]) -> None:
        """Compare saved identities with this pipeline's."""
        check_identities(saved, self.identified_nodes(), cursor=self.cursor_name, strict=self.strict)

    def check_ranks(self) -> None:
        """Refuse a process group that was made since, if it knows this process by another rank."""
        raise NotImplementedError

    def give_to(self, loader: Any) -> None:
        """Note that a loader counts what this dataset serves; while it lives, it alone opens passes."""
        self._owner, self._is_foreign = weakref.ref(loader), False

    @property
    def is_owned(self) -> bool:
        """Whether a loader counts what this dataset serves."""
        return self._owner is not None and self._owner() is not None

    @contextmanager
    def opened_by_owner(self) -> Iterator[None]:
        """Let the owner open a pass, and start the workers that will."""
        self._is_opening = True
        try:
            yield
        finally:
            self._is_opening = False

    def __getstate__(self) -> dict[str, Any]:
        self.check_ranks()  # a spawned worker has no process group
        if not self.is_owned:
            check_dealt_once(self._topology())
        foreign = self.is_owned and not self._is_opening
        return {**self.__dict__, "_owner": None, "_is_foreign": foreign}

    def _topology(self) -> Topology:
        """Return the data-parallel coordinate."""
        raise NotImplementedError

    def _enter_process(self) -> Worker:
        """Return which worker this process is; a worker process ends with its parent from now on."""
        self.check_ranks()
        worker = current_worker()
        if (self.is_owned and not self._is_opening) or (worker.is_process and self._is_foreign):
            raise ConfigError(
                "this dataset belongs to a tdstream.loader, which counts the batches it serves; another loop "
                "over it would begin an epoch again, and nothing would notice. Iterate the loader. To resume "
                "a run, use loader.load_state_dict(state); to leave batches out, loader.skip(n). In "
                "transformers' Trainer, use tdstream.integrations.transformers; with accelerate, leave out "
                "skip_first_batches."
            )
        if not self.is_owned:
            check_dealt_once(self._topology())
        if worker.is_process:
            watch_parent()
        return worker


class EpochPass(Iterator[dict[str, Tensor]]):
    """One pass over an epoch, in one process; the last of a rank's processes to end it moves the epoch on."""

    def __init__(self, dataset: EpochDataset, worker: Worker) -> None:
        self._clock, self._worker = dataset._clock, worker
        self._opened = self._open(worker)
        self._travels = worker.is_process or dataset.collate.stays_packed
        self._ended = False

    def _open(self, worker: Worker) -> Pass:
        info = get_worker_info() if worker.is_process and worker.count > 1 else None
        if info is None:
            return self._clock.open(in_worker=worker.is_process)
        return self._clock.open_together(info.id, int(info.seed) - info.id)

    def __copy__(self) -> EpochPass:
        """Return a deep copy: two passes that share a cursor would take each other's items."""
        return copy.deepcopy(self)

    def _is_last(self) -> bool:
        """Return whether this process is the last of its rank to end the pass."""
        raise NotImplementedError

    def _end(self) -> None:
        """Note, once, that this process has nothing left."""
        if not self._ended:
            self._ended = True
            if self._is_last():
                self._clock.close(self._opened)

    def _restore(self, epoch: int, *, ended: bool, writes: bool) -> None:
        """Continue a saved pass; `writes` is whether this process brings its epoch to the main process."""
        generation = self._clock.restore(epoch) if writes else self._opened.generation
        self._opened, self._ended = Pass(epoch, generation), False
        if ended:
            self._end()
