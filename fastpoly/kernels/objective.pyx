"""The smooth part of a refit, in one pass over blocks of rows:

    F(V, b, W) = sum_i w_i l(y_i, o_i),    o_i = V's_i + b + W'x_i

S (n, k) activations, V (k, m), and where the model has explicit lower-order terms b (m,), W (d, m).
With D (n, m) the weighted gradients of the loss with respect to o:

    dF/dV = S.T @ D,   dF/db = D.sum(0),   dF/dW = X.T @ D

A block of rows goes through the three steps (outputs, loss, gradient) while it is in cache. Neither
O nor D needs memory of size n unless the caller asks for them. Every share of the rows has its own
sums, which are added in order.

Newton's method also needs the second derivative. For each output, with C (n, m) the diagonal of the
Hessian of the loss (the coupling of outputs is left out):

    blocks_c = S.T @ (C_:c * S)
"""

import numpy as np

from fastpoly.kernels.blas cimport SERIAL_PRODUCT, product, product_tn
from fastpoly.kernels.features cimport RowBlocks
from fastpoly.kernels.linear cimport LinearTerms
from fastpoly.kernels.loss cimport Loss
from fastpoly.kernels.memory cimport APART
from fastpoly.kernels.runtime cimport (
    flop_seconds, loss_seconds, run_shares, shares_for, threads_for,
)

from fastpoly.kernels.checks import as_float_array, as_output, as_weights
from fastpoly.kernels.runtime import interruptible
from fastpoly.kernels.verbs import CompleteLoss


cdef struct objective_pass:
    void* objective                  # Objective
    int n_shares
    const double* V
    const double* b
    const double* W
    double* D
    double* sums                     # one slot per share
    Py_ssize_t slot
    double* values                   # one per share, APART doubles apart
    double* buffers                  # one per worker
    Py_ssize_t buffer


cdef void run_share(int share, int worker, void* job) noexcept nogil:
    cdef objective_pass* p = <objective_pass*> job
    cdef Py_ssize_t n = (<Objective> p.objective).n
    p.values[share * APART] = (<Objective> p.objective).add_rows(
        n * share // p.n_shares, n * (share + 1) // p.n_shares, p.V, p.b, p.W,
        p.sums + share * p.slot, p.D, p.buffers + worker * p.buffer,
    )


cdef struct hessian_pass:
    void* objective                  # Objective
    int n_shares
    const double* C
    Py_ssize_t first, last, step     # blocks first..last-1 of every share, each of `step` rows
    double* sums                     # one slot per share
    Py_ssize_t slot
    double* buffers                  # one per worker
    Py_ssize_t buffer


