# struct csr_rows of simd/rows.h, filled from a CsrMatrix.
from libc.stdint cimport int32_t, int64_t

from fastpoly.kernels.matrix cimport CsrMatrix

cdef extern from "simd/rows.h":
    struct csr_rows:
        const int64_t* indptr
        const int32_t* indices
        const void* data
        Py_ssize_t n, d
        int single, augment, ones


cdef inline csr_rows rows_of(CsrMatrix X) noexcept nogil:
    cdef csr_rows rows
    rows.indptr, rows.indices, rows.data = X.indptr, X.indices, X.data
    rows.n, rows.d = X.n, X.d - X.augment
    rows.single, rows.augment, rows.ones = X.single, X.augment, X.ones
    return rows
