"""`Trainer` of transformers over a `tdstream.loader`: `class MyTrainer(TdstreamTrainerMixin, Trainer)`.

The Trainer resumes by counting: its optimizer steps give the epoch, and the batches of it to read and throw
away. The mixin saves the loader's state in the checkpoint's trainer_state.json, loads it, and refuses a place
that this count does not reach. What is thrown away are empty places, so nothing is read.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState
from transformers.trainer_utils import get_last_checkpoint

from tdstream.core.errors import ConfigError, GeometryError, StateError
from tdstream.integrations.causal_labels import IGNORED, CausalFields
from tdstream.loading.loader import Loader
from tdstream.loading.stream_loader import StreamLoader
from tdstream.nodes.batch import hand_on
from tdstream.pipelines.pipeline import Pipeline
from tdstream.schedule.partition import deal
from tdstream.streams.stream_pipeline import StreamPipeline

if TYPE_CHECKING:
    from transformers import Trainer as _Trainer
else:
    _Trainer = object

logger = logging.getLogger(__name__)
_TRAINER_STATE = "trainer_state.json"


class _LoaderDataset(IterableDataset[Any]):
    """The batches that the Trainer counts: empty places for those before the loader's, then the loader's."""

    def __init__(self, loader: Loader, fields: CausalFields) -> None:
        self.loader, self.fields = loader, fields
        self.empty = 0

    def __len__(self) -> int:
        """Samples of an epoch, over all ranks."""
        return len(self.loader.dataset)

    def __iter__(self) -> Iterator[dict[str, Any] | None]:
        """Yield what accelerate's skip_first_batches reads: it throws the empty places away."""
        for _ in range(self.empty):
            yield None
        yield from map(self.fields, self.loader)


class TrainerLoader(DataLoader[Any]):
    """A loader as the Trainer knows one: made by TdstreamTrainerMixin.

    Args:
        loader: The loader.
        fields: Makes the model's arguments of a batch.
        evaluates: Whether each pass is an evaluation, which begins with epoch 0.
    """

    dataset: _LoaderDataset

    def __init__(self, loader: Loader, fields: CausalFields, *, evaluates: bool) -> None:
        super().__init__(_LoaderDataset(loader, fields), batch_size=None, collate_fn=hand_on)  # type: ignore[arg-type]
        self.loader, self.evaluates = loader, evaluates

    def __len__(self) -> int:
        """Batches of an epoch on this rank."""
        return len(self.loader)

    def __iter__(self) -> Iterator[dict[str, Any]]:  # type: ignore[override]
        """Yield an epoch's batches, without DataLoader's draw from the global random generator."""
        if self.evaluates:
            self.loader.set_epoch(0)
        return map(self.dataset.fields, self.loader)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next pass."""
        self.loader.set_epoch(epoch)

    @property
    def partition(self) -> dict[str, Any]:
        """The splitter's part of the state: batch_size, dp_world_size, tail."""
        part: dict[str, Any] = self.loader.state_dict()["nodes"]["splitter"]
        return part

    @property
    def next_place(self) -> tuple[int, int]:
        """(epoch, position) of the next batch."""
        located = self.loader.locate(self.loader.step)
        return located.epoch, min(sample.position for sample in located.samples)


