"""The memory that rows in shards may take: honored, and without effect on any bit."""

import gc
import os
import tracemalloc
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest
from shard_cases import KINDS, Case, bits
from subprocesses import ANONYMOUS, run_python

from fastpoly import FactorizationMachineOrdinalRegressor, Shards, conditional_gradient
from fastpoly.rows import ShardDesign, shard_rows
from fastpoly.rows.budget import kept_bytes, pass_bytes


def sizes(shards, m=3, scaled=False):
    """Bytes that all shards keep, and that one thread needs."""
    kept = [kept_bytes(shard, m, scaled) for shard in shards]
    return sum(kept), max(k + pass_bytes(s, m) for k, s in zip(kept, shards, strict=True))


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_bits_with_any_memory(tmp_path, kind, n_threads):
    shards = Case(kind).write(tmp_path, 7)
    kept, least = sizes(shards)
    want = bits(shards)
    for memory in (n_threads * least, n_threads * least + kept // 2, n_threads * least + kept):
        assert bits(Shards(tmp_path, memory=memory), n_threads=n_threads) == want


def test_the_same_bits_in_other_processes(tmp_path):
    shards = Case("csr").write(tmp_path, 5)
    limited = Shards(tmp_path, memory=sizes(shards)[1])
    with ProcessPoolExecutor(2, mp_context=get_context("forkserver")) as processes:
        assert bits(limited.on(processes)) == bits(shards)


def test_scaled_rows_and_noise(tmp_path):
    """An estimator scales sparse columns and makes two passes for its alpha."""
    case = Case("csr")
    case.X = case.X * (1 + np.arange(8))
    shards = case.write(tmp_path, 6)
    limited = Shards(tmp_path, memory=sizes(shards, 2, scaled=True)[1])
    here, there = (
        FactorizationMachineOrdinalRegressor(random_state=0, n_threads=1).fit(rows)
        for rows in (shards, limited)
    )
    assert here.model_ == there.model_


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_as_many_shards_keep_their_gradients_as_fit(tmp_path, share):
    shards = Case("codes").write(tmp_path, 8)
    kept, least = sizes(shards)
    limited = Shards(tmp_path, memory=least + share * kept)
    sums = ShardDesign(limited, "anova", n_threads=1).sums(
        ShardDesign(shards, "anova", n_threads=1).problem()
    )
    sums.gradient(sums.empty_model()).gamma.forms(np.ones(22))
    assert len(sums.job.opened) == share * 8


def test_sums_forget_their_gradients_when_others_are_made(tmp_path):
    design = ShardDesign(Case("codes").write(tmp_path, 3), "anova")
    problem = design.problem()
    first, h = design.sums(problem), np.ones(22)
    gamma = first.gradient(first.empty_model()).gamma
    want = gamma.forms(h)
    design.sums(problem)
    assert not first.job.opened
    np.testing.assert_array_equal(gamma.forms(h), want)


def test_too_little_memory_is_reported_before_any_kernel_runs(tmp_path, monkeypatch):
    shards = Case("dense").write(tmp_path, 4)
    least = sizes(shards)[1]
    monkeypatch.setattr(shard_rows, "JointObjective", lambda *_, **__: pytest.fail("too late"))
    for memory, n_threads in ((0.99 * least, 1), (1.99 * least, 2)):
        design = ShardDesign(Shards(tmp_path, memory=memory), n_threads=n_threads)
        with pytest.raises(ValueError, match=r"memory=.* thread.*rows_per_shard"):
            next(conditional_gradient(design))


@pytest.mark.parametrize("memory", [0, -1.0, np.nan, np.inf])
def test_memory_is_a_positive_number(tmp_path, memory):
    Case("dense", n=20).write(tmp_path, 2)
    with pytest.raises(ValueError, match="memory"):
        Shards(tmp_path, memory=memory)
    with pytest.raises(TypeError, match="memory"):
        Shards(tmp_path, memory="2 GB")


def test_parts_keep_the_limit(tmp_path):
    Case("dense").write(tmp_path, 2)
    shards = Shards(tmp_path, memory=1e8)
    assert {part.memory for part in (shards.take([1]), *shards.split(0.5, 0.5))} == {1e8}


def test_scaled_values_are_freed_at_once(tmp_path):
    """They must not wait for the garbage collector, which may run much later."""
    shards = Case("csr", n=40_000).write(tmp_path, 40)
    least = sizes(shards, scaled=True)[1]
    factor = np.full(shards.n_features, 0.5)
    design = ShardDesign(Shards(tmp_path, memory=least), factor=factor, n_threads=1)
    sums = design.sums(design.problem())
    model = sums.empty_model()
    sums.value(model)
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        sums.gradient(model).gamma.forms(np.ones(shards.n_features))
        # The scaled values of all shards are 1.3 MB.
        assert tracemalloc.get_traced_memory()[1] < least + 2e5
    finally:
        tracemalloc.stop()
        gc.enable()


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/smaps_rollup"), reason="needs Linux")
def test_anonymous_memory_of_a_fit(tmp_path):
    """A million rows of 4 outputs would keep 32 MB of gradients."""
    code = f"""
import threading
import numpy as np
from fastpoly import Shards, conditional_gradient, write_shards
from fastpoly.rows import ShardDesign, shard_rows

n, size = 2**20, 2**15
def batches():
    rng = np.random.default_rng(0)
    for _ in range(0, n, size):
        user, item = rng.integers(300, size=size), rng.integers(200, size=size)
        stars = np.digitize(np.sin(user) * np.cos(item) + rng.normal(size=size), [-1, 0, 1, 2])
        yield {{"user": user, "item": item, "stars": stars}}

def fit(shards):
    design = ShardDesign(shards, "anova", fit_lower="explicit", n_threads=1)
    signs = np.where(np.arange(5)[:, None] <= np.arange(4), 1.0, -1.0)
    for state in conditional_gradient(design, signs, loss="binary_logistic", alpha=1e3,
                                      n_components=1, random_state=0, max_iter=5):
        pass

shards = write_shards({str(tmp_path)!r}, batches(), one_hot=["user", "item"], target="stars",
                      rows_per_shard=size)

def peak(shards):
    before = most = anonymous()
    done = threading.Event()

    def watch():
        nonlocal most
        while not done.wait(0.01):
            most = max(most, anonymous())

    thread = threading.Thread(target=watch)
    thread.start()
    fit(shards)
    done.set()
    thread.join()
    return most - before

fit(shards.take([0]))
print(peak(Shards({str(tmp_path)!r}, memory=12e6)), peak(shards))
"""
    limited, unlimited = map(float, run_python(ANONYMOUS + code, timeout=600).split())
    assert limited < 12e6
    assert unlimited > 32e6
