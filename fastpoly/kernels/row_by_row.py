"""Whole-matrix methods for penalties written in Python that have only methods for one row."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from fastpoly.kernels.penalties import PenaltyLike

Floats = NDArray[np.float64]
OPTIONAL = ("dual_norms", "slopes", "dual_ratios", "n_vertices", "vertices", "separable")


class RowByRow:
    """The whole-matrix methods for a penalty object that lacks some of them, one row at a time.

    The object needs ``dual_norm(G)`` and ``criterion(q)``. Methods that it has are used.
    """

    separable = False

    def __init__(self, penalty: "PenaltyLike") -> None:
        self.penalty = penalty
        for verb in OPTIONAL:
            if hasattr(penalty, verb):
                setattr(self, verb, getattr(penalty, verb))

    def __repr__(self) -> str:
        return repr(self.penalty)

    def dual_norms(self, Q: ArrayLike) -> Floats:
        return np.array([float(self.penalty.dual_norm(row[None])) for row in np.asarray(Q)])

    def slopes(self, Q: ArrayLike, threshold: float = 1e-6) -> Floats:
        Q = np.asarray(Q)
        W = np.zeros(Q.shape)
        for q, w in zip(Q, W, strict=True):
            if q.any():
                x = q / np.abs(q).max() / threshold
                w[:] = self.penalty.criterion(x)[1]
                product = w @ x
                w *= float(self.penalty.dual_norm(x[None])) / product if product != 0 else 0.0
        return W

    def dual_ratios(self, m: int) -> tuple[float, float]:
        return ratios_of(self.dual_norms(np.eye(m)))

    def n_vertices(self, m: int) -> int | None:
        return None


def ratios_of(norms: Floats) -> tuple[float, float]:
    """Bounds on any norm in terms of |q|_1 and |q|_2, given the norms of the unit vectors.

    ||q|| <= sum_c |q_c| ||e_c||, by the triangle inequality.
    """
    return float(norms.max()), float(np.linalg.norm(norms))
