"""How many threads a pass over the rows may use, how they share it, and the instruction set.

Threads follow the threadpoolctl conventions: ``n_threads=None`` is the number that the OpenMP
runtime would use (so ``OMP_NUM_THREADS`` and ``threadpool_limits`` are obeyed), but at most the
processors on which this process may run. OpenMP is only asked for that number, because its threads
spin while they wait, which is slow on busy cores. The threads of `run_shares` live as long as one
pass and never spin.
"""

import os
from time import perf_counter

from cpython.exc cimport PyErr_CheckSignals

cdef extern from "simd/runtime.h":
    int fp_max_threads() noexcept nogil
    int fp_use_avx2() noexcept nogil

cdef extern from "simd/shares.h":
    void fp_run_shares(
        share_function work, void* job, int n_shares, int n_threads, int always
    ) noexcept nogil
    void fp_after_fork() noexcept nogil

RANGE_SECONDS = 0.1
cdef double THREAD_SECONDS = 1e-3    # seconds of work that justify a thread, which starts in 20 us
cdef double ADDING_SECONDS = 4e-8    # seconds of a pass per number in its sums that justify a share
cdef int SHARES = 4                  # shares per thread, so that a delayed thread delays little


def _after_fork():
    fp_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


cdef int _n_processors():
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


cpdef int effective_n_threads(object n_threads=None) except -1:
    """The number of threads for a request: a positive int as it is, or None: the OpenMP default.

    Examples
    --------
    >>> from fastpoly.kernels.runtime import effective_n_threads
    >>> effective_n_threads(1)
    1
    """
    if n_threads is None:
        return max(1, min(fp_max_threads(), _n_processors()))
    if isinstance(n_threads, bool) or not hasattr(n_threads, "__index__"):
        raise TypeError(f"n_threads must be a positive int or None, got {n_threads!r}")
    n_threads = n_threads.__index__()
    if not 1 <= n_threads <= 1024:
        raise ValueError(f"n_threads must be between 1 and 1024 or None, got {n_threads}")
    return n_threads


def set_thread_seconds(double seconds):
    """Set the seconds of work that are worth a thread, for the whole process; return the old ones.

    With 0 every pass uses all its threads, however short it is. Tests need that.
    """
    global THREAD_SECONDS
    if not seconds >= 0:
        raise ValueError(f"seconds must be at least 0, got {seconds}")
    before, THREAD_SECONDS = THREAD_SECONDS, seconds
    return before


cdef int threads_for(int n_threads, double seconds) noexcept nogil:
    """At most `n_threads`, each with THREAD_SECONDS of work; one alone would take `seconds`."""
    if seconds >= n_threads * THREAD_SECONDS:
        return n_threads
    return max(1, <int> (seconds / THREAD_SECONDS))


cdef int shares_for(int n_threads, double seconds, double size) noexcept nogil:
    """The number of shares of a pass in which every share has its own sums, `size` numbers.

    It is several per thread, but small enough that adding the sums takes little of the pass.
    """
    cdef double most = seconds / (ADDING_SECONDS * n_threads * max(1.0, size))
    return n_threads * max(1, <int> min(<double> SHARES, most)) if n_threads > 1 else 1


cdef void run_shares(
    share_function work, void* job, int n_shares, int n_threads
) noexcept nogil:
    """Run work(share, worker, job) for every share < n_shares, with worker < n_threads.

    Any thread may take any share, so the result of a share must depend on its number only. Memory
    that belongs to a worker is used by one share at a time.
    """
    fp_run_shares(work, job, n_shares, n_threads, THREAD_SECONDS == 0)


def interruptible(Py_ssize_t total):
    """Cut 0..total - 1 into ranges first..last - 1, and check for Ctrl-C between them.

    A range takes about 0.1 to 0.2 s, estimated from the ranges before it. Results must not depend
    on the cuts.

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
    """The name of the instruction set of the inner loops: "avx2" or "baseline"."""
    return "avx2" if fp_use_avx2() else "baseline"
