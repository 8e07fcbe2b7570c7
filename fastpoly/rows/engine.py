"""Sums over the items of a sequence, in a fixed order, by threads or other processes.

The order is a binary tree over the positions. Node (level, i) covers the positions
i 2^level .. (i + 1) 2^level - 1, as far as they exist. Its sum is that of its two children, left
plus right. The additions are the same wherever a subtree is summed, so the results are the same to
the last bit from any engine.

An engine has one method, `sum(items, method, *arguments)`: the sum of method(item, *arguments). An
item may have a `lock`, which is held meanwhile.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from fastpoly.kernels.blas_threads import one_blas_thread
from fastpoly.kernels.checks import aligned
from fastpoly.kernels.runtime import effective_n_threads
from fastpoly.rows.block import Point, PointMissing

Node = tuple[int, int]
Method = Callable[..., Any]

# Tasks per thread or worker in one pass: several, so that all end at about the same time.
TASKS = 4


class Engine(Protocol):
    """Computes sums."""

    def sum(self, items: Sequence[Any], method: Method, *arguments: Any) -> Any:
        """The sum of method(item, *arguments) over the items."""


def add(a: Any, b: Any) -> Any:
    """a + b for numbers and arrays, for tuples of them, and for lists, which are concatenated.

    An array on the left may be overwritten.

    Examples
    --------
    >>> import numpy as np
    >>> from fastpoly.rows.engine import add
    >>> add((1.0, None, [3]), (2.0, None, [4]))
    (3.0, None, [3, 4])
    """
    if isinstance(a, tuple):
        return tuple(map(add, a, b))
    if isinstance(a, np.ndarray) and a.ndim:
        return np.add(a, b, out=a)
    return None if a is None else a + b


def subtrees(first: int, last: int) -> list[Node]:
    """The fewest nodes that cover the positions first..last-1, in order.

    Examples
    --------
    >>> from fastpoly.rows.engine import subtrees
    >>> subtrees(3, 8)
    [(0, 3), (2, 1)]
    """
    nodes = []
    while first < last:
        level = (first & -first).bit_length() - 1 if first else (last - first).bit_length() - 1
        while first + (1 << level) > last:
            level -= 1
        nodes.append((level, first >> level))
        first += 1 << level
    return nodes


def equal_ranges(n: int, n_parts: int) -> list[list[Node]]:
    """The nodes of at most n_parts ranges of nearly equal length that cover n positions.

    Examples
    --------
    >>> from fastpoly.rows.engine import equal_ranges
    >>> equal_ranges(5, 2)
    [[(1, 0)], [(1, 1), (0, 4)]]
    """
    n_parts = min(n, n_parts)
    cuts = [n * i // n_parts for i in range(n_parts + 1)]
    return [subtrees(first, last) for first, last in pairwise(cuts)]


def node_sum(items: Sequence[Any], node: Node, method: Method, arguments: tuple[Any, ...]) -> Any:
    """The sum over the items of a node, in this thread."""
    level, i = node
    if level == 0:
        item = items[i]
        with getattr(item, "lock", nullcontext()):
            return method(item, *arguments)
    left = node_sum(items, (level - 1, 2 * i), method, arguments)
    return add(left, node_sum(items, (level - 1, 2 * i + 1), method, arguments))


def tree_sum(sums: Iterable[tuple[Node, Any]], n: int) -> Any:
    """The sum over n positions from the sums of subtrees that cover them.

    Examples
    --------
    >>> from fastpoly.rows.engine import node_sum, subtrees, tree_sum
    >>> numbers = [0.0, 1.0, 2.0, 3.0, 4.0]
    >>> tree_sum([(node, node_sum(numbers, node, float, ())) for node in subtrees(0, 5)], 5)
    10.0
    """
    known = dict(sums)
    level = 0
    while n > 1 << level:
        for i in range(0, -(-n // (1 << level)), 2):
            left, right = known.pop((level, i), None), known.pop((level, i + 1), None)
            if left is None:
                continue  # part of a larger subtree, which is known
            known[level + 1, i // 2] = left if right is None else add(left, right)
        level += 1
    return known[level, 0]


class ThreadEngine:
    """Computes sums in the threads of this process; each takes a few items at a time.

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

    def sum(self, items: Sequence[Any], method: Method, *arguments: Any) -> Any:
        """The sum of method(item, *arguments) over the items."""
        n_threads = min(self.n_threads, len(items))
        ranges = equal_ranges(len(items), TASKS * n_threads if n_threads > 1 else 1)
        waiting, sums = deque(node for nodes in ranges for node in nodes), {}

        def take() -> Node | None:
            try:
                return waiting.popleft()
            except IndexError:  # none is left
                return None

        def work() -> None:
            try:
                for node in iter(take, None):
                    sums[node] = node_sum(items, node, method, arguments)
            except BaseException:
                waiting.clear()  # so that the others stop, too
                raise

        helpers = [self._pool().submit(work) for _ in range(n_threads - 1)]
        try:
            work()
        finally:
            begun = [helper for helper in helpers if not helper.cancel()]
            errors = [helper.exception() for helper in begun]  # when they have ended
        for error in filter(None, errors):
            raise error
        return tree_sum(sums.items(), len(items))

    def _pool(self) -> ThreadPoolExecutor:
        """The threads that help the one that asks for a sum."""
        if self.pool is None or self.process != os.getpid():  # threads do not survive a fork
            self.pool = ThreadPoolExecutor(self.n_threads - 1, thread_name_prefix="fastpoly")
            self.process = os.getpid()
        return self.pool


