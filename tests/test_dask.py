"""Shards on a Dask cluster: the same bits, also when any worker is lost."""

import contextlib
import os
import signal
import threading
import time

import numpy as np
import pytest
from killing_workers import checkpointed, cluster, driver_killed, hunted, scale
from shard_cases import Case, bits

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")

from fastpoly import FactorizationMachineOrdinalRegressor, conditional_gradient  # noqa: E402
from fastpoly.dask import DaskEngine, on_cluster  # noqa: E402
from fastpoly.rows import ShardDesign  # noqa: E402
from fastpoly.rows.shard_design import shard_statistics  # noqa: E402

# Dask's threads may leave resources open; these tests do not check that.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def client():
    with cluster(2) as found:
        yield found


def test_large_arguments_are_sent_once_per_worker(tmp_path, client, monkeypatch):
    shards = Case("codes").write(tmp_path, 4)
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "20B"}):
        on = on_cluster(shards, client)
    scattered = []
    scatter = client.scatter
    monkeypatch.setattr(client, "scatter", lambda *a, **k: scattered.append(a) or scatter(*a, **k))
    assert bits(on) == bits(shards)
    assert scattered


def test_one_task_for_each_worker_and_pass(tmp_path, client):
    shards = on_cluster(Case("codes").write(tmp_path, 9), client)
    shard_statistics(shards)
    submitted = []
    submit = client.submit
    client.submit = lambda *a, **k: submitted.append(a) or submit(*a, **k)
    try:
        shard_statistics(shards)
    finally:
        del client.submit
    assert len(submitted) == len(client.nthreads())


def test_errors_in_the_data_come_through_and_are_not_retried(tmp_path, client):
    shards = Case("codes").write(tmp_path, 3)
    (path,) = tmp_path.glob("000001-indices.*")
    os.utime(path, ns=(1, 1))
    began = time.monotonic()
    with pytest.raises(ValueError, match="shard 1, file .*changed"):
        shard_statistics(on_cluster(shards, client))
    assert time.monotonic() - began < 30


def test_workers_of_different_kinds_are_refused(tmp_path, client, monkeypatch):
    shards = Case("codes").write(tmp_path, 3)
    mixed = dict.fromkeys(client.nthreads(), ("avx2",))
    mixed[min(mixed)] = ("baseline",)

    async def run(function, workers):
        return {worker: mixed[worker] for worker in workers}

    monkeypatch.setattr(client, "run", run)
    with pytest.raises(ValueError, match="strict=False"):
        shard_statistics(on_cluster(shards, client))
    assert shard_statistics(on_cluster(shards, client, strict=False)).largest == 1.0


def test_only_a_client_is_a_client(tmp_path):
    with pytest.raises(TypeError, match="client"):
        on_cluster(Case("codes").write(tmp_path, 2), "tcp://here:8786")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_killed_workers_change_no_bit(tmp_path, seed):
    """kill -9 of random workers at random moments; their nannies start new ones."""
    shards = Case("codes").write(tmp_path, 7)
    hits, right = hunted(shards, bits(shards), seed)
    assert hits
    assert right


def test_all_workers_gone_is_an_error_within_the_timeout(tmp_path):
    shards = Case("codes").write(tmp_path, 4)
    with cluster(1) as client:
        design = ShardDesign(on_cluster(shards, client, timeout=2.0), "anova", fit_lower="explicit")
        states = conditional_gradient(design, alpha=4.0, n_components=8, block=2, random_state=0)
        first = next(states)
        scale(client, 0)
        began = time.monotonic()
        with pytest.raises(RuntimeError, match="no worker"):
            list(states)
        assert time.monotonic() - began < 60
    # The state is a checkpoint: the run continues without a cluster, with the same bits.
    how = {"alpha": 4.0, "n_components": 8, "block": 2, "random_state": 0}
    design = ShardDesign(shards, "anova", fit_lower="explicit")
    *_, cut = conditional_gradient(design, start=first, **how)
    *_, whole = conditional_gradient(design, **how)
    assert cut.H.tobytes() == whole.H.tobytes()


