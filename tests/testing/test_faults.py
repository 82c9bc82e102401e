"""A node or pipeline that breaks the contract is caught, with a sentence that names the fault."""

from __future__ import annotations

import os

import numpy as np
import pytest

import tdstream
from helpers_corpus import write_corpus
from tdstream.nodes import (
    Collate,
    EpochPermutation,
    IdentityState,
    MemmapReader,
    Pipeline,
    PlanByReading,
    Splitter,
    TokenArray,
    TokenStream,
)
from tdstream.testing import ContractError, check_node, check_pipeline

TOKENS = np.arange(50, dtype=np.uint16)


class Reader(PlanByReading, IdentityState):
    """A right node, of which the wrong ones differ in one thing."""

    name = "reader"
    seq_len = 4

    def __len__(self):
        """Ten samples."""
        return 10

    def read(self, indices):
        """Return windows."""
        return TOKENS[indices[:, None] * 5 + np.arange(5)]

    def state_dict(self):
        """Return an identity."""
        return {"seq_len": 4, "content": "abc"}


class Random(Reader):
    """Reads random tokens."""

    def read(self, indices):
        """Return other rows each time."""
        return np.random.default_rng().integers(0, 60000, (len(indices), 5)).astype(np.uint16)


class Drifting(Reader):
    """Returns rows that depend on the number of earlier reads."""

    reads = 0

    def read(self, indices):
        """Return rows that a counter shifts."""
        self.reads += 1
        return (super().read(indices) + self.reads - 1).astype(np.uint16)


class ByPlace(Reader):
    """Returns rows that depend on their place in the call."""

    def read(self, indices):
        """Add the place."""
        return (super().read(indices) + np.arange(len(indices))[:, None]).astype(np.uint16)


class Planned(Reader):
    """Plans other rows than it reads."""

    def plan(self, indices, bounds):
        """Return the plan of other indices."""
        return super().plan((indices + 1) % 10, bounds)


class Wide(Reader):
    """Reads int64."""

    def read(self, indices):
        """Return rows of a type that is not stored."""
        return super().read(indices).astype(np.int64)


class Short(Reader):
    """Leaves the last label out."""

    def read(self, indices):
        """Return rows of seq_len tokens."""
        return super().read(indices)[:, :4]


class Shared(Reader):
    """Returns the same dict at each call."""

    def __init__(self):
        self.state = {"seq_len": 4, "more": ["a"]}

    def state_dict(self):
        """Return a part of this node."""
        return {**self.state}


class NoJson(Reader):
    """Has a number of numpy in its state."""

    def state_dict(self):
        """Return what JSON does not know."""
        return {"seq_len": np.int64(4)}


class Careless(Reader):
    """Loads any state."""

    def load_state_dict(self, state):
        """Compare nothing."""


class Speechless(Reader):
    """Refuses without a name."""

    def load_state_dict(self, state):
        """Compare, and say nothing."""
        if self.differences(state):
            raise tdstream.StateError("no.")


class Nameless(Reader):
    """Has no name."""

    name = None


class Open(Reader):
    """Holds an open file, which cannot be pickled."""

    def __init__(self, path):
        self.path, self.file = path, path.open("rb", buffering=0)

    def read(self, indices):
        """Seek and read."""
        rows = []
        for index in indices.tolist():
            self.file.seek(index * 10)
            rows.append(np.frombuffer(self.file.read(10), np.uint16))
        return np.stack(rows)

    def __del__(self):
        """Close it, so that the tests' own check of files has nothing to say."""
        self.file.close()


class Reopened(Open):
    """Opens its file anew when it is unpickled, but shares it with forked processes."""

    def __reduce__(self):
        return Reopened, (self.path,)


class Leaking(Reader):
    """Leaves a file open at every read."""

    files: list[int]

    def __init__(self):
        self.files = []

    def read(self, indices):
        """Open one more."""
        self.files.append(os.open(os.devnull, os.O_RDONLY))
        return super().read(indices)

    def __reduce__(self):
        return Leaking, ()

    def __del__(self):
        """Close them."""
        for file in self.files:
            os.close(file)


class Growing(Reader):
    """Remembers every read."""

    def __init__(self):
        self.seen = []

    def read(self, indices):
        """Keep the indices."""
        self.seen.append(indices)
        return super().read(indices)


class Unsteady(EpochPermutation):
    """Has an order that depends on what was asked before."""

    calls = 0

    def indices(self, positions, epoch):
        """Shift by a counter."""
        self.calls += 1
        return (super().indices(positions, epoch) + self.calls) % len(self)


