# Sizes of memory that several kernels share.
from libc.stdint cimport uintptr_t

cdef enum:
    LINE = 8                         # doubles of a cache line, which two threads must not share
    APART = 16                       # doubles between two threads' memory, wherever a line begins
    ROW_BLOCK_DOUBLES = 16384        # 128 KB: a block of rows stays in the second-level cache


# The size rounded up to whole cache lines.
cdef inline Py_ssize_t whole_lines(Py_ssize_t size) noexcept nogil:
    return (size + LINE - 1) // LINE * LINE


# Whether n_a numbers at a and n_b numbers at b share memory; false if one of them is empty.
cdef inline bint overlap(
    const double* a, Py_ssize_t n_a, const double* b, Py_ssize_t n_b
) noexcept nogil:
    return (
        n_a > 0 and n_b > 0
        and <uintptr_t> a < <uintptr_t> (b + n_b) and <uintptr_t> b < <uintptr_t> (a + n_a)
    )
