"""Sums over the items of a sequence, in a fixed order, by threads or other processes.

The order is a binary tree over the positions. Node (level, i) covers the positions
i 2^level .. (i + 1) 2^level - 1, as far as they exist, and its sum is that of its two children. The
additions are the same wherever a subtree is summed, so any engine gives the same bits.
"""

import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from operator import itemgetter
from threading import Lock
from typing import Any, Protocol

import numpy as np

from fastpoly.kernels.blas_threads import one_blas_thread
from fastpoly.kernels.checks import aligned
from fastpoly.kernels.runtime import effective_n_threads
from fastpoly.state import Model

Node = tuple[int, int]
Method = Callable[..., Any]


class Engine(Protocol):
    """Computes sums; a `lock` that an item may have is held meanwhile."""

    def sum(self, items: Sequence[Any], method: Method, *arguments: Any) -> Any:
        """The sum of method(item, *arguments) over the items."""


class PointMissing(Exception):
    """The model must be sent, because row gradients have to be computed again."""


@dataclass(frozen=True)
class Point:
    """A model, which is pickled only to `send` it, and the number by which blocks know it."""

    number: int
    model: Model | None
    send: bool = False

    def __reduce__(self) -> tuple[Any, ...]:
        return Point, (self.number, self.model if self.send else None, self.send)


def add(a: Any, b: Any) -> Any:
    """a + b for numbers, arrays (the left one may be overwritten), tuples of them, and lists."""
    if isinstance(a, tuple):
        return tuple(map(add, a, b))
    if isinstance(a, np.ndarray) and a.ndim:
        return np.add(a, b, out=a)
    return None if a is None else a + b


def subtrees(first: int, last: int) -> list[Node]:
    """The fewest nodes that cover the positions first..last-1, in order."""
    nodes = []
    while first < last:
        level = (last - first).bit_length() - 1  # the largest that fits, if it begins here
        level = min(level, (first & -first).bit_length() - 1) if first else level
        nodes.append((level, first >> level))
        first += 1 << level
    return nodes


def equal_ranges(n: int, n_parts: int) -> list[list[Node]]:
    """The nodes of at most n_parts ranges of nearly equal length that cover n positions."""
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
    """The sum over n positions from the sums of subtrees that cover them."""
    known, level = dict(sums), 0
    while n > 1 << level:
        for i in range(0, -(-n // (1 << level)), 2):
            left, right = known.pop((level, i), None), known.pop((level, i + 1), None)
            if left is not None:  # else it is part of a larger subtree, which is known
                known[level + 1, i // 2] = left if right is None else add(left, right)
        level += 1
    return known[level, 0]


def results(futures: list[Any]) -> list[Any]:
    """The results of futures, in order; if one fails, none is left running."""
    try:
        return [future.result() for future in futures]
    finally:
        for future in [future for future in futures if not future.cancel()]:
            future.exception()


class ThreadEngine:
    """Computes sums in threads of this process."""

    def __init__(self, n_threads: int | None = None) -> None:
        self.n_threads = effective_n_threads(n_threads)
        self.pool: ThreadPoolExecutor | None = None
        self.process = os.getpid()

    def sum(self, items: Sequence[Any], method: Method, *arguments: Any) -> Any:
        n = len(items)
        if min(self.n_threads, n) == 1:
            return tree_sum(
                ((node, node_sum(items, node, method, arguments)) for node in subtrees(0, n)), n
            )
        # Several ranges per thread, and the largest subtrees first: all end at about the same time.
        nodes = sorted(chain(*equal_ranges(n, 4 * self.n_threads)), key=itemgetter(0), reverse=True)
        submit = self._pool().submit
        sums = results([submit(node_sum, items, node, method, arguments) for node in nodes])
        return tree_sum(zip(nodes, sums, strict=True), n)

    def _pool(self) -> ThreadPoolExecutor:
        if self.pool is None or self.process != os.getpid():  # threads do not survive a fork
            self.pool = ThreadPoolExecutor(self.n_threads, thread_name_prefix="fastpoly")
            self.process = os.getpid()
        return self.pool


_received: OrderedDict[str, Any] = OrderedDict()
_lock = Lock()


def receive(make: Method, key: str, *arguments: Any) -> Any:
    """The list of that key in this process, made if it is not here."""
    with _lock:
        if key not in _received:
            _received[key] = make(*arguments, key=key)
        _received.move_to_end(key)  # a list in use is not the one to drop
        while len(_received) > 4:  # the shards of a fit, its rows, and two parts of them
            _received.popitem(last=False)
        return _received[key]


def remote_sum(
    items: Sequence[Any] | str, nodes: list[Node], method: Method, arguments: tuple[Any, ...]
) -> list[Any] | None:
    """The sums over some nodes, of items or those of a key; None where more must be sent along."""
    if isinstance(items, str):
        with _lock:
            if items not in _received:
                return None
            _received.move_to_end(items)
            items = _received[items]
    arguments = tuple(
        replace(a, model=aligned(a.model)) if isinstance(a, Point) else aligned(a)
        for a in arguments
    )
    try:
        with one_blas_thread():
            return [node_sum(items, node, method, arguments) for node in nodes]
    except PointMissing:
        return None


def sum_in_tasks(
    slots: list[Any], run: Callable[..., list[Any]], items: Sequence[Any], method: Method,
    arguments: tuple[Any, ...],
) -> Any:  # fmt: skip
    """The sum of method(item, *arguments) over the items in other processes, a task per slot.

    A process keeps the items and models that it received. So a task first names the items by their
    key, and does not send the model; whatever a process does not have is sent along next. `run`
    takes tasks (slot, nodes), items or their key, method and arguments, and returns the
    `remote_sum` of each task.
    """
    tasks = list(zip(slots, equal_ranges(len(items), len(slots)), strict=False))
    sums = run(tasks, getattr(items, "key", items), method, arguments)
    missing = [i for i, found in enumerate(sums) if found is None]
    if missing:
        model = (replace(a, send=True) if isinstance(a, Point) else a for a in arguments)
        again = run([tasks[i] for i in missing], items, method, tuple(model))
        for i, found in zip(missing, again, strict=True):
            sums[i] = found
    nodes = [node for _, nodes in tasks for node in nodes]
    return tree_sum(zip(nodes, chain(*sums), strict=True), len(items))


class ExecutorEngine:
    """Computes sums on any executor; each of its processes may keep the gradients of all rows."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor

    def sum(self, items: Sequence[Any], method: Method, *arguments: Any) -> Any:
        n_slots = getattr(self.executor, "_max_workers", None) or os.cpu_count() or 1
        return sum_in_tasks([None] * n_slots, self._run, items, method, arguments)

    def _run(self, tasks: list[tuple[None, list[Node]]], items: Any, *call: Any) -> list[Any]:
        submit = self.executor.submit
        return results([submit(remote_sum, items, nodes, *call) for _, nodes in tasks])


def as_engine(engine: Any) -> Engine:
    """An engine from an engine or an executor."""
    if hasattr(engine, "sum"):
        return engine
    if isinstance(engine, ThreadPoolExecutor):
        raise TypeError("threads need no executor: fit the Shards themselves, with n_threads")
    if isinstance(engine, Executor) or hasattr(engine, "submit"):
        return ExecutorEngine(engine)
    raise TypeError(f"engine must be a concurrent.futures.Executor, got {type(engine).__name__}")
