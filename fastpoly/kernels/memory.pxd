from libc.stdint cimport uintptr_t


# Whether n_a numbers at a and n_b numbers at b share memory; false if one of them is empty.
cdef inline bint overlap(
    const double* a, Py_ssize_t n_a, const double* b, Py_ssize_t n_b
) noexcept nogil:
    return (
        n_a > 0 and n_b > 0
        and <uintptr_t> a < <uintptr_t> (b + n_b) and <uintptr_t> b < <uintptr_t> (a + n_a)
    )
