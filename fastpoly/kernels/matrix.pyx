"""X as the kernels see it: dense rows or CSR rows, checked once, float32 or float64.

A `Matrix` shares the memory of the array it was made from whenever dtype and order allow it;
do not change that array while the Matrix is in use.
"""

import numpy as np
import scipy.sparse as sp

from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy, memset

_LIMIT = 2**31 - 1


cdef class Matrix:
    """Base of the two storage forms; see `as_matrix`."""

    cdef const double* dense_rows(
        self, Py_ssize_t first, Py_ssize_t last, double* buffer
    ) noexcept nogil:
        return buffer


cdef class DenseMatrix(Matrix):
    """Rows of a C-ordered array, (n, d - augment)."""

    def __init__(self, X, bint augment=False):
        X = _as_real(np.asarray(X))
        if X.ndim != 2:
            raise ValueError(
                f"X must be a 2-D array, got shape {X.shape}; reshape a single sample with "
                "X.reshape(1, -1) and a single feature with X.reshape(-1, 1)"
            )
        _check_shape(X.shape)
        X = np.ascontiguousarray(X)
        if not np.isfinite(X).all():
            raise ValueError("X contains NaN or infinity; remove or impute these entries")
        self.array = X
        self.n, self.d = X.shape[0], X.shape[1] + augment
        self.augment, self.single = augment, X.dtype == np.float32
        cdef size_t address = X.ctypes.data
        self.data = <const void*> address

    cdef const double* dense_rows(
        self, Py_ssize_t first, Py_ssize_t last, double* buffer
    ) noexcept nogil:
        cdef Py_ssize_t stored = self.d - self.augment, i, j
        cdef const double* x64 = <const double*> self.data + first * stored
        cdef const float* x32 = <const float*> self.data + first * stored
        cdef double* row
        if not self.single and not self.augment:
            return x64
        for i in range(last - first):
            row = buffer + i * self.d
            if self.augment:
                row[0] = 1
                row += 1
            if self.single:
                for j in range(stored):
                    row[j] = x32[i * stored + j]
            else:
                memcpy(row, x64 + i * stored, stored * sizeof(double))
        return buffer


cdef class CsrMatrix(Matrix):
    """Rows of a CSR array: sorted int32 indices without duplicates, int64 indptr."""

    def __init__(self, X, bint augment=False):
        if len(X.shape) != 2:
            raise ValueError(f"X must be 2-D, got shape {X.shape}")
        _check_shape(X.shape)
        _check_dtype(X.dtype)
        if X.format != "csr":
            _check_foreign(X)
            X = X.tocsr()
        cdef Py_ssize_t n = X.shape[0], d = X.shape[1]
        data = np.ascontiguousarray(_as_real(np.asarray(X.data)))
        indices, indptr = X.indices, X.indptr
        for a, name in ((indices, "indices"), (indptr, "indptr")):
            if np.asarray(a).dtype.kind not in "iu":
                raise TypeError(f"X.{name} must hold integers, got dtype {np.asarray(a).dtype}")
        indptr = np.ascontiguousarray(indptr, dtype=np.int64)
        indices = np.ascontiguousarray(indices)
        if data.ndim != 1 or indices.ndim != 1 or indptr.shape != (n + 1,):
            raise ValueError(
                f"X.indptr must have {n + 1} entries and X.data, X.indices be 1-D; "
                f"got shapes {indptr.shape}, {data.shape}, {indices.shape}"
            )
        cdef Py_ssize_t nnz = min(data.shape[0], indices.shape[0])
        if indptr[0] != 0 or (np.diff(indptr) < 0).any() or indptr[n] > nnz:
            raise ValueError(
                "X.indptr must start at 0, never decrease and end within X.data and X.indices; "
                "rebuild X, for example through X.tocoo().tocsr()"
            )
        nnz = indptr[n]
        data, indices = data[:nnz], indices[:nnz]
        if nnz and not (0 <= indices.min() and indices.max() < d):
            raise ValueError(
                f"X.indices must lie in 0..{d - 1}, got {indices.min()}..{indices.max()}"
            )
        indices = indices.astype(np.int32, copy=False)
        if not np.isfinite(data).all():
            raise ValueError("X contains NaN or infinity; remove or impute these entries")
        if not _strictly_increasing(indices, indptr, n):
            # A copy that we own: sort it and add up duplicates, as scipy does when it is asked.
            own = sp.csr_array((data, indices.copy(), indptr), shape=(n, d), copy=True)
            own.has_canonical_format = False
            own.sum_duplicates()
            data, indices = own.data, own.indices.astype(np.int32, copy=False)
            indptr = np.ascontiguousarray(own.indptr, dtype=np.int64)
        self.n, self.d = n, d + augment
        self.sparse, self.augment, self.single = True, augment, data.dtype == np.float32
        self.pairs = n > 0 and bool((np.diff(indptr) == 2).all())
        self.ones = bool((data == 1).all())
        self.arrays = (data, indices, indptr)
        cdef size_t address = data.ctypes.data
        self.data = <const void*> address
        address = indices.ctypes.data
        self.indices = <const int32_t*> address
        address = indptr.ctypes.data
        self.indptr = <const int64_t*> address

    cdef const double* dense_rows(
        self, Py_ssize_t first, Py_ssize_t last, double* buffer
    ) noexcept nogil:
        cdef Py_ssize_t i, p
        cdef double* row
        memset(buffer, 0, (last - first) * self.d * sizeof(double))
        for i in range(first, last):
            row = buffer + (i - first) * self.d
            if self.augment:
                row[0] = 1
                row += 1
            for p in range(self.indptr[i], self.indptr[i + 1]):
                if self.single:
                    row[self.indices[p]] = (<const float*> self.data)[p]
                else:
                    row[self.indices[p]] = (<const double*> self.data)[p]
        return buffer


