"""X as the kernels see it: dense rows or CSR rows, checked once, float32 or float64.

A `Matrix` shares the memory of the array it was made from whenever dtype and order allow it;
do not change that array while the Matrix is in use.
"""


import numpy as np
import scipy.sparse as sp

cimport cython
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy, memset

from fastpoly.kernels.checks import as_array, as_float_array

_LIMIT = 2**31 - 1

USER_CHANGES = 0.25                  # changes of the user per row up to which rows count as sorted


cdef class Matrix:
    """Base of the two storage forms; see `as_matrix`."""

    cdef const double* dense_rows(
        self, Py_ssize_t first, Py_ssize_t last, double* buffer
    ) noexcept nogil:
        return buffer


cdef class DenseMatrix(Matrix):
    """Rows of a C-ordered array, (n, d - augment), or of `ScaledRows`."""

    # __cinit__, here and below, so that every object is checked, and is never initialized twice.
    def __cinit__(self, X, bint augment=False):
        scaled = None
        if isinstance(X, ScaledRows):
            # Checked again, because its arrays may have been replaced.
            scaled = ScaledRows(as_array(X.array, "X"), X.center, X.factor)
        X = _as_real(as_array(X if scaled is None else scaled.array, "X"))
        if X.ndim != 2:
            raise ValueError(
                f"X must be a 2-D array, got shape {X.shape}; reshape a single sample with "
                "X.reshape(1, -1) and a single feature with X.reshape(-1, 1)"
            )
        _check_shape(X.shape, augment)
        X = np.require(X, requirements=("C_CONTIGUOUS", "ALIGNED"))
        if not np.isfinite(X).all():
            raise ValueError("X contains NaN or infinity; remove or impute these entries")
        self.array = X
        self.n, self.d = X.shape[0], X.shape[1] + augment
        self.augment, self.single = augment, X.dtype == np.float32
        self.center = None if scaled is None else scaled.center
        self.factor = None if scaled is None else scaled.factor
        self.copied = augment or self.single or self.factor is not None
        cdef size_t address = X.ctypes.data
        self.data = <const void*> address

    def rows(self, index):
        """Some rows as float64, without the constant; `index` is a slice or an array."""
        X = np.asarray(self.array[index], dtype=np.float64)
        if self.factor is None:
            return X
        return (X - self.center.base) * self.factor.base

    @property
    def source(self):
        """The array or the `ScaledRows` from which the Matrix was made."""
        if self.factor is None:
            return self.array
        return ScaledRows(self.array, self.center.base, self.factor.base)

    cdef const double* dense_rows(
        self, Py_ssize_t first, Py_ssize_t last, double* buffer
    ) noexcept nogil:
        cdef Py_ssize_t stored = self.d - self.augment, i, j
        cdef const double* x64 = <const double*> self.data + first * stored
        cdef const float* x32 = <const float*> self.data + first * stored
        cdef double* row
        if not self.copied:
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
            if self.factor is not None:
                for j in range(stored):
                    row[j] = (row[j] - self.center[j]) * self.factor[j]
        return buffer


