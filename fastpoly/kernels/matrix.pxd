# X, validated once: kernels may read the arrays of a Matrix without further checks.
from libc.stdint cimport int32_t, int64_t


cdef class Matrix:
    cdef readonly Py_ssize_t n          # rows
    cdef readonly Py_ssize_t d          # columns, the constant included
    cdef readonly bint augment          # rows are [1, x_i]; the 1 is not stored
    cdef readonly bint single           # float32 storage
    cdef readonly bint sparse           # a CsrMatrix
    cdef const void* data
    # Rows first..last-1 as dense float64 rows of length d, the constant included: a pointer into X
    # itself if it is stored that way, else into `buffer` ((last - first) d doubles), now filled.
    cdef const double* dense_rows(
        self, Py_ssize_t first, Py_ssize_t last, double* buffer
    ) noexcept nogil


cdef class DenseMatrix(Matrix):
    cdef readonly object array          # (n, d - augment), C order; before it is scaled
    cdef const double[::1] center       # rows are (array - center) * factor; None: the array
    cdef const double[::1] factor
    cdef readonly bint copied           # whether rows are made in a buffer


cdef class CsrMatrix(Matrix):
    cdef readonly tuple arrays          # data, indices (int32), indptr (int64)
    cdef readonly bint pairs            # every row has exactly two entries
    cdef readonly bint ones             # every stored value is 1
    cdef tuple _grouped                 # see grouped()
    cdef tuple group(self)
    cdef tuple grouped(self)            # (the same rows in another order, that order) for pairs
    cdef const int64_t* indptr
    cdef const int32_t* indices
    cdef int share(self, X, bint augment) except -1
    cdef int point(
        self, data, indices, indptr, Py_ssize_t n, Py_ssize_t d, bint augment
    ) except -1
