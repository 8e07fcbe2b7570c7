"""Passes over shards on a Dask cluster; the only module that imports `distributed`.

A pass has one task per thread of every worker. A worker opens the shards of its tasks, keeps the
gradients of their rows, and returns the sums of whole subtrees (`fastpoly.rows.engine`). So the
result is the same to the last bit as with threads in one process. A pass depends on its arguments
only: if a worker is lost, another one computes its part, from the model if necessary.
"""

import asyncio
import concurrent.futures
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any

import dask
import distributed
from dask.utils import parse_bytes
from distributed.client import FutureCancelledError
from distributed.comm import CommClosedError
from distributed.scheduler import KilledWorker

from fastpoly.kernels.checks import as_count, as_positive
from fastpoly.kernels.runtime import simd_level
from fastpoly.rows.block import Block, Point
from fastpoly.rows.engine import Method, Node, equal_ranges, remote_sum, tree_sum, with_model
from fastpoly.rows.shards import Shards
from fastpoly.rows.stored import received

__all__ = ["on_cluster"]

POLL = 0.5  # seconds between two checks of the workers while a pass is running

WARNING = "distributed.admin.large-graph-warning-threshold"  # a setting of Dask

# Errors of tasks whose worker or connection is lost, as opposed to errors in the data.
LOST = (KilledWorker, CommClosedError, FutureCancelledError, OSError, TimeoutError)


def on_cluster(
    shards: Shards,
    client: distributed.Client,
    *,
    timeout: float = 60.0,
    retries: int = 3,
    strict: bool = True,
) -> Shards:
    """The same shards, with passes that run on the workers of a cluster.

    The folder must have the same path for every worker and for this process. Copies of it on other
    machines must keep the modification times of the files (`cp -p`, `rsync -t`), by which a worker
    knows that they are the same. The fitted model is the same to the last bit as without a cluster.
    Below about 1e7 rows a cluster does not pay off. Only fits use the workers: `predict` reads the
    files in this process.

    Parameters
    ----------
    shards : Shards
    client : distributed.Client
        Dask unpickles the data that it receives: use it in a network that you trust, or with TLS.
    timeout : float
        Seconds to wait for workers when there are none, and after which a silent worker counts as
        lost.
    retries : int
        How often a pass is repeated after its workers were lost.
    strict : bool
        Refuse workers with different instruction sets, whose sums differ in their last bits.

    Returns
    -------
    Shards

    Examples
    --------
    >>> from distributed import Client
    >>> from fastpoly import Shards
    >>> from fastpoly.dask import on_cluster
    >>> client = Client("tcp://scheduler:8786")  # doctest: +SKIP
    >>> model.fit(on_cluster(Shards("/shared/ratings"), client))  # doctest: +SKIP
    """
    if not isinstance(client, distributed.Client) or client.asynchronous:
        raise TypeError(f"client must be a synchronous distributed.Client, got {client!r}")
    timeout = as_positive(timeout, "timeout")
    return shards.on(DaskEngine(client, timeout, as_count(retries, "retries"), strict))