cdef void run_hessian_share(int share, int worker, void* job) noexcept nogil:
    cdef hessian_pass* p = <hessian_pass*> job
    cdef Py_ssize_t n = (<Objective> p.objective).n, start = n * share // p.n_shares
    (<Objective> p.objective).add_hessian(
        start + p.first * p.step, min(start + p.last * p.step, n * (share + 1) // p.n_shares),
        p.C, p.sums + share * p.slot, p.buffers + worker * p.buffer,
    )


cdef class Objective:
    """F of one refit: activations, loss, targets and weights.

    Parameters
    ----------
    features : RowBlocks
        Activations, stored or computed block by block.
    loss : Loss or object with its methods
    Y : ndarray, (n, 1 or m)
        Targets as `loss.encode` returns them.
    n_outputs : int
    w : ndarray, (n,), optional
        Sample weights.
    linear : LinearTerms, optional
        The linear part, if there is one. It includes an intercept.

    Examples
    --------
    >>> import numpy as np
    >>> from fastpoly.kernels.features import StoredFeatures
    >>> from fastpoly.kernels.losses import get_loss
    >>> from fastpoly.kernels.objective import Objective
    >>> S, Y = np.array([[1.0], [2.0]]), np.array([[1.0], [3.0]])
    >>> objective = Objective(StoredFeatures(S), get_loss("squared"), Y, 1)
    >>> value, gradient = objective.value_grad(np.array([[1.0]]))
    >>> value, gradient
    (0.5, array([[-2.]]))
    """

    def __init__(self, RowBlocks features not None, loss, Y, Py_ssize_t n_outputs, w=None,
                 LinearTerms linear=None):
        if self.features is not None:
            raise TypeError("an Objective cannot be made a second time")
        if n_outputs < 1:
            raise ValueError(f"n_outputs must be at least 1, got {n_outputs}")
        if linear is not None and linear.X.n != features.n:
            raise ValueError(f"linear has {linear.X.n} rows, the activations {features.n}")
        self.features, self.linear = features, linear
        self.n, self.k, self.m = features.n, features.k, n_outputs
        self.w = as_weights(w, "w", self.n)
        loss = CompleteLoss.of(loss)
        if isinstance(loss, Loss):
            self.compiled = loss
            self.Y = self.compiled.targets(Y, self.n, self.m)
            if self.Y.shape[1] == 1:
                self.Y = np.array(self.Y)  # class codes are indices, which no one else may change
        else:
            self.Y = as_float_array(Y, "Y", (self.n, None))
        self.loss = loss
        self.block = max(1, min(features.block, max(8, SERIAL_PRODUCT // max(1, self.k * self.m))))

    @property
    def n_rows(self):
        """Rows of a parameter matrix: k, then 1 + d if there are lower-order terms."""
        self._check_made()
        return self.k + (0 if self.linear is None else 1 + self.linear.X.d)

    def value_grad(self, P, D=None):
        """F and its gradient at the parameters P = [V; b; W] stacked.

        Parameters
        ----------
        P : ndarray, (n_rows, m)
        D : ndarray, (n, m), optional
            Memory that receives the gradients with respect to the outputs.

        Returns
        -------
        value : float
        gradient : ndarray, (n_rows, m)
        """
        self._check_made()
        P = as_float_array(P, "P", (self.n_rows, self.m), finite=False)
        if D is not None:
            as_output(D, "D", (self.n, self.m))
            if any(np.may_share_memory(D, a) for a in (P, self.targets, self.w_array)):
                raise ValueError("D must not share memory with P, Y or w; pass another array")
        if self.compiled is None:
            return self._value_grad_python(P, D)
        return self._pass(P, D)

    cdef int _check_made(self) except -1:
        if self.features is None:
            raise TypeError("Objective.__init__ was not called")
        return 0

    def outputs(self, P):
        """The outputs o_i, (n, m)."""
        self._check_made()
        P = as_float_array(P, "P", (self.n_rows, self.m), finite=False)
        O = self.features.outputs(P[:self.k])
        if self.linear is not None:
            O += P[self.k]
            O += self.linear.outputs(P[self.k + 1:])
        return O

    def gradient(self, D):
        """The gradient with respect to P of sum(O * D), (n_rows, m)."""
        self._check_made()
        G = [self.features.pullback(D)]
        if self.linear is not None:
            G += [D.sum(axis=0)[None], self.linear.grad(D)]
        return np.concatenate(G) if len(G) > 1 else G[0]

    def _value_grad_python(self, P, D):
        value, gradients = self.loss.value_grad(self.Y.base, self.outputs(P), self.w_array)
        if D is not None:
            D[:] = gradients
        return float(value), self.gradient(gradients)

    @property
    def w_array(self):
        """Sample weights (n,), or None."""
        self._check_made()
        return None if self.w is None else self.w.base

    @property
    def targets(self):
        """Encoded targets, (n, 1 or m)."""
        self._check_made()
        return self.Y.base

    cdef Py_ssize_t buffer_size(self) noexcept nogil:
        cdef Py_ssize_t size = self.features.buffer_size() + 2 * self.block * self.m
        if self.linear is not None:
            size += self.linear.buffer_size()
        return size

    def _pass(self, P, D):
        cdef Py_ssize_t d = 0 if self.linear is None else self.linear.X.d
        cdef Py_ssize_t k = self.k, m = self.m, width = (m + 3) // 4 * 4
        cdef Py_ssize_t size = k * m + (0 if self.linear is None else m + d * width)
        cdef double entries = self.n * d
        if self.linear is not None and self.linear.X.sparse:
            entries = len(self.linear.X.arrays[0])
        cdef double seconds = (
            self.features.seconds + flop_seconds(4.0 * m * (self.n * k + entries))
            + loss_seconds(1.0 * self.n * m)
        )
        cdef int threads = threads_for(self.features.n_threads, seconds)
        cdef int n_shares = shares_for(threads, seconds, size)
        cdef double[:, ::1] buffers = np.empty((threads, self.buffer_size() + APART))
        cdef double[:, ::1] sums = np.zeros((n_shares, size + APART))
        cdef double[:, ::1] values = np.zeros((n_shares, APART))
        cdef objective_pass p
        cdef double[::1] parameters = np.zeros(size + 1)
        parameters.base[:k * m] = P[:k].ravel()
        if self.linear is not None:
            parameters.base[k * m:(k + 1) * m] = P[k]
            parameters.base[(k + 1) * m:size].reshape(d, width)[:, :m] = P[k + 1:]
        cdef const double* V = &parameters[0]
        cdef const double* b = NULL
        cdef const double* W = NULL
        if self.linear is not None:
            b, W = V + k * m, V + (k + 1) * m
        cdef double[:, ::1] D_view = D
        cdef double* D_all = NULL
        if D is not None and D.size:
            D_all = &D_view[0, 0]
        p.objective, p.n_shares, p.V, p.b, p.W, p.D = <void*> self, n_shares, V, b, W, D_all
        p.sums, p.slot, p.values = &sums[0, 0], sums.shape[1], &values[0, 0]
        p.buffers, p.buffer = &buffers[0, 0], buffers.shape[1]
        with nogil:
            run_shares(run_share, &p, n_shares, threads)
        total = sums.base[:, :size].sum(axis=0) if n_shares > 1 else sums.base[0, :size]
        G = np.empty((self.n_rows, m))
        G[:k] = total[:k * m].reshape(k, m)
        if self.linear is not None:
            G[k] = total[k * m:(k + 1) * m]
            G[k + 1:] = total[(k + 1) * m:].reshape(d, width)[:, :m]
        return float(values.base[:, 0].sum()), G

    cdef double add_rows(
        self, Py_ssize_t first, Py_ssize_t last, const double* V, const double* b,
        const double* W, double* G, double* D, double* buffer
    ) noexcept nogil:
        """The value of some rows, with gradients added to G and written to D if given."""
        cdef Py_ssize_t stop, i, c, k = self.k, m = self.m, y_width = self.Y.shape[1]
        cdef double* o = buffer + self.features.buffer_size()
        cdef double* own = o + self.block * m
        cdef double* linear_buffer = own + self.block * m
        cdef double* gradients
        cdef const double* S
        cdef const double* w
        cdef double value = 0
        while first < last:
            stop = min(first + self.block, last)
            w = NULL
            if self.w is not None:
                w = &self.w[first]
            S = self.features.rows(first, stop, buffer)
            product(stop - first, m, k, S, k, V, m, 0, o, m)
            if b != NULL:
                for i in range(stop - first):
                    for c in range(m):
                        o[i * m + c] += b[c]
                self.linear.add_outputs(first, stop, W, m, o, linear_buffer)
            gradients = own if D == NULL else D + first * m
            value += self.compiled.rows(
                &self.Y[first, 0], o, w, gradients, stop - first, m, y_width
            )
            product_tn(k, m, stop - first, S, k, gradients, m, 1, G, m)
            if b != NULL:
                for i in range(stop - first):
                    for c in range(m):
                        G[k * m + c] += gradients[i * m + c]
                self.linear.add_grad(first, stop, gradients, m, G + (k + 1) * m, linear_buffer)
            first = stop
        return value

    def hessian_blocks(self, C):
        """The Hessian of F in V, output by output, from the curvature of the loss.

        Parameters
        ----------
        C : ndarray, (n, m)
            Weighted second derivatives of the loss, as returned by `loss.curvature`.

        Returns
        -------
        ndarray, (m, k, k)
        """
        self._check_made()
        cdef const double[:, ::1] curvature = as_float_array(C, "C", (self.n, self.m))
        cdef Py_ssize_t size = self.m * self.k * self.k
        cdef Py_ssize_t n_blocks = 0, step = self.hessian_rows()
        cdef double seconds = self.features.seconds + flop_seconds(2.0 * self.n * size)
        cdef int threads = threads_for(self.features.n_threads, seconds)
        cdef int n_shares = shares_for(threads, seconds, size)
        cdef double[:, ::1] blocks = np.zeros((n_shares, size + APART))
        cdef double[:, ::1] buffers = np.empty(
            (threads, self.features.buffer_size() + self.features.block * self.k + APART)
        )
        cdef hessian_pass p
        if self.n and self.k:
            n_blocks = (self.n // n_shares + step) // step  # of the largest share
            p.C = &curvature[0, 0]
        p.objective, p.n_shares, p.step = <void*> self, n_shares, step
        p.sums, p.slot = &blocks[0, 0], blocks.shape[1]
        p.buffers, p.buffer = &buffers[0, 0], buffers.shape[1]
        for p.first, p.last in interruptible(n_blocks):
            with nogil:
                run_shares(run_hessian_share, &p, n_shares, threads)
        return blocks.base[:, :size].sum(axis=0).reshape(self.m, self.k, self.k)

    cdef Py_ssize_t hessian_rows(self) noexcept nogil:
        """Rows of a block of `share_hessian`."""
        cdef Py_ssize_t size = max(1, self.k * self.k)
        return max(1, min(self.features.block, max(8, SERIAL_PRODUCT // size)))

    cdef void add_hessian(
        self, Py_ssize_t first, Py_ssize_t last, const double* C, double* blocks, double* buffer
    ) noexcept nogil:
        """Add the contribution of some rows to `blocks`."""
        cdef Py_ssize_t stop, i, r, c, k = self.k, m = self.m, step = self.hessian_rows()
        cdef double* weighted = buffer + self.features.buffer_size()
        cdef const double* S
        cdef double weight
        while first < last:
            stop = min(first + step, last)
            S = self.features.rows(first, stop, buffer)
            for c in range(m):
                for i in range(stop - first):
                    weight = C[(first + i) * m + c]
                    for r in range(k):
                        weighted[i * k + r] = weight * S[i * k + r]
                product_tn(k, k, stop - first, weighted, k, S, k, 1, blocks + c * k * k, k)
            first = stop
