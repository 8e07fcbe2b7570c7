"""Sums over the rows of a design in memory, for one problem; see `fastpoly.rows.contract`."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpoly.kernels.eigen import dominant_eigenvectors
from fastpoly.kernels.explicit import make_gamma
from fastpoly.kernels.features import RowBlocks
from fastpoly.kernels.gamma import Gamma
from fastpoly.kernels.joint import JointObjective
from fastpoly.kernels.linear import LinearTerms
from fastpoly.problem import Problem
from fastpoly.rows.contract import Curvature, Gradient
from fastpoly.rows.curvature import DenseCurvature, eigen_curvature, has_eigenbasis
from fastpoly.rows.design import Design
from fastpoly.state import Model

Floats = NDArray[np.float64]


class RowSums:
    """The sums of one problem over the rows of a `Design`.

    Parameters
    ----------
    design : Design
    problem : Problem
    objective : JointObjective, optional
        The objective of that problem, if there is one already.
    """

    def __init__(
        self, design: Design, problem: Problem, objective: JointObjective | None = None
    ) -> None:
        self.design, self.problem = design, problem
        self.explicit = design.fit_lower == "explicit"
        self.n_samples, self.n_features = design.n_samples, design.n_features
        self.weight = float(self.n_samples if problem.w is None else problem.w.sum())
        self.objective = objective or JointObjective(
            design.matrix, problem.loss, problem.Y, problem.m, problem.w,
            activation=design.activation, linear=self.explicit, n_threads=design.n_threads,
        )  # fmt: skip

    def empty_model(self) -> Model:
        """The model without basis vectors, all zero."""
        return empty_model(self.n_features, self.problem.m, self.explicit)

    def value_grad_packed(self, x: Floats, k: int, g: Floats) -> float:
        """The loss at the packed model [H | V | intercept | linear]; its gradient goes to g."""
        return self.objective.value_grad_packed(x, k, g)

    def value_layers(self, model: Model) -> tuple[float, Floats, Floats | None, Floats | None]:
        """The loss and its gradients in V, intercept and linear weights."""
        value, _, *parts = self.objective.value_grad(*self._parts(model), basis=False)
        return value, *parts

    def value(self, model: Model) -> float:
        """The loss."""
        problem = self.problem
        return float(problem.loss.value(problem.Y, self.outputs(model), problem.w))

    def outputs(self, model: Model) -> Floats:
        """The outputs of all rows, (n, m)."""
        return self.objective.outputs(*self._parts(model))

    def gradient(self, model: Model) -> Gradient:
        """The loss and its gradient, with the operators Gamma_c of the row gradients."""
        *parts, D = self.row_gradients(model)
        return Gradient(*parts, self.design.gamma(D), lambda c: self.conjugate(D, c))

    def value_dual(self, model: Model) -> tuple[Any, ...]:
        """As `value_layers`, and the conjugate of the loss at the row gradients."""
        *parts, D = self.row_gradients(model)
        return *parts, lambda c: self.conjugate(D, c)

    def row_gradients(self, model: Model, D: Floats | None = None) -> tuple[Any, ...]:
        """The loss, its gradients in V, intercept and linear weights, and D (n, m).

        D is written to the given array, if there is one.
        """
        D = np.empty((self.n_samples, self.problem.m)) if D is None else D
        value, _, *parts = self.objective.value_grad(*self._parts(model), basis=False, D=D)
        if not np.isfinite(value) or not np.isfinite(D).all():
            raise ValueError("the loss overflows; scale X, y or sample_weight down")
        return value, *parts, D

    def conjugate(self, D: Floats, c: float) -> float:
        """sum_i w_i l*(c d_i / w_i); NaN where the loss does not define its conjugate l*."""
        problem = self.problem
        return float(problem.loss.conjugate(problem.Y, D, c, problem.w))

    def ray(
        self, model: Model, H: Floats, V: Floats
    ) -> tuple[Callable[[float], tuple[float, float]], float]:
        """The loss and its slope at the model with t V appended on H, as a function of t.

        Also returns a bound on its second derivative. Where the smoothness of the loss is not
        known, the bound is that of a loss of smoothness 1.
        """
        problem = self.problem
        O, added = self.outputs(model), self.design.outputs(H, V)

        def at(t: float) -> tuple[float, float]:
            value, D = problem.loss.value_grad(problem.Y, O + t * added, problem.w)
            return float(value), float(np.vdot(D, added))

        return at, squared_outputs(added, problem.w) * loss_curvature_bound(problem)

    def noise_level(self, model: Model) -> float:
        """The violation that the row gradients of a model would have if their signs were random.

        With d_i the gradient of the loss of row i in its outputs, sum_i e_i |d_i| x_i x_i' for
        random signs e has a spectral norm of about the root of the largest eigenvalue of

            sum_i w_i |d_i|^2 |x_i|^2 x_i x_i'

        (the matrix Khintchine inequality, without its logarithm); half of that for "anova".
        """
        squares = noise_weights(self.design, self.row_gradients(model)[-1], self.problem.w)
        gamma = make_gamma(self.design.matrix, squares, "squared", self.design.n_threads)
        return noise_of(gamma, self.design.activation)

    def squared_norms(self, H: Floats) -> Floats:
        """sum_i w_i a_i^2 for each activation, the constant and each feature, (k + 1 + d,)."""
        return squared_norms(self.design.features(H), self.design.linear, self.problem.w)

    def curvature(self, model: Model, penalty: Floats) -> Curvature:
        """The sums of the preconditioner, in an eigenbasis where there are few features.

        `penalty` (k,) is the mean curvature of the penalty in each vector. The choice of the basis
        takes it into account.
        """
        X = self.design.matrix
        if not has_eigenbasis(X.sparse, X.d):
            return Curvature(None, *self.diagonal_curvature(model))
        dense = self.dense_curvature(model)
        return eigen_curvature(
            lambda name, *arguments: getattr(dense, name)(*arguments), len(model.H), X.d, penalty
        )

    def diagonal_curvature(self, model: Model) -> tuple[Any, ...]:
        """The `Curvature` along unit vectors, which needs no directions."""
        return tuple(self.objective.curvature(*self._parts(model)))

    def dense_curvature(self, model: Model) -> DenseCurvature:
        """The sums that `eigen_curvature` needs."""
        return DenseCurvature(self.design, self.problem, model, self.outputs(model))

    def _parts(self, model: Model) -> tuple[Any, ...]:
        return tuple(model) if self.explicit else (model.H, model.V)


def empty_model(d: int, m: int, explicit: bool) -> Model:
    """The model without basis vectors, all zero."""
    linear = np.zeros((d, m)) if explicit else None
    return Model(np.zeros((0, d)), np.zeros((0, m)), np.zeros(m), linear)


def squared_outputs(O: Floats, w: Floats | None) -> float:
    """sum_i w_i |o_i|^2."""
    w = np.ones(len(O)) if w is None else w
    return float(w @ np.einsum("ic,ic->i", O, O))


def loss_curvature_bound(problem: Problem) -> float:
    """A bound on the second derivative of the loss of a row, or 1 where none is known."""
    bound = float(problem.loss.smoothness(problem.m))
    return bound if np.isfinite(bound) else 1.0


def noise_weights(design: Design, D: Floats, w: Floats | None) -> Floats:
    """w_i |d_i|^2 |x_i|^2, (n, 1), from row gradients D that include the weights."""
    squares = np.einsum("ic,ic->i", D, D)
    if w is not None:
        squares = np.divide(squares, w, out=np.zeros_like(squares), where=w > 0)
    return (squares * design.row_squares())[:, None]


def noise_of(gamma: Gamma, activation: str) -> float:
    """The noise level from the operator of `noise_weights`."""
    largest = np.abs(dominant_eigenvectors(gamma, random_state=0).values).max()
    return float(np.sqrt(largest)) * (1.0 if activation == "squared" else 0.5)


def squared_norms(features: RowBlocks, linear: LinearTerms | None, w: Floats | None) -> Floats:
    """sum_i w_i a_i^2 for each activation and, with linear terms, the constant and each feature."""
    norms = np.zeros(features.k)
    for S, rows in features.blocks():
        norms += np.einsum("ir,ir->r", S, S if w is None else S * w[rows, None])
    if linear is None:
        return norms
    w = np.ones(features.n) if w is None else w
    return np.concatenate([norms, [w.sum()], linear.squared_column_norms(w)])