class DaskEngine:
    """Runs passes on the workers of a cluster; see `on_cluster`."""

    def __init__(
        self, client: distributed.Client, timeout: float, retries: int, strict: bool
    ) -> None:
        self.client, self.timeout, self.retries = client, timeout, retries
        self.strict = strict
        self.slots: list[str] = []  # the worker of every task of a pass
        # Arguments of at least this many bytes are sent to a worker once, not with each of its
        # tasks. It is half of the size at which Dask warns about large graphs.
        self.large = parse_bytes(dask.config.get(WARNING)) // 2
        self.instructions: dict[str, Any] = {}
        # The last sign of life of every worker, by the clock of the scheduler and by ours.
        self.seen: dict[str, tuple[float, float]] = {}

    @property
    def n_threads(self) -> int:
        """The threads of the worker that has most."""
        return max(Counter(self._workers(refresh=False)).values())

    def sum(self, items: Sequence[Any], method: Method, *arguments: Any) -> Any:
        """The sum of method(item, *arguments) over the items."""
        for attempt in range(self.retries + 1):
            try:
                slots = self._workers(refresh=attempt > 0 or method is Block.gradient)
                sums = list(self._pass(items, slots, method, arguments))
            except LOST as error:
                if attempt == self.retries:
                    raise RuntimeError(
                        f"a pass over the shards was lost {attempt + 1} times with its workers; "
                        f"the last time: {error}"
                    ) from error
            else:
                return tree_sum(sums, len(items))
        raise AssertionError("unreachable")

    def _pass(
        self, items: Sequence[Any], slots: list[str], method: Method, arguments: tuple[Any, ...]
    ) -> Iterator[tuple[Node, Any]]:
        """Subtrees and their sums."""
        ranges = equal_ranges(len(items), len(slots))
        sent = self._sent(arguments, slots)
        # Blocks of a fit have a key, by which workers know them.
        known = getattr(items, "key", items)
        results = self._run([(slots[i], known, r, method, sent) for i, r in enumerate(ranges)])
        missing = [i for i, found in enumerate(results) if found is None]
        if missing:
            full = self._sent(with_model(arguments), slots)
            again = [(slots[i], items, ranges[i], method, full) for i in missing]
            for i, found in zip(missing, self._run(again), strict=True):
                results[i] = found
        for nodes, found in zip(ranges, results, strict=True):
            yield from zip(nodes, found, strict=True)

    def _sent(self, arguments: tuple[Any, ...], slots: list[str]) -> Any:
        """The arguments, or futures of them where they are large."""
        if _size(arguments) < self.large:
            return arguments
        workers = sorted(set(slots))
        how = {"workers": workers, "broadcast": True, "hash": False, "direct": False}
        return self._answer(lambda: self.client.scatter(arguments, **how), workers)

    def _answer(self, ask: Callable[[], Awaitable[Any]], workers: Iterable[str]) -> Any:
        """The result of a method of the client; TimeoutError if one of the workers is silent."""

        def check() -> None:
            silent = set(workers).difference(self._lively())
            if silent:
                raise TimeoutError(f"no sign of life from {', '.join(sorted(silent))}")

        answer = self._begin(ask)
        try:
            return self._wait(lambda: answer, check)
        finally:
            answer.cancel()

    def _wait(
        self, current: Callable[[], concurrent.futures.Future], check: Callable[[], None]
    ) -> Any:
        """The result of the current future; `check` runs meanwhile, and may raise or replace it."""
        while True:
            future = current()
            try:
                return future.result(POLL)
            except TimeoutError:
                if future.done():
                    return future.result()  # or the error of a connection that timed out
            check()

    def _begin(self, ask: Callable[[], Awaitable[Any]]) -> concurrent.futures.Future:
        """Call a method of the client in its own thread, where it can be awaited and canceled."""

        async def asked() -> Any:
            return await ask()

        return asyncio.run_coroutine_threadsafe(asked(), self.client.loop.asyncio_loop)

    def _run(self, tasks: list[tuple[Any, ...]]) -> list[Any]:
        """Results of `_task`, in order; a task moves if its worker is lost or falls silent."""
        futures = [self._submit(*task) for task in tasks]
        gathering = self._gather(futures)
        alone = time.monotonic()  # the last time that there was a worker

        def check() -> None:
            nonlocal alone, gathering
            lively = sorted(self._lively())
            if lively:
                alone = time.monotonic()
            elif time.monotonic() - alone > self.timeout:
                raise RuntimeError(
                    f"there has been no worker for {self.timeout:g} s; start workers and fit "
                    "again, from the checkpoint if there is one"
                )
            # A task whose worker is lost may wait for it forever, even if there are others. Its
            # result may be lost, too, and Dask does not always compute it again.
            lost = [i for i, (worker, *_) in enumerate(tasks) if worker not in lively]
            if lively and lost:
                for i in lost:
                    tasks[i] = (lively[i % len(lively)], *tasks[i][1:])
                    futures[i] = self._submit(*tasks[i])
                gathering.cancel()
                gathering = self._gather(futures)
                self.slots = []

        try:
            return self._wait(lambda: gathering, check)
        finally:
            if not gathering.done():
                gathering.cancel()
                self.client.cancel(futures, force=True)

    def _gather(self, futures: list[distributed.Future]) -> concurrent.futures.Future:
        """The results of the futures, awaited in the thread of the client."""
        wanted = list(futures)
        return self._begin(lambda: self.client.gather(wanted, direct=True))

    def _submit(self, worker: str, *task: Any) -> distributed.Future:
        return self.client.submit(
            _task, *task, workers=[worker], allow_other_workers=True, pure=False
        )

    def _workers(self, refresh: bool) -> list[str]:
        """The worker of every slot, in a fixed order; a worker has one slot per thread."""
        if self.slots and not refresh:
            return self.slots
        now = time.monotonic()
        while not (threads := self._lively()):
            if time.monotonic() - now > self.timeout:
                raise RuntimeError(
                    f"the cluster has had no worker for {self.timeout:g} s; start workers"
                )
            time.sleep(POLL)
        if self.strict:
            self._check_alike(threads)
        self.slots = [address for address in sorted(threads) for _ in range(threads[address])]
        return self.slots

    def _lively(self) -> dict[str, int]:
        """Workers that have sent a sign of life recently, and their numbers of threads."""
        # Not client.scheduler_info, because another thread may empty it at any time.
        identity = self.client.scheduler.identity
        found = self.client.sync(identity, n_workers=-1, callback_timeout=self.timeout)["workers"]
        # The clock of the scheduler may differ from ours. So a sign of life counts from when we
        # first see it, or earlier if other workers have sent later ones.
        now, seen = time.monotonic(), {}
        last = max((worker["last_seen"] for worker in found.values()), default=0.0)
        for address, worker in found.items():
            sign, before = worker["last_seen"], self.seen.get(address)
            new = before is None or before[0] != sign
            seen[address] = (sign, now - (last - sign)) if new else before
        self.seen = seen
        return {
            address: worker["nthreads"]
            for address, worker in found.items()
            if now - seen[address][1] < self.timeout
        }

    def _check_alike(self, workers: Any) -> None:
        """Raise if two workers round differently."""
        new = [address for address in workers if address not in self.instructions]
        if new:
            found = self._answer(lambda: self.client.run(_instructions, workers=new), new)
            self.instructions.update(found)
        kinds = {self.instructions[address]: address for address in workers}
        if len(kinds) > 1:
            raise ValueError(
                f"workers have different instruction sets, {kinds}: their sums differ in the last "
                "bits; use workers of one kind, or on_cluster(..., strict=False)"
            )


def _task(
    items: Sequence[Any] | str, nodes: list[Node], method: Method, arguments: tuple[Any, ...]
) -> list[Any] | None:
    """Runs on a worker: the sums of subtrees, or None where items and model must be sent along."""
    found = received(items) if isinstance(items, str) else items
    return None if found is None else remote_sum(found, nodes, method, arguments)


def _size(arguments: Any) -> int:
    """Bytes of the arrays that are sent."""
    if isinstance(arguments, Point):
        arguments = arguments.model if arguments.send else None
    if isinstance(arguments, (tuple, list)):
        return sum(map(_size, arguments))
    return getattr(arguments, "nbytes", 0)


def _instructions() -> tuple[str, ...]:
    """The instruction sets on which the last bits of a worker's sums depend."""
    from threadpoolctl import threadpool_info

    blas = {i.get("architecture") or "" for i in threadpool_info() if i["user_api"] == "blas"}
    return simd_level(), *sorted(blas)
