"""The preconditioner of the joint descent: an inverse of the curvature in blocks.

Basis vectors: P_r = T diag(1 / (b_r + penalty)) T' for vector r, with the directions T and the
curvatures b_r of `fastpoly.rows.curvature.Curvature`. Output layer, intercept and linear weights:
one matrix for all outputs, the inverse of the Gram matrix plus penalties. It is the largest gain of
the descent: without it, satimage takes several times as many passes.
"""

import numpy as np
from numpy.typing import NDArray

from fastpoly.kernels.smooth_forms import SmoothForm
from fastpoly.problem import Problem
from fastpoly.rows.curvature import NO_CURVATURE, Curvature
from fastpoly.state import Model

Floats = NDArray[np.float64]

# Share of the mean curvature (for basis vectors) or of a parameter's own curvature (for the others)
# that is added everywhere, to keep directions without curvature bounded. (1e-4 stalls on badly
# scaled columns.)
DAMPING = 1e-6


class Preconditioner:
    """g -> P g on packed parameters [H | V | intercept | linear].

    Parameters
    ----------
    problem : Problem
    form : SmoothForm
        The smooth form of the penalty.
    model : Model
        The model in the scale of that form.
    curvature : Curvature
        The curvature of the loss at that model.
    """

    def __init__(
        self, problem: Problem, form: SmoothForm, model: Model, curvature: Curvature
    ) -> None:
        H, V = model.H, model.V
        self.k, self.d, self.m = *H.shape, V.shape[1]
        alpha = problem.alpha
        T = self.directions = curvature.directions
        HT, T2 = (H, np.ones(self.d)) if T is None else (H @ T, np.einsum("ij,ij->j", T, T))
        self.basis = _inverse(curvature.basis + form.curvature(H, alpha, HT, T2))

        ridge = np.full(len(curvature.joint), problem.alpha_linear)
        ridge[: self.k] = form.output_curvature(alpha)
        ridge[self.k : self.k + 1] = 0.0
        # Where V is bounded or fixed, its entries must not be coupled with others.
        self.first = 0 if form.bound is None and not form.fixed else self.k
        own = curvature.joint.diagonal()[: self.k] + ridge[: self.k]
        self.outputs = None if self.first == 0 else _inverse(own)[:, None]
        among = slice(self.first, None)
        self.joint = _inverse_matrix(curvature.joint[among, among], ridge[among])
        self.diagonals = None
        if curvature.linear is not None:
            weights = _inverse(curvature.linear + problem.alpha_linear)
            self.diagonals = np.vstack([_inverse(curvature.intercept), weights])

    def __call__(self, g: Floats) -> Floats:
        k, d, m = self.k, self.d, self.m
        out = np.empty_like(g)
        G = g[: k * d].reshape(k, d)
        if self.directions is None:
            out[: k * d] = (G * self.basis).ravel()
        else:
            out[: k * d] = (((G @ self.directions) * self.basis) @ self.directions.T).ravel()
        G, P = g[k * d :].reshape(-1, m), out[k * d :].reshape(-1, m)
        if self.outputs is not None:
            P[:k] = self.outputs * G[:k]
        last = self.first + len(self.joint)
        P[self.first : last] = self.joint @ G[self.first : last]
        if self.diagonals is not None:
            P[k:] = self.diagonals * G[k:]
        return out


def _inverse(curvature: Floats) -> Floats:
    """1 / curvature, where a curvature near zero counts as a small share of the mean."""
    floor = DAMPING * curvature.mean(axis=-1, keepdims=True) if curvature.size else 0.0
    return 1 / (curvature + np.where(floor > NO_CURVATURE, floor, 1.0))


def _inverse_matrix(gram: Floats, ridge: Floats) -> Floats:
    """(gram + diag(ridge))^-1, with a little damping in units of the diagonal."""
    if not gram.size:
        return np.zeros((0, 0))
    A = gram + np.diag(ridge)
    scale = A.diagonal().copy()
    scale[scale <= NO_CURVATURE] = 1.0
    scale = 1 / np.sqrt(scale)
    A = A * scale * scale[:, None] + DAMPING * np.eye(len(A))
    return np.linalg.inv(A) * scale * scale[:, None]
