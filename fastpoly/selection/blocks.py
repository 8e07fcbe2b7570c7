"""A block of basis vectors: the best candidates that differ from one another.

Two basis vectors count as one if their activations are nearly parallel over the rows, whatever the
vectors look like: for users x items, the activations of (u, v) and (u, -v) differ only in sign.
Where the rows are available, candidates are compared by their activations on some of them. Explicit
matrices have no rows; there the vectors themselves are compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fastpoly.kernels.checks import BLOCK_DOUBLES
from fastpoly.kernels.features import ACTIVATIONS, make_features
from fastpoly.kernels.gamma import Gamma, RowGamma
from fastpoly.kernels.matrix import Matrix, as_matrix
from fastpoly.kernels.summed import SummedGamma
from fastpoly.rows.design import take_rows
from fastpoly.selection.ascent import Floats, thin

# |cosine| at which two candidates count as one. With 0.99, l1/linf on digits takes 1.4 times as
# long, because neighbors enter that do not help.
PARALLEL = 0.9


class Signatures:
    """Unit vectors whose cosines say how alike two basis vectors are.

    Parameters
    ----------
    gamma : Gamma
    rng : Generator
        Draws the rows.
    """

    def __init__(self, gamma: Gamma, rng: np.random.Generator) -> None:
        self.activations: Callable[[Floats], Floats] | None = None
        if isinstance(gamma, RowGamma):
            rows, activation = sample_rows(gamma.X, rng), ACTIVATIONS[int(gamma.anova)]
            self.activations = lambda H: make_features(rows, H, activation).activations()
        elif isinstance(gamma, SummedGamma) and gamma.sample is not None:
            self.activations = gamma.sample(n_sampled_rows(), rng)

    def __call__(self, H: Floats) -> Floats:
        """H (k, d) -> (k, n sampled rows), or (k, d) where there are no rows."""
        S = H if self.activations is None else self.activations(H).T
        norms = np.linalg.norm(S, axis=1, keepdims=True)
        return S / np.where(norms > 0, norms, 1)


def n_sampled_rows() -> int:
    """The number of rows on which activations are compared.

    With as many candidates as rows, the activations fill one block of memory. The sampling error of
    a cosine is then about 1 / 32.
    """
    return math.isqrt(BLOCK_DOUBLES)


def sample_rows(X: Matrix, rng: np.random.Generator) -> Matrix:
    """At most `n_sampled_rows` distinct rows of X, drawn at random."""
    if X.n <= n_sampled_rows():
        return X
    rows = np.unique(rng.integers(X.n, size=n_sampled_rows()))
    return as_matrix(take_rows(X, rows), bool(X.augment))


def choose(
    values: Floats,
    signatures: Floats,
    n_vectors: int,
    threshold: float,
    groups: NDArray[np.intp] | None = None,
) -> NDArray[np.intp]:
    """Choose the candidates of the block; they are sorted, best first.

    Parameters
    ----------
    values : ndarray, (r,)
        Best first. The first one is always chosen, the others if they exceed the threshold.
    signatures : ndarray, (r, s)
        Unit vectors.
    n_vectors : int
        Largest number of vectors to choose.
    threshold : float
    groups : ndarray of int, (r,), optional
        Only candidates of the same group are compared.

    Returns
    -------
    ndarray of int, (b,), b <= n_vectors

    Examples
    --------
    >>> import numpy as np
    >>> from fastpoly.selection.blocks import choose
    >>> choose(np.array([3.0, 2.0, 1.0]), np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), 3, 0.5)
    array([0, 2])
    """
    large = values > threshold
    large[0] = True
    among = np.flatnonzero(large)
    groups = None if groups is None else groups[among]
    return among[thin(signatures[among], n_vectors, PARALLEL, groups)]
