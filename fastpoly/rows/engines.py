"""Engines that compute the sums over shards: threads, or any executor of `concurrent.futures`.

An engine has one method, `reduce(job, verb, arguments)`: the sum of a method of `ShardRows`, the
verb, over all shards of a job. It may compute a shard anywhere. The additions are always those of
`fastpoly.rows.tree`, so the results are the same to the last bit.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Protocol

from fastpoly.kernels.blas_threads import one_blas_thread
from fastpoly.kernels.checks import aligned
from fastpoly.kernels.runtime import effective_n_threads
from fastpoly.rows.job import ShardJob
from fastpoly.rows.shard_rows import At, ModelMissing
from fastpoly.rows.tree import Node, subtree_sum, subtrees, tree_sum

# Tasks per thread or worker in one pass: several, so that all end at about the same time.
TASKS = 4


class Engine(Protocol):
    """Runs passes over shards.

    Attributes
    ----------
    n_threads : int
        Threads of one process that compute at once.
    """

    n_threads: int

    def reduce(self, job: ShardJob, verb: str, arguments: tuple[Any, ...]) -> Any:
        """The sum of `verb(*arguments)` over all shards."""


def nodes_for(n_shards: int, n_tasks: int) -> list[Node]:
    """Subtrees of equal size that cover all shards: at least n_tasks of them, or one per shard.

    Examples
    --------
    >>> from fastpoly.rows.engines import nodes_for
    >>> nodes_for(10, 3)
    [(1, 0), (1, 1), (1, 2), (1, 3), (1, 4)]
    """
    level = max(0, (n_shards // n_tasks).bit_length() - 1)
    size = 1 << level
    nodes = []
    for first in range(0, n_shards, size):
        nodes += subtrees(first, min(first + size, n_shards))
    return nodes


def node_sum(job: ShardJob, node: Node, verb: str, arguments: tuple[Any, ...]) -> Any:
    """The sum over the shards of a node, in this thread; ValueError if one of them has changed."""
    level, i = node
    for place in range(i << level, (i + 1) << level):
        job.shards[place].check_unchanged()  # all at once, which is faster than between the sums
    return subtree_sum(node, lambda i: job.call(i, verb, arguments))


def collect(futures: Iterable[Future]) -> list[Any]:
    """The results in order; if one task fails, none is left running."""
    futures = list(futures)
    try:
        return [future.result() for future in futures]
    except BaseException:
        for future in futures:
            future.cancel()
        for future in futures:
            if not future.cancelled():
                future.exception()
        raise


class ThreadEngine:
    """Runs passes in the threads of this process; each takes a few shards at a time.

    The thread that asks for a sum works like the others, so a pass never waits for a thread that
    has not begun.

    Parameters
    ----------
    n_threads : int or None
        None for the OpenMP default.
    """

    def __init__(self, n_threads: int | None = None) -> None:
        self.n_threads = effective_n_threads(n_threads)
        self.pool: ThreadPoolExecutor | None = None
        self.process = os.getpid()

    def reduce(self, job: ShardJob, verb: str, arguments: tuple[Any, ...]) -> Any:
        """The sum of `verb(*arguments)` over all shards."""
        n_threads = min(self.n_threads, len(job))
        nodes = nodes_for(len(job), TASKS * n_threads if n_threads > 1 else 1)
        waiting, sums = deque(nodes), {}

        def take() -> Node | None:
            try:
                return waiting.popleft()
            except IndexError:  # none is left
                return None

        def work() -> None:
            try:
                for node in iter(take, None):
                    sums[node] = node_sum(job, node, verb, arguments)
            except BaseException:
                waiting.clear()  # so that the others stop, too
                raise

        with one_blas_thread():
            helpers = [self._pool().submit(work) for _ in range(n_threads - 1)]
            try:
                work()
            finally:
                begun = [helper for helper in helpers if not helper.cancel()]
                errors = [helper.exception() for helper in begun]  # when they have ended
        for error in filter(None, errors):
            raise error
        return tree_sum(sums.items(), len(job))

    def _pool(self) -> ThreadPoolExecutor:
        """The threads that help the one that asks for a sum."""
        if self.pool is None or self.process != os.getpid():  # threads do not survive a fork
            self.pool = ThreadPoolExecutor(self.n_threads - 1, thread_name_prefix="fastpoly")
            self.process = os.getpid()
        return self.pool


def remote_sum(
    job: ShardJob, nodes: list[Node], verb: str, arguments: tuple[Any, ...]
) -> list[Any] | None:
    """The sums over some nodes in another process; None where the model must be sent along."""
    arguments = tuple(
        replace(a, model=aligned(a.model)) if isinstance(a, At) else aligned(a) for a in arguments
    )
    try:
        with one_blas_thread():
            return [node_sum(job, node, verb, arguments) for node in nodes]
    except ModelMissing:
        return None


def with_model(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """The same arguments with the model itself, for a process that does not have it."""
    return tuple(replace(a, send=True) if isinstance(a, At) else a for a in arguments)


class ExecutorEngine:
    """Runs passes on any executor, for example one of processes. Shards are sent as numbers.

    Every process maps the files itself and keeps the gradients of the rows that it computed. An
    executor gives tasks to any of its processes, so each may end up with the gradients of all rows.

    Parameters
    ----------
    executor : concurrent.futures.Executor
    n_slots : int, optional
        How many tasks the executor runs at once. By default its `_max_workers`, or the number of
        processors.
    """

    n_threads = 1

    def __init__(self, executor: Executor, n_slots: int | None = None) -> None:
        self.executor = executor
        known = getattr(executor, "_max_workers", None)
        self.n_slots = n_slots or known or os.cpu_count() or 1

    def reduce(self, job: ShardJob, verb: str, arguments: tuple[Any, ...]) -> Any:
        """The sum of `verb(*arguments)` over all shards."""
        nodes = nodes_for(len(job), self.n_slots)
        run: Callable[..., Future] = self.executor.submit
        sums = collect([run(remote_sum, job, [node], verb, arguments) for node in nodes])
        missing = [i for i, total in enumerate(sums) if total is None]
        if missing:
            full = with_model(arguments)
            again = collect([run(remote_sum, job, [nodes[i]], verb, full) for i in missing])
            for i, total in zip(missing, again, strict=True):
                sums[i] = total
        return tree_sum(((n, s[0]) for n, s in zip(nodes, sums, strict=True)), len(job))


def as_engine(engine: Any) -> Engine:
    """An engine from an engine or an executor."""
    if hasattr(engine, "reduce"):
        return engine
    if isinstance(engine, ThreadPoolExecutor):
        raise TypeError("threads need no executor: fit the Shards themselves, with n_threads")
    if isinstance(engine, Executor) or hasattr(engine, "submit"):
        return ExecutorEngine(engine)
    raise TypeError(f"engine must be a concurrent.futures.Executor, got {type(engine).__name__}")
