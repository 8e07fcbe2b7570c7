"""Limit BLAS to one thread, in whichever Python thread a fit runs.

Passes over the rows have their own threads. If threaded passes and threaded BLAS calls alternate,
they compete for the cores, because the workers of BLAS spin while a pass runs. And the last bits
of a product or an eigenvector depend on the number of BLAS threads.

threadpoolctl finds the libraries, but its setters do nothing in a thread other than the first that
used them. So the functions of the libraries are called here, by address. That also makes the two
ends of a context safe: Python handles signals and switches threads between its own instructions,
of which there are none here. Ctrl-C cannot come between a number of threads and its restoration,
and no lock is left locked in a forked process.
"""

import ctypes
import os

import scipy.linalg  # noqa: F401  (its BLAS must be loaded before the controller looks for it)
from threadpoolctl import ThreadpoolController

cimport cython
from libc.stdint cimport uintptr_t

ctypedef int (*get_function)() noexcept nogil
ctypedef void (*set_function)(Py_ssize_t) noexcept nogil

# Names of the functions of each library, and whether they speak of the calling thread alone.
FUNCTIONS = {
    "openblas": ("openblas_get_num_threads", "openblas_set_num_threads", False),
    "openmp": ("omp_get_max_threads", "omp_set_num_threads", True),
    "mkl": ("MKL_Get_Max_Threads", "MKL_Set_Num_Threads_Local", True),
    "blis": ("bli_thread_get_num_threads", "bli_thread_set_num_threads", False),
    "flexiblas": ("flexiblas_get_num_threads", "flexiblas_set_num_threads", False),
}
AFFIXES = [(before, after) for before in ("", "scipy_") for after in ("", "64_", "_64")]


@cython.final
cdef class _Library:
    """One BLAS library; `users` contexts hold it at one thread, and it had `before`."""

    cdef object loaded
    cdef get_function get
    cdef set_function set
    cdef bint per_thread
    cdef int users, before


cdef list find_libraries():
    cdef _Library library
    found = []
    for controller in ThreadpoolController().select(user_api="blas").lib_controllers:
        openmp = getattr(controller, "threading_layer", None) == "openmp"
        kind = "openmp" if openmp and controller.internal_api == "openblas" else None
        names = FUNCTIONS.get(kind or controller.internal_api)
        if names is None:
            continue
        library = _Library()
        library.loaded = ctypes.CDLL(controller.filepath)
        library.get = <get_function> address(library.loaded, names[0])
        library.set = <set_function> address(library.loaded, names[1])
        library.per_thread = names[2]
        if library.get != NULL and library.set != NULL:
            found.append(library)
    return found


cdef void* address(object loaded, str name):
    """The address of a function, with the prefix and suffix of a build; NULL if it has none."""
    for before, after in AFFIXES:
        function = getattr(loaded, before + name + after, None)
        if function is not None:
            return <void*> <uintptr_t> ctypes.cast(function, ctypes.c_void_p).value
    return NULL


cdef list libraries = find_libraries()


@cython.final
cdef class one_blas_thread:
    """A context in which BLAS uses one thread.

    Contexts may nest and overlap, in one Python thread or several: where the number of threads
    belongs to the process, the first one sets it and the last one restores it.

    Examples
    --------
    >>> from fastpoly.kernels.blas_threads import one_blas_thread
    >>> with one_blas_thread():
    ...     pass
    """

    cdef list before

    def __enter__(self):
        cdef _Library library
        cdef int now
        self.before = []
        for library in libraries:
            with cython.critical_section(library):
                now = library.get()
                self.before.append(now)
                if library.users == 0:
                    library.before = now
                library.users += 1
                library.set(1)

    def __exit__(self, *_):
        cdef _Library library
        for library, before in zip(libraries, self.before):
            with cython.critical_section(library):
                library.users = max(0, library.users - 1)  # it is 0 if this process was forked
                if library.per_thread:
                    library.set(before)
                elif library.users == 0:
                    library.set(library.before)


def _after_fork():
    """The contexts of other threads do not exist in a forked child."""
    cdef _Library library
    for library in libraries:
        if library.users:
            library.users = 0
            library.set(library.before)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
