"""The curvature of the loss in an eigenbasis that all basis vectors share, for few dense features.

With u_ir the curvature of the loss along z_ir = h_r'x_i, vector r sees the curvature
B_r = X' diag(u_r) X. The Gauss-Newton part of u_ir is almost zero for vectors of little weight, and
steps are then far too long. So half of the rest is added, in absolute value: |d_i'v_r| for the row
gradients d_i. Without it, columns of very different scales stall, and segment with l1/linf takes
1.4 times as long. All vectors share the eigenbasis T of the normalized mean of the B_r, penalty
included, in units of its diagonal, because columns may differ by many orders of magnitude. Each
vector has its own diagonal of T' B_r T. For ANOVA, z_ir^2 / 2 stands in for the kernel. There are
three sums over rows, `totals`, `mean` and `along`, each of which needs the result of the one
before, and a fourth, `gram`.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastpoly.kernels.checks import BLOCK_DOUBLES
from fastpoly.kernels.verbs import loss_curvature
from fastpoly.rows.design import Design
from fastpoly.state import Model

Floats = NDArray[np.float64]

# Curvature below this counts as zero: the squares of directions in its units would overflow. Only
# a perfect fit, whose loss falls without end, has so little.
NO_CURVATURE = 1e-250


class DenseCurvature:
    """The sums over rows of a dense design, with targets Y (n, 1 or m) and outputs O (n, m)."""

    def __init__(
        self, design: Design, loss: Any, Y: Floats, w: Floats | None, model: Model, O: Floats
    ) -> None:
        self.design, self.model = design, model
        self.C = loss_curvature(loss, Y, O, w)
        self.D = loss.value_grad(Y, O, w)[1]
        slope = 2.0 if design.activation == "squared" else 1.0  # of an activation, over z
        self.V1, self.V2 = 0.5 * slope * model.V.T, slope**2 * (model.V**2).T
        self.once: list[tuple[Floats, Floats]] | None = None
        if design.n_samples * (design.n_features + len(model.H)) <= BLOCK_DOUBLES:
            self.once = list(self._compute())

    def _compute(self) -> Iterator[tuple[Floats, Floats]]:
        for rows, X in self._rows():
            U = (X @ self.model.H.T) ** 2 * (self.C[rows] @ self.V2)
            yield X, U + np.abs(self.D[rows] @ self.V1)

    def _blocks(self) -> Iterator[tuple[Floats, Floats]]:
        """X and u, a block of rows at a time."""
        return self._compute() if self.once is None else iter(self.once)

    def _rows(self) -> Iterator[tuple[slice, Floats]]:
        """Dense rows, the constant included, a block at a time."""
        X = self.design.matrix
        step = max(1, BLOCK_DOUBLES // max(1, X.d))
        for first in range(0, X.n, step):
            rows = slice(first, first + step)
            block = X.rows(rows)
            yield rows, np.hstack([np.ones((len(block), 1)), block]) if X.augment else block

    def totals(self) -> Floats:
        """sum_i u_ir, (k,)."""
        return sum((U.sum(axis=0) for _, U in self._blocks()), np.zeros(len(self.model.H)))

    def mean(self, shares: Floats) -> Floats:
        """sum_r shares_r B_r, (d, d)."""
        d = self.model.H.shape[1]
        mean = np.zeros((d, d))
        for X, U in self._blocks():
            mean += (X * (U @ shares)[:, None]).T @ X
        return mean

    def along(self, directions: Floats) -> Floats:
        """t_j' B_r t_j for the columns t_j of `directions`, (k, d)."""
        basis = np.zeros(self.model.H.shape)
        for X, U in self._blocks():
            basis += U.T @ (X @ directions) ** 2
        return basis

    def gram(self) -> Floats:
        """Gram matrix of [activations, 1, X], weighted by the mean curvature of the outputs."""
        k, d = self.model.H.shape
        width = k + (1 + d if self.design.fit_lower == "explicit" else 0)
        joint = np.zeros((width, width))
        mean_curvature = self.C.mean(axis=1)
        for rows, X in self._rows():
            A = self._stacked(X)
            joint += (A * mean_curvature[rows, None]).T @ A
        return joint

    def _stacked(self, X: Floats) -> Floats:
        """[activations, 1, X] of some rows, or the activations without linear terms."""
        H = self.model.H
        S = (X @ H.T) ** 2
        if self.design.activation == "anova":
            S = 0.5 * (S - (X * X) @ (H * H).T)
        explicit = self.design.fit_lower == "explicit"
        return np.hstack([S, np.ones((len(X), 1)), X]) if explicit else S


class Curvature(NamedTuple):
    """Sums of second derivatives (Gauss-Newton) for the preconditioner.

    Attributes
    ----------
    directions : ndarray, (d, d), or None
        Columns T in which the curvature of every basis vector is nearly diagonal. None stands for
        the unit vectors.
    basis : ndarray, (k, d)
        Curvature of h_r along each direction.
    joint : ndarray, (k + 1 + d, k + 1 + d) or (k, k)
        Gram matrix of activations, constant and features, weighted by the mean curvature of the
        outputs. Without linear terms, or where d is large, that of the activations only.
    intercept : ndarray, (m,), or None
    linear : ndarray, (d, m), or None
        Diagonals, where `joint` has no features.
    """

    directions: Floats | None
    basis: Floats
    joint: Floats
    intercept: Floats | None = None
    linear: Floats | None = None


def shared_directions(mean: Floats) -> Floats:
    """The eigenbasis T (d, d) of the mean curvature, in units of its diagonal."""
    scale = mean.diagonal()
    scale = 1 / np.sqrt(np.where(scale > NO_CURVATURE, scale, 1.0))
    return scale[:, None] * np.linalg.eigh(mean * scale * scale[:, None])[1]


def has_eigenbasis(sparse: bool, d: int) -> bool:
    """Whether the eigenbasis is worth its cost: d^2 per row, plus d^3.

    It is for up to about 500 features; with 1000 a diagonal is as good.
    """
    return not sparse and 4 * d**2 <= BLOCK_DOUBLES
