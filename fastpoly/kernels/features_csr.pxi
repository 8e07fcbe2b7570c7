# CSR rows of the activations.


cdef class CsrFeatures(Features):
    """Activations of CSR rows: a gather of rows of H transposed."""

    def __init__(self, Matrix X not None, H, bint anova=False, n_threads=1):
        if not X.sparse:
            raise TypeError("X must be a CsrMatrix; DenseFeatures takes the other ones")
        Features.__init__(self, X, H, anova, n_threads)

    cdef double prepare(self) except -1:
        self.Ht = np.zeros((self.X.d, max(4, (self.k + 3) // 4 * 4)))
        self.Ht.base[:, :self.k] = self.H.T
        return 2.0 * len((<CsrMatrix> self.X).arrays[0]) / max(1, self.n)  # gathered

    cdef void fill(
        self, Py_ssize_t first, Py_ssize_t last, double* S, double* buffer
    ) noexcept nogil:
        cdef csr_rows csr = rows_of(<CsrMatrix> self.X)
        loops.activations(&csr, self.anova, first, last, &self.Ht[0, 0], self.k, S)

    cdef Py_ssize_t grad_size(self) noexcept nogil:
        return self.X.d * self.Ht.shape[1]

    cdef void add_basis_grad(
        self, Py_ssize_t first, Py_ssize_t last, const double* M, double* G, double* buffer
    ) noexcept nogil:
        cdef csr_rows csr = rows_of(<CsrMatrix> self.X)
        loops.basis_grad(&csr, self.anova, first, last, &self.Ht[0, 0], self.k, M, G)

    def _finish_grad(self, G):
        G = G.reshape(self.X.d, -1)[:, :self.k].T
        return np.ascontiguousarray(G if self.anova else 2 * G)