def _check_dtype(dtype):
    if dtype.kind not in "buif":
        raise TypeError(f"X must hold real numbers, got dtype {dtype}; encode or convert it first")


def _as_real(a):
    """Real numbers as float32 or float64; TypeError for anything else."""
    _check_dtype(a.dtype)
    if a.dtype in (np.float32, np.float64):
        return a
    with np.errstate(over="ignore"):
        return a.astype(np.float64)


def _check_shape(shape):
    if max(shape) > _LIMIT:
        raise ValueError(f"X must have fewer than 2**31 rows and columns, got shape {shape}")


def _check_foreign(X):
    """Index arrays of the other sparse formats, before scipy converts them without checking."""
    if X.format == "coo":
        for index, size, name in zip(X.coords, X.shape, ("row", "col")):
            if len(index) != len(X.data):
                raise ValueError(f"X.{name} must have as many entries as X.data")
            if len(index) and not (0 <= index.min() and index.max() < size):
                raise ValueError(f"X.{name} must lie in 0..{size - 1}")
    elif X.format in ("csc", "bsr"):
        blocks = X.blocksize if X.format == "bsr" else (1, 1)
        major, minor = X.shape if X.format == "bsr" else (X.shape[1], X.shape[0])
        major, minor = major // blocks[0], minor // blocks[1]
        indptr, indices = np.asarray(X.indptr), np.asarray(X.indices)
        if (
            indptr.shape != (major + 1,) or indptr[0] != 0 or (np.diff(indptr) < 0).any()
            or indptr[major] > min(len(indices), len(X.data))
        ):
            raise ValueError("X.indptr is not a valid index array; rebuild X")
        used = indices[:indptr[major]]
        if len(used) and not (0 <= used.min() and used.max() < minor):
            raise ValueError(f"X.indices must lie in 0..{minor - 1}")


cdef bint _strictly_increasing(const int32_t[::1] indices, const int64_t[::1] indptr,
                               Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i, p
    for i in range(n):
        for p in range(indptr[i] + 1, indptr[i + 1]):
            if indices[p] <= indices[p - 1]:
                return False
    return True


def as_matrix(X, bint augment=False):
    """The validated form of a 2-D array-like, DataFrame or scipy sparse matrix or array.

    Parameters
    ----------
    X : array-like or sparse, (n, d)
        Real and finite. float32 and float64 keep their type; other numbers become float64.
    augment : bool
        Treat every row as [1, x_i], without storing the 1.

    Returns
    -------
    DenseMatrix or CsrMatrix

    Examples
    --------
    >>> from fastpoly.kernels.matrix import as_matrix
    >>> X = as_matrix([[1.0, 2.0], [0.0, 3.0]], augment=True)
    >>> X.n, X.d
    (2, 3)
    """
    if isinstance(X, Matrix):
        if (<Matrix> X).augment != augment:
            raise ValueError("X is a Matrix already, made with another `augment`")
        return X
    if sp.issparse(X):
        return CsrMatrix(X, augment)
    if hasattr(X, "to_numpy"):
        X = X.to_numpy()
    return DenseMatrix(X, augment)
