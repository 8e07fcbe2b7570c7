"""How much memory the rows of a fit may take in one process, and which shards it is kept for.

A shard may keep the loss gradients of its rows, its targets and weights in the form of the loss,
and scaled copies of sparse values. All of that can be computed again from the files and the model,
so a limit costs time, and never changes a result. Rows of a fixed number of entries also share some
constants. Mapped files do not count: the system takes their memory back when it needs it.
"""

from collections.abc import Sequence
from math import prod
from threading import Lock

from fastpoly.kernels.checks import BLOCK_DOUBLES
from fastpoly.rows.pages import unused_bytes
from fastpoly.rows.shard import Shard


class Budget:
    """Decides which shards keep what they have computed.

    Parameters
    ----------
    shards : sequence of Shard
    n_outputs : int or None
        None before the problem is known, when statistics are computed.
    scaled : bool
        Whether features are scaled.
    memory : float
        Bytes that the rows may take in this process. ValueError if they are too few for any fit.
    n_threads : int
        Shards that this process computes at once.
    """

    def __init__(
        self,
        shards: Sequence[Shard],
        n_outputs: int | None,
        scaled: bool,
        memory: float,
        n_threads: int,
    ) -> None:
        n_threads = min(n_threads, len(shards))
        least = least_bytes(shards, n_outputs or 1, scaled, n_threads)
        if memory < least:
            if n_outputs is None:  # name what a fit needs, or it would ask for more again
                scaled = "data" in shards[0].files  # ones stay ones
                least = least_bytes(shards, most_outputs(shards[0]), scaled, n_threads)
            rows = max(shard.n_rows for shard in shards)
            raise ValueError(
                f"memory={memory:.0f} bytes are too few: {n_threads} thread(s) need {least} "
                f"bytes for shards of up to {rows} rows; raise memory, lower n_threads, or write "
                "smaller shards with rows_per_shard"
            )
        self.sizes = [kept_bytes(shard, n_outputs or 1, scaled) for shard in shards]
        self.room = memory - least
        self.kept: set[int] = set()
        self.lock = Lock()

    def keeps(self, place: int) -> bool:
        """Whether a shard may keep what it has computed."""
        with self.lock:
            if place not in self.kept and self.sizes[place] <= self.room:
                self.kept.add(place)
                self.room -= self.sizes[place]
            return place in self.kept


def least_bytes(shards: Sequence[Shard], n_outputs: int, scaled: bool, n_threads: int) -> int:
    """What a process needs for passes that keep nothing."""
    needs = [kept_bytes(s, n_outputs, scaled) + pass_bytes(s, n_outputs) for s in shards]
    return n_threads * max(needs) + max(map(shared_bytes, shards))


def most_outputs(shard: Shard) -> int:
    """The most outputs of a fit, if each stands for a class or a target."""
    return shard.n_classes or prod(shard.files["y"].shape[1:])


def shared_bytes(shard: Shard) -> int:
    """The constants of `shared_ones`; all shards share those of the longest."""
    width = fixed_width(shard)
    return 0 if width is None else 4 * shard.n_rows * width + 8 * (shard.n_rows + 1)


def fixed_width(shard: Shard) -> int | None:
    """How many entries every row has, where all have the same number."""
    return shard.files["indices"].shape[1] if shard.kind in ("codes", "mixed") else None


def kept_bytes(shard: Shard, n_outputs: int, scaled: bool) -> int:
    """The most that a shard keeps between passes."""
    columns = 2 * n_outputs + 1  # gradients, some combinations of them, and weights
    if shard.files["y"].dtype.itemsize > 1:
        columns += n_outputs  # targets; levels of one byte are used as they are
    copied = n_entries(shard) if scaled and shard.kind != "dense" else 0
    unused = unused_bytes((shard.n_rows, n_outputs))
    return 8 * (shard.n_rows * columns + copied) + unused


def pass_bytes(shard: Shard, n_outputs: int) -> int:
    """The most that a pass over a shard takes while it runs, besides the parameters."""
    outputs = shard.n_rows * (3 * n_outputs + 1)  # outputs, curvature, targets, and weights
    entries = n_entries(shard)
    if shard.kind != "dense":
        return 8 * max(outputs, 4 * entries)
    # Two copies of the rows, or several of a block of rows.
    return 8 * (outputs + max(2 * entries, 5 * min(entries, BLOCK_DOUBLES)))


def n_entries(shard: Shard) -> int:
    """How many numbers are stored in the rows."""
    return prod(shard.files["x" if shard.kind == "dense" else "indices"].shape)
