"""Gamma as explicit matrices, which pays off for few features, and the choice between the forms.

Forming them costs one product of D (n, m) with the n x d(d+1)/2 matrix of all x_i x_j, which is
made one block of rows at a time. After that a mat-vec costs m d^2, whatever n is.

    G_ij: = sum_n x_ni x_nj D_n:          np.einsum("ni,nj,nc->cij", X, X, D)
"""

import numpy as np

from fastpoly.kernels.blas cimport SERIAL_PRODUCT, product_tn
from fastpoly.kernels.gamma cimport Gamma
from fastpoly.kernels.gamma_loops cimport choose_gamma_loops, gamma_loops
from fastpoly.kernels.matrix cimport CsrMatrix, Matrix
from fastpoly.kernels.runtime cimport (
    effective_n_threads, flop_seconds, run_shares, shares_for, threads_for,
)

from fastpoly.kernels.checks import as_float_array
from fastpoly.kernels.features import ACTIVATIONS
from fastpoly.kernels.gamma import CsrGamma, DenseGamma
from fastpoly.kernels.runtime import interruptible

cdef const gamma_loops* loops = choose_gamma_loops()

cdef enum:
    PRODUCT_COLUMNS = 256            # products x_i x_j made at a time
    PASSES = 25                      # passes over the rows in one selection
    SPARSE_COST = 6                  # cost of a product of two stored entries, in dense products
    EXPLICIT_BYTES = 268435456       # 256 MB: the most that explicit matrices may take


cdef class ExplicitGamma(Gamma):
    """The m matrices themselves, stored (d, d, width) so that the loop over outputs is innermost.

    Parameters
    ----------
    G : array-like, (m, d, d)
        Symmetric matrices.

    Examples
    --------
    >>> import numpy as np
    >>> from fastpoly.kernels.explicit import ExplicitGamma
    >>> ExplicitGamma([np.diag([1.0, -2.0])]).forms([0.0, 1.0])
    array([-2.])
    """

    def __init__(self, G):
        G = as_float_array(G, "G", (None, None, None))
        if G.shape[1] != G.shape[2]:
            raise ValueError(f"G must hold square matrices, got shape {G.shape}")
        if G.size and not np.allclose(G, G.transpose(0, 2, 1), rtol=1e-10, atol=1e-10 * np.abs(G).max()):
            raise ValueError("G must hold symmetric matrices; pass (G + G.transpose(0, 2, 1)) / 2")
        self._set_shape(G.shape[1], G.shape[0])
        blocks = np.zeros((self.d, self.d, self.width))
        blocks[:, :, :self.m] = G.transpose(1, 2, 0)
        self.blocks = blocks

    cdef void apply(self, const double* B, double* out, double* work) noexcept nogil:
        loops.explicit_matvecs(&self.blocks[0, 0, 0], self.d, self.width, B, out)

    def blocks_array(self):
        """The operators as an array (d, d, m), outputs last."""
        self._check_made()
        return self.blocks.base[:, :, :self.m]

    def dense(self):
        """The operators as an array (m, d, d)."""
        self._check_made()
        return np.ascontiguousarray(self.blocks.base[:, :, :self.m].transpose(2, 0, 1))


cdef void add_products(
    Matrix X, const double* D, Py_ssize_t m, Py_ssize_t first, Py_ssize_t last, Py_ssize_t block,
    double* packed, Py_ssize_t width, double* work
) noexcept nogil:
    """packed (d (d + 1) / 2, width) += sums of x_i x_j D over rows first..last-1."""
    cdef Py_ssize_t d = X.d, start, stop, i0, i1, cols, done
    cdef double* P = work + block * d
    cdef const double* x
    start = first
    while start < last:
        stop = min(start + block, last)
        x = X.dense_rows(start, stop, work)
        i0, done = 0, 0
        while i0 < d:
            cols, i1 = 0, i0
            while i1 < d and (cols == 0 or cols + d - i1 <= PRODUCT_COLUMNS):
                cols += d - i1
                i1 += 1
            loops.products(x, stop - start, d, i0, i1, cols, P)
            product_tn(cols, m, stop - start, P, cols, D + start * m, m, 1,
                       packed + done * width, width)
            done += cols
            i0 = i1
        start = stop