def remote_sum(
    items: Sequence[Any], nodes: list[Node], method: Method, arguments: tuple[Any, ...]
) -> list[Any] | None:
    """The sums over some nodes in another process; None where the model must be sent along."""
    arguments = tuple(
        replace(a, model=aligned(a.model)) if isinstance(a, Point) else aligned(a)
        for a in arguments
    )
    try:
        with one_blas_thread():
            return [node_sum(items, node, method, arguments) for node in nodes]
    except PointMissing:
        return None


def with_model(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """The same arguments with the model itself, for a process that does not have it."""
    return tuple(replace(a, send=True) if isinstance(a, Point) else a for a in arguments)


class ExecutorEngine:
    """Computes sums on any executor, for example one of processes.

    Every process maps the files itself and keeps the gradients of the rows that it computed. An
    executor gives tasks to any of its processes, so each may end up with the gradients of all rows.

    Parameters
    ----------
    executor : concurrent.futures.Executor
    n_slots : int, optional
        How many tasks the executor runs at once. By default its `_max_workers`, or the number of
        processors.
    """

    def __init__(self, executor: Executor, n_slots: int | None = None) -> None:
        self.executor = executor
        known = getattr(executor, "_max_workers", None)
        self.n_slots = n_slots or known or os.cpu_count() or 1

    def sum(self, items: Sequence[Any], method: Method, *arguments: Any) -> Any:
        """The sum of method(item, *arguments) over the items."""
        nodes = [node for nodes in equal_ranges(len(items), self.n_slots) for node in nodes]
        sums = self._results(items, nodes, method, arguments)
        missing = [i for i, total in enumerate(sums) if total is None]
        again = self._results(items, [nodes[i] for i in missing], method, with_model(arguments))
        for i, total in zip(missing, again, strict=True):
            sums[i] = total
        return tree_sum(((n, s[0]) for n, s in zip(nodes, sums, strict=True)), len(items))

    def _results(
        self, items: Sequence[Any], nodes: list[Node], method: Method, arguments: tuple[Any, ...]
    ) -> list[Any]:
        """The results of one task per node, in order; if one fails, none is left running."""
        submit: Callable[..., Future] = self.executor.submit
        futures = [submit(remote_sum, items, [node], method, arguments) for node in nodes]
        try:
            return [future.result() for future in futures]
        except BaseException:
            for future in futures:
                future.cancel()
            for future in futures:
                if not future.cancelled():
                    future.exception()
            raise


def as_engine(engine: Any) -> Engine:
    """An engine from an engine or an executor."""
    if hasattr(engine, "sum"):
        return engine
    if isinstance(engine, ThreadPoolExecutor):
        raise TypeError("threads need no executor: fit the Shards themselves, with n_threads")
    if isinstance(engine, Executor) or hasattr(engine, "submit"):
        return ExecutorEngine(engine)
    raise TypeError(f"engine must be a concurrent.futures.Executor, got {type(engine).__name__}")