class TdstreamCallback(TrainerCallback, ExportableState):
    """Keeps the loader's state in trainer_state.json, and resumes it; added by TdstreamTrainerMixin."""

    def __init__(self) -> None:
        self._data: TrainerLoader | None = None
        self._accumulation = 1

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps."""
        if self._data is None:
            return {"args": {}, "attributes": {}}
        saved = {"gradient_accumulation_steps": self._accumulation, "loader": self._data.loader.state_dict()}
        return {"args": {}, "attributes": {"saved": saved}}

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,  # noqa: ARG002
        **kwargs: Any,
    ) -> None:
        """Load the state of a run that resumes, or check that the loader begins with it."""
        data = kwargs.get("train_dataloader")
        self._data = data if isinstance(data, TrainerLoader) else None
        if self._data is None:
            return
        self._accumulation = args.gradient_accumulation_steps
        steps_per_epoch = max(1, -(-len(self._data) // self._accumulation))
        self._data.dataset.empty = 0
        if state.global_step:
            self._resume(state, steps_per_epoch)
        elif self._data.next_place[1]:
            epoch, position = self._data.next_place
            raise ConfigError(
                f"the loader stands at sample {position:,} of epoch {epoch:,}, and the Trainer begins at "
                f"step 0. Pass a new loader, or resume_from_checkpoint to resume both."
            )

    def _resume(self, state: TrainerState, steps_per_epoch: int) -> None:
        saved = _read_saved(state)
        data, before = self._require(), saved["loader"]["nodes"].get("splitter", {})
        now = data.partition
        factors = (now["batch_size"], now["dp_world_size"], self._accumulation)
        then = (
            before.get("batch_size", 0),
            before.get("dp_world_size", 0),
            saved.get("gradient_accumulation_steps", 1),
        )
        if factors[0] * factors[1] * factors[2] != then[0] * then[1] * then[2]:
            raise GeometryError(
                f"the checkpoint was saved with {_spell(then)} samples in a step, and this run has "
                f"{_spell(factors)}. The Trainer derives the epoch from its count of steps, so it cannot "
                f"continue with another number. Change batch_size, the ranks or gradient_accumulation_steps, "
                f"so that their product is the same."
            )
        data.loader.load_state_dict(saved["loader"])
        epoch, step = divmod(state.global_step, steps_per_epoch)
        batches = step * self._accumulation
        counted = (epoch, batches * factors[0] * factors[1])
        if data.next_place != counted:
            raise GeometryError(
                f"the checkpoint's loader stands at epoch {data.next_place[0]:,}, sample "
                f"{data.next_place[1]:,}, but the Trainer counts {state.global_step:,} steps of "
                f"{_spell(factors)} samples, {steps_per_epoch:,} in an epoch: epoch {counted[0]:,}, sample "
                f"{counted[1]:,}. It was saved with {_spell(then)}. Resume with the factors and the corpus "
                f"of the checkpoint."
            )
        data.dataset.empty = batches

    def _require(self) -> TrainerLoader:
        if self._data is None:
            raise ConfigError("the callback has no loader. Use TdstreamTrainerMixin, which adds it.")
        return self._data


def _read_saved(state: TrainerState) -> dict[str, Any]:
    callbacks: Any = state.stateful_callbacks or {}
    entry = callbacks.get(TdstreamCallback.__name__)
    entry = entry[-1] if isinstance(entry, list) and entry else entry
    saved = entry.get("attributes", {}).get("saved") if isinstance(entry, Mapping) else None
    if not isinstance(saved, dict) or not isinstance(saved.get("loader"), dict):
        raise StateError(
            f"the checkpoint, at step {state.global_step:,}, has no state of a tdstream.loader in its "
            f"{_TRAINER_STATE}: it was saved without TdstreamTrainerMixin. Resume from one that was saved "
            f"with it, or begin a new run from the checkpoint's model."
        )
    return saved


def _spell(factors: tuple[int, int, int]) -> str:
    batch_size, ranks, accumulation = factors
    product = batch_size * ranks * accumulation
    return f"batch_size {batch_size} x {ranks} ranks x {accumulation} accumulated = {product}"


class TdstreamTrainerMixin(_Trainer):
    """A Trainer that takes loaders of tdstream, or pipelines, as train_dataset and eval_dataset.

    class MyTrainer(TdstreamTrainerMixin, Trainer): ...

    Of a pipeline, `tdstream.build(..., batch_size=...)`, it makes a loader with the dataloader_* arguments.
    The batch size is the loader's: per_device_train_batch_size and per_device_eval_batch_size follow it.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if _is_ours(self.train_dataset):
            self._check_train_arguments()
            self.add_callback(TdstreamCallback())

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        """Train as Trainer does; a checkpoint that a kill left unfinished is refused."""
        path: Any = resume_from_checkpoint
        if path is True:
            path = get_last_checkpoint(self.args.output_dir)  # type: ignore[no-untyped-call]
        unfinished = path and not os.path.isfile(os.path.join(path, _TRAINER_STATE))
        if unfinished and _is_ours(self.train_dataset):
            raise StateError(
                f"{path} has no {_TRAINER_STATE}, which is written last: it is no checkpoint of a Trainer, "
                f"or was not finished. Remove it, and resume from the one before."
            )
        return super().train(resume_from_checkpoint, *args, **kwargs)

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Return the training loader."""
        if not _is_ours(self.train_dataset):
            return super().get_train_dataloader()
        self._check_train_arguments()
        data = self._adapt(self.train_dataset, evaluates=False)
        if data.loader._cursor.lengths.next_change(0) is not None:
            raise ConfigError(
                "the epochs of this mixture differ in length, and the Trainer counts epochs of one length. "
                "Weigh the sources so that no epoch ends early, or use your own loop."
            )
        batch_size = data.partition["batch_size"] // max(1, self.args.n_gpu)
        self.args.per_device_train_batch_size = batch_size
        self._train_batch_size = self.args.train_batch_size
        return data

    def get_eval_dataloader(self, eval_dataset: Any = None) -> DataLoader[Any]:
        """Return the loader of an evaluation."""
        own: Any = self.eval_dataset
        found = own if eval_dataset is None else eval_dataset
        found = own[found] if isinstance(found, str) else found
        if not _is_ours(found):
            return super().get_eval_dataloader(eval_dataset)
        return self._adapt_for_evaluation(found)

    def get_test_dataloader(self, test_dataset: Any) -> DataLoader[Any]:
        """Return the loader of a prediction."""
        if not _is_ours(test_dataset):
            return super().get_test_dataloader(test_dataset)
        return self._adapt_for_evaluation(test_dataset)

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Return the loss; in an evaluation the mean over the labels of all ranks, on each of them.

        With tail="keep" ranks can have different numbers of samples in the last batch.
        """
        if model.training or not isinstance(self.callback_handler.eval_dataloader, TrainerLoader):
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        labels = inputs.get("shift_labels", inputs.get("labels"))
        loss, outputs = super().compute_loss(model, inputs, True, None)
        if self.args.world_size > 1 and isinstance(labels, Tensor):
            count = labels.ne(IGNORED).sum()
            total = torch.where(count > 0, loss.mean() * count, 0)
            total, count = self.accelerator.reduce((total, count), reduction="sum")
            loss = total / count
        return (loss, outputs) if return_outputs else loss

    def evaluation_loop(self, dataloader: DataLoader[Any], *args: Any, **kwargs: Any) -> Any:
        """Evaluate as Trainer does, and gather each sample once."""
        if isinstance(dataloader, TrainerLoader):
            self.gather_function = self._gather
        return super().evaluation_loop(dataloader, *args, **kwargs)

    def _gather(self, values: Any) -> Any:
        """Gather rows over the ranks, without those that fill the last batch of tail="keep"."""
        from accelerate.utils import recursively_apply  # noqa: PLC0415 - absent until a Trainer is made

        data: Any = self.callback_handler.eval_dataloader
        samples, ranks = data.loader.last_samples, self.args.world_size
        if not (data.loader.end_of_dataloader and samples and data.partition["tail"] == "keep"):
            return self.accelerator.gather_for_metrics(values)
        # 5 samples on 4 ranks are 2, 1, 1 and 1, in 2 rows on each rank: rows 0 1, 2, 4 and 6 of all 8.
        rows, dealt = -(-samples // ranks), deal(samples, ranks)
        real = [rank * rows + row for rank, own in enumerate(dealt) for row in range(len(own))]

        def pick(gathered: Tensor) -> Tensor:
            # The loss is repeated batch_size times on each rank, and is the same on all.
            return gathered[real] if len(gathered) == rows * ranks else gathered[:samples]

        return recursively_apply(pick, self.accelerator.gather(values))

    def _adapt_for_evaluation(self, source: Any) -> TrainerLoader:
        if source is self.train_dataset:
            raise ConfigError(
                "train_dataset and eval_dataset are the same object: an evaluation would move the training's "
                "place. Make a loader for each."
            )
        data = self._adapt(source, evaluates=True)
        part = data.partition
        if part["batch_size"] % max(1, self.args.n_gpu):
            raise ConfigError(
                f"batch_size {part['batch_size']} is not a multiple of the {self.args.n_gpu} GPUs of this "
                f"process. Choose one that is, or start one process for each GPU with torchrun."
            )
        self.args.per_device_eval_batch_size = part["batch_size"] // max(1, self.args.n_gpu)
        left_out = data.loader.last_samples
        if part["tail"] == "drop" and left_out:
            logger.warning(
                "the evaluation leaves out %d of %d samples, which make no whole batch; "
                'tail="keep" counts each sample once.', left_out, len(data.dataset),
            )  # fmt: skip
        return data

    def _adapt(self, source: Any, *, evaluates: bool) -> TrainerLoader:
        """Return a loader of tdstream as the Trainer knows one."""
        loader = source if isinstance(source, (Loader, StreamLoader)) else self._make_loader(source)
        if isinstance(loader, StreamLoader):
            raise ConfigError(
                "a live stream has no place that a Trainer could count, and a state for each rank, where "
                "trainer_state.json holds one. Prepare the text with cache_dir=... or `tdstream prepare`."
            )
        fields = CausalFields(
            self.accelerator.unwrap_model(self.model),
            counts_shift_labels=hasattr(self, "_loss_shifts_labels"),
            drop_unused=self.args.remove_unused_columns,
        )
        state = loader.state_dict()
        fields.check_labels(state["nodes"]["collate"]["labels"])
        ranks = self._data_ranks()
        made_for = state["nodes"]["splitter"]["dp_world_size"]
        if made_for != ranks:
            raise GeometryError(
                f"the loader was made for {made_for} data-parallel ranks, and the Trainer has {ranks}: "
                f"samples would be lost or read twice. Make it after TrainingArguments, or pass dp_rank "
                f"and dp_world_size."
            )
        return TrainerLoader(self.accelerator.prepare(loader), fields, evaluates=evaluates)

    def _make_loader(self, pipeline: Pipeline | StreamPipeline) -> Loader | StreamLoader:
        if isinstance(pipeline, StreamPipeline):
            return StreamLoader(pipeline)
        args = self.args
        options: dict[str, Any] = {"num_workers": args.dataloader_num_workers}
        if args.dataloader_num_workers:
            options |= {
                "prefetch_factor": args.dataloader_prefetch_factor,
                "persistent_workers": args.dataloader_persistent_workers,
            }
        pin = args.dataloader_pin_memory and torch.cuda.is_available()
        return Loader(pipeline, pin_memory=pin, **options)

    def _data_ranks(self) -> int:
        """Return the ranks that read different data."""
        sizes = (getattr(self, f"get_{kind}_size", lambda: 1)() for kind in ("tp", "cp", "sp"))
        ranks = int(self.args.world_size)
        for size in sizes:
            ranks //= size
        return ranks

    def _check_train_arguments(self) -> None:
        """Refuse what would make the Trainer's count of batches differ from the loader's."""
        if self.args.auto_find_batch_size:
            raise ConfigError(
                "auto_find_batch_size=True changes the Trainer's batch size, but the loader's is fixed. "
                "Leave it out, and choose the loader's batch_size."
            )
        if self.args.ignore_data_skip:
            raise ConfigError(
                "ignore_data_skip=True would begin a resumed epoch's count again and lose a step. Leave it "
                "out: the loader resumes at its place, and nothing is read to skip."
            )


def _is_ours(source: Any) -> bool:
    return isinstance(source, (Loader, StreamLoader, Pipeline, StreamPipeline))