cdef class CsrMatrix(Matrix):
    """Rows of a CSR array: sorted int32 indices without duplicates, int64 indptr."""

    def __cinit__(self, X, bint augment=False):
        if isinstance(X, StoredRows):
            # Checked again, because its arrays may have been replaced.
            self.share(StoredRows(X.shape, X.indices, X.data, X.indptr), augment)
            return
        if not sp.issparse(X):
            raise TypeError(f"X must be a scipy sparse matrix or array, got {type(X).__name__}")
        X = as_csr(X)
        _check_shape(X.shape, augment)
        cdef Py_ssize_t n = X.shape[0], d = X.shape[1], nnz = X.indptr[n]
        data = np.require(_as_real(X.data[:nnz]), requirements=("C_CONTIGUOUS", "ALIGNED"))
        indices = np.require(X.indices[:nnz], np.int32, ("C_CONTIGUOUS", "ALIGNED"))
        indptr = np.require(X.indptr, np.int64, ("C_CONTIGUOUS", "ALIGNED"))
        if not _strictly_increasing(indices, indptr, n):
            # This copy is ours: sort it and add up duplicates, as scipy does on request.
            own = sp.csr_array((data, indices, indptr), shape=(n, d), copy=True)
            own.has_canonical_format = False
            own.sum_duplicates()
            data, indices = own.data, own.indices.astype(np.int32, copy=False)
            indptr = np.ascontiguousarray(own.indptr, dtype=np.int64)
        if not np.isfinite(data).all():
            raise ValueError("X contains NaN or infinity; remove or impute these entries")
        # Values may be shared. Indices may not: if they changed later, they could point anywhere.
        data, indices, indptr = data.view(), indices.copy(), indptr.copy()
        for array in (data, indices, indptr):
            array.flags.writeable = False
        self.pairs = n > 0 and bool((np.diff(indptr) == 2).all())
        self.ones = bool((data == 1).all())
        self.point(data, indices, indptr, n, d, augment)

    cdef int share(self, X, bint augment) except -1:
        """Take arrays as they are, in the order of their rows; see `StoredRows`."""
        n, d = X.shape
        _check_shape((n, d), augment)
        data, indices, indptr = X.data, X.indices.reshape(-1), X.indptr
        width = X.indices.shape[1] if indptr is None else 0
        if indptr is None:
            ones, indptr = shared_ones(n, width)
            data = ones if data is None else data.reshape(-1)
        if len(indptr) != n + 1 or not len(data) == len(indices) == indptr[n] or indptr[0] != 0:
            raise ValueError("indptr must start at 0 and end with the number of entries")
        # Compared, not subtracted: differences of forged numbers could overflow.
        if X.indptr is not None and n and (indptr[1:] < indptr[:n]).any():
            raise ValueError("indptr must never decrease")
        _check_range(indices, "indices", d)
        if not _strictly_increasing(indices, indptr, n):
            raise ValueError("the indices of a row must increase")
        if X.data is not None and not np.isfinite(data).all():
            raise ValueError("it contains NaN or infinity")
        self.pairs = n > 0 and (
            width == 2 if X.indptr is None else bool((np.diff(indptr) == 2).all())
        )
        self.ones = X.data is None
        self.point(data, indices, indptr, n, d, augment)
        self._grouped = (None, None)
        return 0

    cdef int point(
        self, data, indices, indptr, Py_ssize_t n, Py_ssize_t d, bint augment
    ) except -1:
        self.n, self.d = n, d + augment
        self.sparse, self.augment, self.single = True, augment, data.dtype == np.float32
        self.arrays = (data, indices, indptr)
        cdef size_t address = data.ctypes.data
        self.data = <const void*> address
        address = indices.ctypes.data
        self.indices = <const int32_t*> address
        address = indptr.ctypes.data
        self.indptr = <const int64_t*> address
        return 0

    cdef tuple grouped(self):
        """Pairs with the rows of every user next to each other, and their order; or (self, None).

        A sum over the rows does not depend on their order, and its loop keeps the user of the
        previous row in registers. The result is made once, on first use.
        """
        cdef tuple found
        with cython.critical_section(self):
            found = self._grouped
        if found is None:
            found = self.group()  # two threads may both do it; the results are equal
            with cython.critical_section(self):
                self._grouped = found
        # A reference to itself would keep the arrays until the garbage collector runs.
        return (self, None) if found[0] is None else found

    cdef tuple group(self):
        data, indices, indptr = self.arrays
        users = indices[::2]
        changes = np.count_nonzero(np.diff(users)) if self.pairs else 0
        if changes <= USER_CHANGES * self.n:
            return (None, None)
        order = np.argsort(users, kind="stable")
        both = np.column_stack([2 * order, 2 * order + 1]).ravel()
        shape = (self.n, self.d - self.augment)
        rows = sp.csr_array((data[both], indices[both], indptr), shape=shape)
        return (CsrMatrix(rows, self.augment), order)

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


