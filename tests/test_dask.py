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
from fastpoly.rows import ShardDesign, as_rows  # noqa: E402
from fastpoly.rows.rows import shard_statistics  # noqa: E402

# Dask's threads may leave resources open; these tests do not check that.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def client():
    with cluster(2) as found:
        yield found


def submitted(client, monkeypatch):
    """The functions of all tasks that are submitted from now on."""
    functions, submit = [], client.submit
    monkeypatch.setattr(client, "submit", lambda *a, **k: functions.append(a[0]) or submit(*a, **k))
    return functions


def test_large_arguments_are_sent_once(tmp_path, client, monkeypatch):
    shards = Case("codes").write(tmp_path, 4)
    functions = submitted(client, monkeypatch)
    monkeypatch.setattr("fastpoly.dask.LARGE_BYTES", 20)
    assert bits(on_cluster(shards, client)) == bits(shards)
    assert functions.count(tuple) > len(functions) / 4


def test_one_task_for_each_worker_and_pass(tmp_path, client, monkeypatch):
    shards = on_cluster(Case("codes").write(tmp_path, 9), client)
    shard_statistics(shards)
    functions = submitted(client, monkeypatch)
    shard_statistics(shards)
    assert len(functions) == len(client.nthreads())


def test_workers_look_at_each_file_once(tmp_path, client):
    """In all passes of a fit, for the default alpha as well, which needs two parts of the rows."""

    # Functions in functions, because workers cannot import this module.
    def count():
        from fastpoly.rows import shards

        looked, identity = {}, shards.identity
        shards.identity = lambda path: (
            looked.update({path: looked.get(path, 0) + 1}) or identity(path)
        )
        shards.looked, shards.uncounted = looked, identity

    def counted():
        from fastpoly.rows import shards

        shards.identity = shards.uncounted
        return shards.looked

    shards = Case("codes", n=720).write(tmp_path, 6)  # so many that they are parted once
    client.run(count)
    model = FactorizationMachineOrdinalRegressor(random_state=0, n_components=1, tol=0.1)
    model.fit(on_cluster(shards, client))
    found = client.run(counted).values()
    assert sum(map(len, found)) >= 6 * len(shards[0].files)
    assert {n for looked in found for n in looked.values()} == {1}


def test_errors_in_the_data_come_through_and_are_not_retried(tmp_path, client, monkeypatch):
    shards = Case("codes").write(tmp_path, 3)
    (path,) = tmp_path.glob("000001-indices.*")
    os.utime(path, ns=(1, 1))
    functions = submitted(client, monkeypatch)
    with pytest.raises(ValueError, match="shard 1, file .*changed"):
        as_rows(on_cluster(shards, client))
    assert not functions
    with pytest.raises(ValueError, match="shard 1, file .*changed"):
        shard_statistics(on_cluster(shards, client))
    assert 0 < len(functions) <= 2 * len(client.nthreads())


def test_a_task_that_raises_a_timeout_ends_the_pass(client):
    """It is not taken for a cluster that does not answer."""

    def late(_):
        raise TimeoutError("too late")

    began = time.monotonic()
    with pytest.raises(TimeoutError, match="too late"):
        DaskEngine(client, 60.0, True).sum([1, 2], late)
    assert time.monotonic() - began < 30


def test_a_pass_may_take_any_number_of_looks_at_the_workers(client, monkeypatch):
    """The time to wait for results doubled with each one: after 33, clocks overflowed."""
    monkeypatch.setattr("fastpoly.dask.POLL_SECONDS", 1e-4)

    def slow(number):
        time.sleep(1.5)
        return number

    assert DaskEngine(client, 60.0, True).sum([1, 2], slow) == 3


def test_workers_of_different_kinds_are_refused(tmp_path, client):
    def pretend(name):
        from fastpoly import dask

        dask.real = getattr(dask, "real", dask._instructions)
        dask._instructions = (lambda: (name,)) if name else dask.real

    shards, one = Case("codes").write(tmp_path, 3), [min(client.nthreads())]
    try:
        client.run(pretend, "baseline", workers=one)
        with pytest.raises(ValueError, match=r"baseline.*strict=False"):
            shard_statistics(on_cluster(shards, client))
        assert shard_statistics(on_cluster(shards, client, strict=False)).largest == 1.0
    finally:
        client.run(pretend, None, workers=one)


def test_only_a_client_is_a_client(tmp_path):
    shards = Case("codes").write(tmp_path, 2)
    with pytest.raises(TypeError, match="client"):
        on_cluster(shards, "tcp://here:8786")


def test_a_folder_must_be_opened(tmp_path, client):
    with pytest.raises(TypeError, match=r"shards must be Shards, got str; .*Shards\(folder\)"):
        on_cluster(str(tmp_path), client)


@pytest.mark.slow
def test_killed_workers_change_no_bit(tmp_path):
    """kill -9 of random workers at random moments; their nannies start new ones."""
    shards = Case("codes").write(tmp_path, 7)
    hits, right = hunted(shards, bits(shards), seed=0)
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
@pytest.mark.parametrize(("n_stopped", "large"), [(1, True), (2, False)])
def test_workers_that_stop_change_no_bit(tmp_path, monkeypatch, n_stopped, large):
    """They are alive and do nothing, one of them or all. Dask replaces them after some time."""
    shards = Case("codes").write(tmp_path, 6)
    want = bits(shards)
    if large:
        monkeypatch.setattr("fastpoly.dask.LARGE_BYTES", 20)
    with cluster(2) as client:
        on = on_cluster(shards, client)
        assert bits(on) == want
        pids = sorted(client.run(os.getpid).values())[:n_stopped]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            assert bits(on) == want
        finally:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)


@pytest.mark.slow
def test_estimators_on_a_cluster(tmp_path, client):
    shards = Case("codes").write(tmp_path, 5)
    here = FactorizationMachineOrdinalRegressor(random_state=0).fit(shards)
    there = FactorizationMachineOrdinalRegressor(random_state=0).fit(on_cluster(shards, client))
    assert there.model_ == here.model_
    np.testing.assert_array_equal(there.history_["violation"], here.history_["violation"])
