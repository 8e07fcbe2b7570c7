"""Threads: how many, which limits they obey, and what happens to them in a fork."""

import doctest
import itertools
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from subprocesses import run_python
from threadpoolctl import threadpool_info, threadpool_limits

from fastpoly.kernels import runtime
from fastpoly.kernels.explicit import explicit_gamma
from fastpoly.kernels.gamma import DenseGamma
from fastpoly.kernels.matrix import as_matrix
from fastpoly.kernels.runtime import effective_n_threads, interruptible, simd_level

PRINT = "from fastpoly.kernels.runtime import effective_n_threads as e; print(e(), e(1), e(3))"


def test_a_request_is_taken_as_it_is():
    assert effective_n_threads(1) == 1
    assert effective_n_threads(np.int64(1)) == 1
    assert effective_n_threads(3) == 3
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    assert 1 <= effective_n_threads() <= (processors or os.cpu_count())
    assert effective_n_threads(None) == effective_n_threads()


@pytest.mark.parametrize("bad", [0, -1, 1025, 2**31, 2**70, -(2**70)])
def test_numbers_out_of_range(bad):
    with pytest.raises(ValueError, match="n_threads must be between 1 and 1024"):
        effective_n_threads(bad)


@pytest.mark.parametrize("bad", [1.0, 2.5, "2", True, False, np.bool_(True), [1], (2,), np.nan])
def test_not_an_integer(bad):
    with pytest.raises(TypeError, match="n_threads must be a positive int or None"):
        effective_n_threads(bad)


def test_environment_decides_the_default():
    assert run_python(PRINT, {"OMP_NUM_THREADS": "1"}) == "1 1 3"
    many = run_python(PRINT, {"OMP_NUM_THREADS": "64"}).split()
    if hasattr(os, "sched_getaffinity"):
        assert int(many[0]) == len(os.sched_getaffinity(0))


def has_openmp():
    return any(library["user_api"] == "openmp" for library in threadpool_info())


