"""One problem over one set of shards, in a form that can be sent to other processes.

Pickling keeps only the arguments from which a job is made. A process that receives a job again
reuses the one that it already has, with its mapped files and cached gradients.
"""

import secrets
from collections import OrderedDict
from contextlib import nullcontext
from threading import Lock, Semaphore
from typing import Any

import numpy as np

from fastpoly.kernels.matrix import shared_ones
from fastpoly.problem import Problem
from fastpoly.rows.budget import Budget, fixed_width
from fastpoly.rows.shard import Affine, Shard
from fastpoly.rows.shard_rows import ShardRows

KEPT_JOBS = 2  # jobs that a worker process keeps; the caches of older ones are dropped

_received: OrderedDict[str, "ShardJob"] = OrderedDict()
_lock = Lock()


class ShardJob:
    """The rows of all shards of a run, opened when they are first needed.

    Parameters
    ----------
    shards : list of Shard
    problem : Problem or None
    activation : str
    fit_lower : str or None
    scaling : Affine or None
    memory : float or None
        Bytes that the rows may take in a process; None for no limit.
    n_threads : int
        Shards that a process computes at once, if memory is limited.
    key : str, optional
        The name by which other processes know the job; by default drawn at random.
    """

    def __init__(
        self,
        shards: list[Shard],
        problem: Problem | None,
        activation: str = "squared",
        fit_lower: str | None = None,
        scaling: Affine | None = None,
        memory: float | None = None,
        n_threads: int = 1,
        key: str | None = None,
    ) -> None:
        self.shards, self.problem = list(shards), problem
        self.longest = max((shard.n_rows for shard in self.shards), default=0)
        self.activation, self.fit_lower, self.scaling = activation, fit_lower, scaling
        self.memory, self.n_threads = memory, n_threads
        self.budget = self._budget()
        # A worker may have more threads than the budget was made for; they wait for each other.
        self.slots = nullcontext() if memory is None else Semaphore(n_threads)
        self.key = key or secrets.token_hex(16)
        self.spare: list[np.ndarray] = []
        self.opened: dict[int, ShardRows] = {}
        self.locks = [Lock() for _ in self.shards]

    def __len__(self) -> int:
        return len(self.shards)

    def _budget(self) -> Budget | None:
        if self.memory is None:
            return None
        m = None if self.problem is None else self.problem.m
        return Budget(self.shards, m, self.scaling is not None, self.memory, self.n_threads)

    def open(self, place: int) -> ShardRows:
        """The rows of a shard, for one thread at a time."""
        width = fixed_width(self.shards[place])
        if width is not None:
            shared_ones(self.longest, width)  # first, so that no shorter ones are made
        return ShardRows(
            self.shards[place], place, self.problem, self.activation, self.fit_lower,
            self.scaling, self.spare,
        )  # fmt: skip

    def call(self, place: int, verb: str, arguments: tuple[Any, ...]) -> Any:
        """The result of a method of `ShardRows` for a shard; it waits for others of that shard.

        A worker can still run a task of a pass that was given up, when the same shard comes again.
        """
        with self.locks[place], self.slots:
            opened, budget = self.opened, self.budget  # in this order; see `release`
            rows = opened.get(place) or self.open(place)
            try:
                return getattr(rows, verb)(*arguments)
            finally:
                if budget is None or budget.keeps(place):
                    opened[place] = rows

    def release(self) -> None:
        """Forget what the shards keep; what is needed again is computed again.

        It does not wait for shards that are being computed. What they keep goes to the old
        dictionary, or is counted in the new budget.
        """
        self.budget = self._budget()
        self.opened = {}

    def __reduce__(self) -> tuple[Any, ...]:
        how = self.activation, self.fit_lower, self.scaling, self.memory, self.n_threads
        return _job, (self.shards, self.problem, *how, self.key)


def _job(*parts: Any) -> ShardJob:
    """The job of that key in this process."""
    key = parts[-1]
    with _lock:
        if key not in _received:
            _received[key] = ShardJob(*parts)
            for other in _received.values():
                if other.key != key and other.budget is not None:
                    other.release()  # it is over, or waits for this one
        _received.move_to_end(key)
        while len(_received) > KEPT_JOBS:
            _received.popitem(last=False)
        return _received[key]


def received(key: str) -> ShardJob | None:
    """The job of that key, if this process has received it."""
    with _lock:
        if key in _received:
            _received.move_to_end(key)  # a job in use is not the one to drop
        return _received.get(key)
