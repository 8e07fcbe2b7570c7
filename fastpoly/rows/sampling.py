"""Rows of a matrix, taken by their numbers."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from fastpoly.kernels.matrix import Matrix


def take_rows(X: Matrix, rows: NDArray[np.intp]) -> Any:
    """Take rows of X, without the constant feature, as an array or a csr_array.

    Examples
    --------
    >>> import numpy as np
    >>> from fastpoly.kernels.matrix import as_matrix
    >>> from fastpoly.rows.sampling import take_rows
    >>> take_rows(as_matrix([[1.0], [2.0], [3.0]]), np.array([2, 0]))
    array([[3.],
           [1.]])
    """
    if not X.sparse:
        return X.rows(rows)
    values, indices, indptr = X.arrays
    counts = indptr[rows + 1] - indptr[rows]
    ends = np.cumsum(counts)
    n_entries = ends[-1] if len(ends) else 0
    entries = np.arange(n_entries) + np.repeat(indptr[rows] - ends + counts, counts)
    arrays = values[entries], indices[entries], np.concatenate([[0], ends])
    return csr_array(arrays, shape=(len(rows), X.d - X.augment))