@pytest.mark.skipif(not has_openmp(), reason="built without OpenMP")
def test_threadpoolctl_decides_the_default():
    with threadpool_limits(1, user_api="openmp"):
        assert effective_n_threads() == 1
        assert effective_n_threads(2) == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_has_threads_too():
    """Helpers live as long as a pass, so a fork breaks nothing: objects made before it and after
    it give the same bits, on as many threads."""
    code = """
import os, sys, warnings
import numpy as np, scipy.sparse as sp
warnings.simplefilter("ignore")
from fastpoly import Design
from fastpoly.kernels.explicit import explicit_gamma
from fastpoly.kernels.gamma import DenseGamma
from fastpoly.kernels.gamma import CsrGamma, DenseGamma
from fastpoly.kernels.runtime import effective_n_threads, set_thread_seconds
set_thread_seconds(0.0)
rng = np.random.default_rng(0)
X = rng.random((4000, 30))
design, sparse = (Design(x, "anova", n_threads=2) for x in (X, sp.csr_array(X)))
D, H, V = rng.random((4000, 5)), rng.random((6, 30)), rng.random((6, 5))
objects = [DenseGamma(design.matrix, D, True, 2), CsrGamma(sparse.matrix, D, True, 2)]
features = [design.features(H), sparse.features(H)]
def results():
    made = [o.matvecs(np.ones((30, 5))) for o in objects]
    made += [f.outputs(V) for f in features] + [f.pullback(np.ones((f.n, 2))) for f in features]
    made += [f.basis_grad_outputs(V, D) for f in features]
    return made
before = results()
assert all(o.n_threads == effective_n_threads(2) for o in objects + features)
child = os.fork()
if child == 0:
    status = 1
    try:
        assert effective_n_threads(2) == 2
        for a, b in zip(before, results()):
            assert (a == b).all()
        made = DenseGamma(design.matrix, D, True, 2)
        assert (made.forms(H[0]) == objects[0].forms(H[0])).all()
        status = 0
    finally:
        os._exit(status)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    run_python(code)


def count_threads():
    with open("/proc/self/status") as status:
        return int(next(line for line in status if line.startswith("Threads:")).split()[1])


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs /proc")
@pytest.mark.usefixtures("all_threads")
def test_helpers_end_with_their_pass():
    g = DenseGamma(as_matrix(np.ones((4000, 30))), np.ones((4000, 5)), False, 8)
    before = count_threads()
    seen = 0
    over = threading.Event()

    def watch():
        nonlocal seen
        while not over.is_set():
            seen = max(seen, count_threads())

    watcher = threading.Thread(target=watch)
    watcher.start()
    deadline = time.monotonic() + 60  # on busy processors helpers are rarely asked, and rarely seen
    while seen <= before + 1 and time.monotonic() < deadline:
        for _ in range(200):
            g.matvecs(np.ones((30, 5)))
    over.set()
    watcher.join()
    assert seen > before + 1  # helpers, besides the watcher
    deadline = time.monotonic() + 10
    while count_threads() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert count_threads() <= before


@pytest.mark.usefixtures("all_threads")
def test_passes_at_once_in_many_python_threads():
    """Each has separate helper threads; the bits are those of serial passes."""
    rng = np.random.default_rng(0)
    X, D, B = rng.random((2000, 30)), rng.random((2000, 5)), rng.random((30, 5))
    operators = [DenseGamma(as_matrix(X), D, False, n_threads) for n_threads in (1, 2, 3, 8)]
    want = [g.matvecs(B).tobytes() for g in operators]
    np.testing.assert_allclose(operators[3].matvecs(B), X.T @ (D * (X @ B)), rtol=1e-12)

    def same(i):
        return operators[i % 4].matvecs(B).tobytes() == want[i % 4]

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(same, range(2000)))


@pytest.mark.parametrize("bad", [-1.0, np.nan])
def test_work_that_is_worth_a_thread(bad):
    with pytest.raises(ValueError, match="seconds must be at least 0"):
        runtime.set_thread_seconds(bad)


def test_instruction_set_by_name():
    assert simd_level() in ("avx2", "baseline")
    code = "from fastpoly.kernels.runtime import simd_level; print(simd_level())"
    assert run_python(code, {"FASTPOLY_SIMD": "baseline"}) == "baseline"


def test_doctests():
    assert doctest.testmod(runtime).failed == 0


def gamma(A, C, n_threads):
    return explicit_gamma(as_matrix(A), C, n_threads=n_threads).dense()


def test_ranges_cover_everything_once(monkeypatch):
    for seconds in (0.0, 0.06, 1.0):
        monkeypatch.setattr(runtime, "perf_counter", itertools.count(0.0, seconds).__next__)
        for total in (0, 1, 2, 100):
            ranges = list(interruptible(total))
            assert [i for first, last in ranges for i in range(first, last)] == list(range(total))
            assert len(ranges) == (total if seconds == 1.0 else total.bit_length())


@pytest.mark.usefixtures("all_threads")
@pytest.mark.parametrize("kernel", [gamma])
@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize(("n", "k", "m"), [(3001, 40, 2), (5, 3, 1), (0, 2, 2)])
def test_cuts_do_not_show_in_the_bits(kernel, n_threads, n, k, m, monkeypatch):
    rng = np.random.default_rng(0)
    A, C = rng.standard_normal((n, k)), rng.random((n, m))
    found = []
    for seconds in (0.0, 1.0):
        monkeypatch.setattr(runtime, "perf_counter", itertools.count(0.0, seconds).__next__)
        found.append(kernel(A, C, n_threads))
    np.testing.assert_array_equal(*found)
    np.testing.assert_allclose(found[0], np.einsum("ni,nj,nc->cij", A, A, C), rtol=1e-9, atol=1e-9)


class Stopped(Exception):
    pass


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers on this system")
@pytest.mark.parametrize("kernel", [gamma])
def test_a_long_kernel_can_be_stopped(kernel):
    def stop(*_):
        raise Stopped

    A, C = np.ones((20_000, 300)), np.ones((20_000, 16))  # seconds, in one piece
    before = signal.signal(signal.SIGALRM, stop)
    began = time.perf_counter()
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(Stopped):
            kernel(A, C, 1)
        assert time.perf_counter() - began < 1.2
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