cdef void add_sparse_products(
    CsrMatrix X, const double* D, Py_ssize_t m, Py_ssize_t first, Py_ssize_t last,
    double* packed, Py_ssize_t width, double* work
) noexcept nogil:
    """The same over the pairs of stored entries; `work` has 2 d doubles."""
    cdef Py_ssize_t d = X.d, row, p, size, a, b, c
    cdef double* x = work
    cdef Py_ssize_t* column = <Py_ssize_t*> (work + d)
    cdef const double* gradient
    cdef double* target
    for row in range(first, last):
        size = 0
        if X.augment:
            x[0], column[0], size = 1, 0, 1
        for p in range(X.indptr[row], X.indptr[row + 1]):
            x[size] = (<const float*> X.data)[p] if X.single else (<const double*> X.data)[p]
            column[size] = X.indices[p] + X.augment
            size += 1
        gradient = D + row * m
        for a in range(size):
            for b in range(a, size):
                target = packed + (column[a] * (2 * d - column[a] - 1) // 2 + column[b]) * width
                for c in range(m):
                    target[c] += x[a] * x[b] * gradient[c]


cdef struct products_pass:
    void* X                          # Matrix
    bint sparse                      # whether to go over the pairs of stored entries
    const double* D                  # (n, m)
    Py_ssize_t n, m, width
    Py_ssize_t first, last, block    # blocks first..last-1 of every share, each of `block` rows
    double* packed                   # one slot per share
    Py_ssize_t slot
    int n_shares
    double* work                     # `work_size` doubles per worker
    Py_ssize_t work_size


cdef void run_share(int share, int worker, void* job) noexcept nogil:
    cdef products_pass* p = <products_pass*> job
    cdef Py_ssize_t start = p.n * share // p.n_shares
    cdef Py_ssize_t stop = min(start + p.last * p.block, p.n * (share + 1) // p.n_shares)
    cdef double* packed = p.packed + share * p.slot
    cdef double* work = p.work + worker * p.work_size
    if p.sparse:
        add_sparse_products(<CsrMatrix> p.X, p.D, p.m, start + p.first * p.block, stop, packed,
                            p.width, work)
    else:
        add_products(<Matrix> p.X, p.D, p.m, start + p.first * p.block, stop, p.block, packed,
                     p.width, work)


cdef double stored_pairs(CsrMatrix X) except -1:
    """The mean number of pairs of stored entries in a row."""
    stored = np.diff(X.arrays[2]) + float(X.augment)
    return (stored * (stored + 1) / 2).mean() if len(stored) else 0


def explicit_gamma(Matrix X not None, D, bint anova=False, n_threads=1):
    """Form Gamma_c for all outputs.

    Parameters
    ----------
    X : Matrix, (n, d)
    D : array-like, (n, m)
    anova : bool
        Whether to form the Gamma of a factorization machine instead of a polynomial network.
    n_threads : int or None

    Returns
    -------
    ExplicitGamma
    """
    cdef const double[:, ::1] gradients = as_float_array(D, "D", (X.n, None))
    cdef Py_ssize_t n = X.n, d = X.d, m = gradients.shape[1]
    cdef ExplicitGamma gamma = ExplicitGamma.__new__(ExplicitGamma)
    gamma._set_shape(d, m)
    cdef Py_ssize_t width = gamma.width, n_packed = d * (d + 1) // 2
    cdef Py_ssize_t columns = max(d, min(n_packed, PRODUCT_COLUMNS))
    cdef Py_ssize_t block = max(16, min(128, SERIAL_PRODUCT // (columns * m)))
    cdef double sparse_cost = SPARSE_COST * stored_pairs(X) if X.sparse else n_packed
    cdef bint sparse = sparse_cost < n_packed
    cdef double seconds = flop_seconds(n * min(sparse_cost, n_packed) * (2 * m + 1))
    cdef int threads = threads_for(effective_n_threads(n_threads), seconds)
    cdef int n_shares = shares_for(threads, seconds, n_packed * width)
    cdef double[:, :, ::1] packed = np.zeros((n_shares, n_packed + 4, width))
    cdef double[:, ::1] work = np.empty((threads, block * (d + columns) + 16))
    cdef Py_ssize_t n_blocks = (n // n_shares + block) // block if n else 0  # of the largest share
    cdef products_pass p
    p.X, p.D, p.n, p.m, p.width = <void*> X, &gradients[0, 0] if n else NULL, n, m, width
    p.packed, p.slot, p.n_shares = &packed[0, 0, 0], (n_packed + 4) * width, n_shares
    p.work, p.work_size, p.block, p.sparse = &work[0, 0], work.shape[1], block, sparse
    for p.first, p.last in interruptible(n_blocks):
        with nogil:
            run_shares(run_share, &p, n_shares, threads)
    total = packed.base.sum(axis=0) if n_shares > 1 else packed.base[0]
    upper = np.triu_indices(d)
    blocks = np.empty((d, d, width))
    blocks[upper] = total[:n_packed]
    blocks[upper[::-1]] = total[:n_packed]
    if anova:
        blocks *= 0.5
        blocks[np.arange(d), np.arange(d)] = 0
    gamma.blocks = blocks
    return gamma


def make_gamma(Matrix X not None, D, activation="squared", n_threads=1):
    """The Gamma of D (n, m) in the form that is cheapest for this X.

    That is explicit matrices where d is small and X is not much sparser than the matrices, else one
    pass over the rows per mat-vec.

    Parameters
    ----------
    X : Matrix, (n, d)
    D : array-like, (n, m)
        Loss gradients, one column per output.
    activation : {"squared", "anova"}
    n_threads : int or None

    Returns
    -------
    Gamma

    Examples
    --------
    >>> import numpy as np
    >>> from fastpoly.kernels.explicit import make_gamma
    >>> from fastpoly.kernels.matrix import as_matrix
    >>> X = np.array([[1.0, 2.0], [3.0, 0.0]])
    >>> gamma = make_gamma(as_matrix(X), [[1.0], [1.0]])
    >>> np.allclose(gamma.dense()[0], X.T @ X)
    True
    """
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation must be one of {ACTIVATIONS}, got {activation!r}")
    cdef bint anova = activation == "anova"
    D = as_float_array(D, "D", (X.n, None), finite=False)  # the forms below check that
    cdef double stored = X.d
    if X.sparse:
        stored = len((<CsrMatrix> X).arrays[0]) / max(1.0, X.n)
    if explicit_pays(X.n, X.d, D.shape[1], stored):
        return explicit_gamma(X, D, anova, n_threads)
    return row_gamma(X, D, anova, n_threads)


def explicit_pays(double n, double d, double m, double stored):
    """Whether explicit matrices are cheaper than passes over n rows of `stored` entries."""
    # Costs are in passes over the rows. Forming costs d / 5 dense passes, which are more passes the
    # sparser X is. The work on matrices of d^2 entries matters where n is small. A selection takes
    # about 25 passes.
    cdef double forming = d / 5.0 * d / max(1.0, stored) + 15.0 * d / max(1.0, n)
    return forming <= PASSES and 8.0 * d * d * m <= EXPLICIT_BYTES


def row_gamma(Matrix X not None, D, bint anova=False, n_threads=1):
    """Gamma_c as passes over the rows of X."""
    return (CsrGamma if X.sparse else DenseGamma)(X, D, anova, n_threads)
