"""The adapter of transformers' Trainer; with stand-ins for what accelerate builds and the Trainer counts."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader
from trainer_job import ROW, SAMPLES, SEED, SEQ_LEN
from trainer_runs import make_directory, truth
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, TrainerState

import tdstream
from tdstream.integrations.causal_labels import CausalFields
from tdstream.integrations.transformers import TdstreamCallback, TdstreamTrainerMixin, TrainerLoader

SMALL = {"vocab_size": 64, "num_hidden_layers": 1, "num_attention_heads": 1}
MODELS = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(hidden_size=8, intermediate_size=8, **SMALL)),
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(vocab_size=64, n_embd=8, n_layer=1, n_head=1)),
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a corpus of 203 samples."""
    return make_directory(tmp_path_factory.mktemp("trainers")) / "corpus"


def make(corpus: Path, batch_size: int = 8, **options: Any) -> tdstream.Loader:
    """Return a loader."""
    return tdstream.loader(corpus, seq_len=SEQ_LEN, batch_size=batch_size, shuffle=True, seed=SEED, **options)


def adapt(loader: tdstream.Loader) -> TrainerLoader:
    """Return it as the mixin gives it to the Trainer."""
    fields = CausalFields(MODELS["llama"](), counts_shift_labels=True, drop_unused=True)
    return TrainerLoader(loader, fields, evaluates=False)