class StoredRows:
    """Rows in arrays that must stay where they are, such as files mapped to memory.

    `as_matrix` checks them once and copies nothing. They must not change later, because the kernels
    trust them. Rows keep their order, so rows of two entries should be sorted by the first one.

    Parameters
    ----------
    shape : tuple of int
        (n, d)
    indices : ndarray of int32, (n, width), or (n_entries,) with indptr
        Columns; they increase along a row.
    data : ndarray of float32 or float64, like indices, optional
        Values; by default all ones, which take no memory.
    indptr : ndarray of int64, (n + 1,), optional

    Examples
    --------
    >>> import numpy as np
    >>> from fastpoly.kernels.matrix import StoredRows, as_matrix
    >>> X = as_matrix(StoredRows((2, 5), np.array([[0, 3], [1, 3]], dtype=np.int32)))
    >>> X.n, X.d, X.pairs
    (2, 5, True)
    """

    def __init__(self, shape, indices, data=None, indptr=None):
        ndim = 2 if indptr is None else 1
        wanted = ((indices, (np.int32,), ndim, "indices"),
                  (data, (np.float32, np.float64), ndim, "data"),
                  (indptr, (np.int64,), 1, "indptr"))
        for a, dtypes, ndim, name in wanted:
            if a is None and name != "indices":
                continue
            if not isinstance(a, np.ndarray):
                raise TypeError(f"{name} must be an array, got {type(a).__name__}")
            if a.ndim != ndim or a.dtype not in dtypes or not (
                a.flags.c_contiguous and a.flags.aligned
            ):
                names = " or ".join(dtype.__name__ for dtype in dtypes)
                raise ValueError(
                    f"{name} must be C-ordered, of {ndim} dimension(s) and dtype {names}, "
                    f"got shape {a.shape} of {a.dtype}"
                )
        if indptr is not None and data is None:
            raise ValueError("data must be given with indptr")
        if indptr is None and len(indices) != shape[0]:
            raise ValueError(f"indices must have {shape[0]} rows, got {len(indices)}")
        if data is not None and data.shape != indices.shape:
            raise ValueError(f"data must have shape {indices.shape}, got {data.shape}")
        self.shape, self.indices, self.data, self.indptr = tuple(shape), indices, data, indptr


class ScaledRows:
    """Dense rows (x - center) * factor, which are made from x one block at a time.

    Parameters
    ----------
    array : ndarray, (n, d)
    center, factor : array-like, (d,)

    Examples
    --------
    >>> import numpy as np
    >>> from fastpoly.kernels.matrix import ScaledRows, as_matrix
    >>> X = as_matrix(ScaledRows(np.array([[1.0, 2.0], [3.0, 6.0]]), [2.0, 4.0], [1.0, 0.5]))
    >>> X.rows(slice(None))
    array([[-1., -1.],
           [ 1.,  1.]])
    """

    def __init__(self, array, center, factor):
        if array.ndim != 2:
            raise ValueError(f"array must be 2-D, got shape {array.shape}")
        d = array.shape[1]
        self.array = array
        self.center = np.array(as_float_array(center, "center", (d,)))
        self.factor = np.array(as_float_array(factor, "factor", (d,)))


# width: (ones, multiples of width) for the largest StoredRows so far; never written to again.
_ones = {}


def shared_ones(n, width):
    """Values (float32) and indptr (int64) of n rows of `width` ones.

    All matrices of that width share them. A longer matrix needs new ones, and shorter ones keep
    the old. So ask for the longest first.
    """
    # Without a lock, which a forked child may find locked: two threads may make them twice.
    ones, steps = _ones.get(width, (np.empty(0, np.float32), np.empty(0, np.int64)))
    if len(steps) <= n:
        ones, steps = np.ones(n * width, np.float32), np.arange(n + 1, dtype=np.int64)
        steps *= width
        for array in (ones, steps):
            array.flags.writeable = False
        _ones[width] = ones, steps
    return ones[:n * width], steps[:n + 1]


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


def _check_shape(shape, augment):
    if shape[0] < 0 or shape[1] + augment < 1:
        raise ValueError(f"X must have at least one column, got shape {shape}")
    if max(shape) > _LIMIT:
        raise ValueError(f"X must have fewer than 2**31 rows and columns, got shape {shape}")


