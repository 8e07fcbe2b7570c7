"""How many threads a kernel may use, and which instruction set it runs on.

Threads follow the threadpoolctl conventions: ``n_threads=None`` means what the OpenMP runtime
would use (so ``OMP_NUM_THREADS`` and ``threadpool_limits`` are obeyed), capped by the processors
this process may run on. The kernels themselves keep no state.
"""

import os
from time import perf_counter

from cpython.exc cimport PyErr_CheckSignals

cdef extern from "simd/runtime.h":
    int fp_max_threads() noexcept nogil
    int fp_have_openmp() noexcept nogil
    int fp_use_avx2() noexcept nogil

cdef double RANGE_SECONDS = 0.1

# A forked child inherits OpenMP's bookkeeping but not its worker threads: using them would hang.
cdef bint _forked = False


def _after_fork():
    global _forked
    _forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


cdef int _n_processors():
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


cpdef int effective_n_threads(object n_threads=None) except -1:
    """The number of threads a kernel will use for this request.

    Parameters
    ----------
    n_threads : int or None
        A positive number is taken as it is (1 where the build has no OpenMP, and in a forked
        child, where OpenMP's threads are gone). None: the OpenMP default.

    Returns
    -------
    int

    Examples
    --------
    >>> from fastpoly.kernels.runtime import effective_n_threads
    >>> effective_n_threads(1)
    1
    """
    if n_threads is not None:
        if isinstance(n_threads, bool) or not hasattr(n_threads, "__index__"):
            raise TypeError(f"n_threads must be a positive int or None, got {n_threads!r}")
        n_threads = n_threads.__index__()
        if not 1 <= n_threads <= 1024:
            raise ValueError(f"n_threads must be between 1 and 1024 or None, got {n_threads}")
    if _forked or not fp_have_openmp():
        return 1
    if n_threads is not None:
        return n_threads
    return max(1, min(fp_max_threads(), _n_processors()))


cdef int live_threads(int n_threads) noexcept nogil:
    """`n_threads`, or 1 in a forked child: for an object that was made before the fork."""
    return 1 if _forked else n_threads


cdef int threads_for(int n_threads, double work) noexcept nogil:
    """Threads worth waking for `work` floating-point operations: 1 below about 0.1 ms."""
    return n_threads if work > 2e5 else 1


def interruptible(Py_ssize_t total):
    """Cut 0..total - 1 into ranges, between which Ctrl-C is heard.

    A range is as long as work of 0.1 to 0.2 s, going by the ranges before it. Results must not
    depend on the cuts.

    Parameters
    ----------
    total : int

    Yields
    ------
    first, last : int
        The range first..last - 1.

    Examples
    --------
    >>> from fastpoly.kernels.runtime import interruptible
    >>> ranges = list(interruptible(1000))
    >>> ranges[0][0], ranges[-1][1]
    (0, 1000)
    """
    cdef Py_ssize_t first = 0, last, size = 1
    cdef double began
    while first < total:
        last = first + min(size, total - first)
        began = perf_counter()
        yield first, last
        PyErr_CheckSignals()
        if perf_counter() - began < RANGE_SECONDS:
            size = min(2 * size, total)
        first = last


def simd_level():
    """Name of the instruction set the inner loops run on: "avx2" or "baseline"."""
    return "avx2" if fp_use_avx2() else "baseline"
