"""The ascent on any Gamma, in a subspace that grows in the directions of the largest gain.

    A_c = Q' Gamma_c Q  (m, p, p),      Q (d, p) orthonormal

The subspace holds the starts. The ascent on the projected matrices costs no pass over X. Then, for
the best points h = Q y, the residual M h - (h' M h) h with M = sum_c w_c Gamma_c is the direction
of the largest possible gain. It is added at the cost of one pass over X, until no residual allows a
gain above the tolerance. One pass gives the images for all outputs, and so the whole projected
problem.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fastpoly.kernels.checks import BLOCK_DOUBLES
from fastpoly.kernels.gamma import Gamma
from fastpoly.selection.ascent import (
    Effort,
    Floats,
    Points,
    ascend,
    eigen_steps,
    forms_of,
    unit,
)

if TYPE_CHECKING:
    from fastpoly.kernels.penalties import MatrixPenalty  # a protocol, known to type checkers only


class Subspace:
    """Gamma_c projected to the span of orthonormal vectors.

    Parameters
    ----------
    gamma : Gamma
    capacity : int
        The largest number of vectors.
    """

    def __init__(self, gamma: Gamma, capacity: int) -> None:
        self.gamma = gamma
        self.Q = np.empty((capacity, gamma.d))
        self.size = 0
        self._images = np.empty((capacity, gamma.d, gamma.m))  # Gamma_c Q_j for all outputs
        self._A = np.empty((gamma.m, capacity, capacity))

    @property
    def basis(self) -> Floats:
        """The orthonormal vectors, (p, d)."""
        return self.Q[: self.size]

    @property
    def A(self) -> Floats:
        """The projected matrices, (m, p, p)."""
        return np.ascontiguousarray(self._A[:, : self.size, : self.size])

    def add(self, x: Floats) -> bool:
        """Add x at the cost of one pass over X; False if the span contains it or is full."""
        p = self.size
        x = unit(x)
        for _ in range(2):
            x = x - (self.basis @ x) @ self.basis
        norm = np.linalg.norm(x)
        if p == len(self.Q) or norm < 1e-6:
            return False
        self.Q[p] = x / norm
        image = self.gamma.matvecs(np.repeat(self.Q[p][:, None], self.gamma.m, axis=1))
        self._images[p] = image
        self.size += 1
        self._A[:, p, : p + 1] = self._A[:, : p + 1, p] = (self.basis @ image).T
        return True

    def residuals(self, Y: Floats, W: Floats) -> Floats:
        """M_k h_k - (h_k' M_k h_k) h_k for h_k = Q y_k: the directions of steepest gain, (k, d).

        Parameters
        ----------
        Y : ndarray, (k, p)
        W : ndarray, (k, m)
            The weights of M_k = sum_c W_kc Gamma_c.
        """
        p, (_, d, m) = self.size, self._images.shape
        images = (Y @ self._images[:p].reshape(p, d * m)).reshape(len(Y), d, m)
        MH, H = np.matmul(images, W[:, :, None])[:, :, 0], Y @ self.basis
        return MH - np.einsum("kd,kd->k", H, MH)[:, None] * H


def explore(
    gamma: Gamma,
    starts: Floats,
    penalty: MatrixPenalty,
    tol: float,
    max_iter: int,
    effort: Effort,
    rng: np.random.Generator | None = None,
) -> tuple[Points, int]:
    """Ascend from the rows of `starts` (k, d).

    Returns
    -------
    points : Points
        The maxima found and then the starts, in the space of `gamma`; the best vector comes first.
    n_matvecs : int
        Passes over X.
    """
    largest = max(4, int(np.sqrt(BLOCK_DOUBLES / gamma.m)))
    starts = starts[: largest // 2]
    space = Subspace(gamma, min(len(starts) + max_iter, largest))
    for x in starts:
        space.add(x)
    Y = starts @ space.basis.T
    begun = Points(Y, forms_of(space.A, Y), np.empty(0))
    points = ascend(space.A, Y, penalty, tol, effort=effort, rng=rng)
    for _ in range(max_iter):
        W = penalty.slopes(points.Q)
        residuals = space.residuals(points.Y, W)
        # The rule of the eigen-solver: M may still add |residual| to a value.
        hopes = points.values + np.linalg.norm(residuals, axis=1)
        top = hopes.argmax()
        if hopes[top] <= (1 + tol) * points.values[0] or not space.add(residuals[top]):
            break
        points = points._replace(Y=np.pad(points.Y, ((0, 0), (0, 1))))
        points = eigen_steps(space.A, points, penalty, tol / 10, 10)
    H = np.vstack([points.Y @ space.basis, starts])
    Q = np.vstack([points.Q, begun.Q])
    return Points(H, Q, penalty.dual_norms(Q)), space.size