@pytest.mark.slow
def test_the_checkpoint_of_a_fit_that_lost_all_workers_can_be_used(tmp_path):
    """The error comes within the timeout; a fit without a cluster continues from the file."""
    shards = Case("codes").write(tmp_path / "rows", 4)
    checkpoint = tmp_path / "run.npz"
    done = threading.Event()

    def leave(client):
        while not checkpoint.exists() and not done.is_set():
            time.sleep(0.005)
        client.cluster.scale(0)

    with cluster(1) as client:
        thread = threading.Thread(target=leave, args=(client,))
        thread.start()
        began = time.monotonic()
        try:
            with pytest.raises(RuntimeError, match="no worker"):
                checkpointed(on_cluster(shards, client, timeout=2.0), checkpoint)
        finally:
            done.set()
            thread.join()
        assert time.monotonic() - began < 60
    first = checkpoint.stat().st_mtime_ns
    assert checkpointed(shards, checkpoint) == checkpointed(shards)
    assert checkpoint.stat().st_mtime_ns > first


@pytest.mark.slow
def test_a_killed_driver_continues_with_another_number_of_workers(tmp_path):
    shards = Case("codes").write(tmp_path, 7)
    hits, right = driver_killed(shards, checkpointed(shards), seed=0, numbers=(2, 3))
    assert hits == 1
    assert right


@pytest.mark.slow
def test_a_silent_worker_is_dropped(tmp_path):
    shards = Case("codes").write(tmp_path, 6)
    want = bits(shards)
    with cluster(2) as client:
        on = on_cluster(shards, client, timeout=2.0)
        assert bits(on) == want
        pids = client.run(os.getpid)
        stopped = pids[max(pids)]
        os.kill(stopped, signal.SIGSTOP)
        try:
            assert isinstance(on.engine, DaskEngine)
            found = shard_statistics(on)
            assert found.weight == 640
            assert np.isfinite(found.largest)
        finally:
            os.kill(stopped, signal.SIGCONT)


@contextlib.contextmanager
def stopped(pids):
    """Processes that are alive and do nothing."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


@pytest.mark.slow
@pytest.mark.parametrize("n_workers", [1, 2])
def test_workers_that_all_stop_are_an_error(tmp_path, n_workers):
    shards = Case("codes").write(tmp_path, 4)
    with cluster(n_workers) as client:
        on = on_cluster(shards, client, timeout=3.0)
        with stopped(client.run(os.getpid).values()):
            began = time.monotonic()
            with pytest.raises(RuntimeError, match="no worker"):
                shard_statistics(on)
            assert time.monotonic() - began < 30


@pytest.mark.slow
@pytest.mark.parametrize("large", [False, True])
def test_a_worker_that_stops_before_its_first_use_changes_no_bit(tmp_path, large):
    shards = Case("codes").write(tmp_path, 6)
    want = bits(shards)
    threshold = {"distributed.admin.large-graph-warning-threshold": "20B" if large else "10MB"}
    with cluster(2) as client, dask.config.set(threshold):
        on = on_cluster(shards, client, timeout=5.0)
        with stopped([max(client.run(os.getpid).items())[1]]):
            assert bits(on) == want


@pytest.mark.slow
def test_a_worker_that_stops_before_large_arguments_changes_no_bit(tmp_path):
    shards = Case("codes").write(tmp_path, 6)
    want = bits(shards)
    with cluster(2) as client:
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "20B"}):
            on = on_cluster(shards, client, timeout=5.0)
        assert bits(on) == want
        with stopped([max(client.run(os.getpid).items())[1]]):
            assert bits(on) == want


@pytest.mark.slow
def test_estimators_on_a_cluster(tmp_path, client):
    shards = Case("codes").write(tmp_path, 5)
    here = FactorizationMachineOrdinalRegressor(random_state=0).fit(shards)
    there = FactorizationMachineOrdinalRegressor(random_state=0).fit(on_cluster(shards, client))
    assert there.model_ == here.model_
    np.testing.assert_array_equal(there.history_["violation"], here.history_["violation"])