FAULTS = {
    Random: "two fresh nodes of Random read different samples",
    Drifting: "Drifting reads other samples .*: a sample depends on its index alone",
    ByPlace: "ByPlace reads other samples one by one than together",
    Planned: "Planned reads other samples by a plan than by read",
    Wide: "Wide reads rows of int64; they are arrays of uint16 or uint32",
    Short: r"Short reads rows of shape \[10, 4\] for 10 indices; \[n, seq_len \+ 1\] is \[10, 5\]",
    Shared: r"two calls share the object at Shared\.more: a state is built fresh",
    NoJson: r"the state holds a value at NoJson\.seq_len that is not a JSON type",
    Careless: "a state with another seq_len is loaded; it must raise a StateError that names seq_len",
    Speechless: "a state with another seq_len is refused without naming seq_len: no",
    Nameless: r"Nameless\.name is None; it must be a string",
    Leaking: r"Leaking has \d+ more files open after 40 reads and loads",
    Growing: r"Growing, pickled, has grown from [\d,]+ to [\d,]+ bytes",
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_wrong_node_is_caught(fault):
    """With one sentence each."""
    with pytest.raises(ContractError, match=FAULTS[fault]):
        check_node(fault)


def test_a_right_node_passes():
    """So the faults above are what is wrong with them."""
    check_node(Reader)


def test_an_open_file_is_caught(tmp_path):
    """It cannot be pickled; and with a way around that, a forked process moves its position."""
    path = tmp_path / "tokens"
    TOKENS.tofile(path)
    with pytest.raises(ContractError, match=r"Open cannot be pickled .*, but spawned workers receive it so"):
        check_node(lambda: Open(path))
    with pytest.raises(ContractError, match=r"moves the position of a file that Reopened has open .*tokens"):
        check_node(lambda: Reopened(path))


class Dying(Reader):
    """Kills the process in which it is unpickled."""

    def __reduce__(self):
        return maybe_die, (os.getpid(),)


def maybe_die(process):
    """Return a node in the process that pickled it; end any other."""
    if os.getpid() != process:
        os._exit(1)
    return Dying()


def test_a_process_that_dies_is_caught_and_the_next_node_has_another():
    """Instead of a wait for its answer."""
    with pytest.raises(ContractError, match=r"a spawned process reads other samples from Dying: it died"):
        check_node(Dying)
    check_node(Reader)


def test_an_order_that_depends_on_earlier_calls_is_caught():
    """Position and epoch alone decide."""
    with pytest.raises(ContractError, match=r"Unsteady\.indices depends on more than position and epoch"):
        check_node(lambda: Unsteady(Reader(), shuffle=True))


class Source(IdentityState):
    """Tokens in memory; a right source."""

    name, what, dtype, total_tokens = "source", "some tokens", TOKENS.dtype, len(TOKENS)

    def __init__(self, content="abc"):
        self.content = content

    def state_dict(self):
        """Return an identity."""
        return {"total_tokens": self.total_tokens, "content": self.content}

    def open(self):
        """Return a stream."""
        return TokenArray(TOKENS)


class Ignorant(Source):
    """Has an identity that is the same for all tokens."""

    def state_dict(self):
        """Return the number of tokens alone."""
        return {"total_tokens": self.total_tokens}


class Uncounted(Source):
    """Does not say how many tokens there are."""

    def state_dict(self):
        """Return a checksum alone."""
        return {"content": self.content}


class Sequential(TokenStream):
    """Reads on from where the last read ended."""

    place = 0

    def slices(self, starts, lengths):
        """Return the next tokens, whatever the starts."""
        found = []
        for length in lengths:
            found.append(np.resize(TOKENS[self.place :], length))
            self.place = (self.place + length) % 40
        return found


class ReadsOn(Source):
    """Opens a stream that reads on."""

    def open(self):
        """Return it."""
        return Sequential()


class WrongType(Source):
    """Promises uint32 and reads uint16."""

    dtype = np.dtype(np.uint32)


def test_a_right_source_passes():
    """And refuses the state of another one."""
    check_node(Source, make_other=lambda: Source("abd"))


def test_wrong_sources_are_caught():
    """An identity that ignores the data, and streams that read other tokens than they should."""
    with pytest.raises(ContractError, match="Ignorant loads the state of the node that make_other returns"):
        check_node(Ignorant, make_other=lambda: Ignorant("abd"))
    with pytest.raises(ContractError, match='the identity of a source holds "total_tokens", 50 here'):
        check_node(Uncounted)
    with pytest.raises(ContractError, match="the stream of ReadsOn reads other tokens at"):
        check_node(ReadsOn)
    with pytest.raises(ContractError, match=r"the stream of WrongType reads uint16 .* expected uint32"):
        check_node(WrongType)


class Forgetful(Splitter):
    """Resumes one item too late."""

    def load_state_dict(self, state):
        """Skip one."""
        super().load_state_dict({**state, "step": state["step"] + 1})


class Noisy(Collate):
    """Adds noise."""

    def __call__(self, rows, *, travels=False):
        """Add a random number to the labels."""
        batch = super().__call__(rows)
        batch["labels"] += int(np.random.default_rng().integers(1, 1000))
        return batch


def make_pipeline(splitter=Splitter, collate=Collate, batch_size=2):
    """Return a pipeline over tokens in memory."""
    source = Source()
    reader = MemmapReader(source, seq_len=4)
    order = EpochPermutation(reader, shuffle=True)
    return Pipeline((source, reader, order), splitter(order, batch_size=batch_size), collate(batched=True))


def test_a_right_pipeline_passes():
    """With workers, too."""
    check_pipeline(make_pipeline)


def test_wrong_pipelines_are_caught():
    """A place that is lost, batches that are not what they were, and what cannot be checked."""
    with pytest.raises(ContractError, match="iterator, resumed after 0 items, differs from item"):
        check_pipeline(lambda: make_pipeline(splitter=Forgetful))
    with pytest.raises(ContractError, match="two fresh pipelines serve different items in epoch 0"):
        check_pipeline(lambda: make_pipeline(collate=Noisy))
    with pytest.raises(tdstream.ConfigError, match=r"must have 4 to 64 items\. This one has 2"):
        check_pipeline(lambda: make_pipeline(batch_size=5))
    with pytest.raises(tdstream.ConfigError, match=r"checks a tdstream\.Pipeline, got a list"):
        check_pipeline(list)


def test_a_stream_in_a_large_corpus_is_checked_in_part(tmp_path):
    """Whatever the size, and in little time."""
    corpus = write_corpus(tmp_path / "large", np.arange(3_000_000, dtype="<u4"), (1_000_000, 2_000_000))
    check_node(lambda: MemmapReader(tdstream.nodes.ShardSource(corpus), seq_len=63))
