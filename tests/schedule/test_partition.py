"""Dealing: every position to exactly one stream, and everybody knows who hands out the last item."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tdstream.distributed.topology import Topology, Worker
from tdstream.schedule.partition import BatchPartition, SamplePartition

GEOMETRY = {
    "num_samples": st.integers(0, 60),
    "world": st.integers(1, 4),
    "workers": st.integers(1, 5),
    "start": st.integers(0, 20),
}


def turns(streams):
    """Return one rank's items as a loader asks for them: one from each worker in turn."""
    rounds = max((len(items) for items in streams), default=0)
    return [items[i] for i in range(rounds) for items in streams if i < len(items)]


@given(batch_size=st.integers(1, 6), wrap=st.booleans(), **GEOMETRY)
def test_batches_are_the_global_order(num_samples, world, workers, start, batch_size, wrap):
    """Rank after rank, step after step, the batches are the positions start, start + 1, ... in order."""
    dealt = [
        [
            BatchPartition(
                num_samples=num_samples, batch_size=batch_size, start=start, wrap=wrap,
                topology=Topology(rank, world), worker=Worker(w, workers, True),
            )
            for w in range(workers)
        ]
        for rank in range(world)
    ]  # fmt: skip
    ranks = [turns([list(d.positions(0, d.num_items)) for d in streams]) for streams in dealt]
    steps = [len(batches) for batches in ranks]
    assert len(set(steps)) == 1, "all ranks take the same number of steps"
    assert steps[0] == dealt[0][0].items_per_rank
    served = [int(p) for step in zip(*ranks, strict=True) for batch in step for p in batch]
    left = max(num_samples - start, 0)
    count = -(-left // (batch_size * world)) if wrap else left // (batch_size * world)
    assert served == [p % num_samples for p in range(start, start + count * batch_size * world)]


@given(even=st.booleans(), **GEOMETRY)
def test_samples_go_to_streams_in_turn(num_samples, world, workers, start, even):
    """Stream s of S takes start + s, start + s + S, ...: each position once, ranks equal where asked."""
    dealt = [
        SamplePartition(
            num_samples=num_samples, start=start, even=even,
            topology=Topology(rank, world), worker=Worker(w, workers, True),
        )
        for rank in range(world)
        for w in range(workers)
    ]  # fmt: skip
    streams = [d.positions(0, d.num_items)[:, 0].tolist() for d in dealt]
    count = len(streams)
    whole = list(range(start, num_samples))
    if even and world > 1 and len(whole) >= count:
        whole = whole[: len(whole) - len(whole) % count]
        assert len({len(stream) for stream in streams}) == 1
    assert streams == [whole[s::count] for s in range(count)]


@given(batch_size=st.one_of(st.none(), st.integers(1, 6)), **GEOMETRY)
def test_one_stream_of_a_rank_ends_the_epoch(num_samples, world, workers, start, batch_size):
    """Exactly one, and it is the one that hands out the rank's last item."""
    for rank in range(world):
        common = {"num_samples": num_samples, "start": start, "topology": Topology(rank, world)}
        streams = [
            SamplePartition(worker=Worker(w, workers, True), **common)
            if batch_size is None
            else BatchPartition(worker=Worker(w, workers, True), batch_size=batch_size, **common)
            for w in range(workers)
        ]
        last = turns([[(w, i) for i in range(d.num_items)] for w, d in enumerate(streams)])
        expected = last[-1][0] if last else 0
        assert [w for w, d in enumerate(streams) if d.ends_epoch] == [expected]


@given(first=st.integers(0, 5), count=st.integers(0, 5), **GEOMETRY)
def test_a_block_of_items_is_its_items(first, count, num_samples, world, workers, start):
    """Positions computed ahead are those computed one by one."""
    dealing = BatchPartition(
        num_samples=max(num_samples, 1), batch_size=2, start=start,
        topology=Topology(0, world), worker=Worker(workers - 1, workers, True),
    )  # fmt: skip
    block = dealing.positions(first, count)
    assert block.tolist() == [dealing.positions(first + i, 1)[0].tolist() for i in range(count)]