def as_csr(X):
    """X in CSR form, with index arrays that do not point outside it.

    scipy follows the indices of a sparse matrix wherever they point, so its functions must not be
    called before the arrays are checked.
    """
    _check_dtype(X.dtype)
    if len(X.shape) != 2:
        raise ValueError(f"X must be 2-D, got shape {X.shape}")
    _check_shape(X.shape, True)
    kind = X.format
    try:
        if kind == "dok":
            X = X.tocoo()
        if kind != "csr":
            _check_storage(X)
            if X.dtype not in (np.float32, np.float64):
                # This comes before duplicates are added up, where small integers would overflow.
                with np.errstate(over="ignore"):
                    X = X.astype(np.float64)
            X = X.tocsr()
    except (IndexError, OverflowError) as error:
        raise ValueError(
            f"X is not a valid {kind} matrix ({error}); rebuild it from valid arrays"
        ) from error
    _check_storage(X)
    return X


def _check_storage(X):
    """The arrays of X, which scipy checks when X is made but not when they are replaced."""
    if X.format in ("csr", "csc", "bsr"):
        rows, columns = 1, 1
        if X.format == "bsr":
            if X.data.ndim != 3 or 0 in X.data.shape[1:]:
                raise ValueError(f"X.data must hold 2-D blocks, got shape {X.data.shape}")
            rows, columns = X.data.shape[1:]
            if X.shape[0] % rows or X.shape[1] % columns:
                raise ValueError(f"X.data must hold blocks that tile X, got {rows} x {columns}")
        elif X.data.ndim != 1:
            raise ValueError(f"X.data must be 1-D, got shape {X.data.shape}")
        major, minor = X.shape[0] // rows, X.shape[1] // columns
        if X.format == "csc":
            major, minor = minor, major
        indptr = _as_index(X.indptr, "indptr", major + 1)
        if (
            indptr[0] != 0 or (indptr[1:] < indptr[:major]).any()
            or indptr[major] > min(len(X.indices), len(X.data))
        ):
            raise ValueError(
                "X.indptr must start at 0, never decrease and end within X.data and X.indices; "
                "rebuild X from valid arrays"
            )
        indices = _as_index(X.indices, "indices", len(X.indices))
        _check_range(indices[:indptr[major]], "indices", minor)
    elif X.format == "coo":
        for index, name, size in ((X.row, "row", X.shape[0]), (X.col, "col", X.shape[1])):
            _check_range(_as_index(index, name, len(X.data)), name, size)
    elif X.format == "dia":
        if X.data.ndim != 2:
            raise ValueError(f"X.data must be 2-D, got shape {X.data.shape}")
        offsets = _as_index(X.offsets, "offsets", len(X.data))
        if len(offsets) and not (-_LIMIT <= offsets.min() and offsets.max() <= _LIMIT):
            raise ValueError("X.offsets must lie within +-2**31; rebuild X from valid arrays")
    elif X.format == "lil":
        if X.rows.shape != (X.shape[0],) or list(map(len, X.rows)) != list(map(len, X.data)):
            raise ValueError("X.rows and X.data must hold one list per row, of equal lengths")


def _as_index(a, name, length):
    a = np.asarray(a)
    if a.dtype.kind not in "iu":
        raise TypeError(f"X.{name} must hold integers, got dtype {a.dtype}")
    if a.shape != (length,):
        raise ValueError(f"X.{name} must have shape ({length},), got {a.shape}")
    return a


def _check_range(index, name, size):
    if len(index) and not (0 <= index.min() and index.max() < size):
        raise ValueError(f"X.{name} must lie in 0..{size - 1}, got {index.min()}..{index.max()}")


def _frame_values(frame):
    """Values of a DataFrame; pandas returns `object` for booleans next to numbers."""
    values = frame.to_numpy()
    if values.dtype == object and values.ndim == 2 and all(
        getattr(dtype, "kind", "O") in "buif" for dtype in frame.dtypes
    ):
        values = frame.to_numpy(dtype=np.float64, na_value=np.nan)
    return values


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
            raise ValueError("X is already a Matrix, made with another `augment`")
        return X
    if sp.issparse(X) or isinstance(X, StoredRows):
        return CsrMatrix(X, augment)
    if hasattr(X, "to_numpy"):
        X = _frame_values(X)
    return DenseMatrix(X, augment)
