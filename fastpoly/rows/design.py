"""The data as the algorithm sees it: X with an activation, dense or CSR, with lower-order terms.

Also the curvature of the loss over dense rows, for the preconditioner.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from fastpoly.kernels.checks import BLOCK_DOUBLES, LARGEST
from fastpoly.kernels.explicit import make_gamma
from fastpoly.kernels.features import ACTIVATIONS, Features, make_features
from fastpoly.kernels.gamma import Gamma
from fastpoly.kernels.linear import LinearTerms
from fastpoly.kernels.matrix import Matrix, ScaledRows, as_matrix
from fastpoly.kernels.runtime import effective_n_threads
from fastpoly.kernels.verbs import loss_curvature
from fastpoly.state import Floats, Model

FIT_LOWER = (None, "augment", "explicit")
# Curvature below this counts as zero: the squares of directions in its units would overflow. Only
# a perfect fit, whose loss falls without end, has so little.
NO_CURVATURE = 1e-250


class Design:
    """X with an activation: the only Python class that tells dense from CSR and PN from FM.

    Parameters
    ----------
    X : array-like, DataFrame or scipy sparse matrix or array, (n, d)
        Real and finite, float32 or float64 (other numbers become float64). Its memory is shared
        where possible: do not change it while the Design is in use.
    activation : {"squared", "anova"}
        (h'x)^2, the polynomial network, or sum_{i<j} h_i x_i h_j x_j, the factorization machine.
    fit_lower : {None, "augment", "explicit"}
        Source of the linear terms. None: there are none. "augment": a constant feature 1 in front
        of every row, which is not stored. "explicit": an intercept and linear weights in addition
        to the network.
    n_threads : int or None
        Threads of the kernels; None for the OpenMP default.

    Attributes
    ----------
    n_samples : int
    n_features : int
        Length of a basis vector: d, plus 1 with "augment" (the constant comes first).

    Examples
    --------
    >>> import numpy as np
    >>> from fastpoly import Design
    >>> design = Design(np.array([[1.0, 2.0], [3.0, 4.0]]), "anova")
    >>> H = np.array([[1.0, 1.0]])
    >>> design.activations(H)
    array([[ 2.],
           [12.]])
    >>> design.gamma(np.ones((2, 1))).forms(H[0])
    array([14.])
    """

    def __init__(
        self, X: Any, activation: str = "squared", *, fit_lower: str | None = None,
        n_threads: int | None = None,
    ) -> None:  # fmt: skip
        check_kind(activation, fit_lower)
        self.n_threads = effective_n_threads(n_threads)
        self.matrix = as_matrix(X, fit_lower == "augment")
        self.activation, self.fit_lower = activation, fit_lower

    def __reduce__(self) -> tuple[Any, ...]:
        # A Matrix holds pointers, so it is rebuilt from its arrays, with all checks.
        M = self.matrix
        X = csr_array(M.arrays, shape=(M.n, M.d - M.augment)) if M.sparse else M.source
        make = partial(type(self), fit_lower=self.fit_lower, n_threads=self.n_threads)
        return make, (X, self.activation)

    @property
    def n_samples(self) -> int:
        return self.matrix.n

    @property
    def n_features(self) -> int:
        return self.matrix.d

    @property
    def linear(self) -> LinearTerms | None:
        """The linear terms, where fit_lower is "explicit"."""
        return LinearTerms(self.matrix) if self.fit_lower == "explicit" else None

    def features(self, H: ArrayLike) -> Features:
        """The activations on H as an object that is evaluated a block of rows at a time."""
        return make_features(self.matrix, H, self.activation, self.n_threads)

    def activations(self, H: ArrayLike) -> Floats:
        """s(H x_i) for all rows: H (k, n_features) -> (n, k)."""
        return self.features(H).activations()

    def outputs(self, H: ArrayLike, V: ArrayLike) -> Floats:
        """V's(H x_i) for all rows, without an n x k matrix: V (k, m) -> (n, m)."""
        return self.features(H).outputs(V)

    def gamma(self, D: ArrayLike) -> Gamma:
        """The operators Gamma_c of loss gradients D (n, m)."""
        return make_gamma(self.matrix, D, self.activation, self.n_threads)


def take_rows(X: Matrix, numbers: NDArray[np.intp]) -> Any:
    """Some rows of X by their numbers, without the constant: an array or a csr_array."""
    if not X.sparse:
        return X.rows(numbers)
    return csr_array(X.arrays, shape=(X.n, X.d - X.augment))[numbers]


def check_kind(activation: str, fit_lower: str | None) -> None:
    """Raise unless both are known."""
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation must be one of {ACTIVATIONS}, got {activation!r}")
    if fit_lower not in FIT_LOWER:
        raise ValueError(f"fit_lower must be one of {FIT_LOWER}, got {fit_lower!r}")


def largest_size(X: Matrix) -> float:
    """The largest |x|."""
    scaled = not X.sparse and isinstance(X.source, ScaledRows)
    values = X.arrays[0] if X.sparse else X.rows(slice(None)) if scaled else X.source
    return max(float(values.max(initial=0.0)), -float(values.min(initial=0.0)))


def check_largest(largest: float) -> None:
    """Raise if the largest |x| is out of the range that can be fitted: fourth powers are summed."""
    if largest and not 1 / LARGEST <= largest <= LARGEST:
        raise ValueError(
            f"X has entries of size {largest:.1e}, beyond {1 / LARGEST:g}..{LARGEST:g}, where "
            "fourth powers overflow or vanish; rescale the columns of X, for example to unit "
            "variance"
        )


class Curvature(NamedTuple):
    """Sums of second derivatives (Gauss-Newton) for the preconditioner.

    `basis` (k, d) is the curvature of each h_r along the columns T (d, d) of `directions`; None
    stands for unit vectors. `joint`, (k + 1 + d, k + 1 + d), is the Gram matrix of activations,
    constant and features, weighted by the mean curvature of the outputs. Without linear terms, or
    where d is large, it is that of the activations, and `intercept` (m,) and `linear` (d, m) are
    the other diagonals.
    """

    directions: Floats | None
    basis: Floats
    joint: Floats
    intercept: Floats | None = None
    linear: Floats | None = None


class DenseCurvature:
    """The curvature of the loss in an eigenbasis that all basis vectors share, for few features.

    With u_ir the curvature of the loss along z_ir = h_r'x_i, vector r sees B_r = X' diag(u_r) X.
    The Gauss-Newton part of u_ir is almost zero for vectors of little weight, and steps are then
    far too long. So half of the rest is added, |d_i'v_r| for the row gradients d_i. All vectors
    share the eigenbasis T of the normalized mean of the B_r, penalty included, in units of its
    diagonal; each has its own diagonal of T' B_r T. For ANOVA, z_ir^2 / 2 stands in for the kernel.
    `totals`, `mean`, `along` and `gram` come in this order. Y are (n, 1 or m), outputs O (n, m).
    """

    def __init__(
        self, design: Design, loss: Any, Y: Floats, w: Floats | None, model: Model, O: Floats
    ) -> None:
        self.design, self.model = design, model
        self.C = loss_curvature(loss, Y, O, w)
        self.D = loss.value_grad(Y, O, w)[1]
        slope = 2.0 if design.activation == "squared" else 1.0  # of an activation, over z
        self.V1, self.V2 = 0.5 * slope * model.V.T, slope**2 * (model.V**2).T
        size = design.n_samples * (design.n_features + 2 * len(model.H))
        self.once = list(self._compute()) if size <= BLOCK_DOUBLES else None

    def _compute(self) -> Iterator[tuple[slice, Floats, Floats, Floats]]:
        """Rows of X, the constant included, z^2 and u, a block of rows at a time."""
        M = self.design.matrix
        step = max(1, BLOCK_DOUBLES // max(1, M.d))
        for first in range(0, M.n, step):
            rows = slice(first, first + step)
            X = M.rows(rows)
            X = np.hstack([np.ones((len(X), 1)), X]) if M.augment else X
            squares = (X @ self.model.H.T) ** 2
            U = squares * (self.C[rows] @ self.V2) + np.abs(self.D[rows] @ self.V1)
            yield rows, X, squares, U

    def _blocks(self) -> Iterator[tuple[slice, Floats, Floats, Floats]]:
        return self._compute() if self.once is None else iter(self.once)

    def totals(self) -> Floats:
        """sum_i u_ir, (k,)."""
        return sum((U.sum(axis=0) for *_, U in self._blocks()), np.zeros(len(self.model.H)))

    def mean(self, shares: Floats) -> Floats:
        """sum_r shares_r B_r, (d, d)."""
        d = self.model.H.shape[1]
        mean = np.zeros((d, d))
        for _, X, _, U in self._blocks():
            mean += (X * (U @ shares)[:, None]).T @ X
        return mean

    def along(self, directions: Floats) -> Floats:
        """t_j' B_r t_j for the columns t_j of `directions`, (k, d)."""
        basis = np.zeros(self.model.H.shape)
        for _, X, _, U in self._blocks():
            basis += U.T @ (X @ directions) ** 2
        return basis

    def gram(self) -> Floats:
        """Gram matrix of [activations, 1, X], weighted by the mean curvature of the outputs."""
        H, explicit = self.model.H, self.design.fit_lower == "explicit"
        width = len(H) + (1 + H.shape[1] if explicit else 0)
        joint, mean_curvature = np.zeros((width, width)), self.C.mean(axis=1)
        for rows, X, S, _ in self._blocks():
            if self.design.activation == "anova":
                S = 0.5 * (S - (X * X) @ (H * H).T)
            A = np.hstack([S, np.ones((len(X), 1)), X]) if explicit else S
            joint += (A * mean_curvature[rows, None]).T @ A
        return joint


def shared_directions(mean: Floats) -> Floats:
    """The eigenbasis T (d, d) of the mean curvature, in units of its diagonal."""
    scale = mean.diagonal()
    scale = 1 / np.sqrt(np.where(scale > NO_CURVATURE, scale, 1.0))
    return scale[:, None] * np.linalg.eigh(mean * scale * scale[:, None])[1]


def has_eigenbasis(sparse: bool, d: int) -> bool:
    """Whether the eigenbasis is worth its cost, d^2 per row, plus d^3: up to about 500 features."""
    return not sparse and 4 * d**2 <= BLOCK_DOUBLES
