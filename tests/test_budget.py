"""The memory that rows in shards may take: honored, and without effect on any bit."""

import gc
import os
import re
import tracemalloc
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from time import sleep

import numpy as np
import pytest
from shard_cases import KINDS, Case, bits, cut
from subprocesses import ANONYMOUS, run_python

from fastpoly import (
    FactorizationMachineClassifier,
    FactorizationMachineOrdinalRegressor,
    Shards,
    conditional_gradient,
)
from fastpoly.kernels import matrix
from fastpoly.rows import ShardDesign, shard_rows
from fastpoly.rows.budget import kept_bytes, least_bytes, pass_bytes
from fastpoly.rows.pages import huge_pages, unused_bytes
from fastpoly.state import Model


def sizes(shards, m=3, scaled=False, n_threads=1):
    """Bytes that all shards keep, and that the threads need."""
    least = least_bytes(list(shards), m, scaled, n_threads)
    return sum(kept_bytes(shard, m, scaled) for shard in shards), least


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_bits_with_any_memory(tmp_path, kind, n_threads):
    shards = Case(kind).write(tmp_path, 7)
    kept, least = sizes(shards, n_threads=n_threads)
    want = bits(shards)
    for memory in (least, least + kept // 2, least + kept):
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
    monkeypatch.setattr(shard_rows, "JointObjective", lambda *_, **__: pytest.fail("too late"))
    for n_threads in (1, 2):
        memory = 0.99 * sizes(shards, n_threads=n_threads)[1]
        design = ShardDesign(Shards(tmp_path, memory=memory), n_threads=n_threads)
        with pytest.raises(ValueError, match=r"memory=.* thread.*rows_per_shard"):
            next(conditional_gradient(design))


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "cls", [FactorizationMachineClassifier, FactorizationMachineOrdinalRegressor]
)
def test_the_first_error_names_enough_for_the_whole_fit(tmp_path, cls, kind, n_threads):
    """The statistics of the rows come first, and need less than the fit."""
    case = Case(kind, n=120)
    if kind == "csr":
        case.X = case.X * (1 + np.arange(8))  # so that values are scaled
    case.write(tmp_path, 2)
    model = cls(random_state=0, n_threads=n_threads, max_iter=2)
    with pytest.raises(ValueError, match="memory=1 bytes") as found:
        model.fit(Shards(tmp_path, memory=1))
    (needed,) = re.findall(r"need (\d+) bytes", str(found.value))
    model.fit(Shards(tmp_path, memory=int(needed)))


def test_constants_of_rows_are_made_once_and_counted(tmp_path, monkeypatch):
    """Shards that become longer would each make their own."""
    monkeypatch.setattr(matrix, "_ones", {})
    shards = cut(Case("codes", n=700).write(tmp_path, 1), [50, 0, 150, 400, 100])
    monkeypatch.setattr(matrix, "_ones", {})  # without those of the checks
    sums = (design := ShardDesign(shards, "anova", n_threads=1)).sums(design.problem())
    sums.value(sums.empty_model())
    values, steps = (
        {id(base): base.nbytes for base in (rows.design.matrix.arrays[i].base for rows in opened)}
        for opened in [sums.job.opened.values()]
        for i in (0, 2)
    )
    assert len(values) == len(steps) == 1
    made = sum(values.values()) + sum(steps.values())
    longest = shards[3]
    assert made == 400 * 2 * 4 + 401 * 8
    rows = kept_bytes(longest, 3, False) + pass_bytes(longest, 3)
    assert least_bytes(list(shards), 3, False, 2) == 2 * rows + made


@pytest.mark.parametrize("kind", KINDS)
def test_passes_take_no_more_than_the_least(tmp_path, monkeypatch, kind):
    shards = Case(kind, n=40_000).write(tmp_path, 4)
    least = sizes(shards)[1]
    monkeypatch.setattr(matrix, "_ones", {})
    d, rng = shards.n_features, np.random.default_rng(0)
    model = Model(rng.standard_normal((2, d)), rng.standard_normal((2, 3)), np.zeros(3), None)
    design = ShardDesign(Shards(tmp_path, memory=least), "anova", n_threads=1)
    tracemalloc.start()
    try:
        sums = design.sums(design.problem())
        gamma = sums.gradient(model).gamma
        gamma.combined(np.ones((3, 3))).forms(np.ones(d))
        sums.curvature(model, np.ones(2))
        sums.noise_level(model)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 0.3 * least < peak < least + 2e5


def test_more_threads_than_the_budget_is_for_wait_for_each_other(tmp_path, monkeypatch):
    """As on a worker that joined after the fit began, with more threads than the others."""
    shards = Case("dense").write(tmp_path, 4)
    design = ShardDesign(Shards(tmp_path, memory=sizes(shards)[1]), n_threads=1)
    job = design.sums(design.problem()).job
    running, most = 0, 0

    def value(self, model):
        nonlocal running, most
        running += 1
        most = max(most, running)
        sleep(0.05)
        running -= 1

    monkeypatch.setattr(shard_rows.ShardRows, "value", value)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda place: job.call(place, "value", (None,)), range(4)))
    assert most == 1


@pytest.mark.parametrize("shape", [(10, 3), (2**18 - 1, 2), (2**18, 2), (300_001, 4)])
def test_large_arrays_begin_with_a_huge_page(shape):
    array = huge_pages(shape)
    assert array.shape == shape
    assert array.flags.carray
    large = array.nbytes >= 2**22
    assert not large or array.ctypes.data % 2**21 == 0
    end = array.ctypes.data + array.nbytes
    assert unused_bytes(shape) == (-end % 2**21 if large else 0)


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
