"""The data as the algorithm sees it: X with an activation, dense or CSR, with lower-order terms."""

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from fastpoly.kernels.checks import LARGEST
from fastpoly.kernels.explicit import make_gamma
from fastpoly.kernels.features import ACTIVATIONS, Features, make_features
from fastpoly.kernels.gamma import Gamma
from fastpoly.kernels.linear import LinearTerms
from fastpoly.kernels.matrix import Matrix, ScaledRows, as_matrix
from fastpoly.kernels.runtime import effective_n_threads

FIT_LOWER = (None, "augment", "explicit")


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
        self,
        X: Any,
        activation: str = "squared",
        *,
        fit_lower: str | None = None,
        n_threads: int | None = None,
    ) -> None:
        check_kind(activation, fit_lower)
        self.n_threads = effective_n_threads(n_threads)
        self.matrix = as_matrix(X, fit_lower == "augment")
        self.activation = activation
        self.fit_lower = fit_lower

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

    def activations(self, H: ArrayLike) -> NDArray[np.float64]:
        """s(H x_i) for all rows: H (k, n_features) -> (n, k)."""
        return self.features(H).activations()

    def outputs(self, H: ArrayLike, V: ArrayLike) -> NDArray[np.float64]:
        """V's(H x_i) for all rows, without an n x k matrix: V (k, m) -> (n, m)."""
        return self.features(H).outputs(V)

    def pullback(self, H: ArrayLike, D: ArrayLike) -> NDArray[np.float64]:
        """sum_i s(H x_i) d_i', without an n x k matrix: D (n, m) -> (k, m)."""
        return self.features(H).pullback(D)

    def basis_grad(self, H: ArrayLike, M: ArrayLike) -> NDArray[np.float64]:
        """Gradient of sum(activations(H) * M) with respect to H: M (n, k) -> (k, n_features)."""
        return self.features(H).basis_grad(M)

    def basis_grad_outputs(self, H: ArrayLike, V: ArrayLike, D: ArrayLike) -> NDArray[np.float64]:
        """`basis_grad(H, D @ V.T)` without an n x k matrix."""
        return self.features(H).basis_grad_outputs(V, D)

    def gamma(self, D: ArrayLike) -> Gamma:
        """The operators Gamma_c of loss gradients D (n, m)."""
        return make_gamma(self.matrix, D, self.activation, self.n_threads)

    def rows(self, numbers: NDArray[np.intp]) -> Any:
        """Some rows by their numbers, without the constant: an array or a csr_array."""
        return take_rows(self.matrix, numbers)


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


def check_scale(design: Design) -> None:
    """Raise if X is too large or too small to be fitted, because fourth powers are summed."""
    M = design.matrix
    check_largest(largest_size(M.arrays[0] if M.sparse else dense_values(M)))


def largest_size(values: NDArray) -> float:
    """The largest |x|."""
    return max(float(values.max(initial=0.0)), -float(values.min(initial=0.0)))


def dense_values(X: Matrix) -> NDArray:
    """The rows of a dense Matrix as an array, without the constant."""
    return X.rows(slice(None)) if isinstance(X.source, ScaledRows) else X.source


def check_largest(largest: float) -> None:
    """Raise if the largest |x| is out of the range that can be fitted."""
    if largest and not 1 / LARGEST <= largest <= LARGEST:
        raise ValueError(
            f"X has entries of size {largest:.1e}, beyond {1 / LARGEST:g}..{LARGEST:g}, where "
            "fourth powers overflow or vanish; rescale the columns of X, for example to unit "
            "variance"
        )
