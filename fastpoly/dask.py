"""Passes over shards on a Dask cluster; the only module that imports `distributed`.

A pass has one task per thread of every worker, which returns the sums of whole subtrees
(`fastpoly.rows.engine`): the result is the same to the last bit as with threads in one process. A
task depends on its arguments only. If its worker is lost, Dask gives it to another one.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import dask
import distributed
from dask.sizeof import sizeof

from fastpoly.kernels.checks import as_positive
from fastpoly.kernels.runtime import simd_level
from fastpoly.rows.engine import Method, Node, Point, remote_sum, sum_in_tasks
from fastpoly.rows.shards import Shards

__all__ = ["on_cluster"]

# Arguments of more bytes are sent to the scheduler once, and not with each task. They then reach
# the workers one step later, which takes some milliseconds.
LARGE_BYTES = 2**20
POLL_SECONDS = 2.0  # seconds between two looks at the workers while a pass is running
MOST_PATIENCE = 600.0  # seconds that results may take to come from a busy worker

Task = tuple[str, list[Node]]  # a worker, and what it sums


def on_cluster(
    shards: Shards, client: distributed.Client, *, timeout: float = 60.0, strict: bool = True
) -> Shards:
    """The same shards, with passes that run on the workers of a cluster.

    The folder must have the same path for every worker and for this process. Copies of it on other
    machines must keep the modification times of the files (`cp -p`, `rsync -t`), by which a worker
    knows that they are the same. The fitted model is the same to the last bit as without a cluster,
    also if workers are lost or join. A worker is lost when its connection breaks, or when it is
    silent for longer than `distributed.scheduler.worker-ttl`, a setting of Dask's scheduler: raise
    it where machines are busy. Below about 1e7 rows a cluster does not pay off. Only fits use the
    workers: `predict` reads the files in this process.

    Parameters
    ----------
    shards : Shards
    client : distributed.Client
        Dask unpickles the data that it receives: use it in a network that you trust, or with TLS.
    timeout : float
        Seconds to wait for workers when there are none.
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
    if not isinstance(shards, Shards):
        raise TypeError(
            f"shards must be Shards, got {type(shards).__name__}; open the folder: Shards(folder)"
        )
    if not isinstance(client, distributed.Client) or client.asynchronous:
        raise TypeError(f"client must be a synchronous distributed.Client, got {client!r}")
    return shards.on(DaskEngine(client, as_positive(timeout, "timeout"), strict))


class DaskEngine:
    """Computes sums on the workers of a cluster; see `on_cluster`."""

    def __init__(self, client: distributed.Client, timeout: float, strict: bool) -> None:
        self.client, self.timeout, self.strict = client, timeout, strict
        self.kinds: dict[tuple[str, ...], str] = {}  # instruction sets, and a worker with each

    def sum(self, items: Sequence[Any], method: Method, *arguments: Any) -> Any:
        """The sum of method(item, *arguments) over the items."""
        # The same subtrees go to the same workers in every pass: they have the row gradients.
        return sum_in_tasks(self._slots(), self._run, items, method, arguments)

    def _slots(self) -> list[str]:
        """The worker of each thread, in a fixed order."""
        while not (threads := self.client.nthreads()):
            try:
                self.client.wait_for_workers(1, self.timeout)
            except TimeoutError:
                raise RuntimeError(
                    f"the cluster has had no worker for {self.timeout:g} s; start workers and fit "
                    "again, from the checkpoint if there is one"
                ) from None
        return [address for address in sorted(threads) for _ in range(threads[address])]

    def _run(
        self, tasks: list[Task], items: Any, method: Method, arguments: tuple[Any, ...]
    ) -> list[Any]:
        """The results of tasks, in order; if one fails, none is left waiting."""
        sent: Any = arguments
        parts = [a.model if isinstance(a, Point) and a.send else a for a in arguments]
        if sizeof(parts) > LARGE_BYTES:
            # As a task, not by `scatter`: Dask can compute it again if its worker is lost.
            with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TB"}):
                sent = self.client.submit(tuple, arguments, pure=False)

        def submit(worker: str, nodes: list[Node]) -> distributed.Future:
            how = {"workers": [worker], "allow_other_workers": True, "pure": False}
            return self.client.submit(_task, items, nodes, method, sent, **how)

        futures, patience = [submit(*task) for task in tasks], POLL_SECONDS
        try:
            while (found := self._results(futures, patience)) is None:
                patience = min(2 * patience, MOST_PATIENCE)
                slots = self._slots()
                for i, (worker, nodes) in enumerate(tasks):
                    # Dask gives the task to another worker, but not if all were lost at once.
                    if worker not in slots and not futures[i].done():
                        tasks[i] = slots[i % len(slots)], nodes
                        futures[i] = submit(*tasks[i])
        except BaseException:
            self.client.cancel(futures)
            raise
        # Of the workers that computed, whoever was asked: some may have joined meanwhile.
        self.kinds |= {kind: worker for _, worker, kind in found}
        if self.strict and len(self.kinds) > 1:
            raise ValueError(
                f"workers have different instruction sets, {self.kinds}: their sums differ in the "
                "last bits; use workers of one kind, or on_cluster(..., strict=False)"
            )
        return [sums for sums, *_ in found]

    def _results(self, futures: list[distributed.Future], patience: float) -> list[Any] | None:
        """The results of futures; None if they are not ready, or take longer to come than that."""
        how = {"direct": True, "callback_timeout": patience}  # a worker may stop while it sends
        try:
            distributed.wait(futures, POLL_SECONDS)
            return self.client.sync(self.client.gather, futures, **how)
        except TimeoutError:
            if any(future.status == "error" for future in futures):
                raise  # the error of a task
            return None


def _task(
    items: Sequence[Any] | str, nodes: list[Node], method: Method, arguments: tuple[Any, ...]
) -> tuple[list[Any] | None, str, tuple[str, ...]]:
    """Runs on a worker: its `remote_sum`, who computed it, and with which instructions."""
    sums = remote_sum(items, nodes, method, arguments)
    return sums, distributed.get_worker().address, _instructions()


@cache
def _instructions() -> tuple[str, ...]:
    """The instruction sets on which the last bits of the sums of this process depend."""
    from threadpoolctl import threadpool_info

    blas = {i.get("architecture") or "" for i in threadpool_info() if i["user_api"] == "blas"}
    return simd_level(), *sorted(blas)
