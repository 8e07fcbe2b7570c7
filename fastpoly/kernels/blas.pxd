# Row-major matrix products through SciPy's BLAS; leading dimensions are those of C-ordered arrays.
from scipy.linalg.cython_blas cimport dgemm

# OpenBLAS runs a product of at most this size (rows x columns x inner) on the calling thread. Row
# blocks are chosen below it, because a fused pass has its own threads.
cdef enum:
    SERIAL_PRODUCT = 262144


# C (rows, cols) = A (rows, inner) B (inner, cols) + beta C
cdef inline void product(
    Py_ssize_t rows, Py_ssize_t cols, Py_ssize_t inner, const double* A, Py_ssize_t lda,
    const double* B, Py_ssize_t ldb, double beta, double* C, Py_ssize_t ldc
) noexcept nogil:
    cdef int m = <int> cols, n = <int> rows, k = <int> inner
    cdef int ld_b = <int> ldb, ld_a = <int> lda, ld_c = <int> ldc
    cdef double one = 1
    if rows > 0 and cols > 0:
        if inner > 0:
            dgemm(b"N", b"N", &m, &n, &k, &one, <double*> B, &ld_b, <double*> A, &ld_a, &beta,
                  C, &ld_c)
        else:
            scale(rows, cols, beta, C, ldc)


# C (rows, cols) = A (rows, inner) B' + beta C with B (cols, inner)
cdef inline void product_nt(
    Py_ssize_t rows, Py_ssize_t cols, Py_ssize_t inner, const double* A, Py_ssize_t lda,
    const double* B, Py_ssize_t ldb, double beta, double* C, Py_ssize_t ldc
) noexcept nogil:
    cdef int m = <int> cols, n = <int> rows, k = <int> inner
    cdef int ld_b = <int> ldb, ld_a = <int> lda, ld_c = <int> ldc
    cdef double one = 1
    if rows > 0 and cols > 0:
        if inner > 0:
            dgemm(b"T", b"N", &m, &n, &k, &one, <double*> B, &ld_b, <double*> A, &ld_a, &beta,
                  C, &ld_c)
        else:
            scale(rows, cols, beta, C, ldc)


# C (rows, cols) = A' B + beta C with A (inner, rows), B (inner, cols)
cdef inline void product_tn(
    Py_ssize_t rows, Py_ssize_t cols, Py_ssize_t inner, const double* A, Py_ssize_t lda,
    const double* B, Py_ssize_t ldb, double beta, double* C, Py_ssize_t ldc
) noexcept nogil:
    cdef int m = <int> cols, n = <int> rows, k = <int> inner
    cdef int ld_b = <int> ldb, ld_a = <int> lda, ld_c = <int> ldc
    cdef double one = 1
    if rows > 0 and cols > 0:
        if inner > 0:
            dgemm(b"N", b"T", &m, &n, &k, &one, <double*> B, &ld_b, <double*> A, &ld_a, &beta,
                  C, &ld_c)
        else:
            scale(rows, cols, beta, C, ldc)


cdef inline void scale(
    Py_ssize_t rows, Py_ssize_t cols, double beta, double* C, Py_ssize_t ldc
) noexcept nogil:
    cdef Py_ssize_t i, j
    for i in range(rows):
        for j in range(cols):
            C[i * ldc + j] = 0 if beta == 0 else beta * C[i * ldc + j]