def rows(batch: Any) -> list[int]:
    """Return a batch's samples."""
    return [int(row[0]) // ROW for row in batch["input_ids"]]


class Trainer:
    """transformers' Trainer: its counts of steps and batches, its callbacks, accelerate's SkipDataLoader."""

    def __init__(self, data: TrainerLoader, accumulate: int = 1) -> None:
        self.data, self.accumulate, self.callback = data, accumulate, TdstreamCallback()
        self.args = SimpleNamespace(gradient_accumulation_steps=accumulate)
        self.found: list[list[int]] = []
        self.saved: dict[int, str] = {}

    def train(self, epochs: int = 2, checkpoint: str = "") -> list[list[int]]:
        """Return the batches; keep a checkpoint at each optimizer step."""
        length = len(self.data)
        updates = -(-length // self.accumulate)
        loaded = json.loads(checkpoint) if checkpoint else {}
        state = TrainerState(stateful_callbacks=loaded.get("callbacks", {}))
        state.global_step = loaded.get("step", 0)
        epochs_trained, done = divmod(state.global_step, updates)
        self.callback.on_train_begin(self.args, state, None, train_dataloader=self.data)
        for epoch in range(epochs_trained, epochs):
            batches: Any = self.data
            if epoch == epochs_trained and done:
                batches = self._skip(done * self.accumulate)
            else:
                self.data.set_epoch(epoch)
            iterator = iter(batches)
            for update in range(done if epoch == epochs_trained else 0, updates):
                last = length - update * self.accumulate
                for _ in range(min(self.accumulate, last)):
                    self.found.append(rows(next(iterator)))
                state.global_step += 1
                callbacks = {"TdstreamCallback": self.callback.state()}
                self.saved[state.global_step] = json.dumps(
                    {"step": state.global_step, "callbacks": callbacks}, sort_keys=True
                )
        return self.found

    def _skip(self, count: int) -> Any:
        base = DataLoader(self.data.dataset, batch_size=None, collate_fn=self.data.collate_fn)
        for index, batch in enumerate(base):
            if index >= count:
                yield batch


@pytest.mark.parametrize("accumulate", [1, 4])
def test_any_step_resumes_and_nothing_is_read_to_skip(
    corpus: Path, accumulate: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a checkpoint of any step exactly the rest is trained on; the skipped batches are not read."""
    whole = Trainer(adapt(make(corpus)), accumulate)
    assert whole.train() == truth(0) + truth(1)
    per_epoch = -(-25 // accumulate)
    for step in (1, per_epoch - 1, per_epoch, per_epoch + 1, 2 * per_epoch - 1):
        loader = make(corpus)
        reads = 0
        read = loader.dataset.splitter.upstream.read

        def counted(indices: Any, read: Any = read) -> Any:
            nonlocal reads
            reads += len(indices)
            return read(indices)

        monkeypatch.setattr(loader.dataset.splitter.upstream, "read", counted)
        resumed = Trainer(adapt(loader), accumulate)
        done = 25 * (step // per_epoch) + accumulate * (step % per_epoch)
        assert resumed.train(checkpoint=whole.saved[step]) == (truth(0) + truth(1))[done:]
        assert reads <= 8 * (50 - done)


def test_a_mixture_resumes(corpus: Path) -> None:
    """trainer_state.json sorts keys, names of sources included."""

    def mixed() -> tdstream.Loader:
        options = {"seq_len": SEQ_LEN, "batch_size": 8, "shuffle": True, "seed": SEED}
        return tdstream.loader({"z": (corpus, 0.7), "a": (tdstream.split(corpus, [0.5])[0], 0.3)}, **options)

    whole = Trainer(adapt(mixed()))
    found = whole.train()
    assert Trainer(adapt(mixed())).train(checkpoint=whole.saved[11]) == found[11:]


def test_another_split_of_the_same_step_resumes(corpus: Path) -> None:
    """8 samples in one batch, then in two batches that are accumulated."""
    whole = Trainer(adapt(make(corpus)))
    whole.train()
    for step in (10, 25, 30):
        resumed = Trainer(adapt(make(corpus, 4)), accumulate=2).train(checkpoint=whole.saved[step])
        assert [*chain(*resumed)] == [*chain(*(truth(0) + truth(1))[step:])]


def test_another_global_batch_is_refused(corpus: Path) -> None:
    """The sentence names the three factors, those of the checkpoint and those of this run."""
    whole = Trainer(adapt(make(corpus)))
    whole.train()
    with pytest.raises(tdstream.GeometryError, match="batch_size 8 x 1 ranks x 1 accumulated = 8") as caught:
        Trainer(adapt(make(corpus, 4))).train(checkpoint=whole.saved[30])
    assert "batch_size 4 x 1 ranks x 1 accumulated = 4" in str(caught.value)
    with pytest.raises(tdstream.GeometryError, match="8 x 1 ranks x 2 accumulated = 16"):
        Trainer(adapt(make(corpus)), accumulate=2).train(checkpoint=whole.saved[30])


def test_a_place_that_the_trainer_does_not_count_is_refused(corpus: Path) -> None:
    """A checkpoint whose step was changed, one without a state, and a loader that is not at its beginning."""
    whole = Trainer(adapt(make(corpus)))
    whole.train()
    changed = json.loads(whole.saved[30]) | {"step": 31}
    with pytest.raises(tdstream.GeometryError, match="stands at epoch 1, sample 40, but"):
        Trainer(adapt(make(corpus))).train(checkpoint=json.dumps(changed))
    with pytest.raises(tdstream.StateError, match="has no state of a tdstream"):
        Trainer(adapt(make(corpus))).train(checkpoint=json.dumps({"step": 30}))
    elsewhere = make(corpus)
    saved = json.loads(whole.saved[30])["callbacks"]["TdstreamCallback"]["attributes"]["saved"]
    elsewhere.load_state_dict(saved["loader"])
    with pytest.raises(tdstream.ConfigError, match="stands at sample 40 of epoch 1"):
        Trainer(adapt(elsewhere)).train()


def test_training_again_begins_again(corpus: Path) -> None:
    """A second train() without a checkpoint serves epoch 0 from its beginning."""
    data = adapt(make(corpus))
    assert Trainer(data).train(1) == Trainer(data).train(1) == truth(0)


@pytest.mark.parametrize("name", MODELS)
def test_the_loss_is_that_of_the_next_tokens(name: str) -> None:
    """With the adapter's fields, a model's loss is the cross entropy of all T next tokens, masks included."""
    torch.manual_seed(0)
    model = MODELS[name]().eval()
    stored = torch.randint(0, 64, (3, 9))
    targets = stored[:, 1:].clone()
    targets[0, 2:5] = -100
    batch = {"input_ids": stored[:, :-1], "labels": targets, "source_id": torch.zeros(3)}
    given = CausalFields(model, counts_shift_labels=True, drop_unused=True)(batch)
    assert "source_id" not in given
    expected = torch.nn.functional.cross_entropy(
        model(batch["input_ids"]).logits.flatten(0, 1), targets.flatten(), ignore_index=-100
    )
    torch.testing.assert_close(model(**given).loss, expected)
    assert given["shift_labels"].tolist() == targets.tolist()
    # A model, metric or smoother that knows labels only shifts them itself: the same targets but the last.
    assert given["labels"][:, 1:].tolist() == targets[:, :-1].tolist()
    assert given["labels"][:, 0].tolist() == [-100] * 3


def test_labels_that_would_be_shifted_twice_are_refused() -> None:
    """labels="same" for a model that shifts; another model gets what the loader has."""
    fields = CausalFields(MODELS["llama"](), counts_shift_labels=True, drop_unused=True)
    with pytest.raises(tdstream.ConfigError, match='made with labels="same"'):
        fields.check_labels("same")
    plain = CausalFields(torch.nn.Linear(2, 2), counts_shift_labels=True, drop_unused=True)
    plain.check_labels("same")
    batch = {"input_ids": torch.zeros(1, 2), "labels": torch.ones(1, 2)}
    assert plain(batch) == batch


class Base:
    """What the mixin uses of a Trainer, with two ranks."""

    def __init__(self, train_dataset: Any, **changes: Any) -> None:
        settings = {
            "auto_find_batch_size": False, "ignore_data_skip": False, "n_gpu": 1, "world_size": 1,
            "remove_unused_columns": True, "train_batch_size": 8, "dataloader_num_workers": 0,
            "dataloader_pin_memory": True,
        }  # fmt: skip
        self.args = SimpleNamespace(**settings | changes)
        self.train_dataset, self.eval_dataset, self.model = train_dataset, None, MODELS["llama"]()
        self.accelerator = SimpleNamespace(unwrap_model=lambda model: model, prepare=lambda one: one)

    def add_callback(self, callback: Any) -> None:
        self.callback = callback


class Mixed(TdstreamTrainerMixin, Base):
    """A stand-in for `class MyTrainer(TdstreamTrainerMixin, Trainer)`."""


def test_the_trainers_numbers_are_the_loaders(corpus: Path) -> None:
    """The batch size follows the loader; len is batches of a rank, and len(dataset) samples of all."""
    trainer = Mixed(make(corpus))
    data = trainer.get_train_dataloader()
    assert trainer.args.per_device_train_batch_size == 8
    assert (len(data), len(data.dataset)) == (25, SAMPLES)
    assert isinstance(trainer.callback, TdstreamCallback)
    pipeline = tdstream.build(corpus, seq_len=SEQ_LEN, batch_size=8, shuffle=True, seed=SEED)
    assert [rows(batch) for batch in Mixed(pipeline).get_train_dataloader()] == truth(0)


def test_what_the_trainer_cannot_count_is_refused(corpus: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Each refusal says why, before anything is trained."""
    with pytest.raises(tdstream.ConfigError, match="ignore_data_skip"):
        Mixed(make(corpus), ignore_data_skip=True)
    with pytest.raises(tdstream.ConfigError, match="auto_find_batch_size"):
        Mixed(make(corpus), auto_find_batch_size=True)
    with pytest.raises(tdstream.GeometryError, match="made for 1 data-parallel ranks, and the Trainer has 2"):
        Mixed(make(corpus), world_size=2).get_train_dataloader()
    with pytest.raises(tdstream.ConfigError, match="needs batch_size"):
        Mixed(tdstream.build(corpus, seq_len=SEQ_LEN)).get_train_dataloader()
    trainer = Mixed(make(corpus))
    with pytest.raises(tdstream.ConfigError, match="the same object"):
        trainer.get_eval_dataloader(trainer.train_dataset)
    trainer.get_eval_dataloader(make(corpus))
    assert "leaves out 3 of 203 samples" in caplog.text


def test_a_trainer_without_the_mixin_is_told_of_it(corpus: Path) -> None:
    """It makes a DataLoader over the loader, which asks for items by their numbers."""
    with pytest.raises(tdstream.ConfigError, match="use TdstreamTrainerMixin"):
        next(iter(DataLoader(make(corpus), batch_size=8)))


def test_each_evaluation_is_the_same(corpus: Path) -> None:
    """Every pass serves epoch 0, each sample once."""
    data = Mixed(make(corpus)).get_eval_dataloader(make(corpus, tail="keep"))
    first, second = ([rows(batch) for batch in data] for _ in range(2))
    assert first == second
    assert sorted(chain(*first)) == [*range(SAMPLES)]
