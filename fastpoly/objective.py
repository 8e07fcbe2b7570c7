"""What training minimizes: a problem on rows.

    F(H, V, b, W) = sum_i w_i l(y_i, o_i) + alpha Omega(V) + alpha_linear / 2 |W|^2

Parameters are a `Model`, or one packed vector [H | V | b | W].
"""

from collections.abc import Callable
from copy import copy
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fastpoly.kernels.checks import LARGEST, Floats
from fastpoly.kernels.smooth_forms import SmoothForm
from fastpoly.problem import Problem
from fastpoly.rows import Rows
from fastpoly.rows.rows import Gradient
from fastpoly.state import Model

# A fit is perfect when its objective is below this share of the loss of a model without parameters:
# tolerances are not relative to anything smaller.
PERFECT_SHARE = 1e-6


def small_objective(nothing: float) -> float:
    """The objective below which a fit is perfect, given the loss of a model without parameters."""
    largest = LARGEST**2  # the squared loss of targets of the largest size
    if nothing and not 1 / largest <= nothing <= largest:
        raise ValueError(
            f"the loss of a model without parameters is {nothing:.1e}, beyond "
            f"{1 / largest:g}..{largest:g}; rescale y or sample_weight"
        )
    return PERFECT_SHARE * nothing


def positive(metric: Floats) -> Floats:
    """Squared norms of activations, where only zeros are replaced."""
    largest = metric.max(initial=0.0)
    return np.maximum(metric, 1e-30 * largest if largest > 0 else 1.0)


def duality_gap(
    problem: Problem, k: int, ridge: Floats, metric: Callable[[NDArray[np.bool_]], Floats],
    P: Floats, G: Floats, loss: float, conjugate: Callable[[float], float],
) -> float:  # fmt: skip
    """How far P = [V; b; W] can be from the best P with the same k basis vectors.

    G is the gradient of the loss, conjugate(c) = sum_i w_i l*(c d_i / w_i), `ridge` has the ridge
    penalties of the rows of P, and metric(some) the squared norms of the activations of some rows.

    For any scale c in 0..1 the loss is at least <c D, O> - l*(c D), which bounds the minimum from
    below once the terms in the unknown optimum P* are bounded: c is chosen such that
    c <G, V*> + alpha Omega(V*) >= 0 (penalized), or c = 1 and <G, V*> >= -tau Omega*(G). Rows with
    a ridge a contribute -c^2 |g|^2 / (2 a). Rows that nothing bounds count as if the optimum were
    no farther than 1 + |P| in the metric. Where the conjugate is not known (NaN), l* is convex and
    l*(0) <= 0 where l >= 0, so l*(c D) <= c l*(D) = c (<D, O> - loss).
    """
    alpha, tau = problem.alpha, problem.tau
    dual = float(problem.penalty.dual_norm(G[:k])) if k else 0.0
    c = 1.0 if tau is not None or dual <= alpha or alpha == 0 else alpha / dual
    bound = conjugate(c)
    if not np.isfinite(bound):
        bound = c * (float(np.vdot(G, P)) - loss)
    gap = loss + bound + (problem.penalty_value(P[:k]) if tau is None else tau * dual)
    if (ridged := ridge > 0).any():
        a, g, p = ridge[ridged, None], G[ridged], P[ridged]
        gap += 0.5 * float((a * p * p + c**2 * g * g / a).sum())
    free = ~ridged
    free[:k] = alpha == 0
    if free.any():
        M, g, p = metric(free)[:, None], G[free], P[free]
        radius = 1 + np.sqrt(float((M * p * p).sum()))
        gap += c * (radius * np.sqrt(float((g * g / M).sum())) - float(np.vdot(g, p)))
    return max(float(gap), 0.0)


class Objective:
    """A problem on rows, whose targets are in the form of the problem's loss."""

    def __init__(self, problem: Problem, rows: Rows) -> None:
        self.problem, self.rows = problem, rows
        self.explicit = rows.explicit  # whether there are an intercept and linear weights
        # Without basis vectors any form will do.
        self.form: SmoothForm = problem.penalty.smooth_form or SmoothForm()

    def at(self, alpha: float | None = None, alpha_linear: float | None = None) -> Self:
        """The same problem on the same rows with another strength."""
        other = copy(self)
        other.problem = self.problem.at(alpha, alpha_linear)
        return other

    def on(self, rows: Rows) -> Self:
        """The same problem on other rows."""
        return type(self)(self.problem, rows)

    @property
    def small(self) -> float:
        """The objective below which a fit is perfect; it may keep falling, to no use."""
        return small_objective(self.rows.loss_at_zero)

    def size(self, value: float) -> float:
        """The number to which tolerances are relative at this value of the objective."""
        return max(abs(value), self.small)

    def empty_model(self) -> Model:
        """The model without basis vectors, all zero."""
        return self.rows.empty_model()

    def pack(self, model: Model) -> Floats:
        """All parameters in one vector."""
        return self.rows.pack(model)

    def unpack(self, x: Floats, k: int) -> Model:
        """The model of k basis vectors in a packed vector, as views of it."""
        return self.rows.unpack(x, k)

    def loss(self, model: Model) -> float:
        """The loss, without penalties."""
        return self.rows.value(model)

    def value(self, model: Model) -> float:
        """Loss plus penalties."""
        return self.loss(model) + self.penalties(model)

    def penalties(self, model: Model) -> float:
        """The penalty (0 in the constrained form) plus the ridge of the linear weights."""
        problem = self.problem
        return problem.penalty_value(model.V) + problem.ridge_value(model.linear)

    def gradient(self, model: Model) -> Gradient:
        """The loss and its gradient, with the operators Gamma_c of the row gradients."""
        return self.rows.gradient(model)

    def refit_gap(self, model: Model, gradient: Gradient) -> float:
        """The duality gap of a model among those with the same basis vectors."""
        H, V, intercept, linear = model
        k, P, G = len(H), V, gradient.V
        ridge = np.zeros(k)
        if linear is not None:
            P = np.vstack([V, intercept, linear])
            G = np.vstack([G, gradient.intercept, gradient.linear])
            ridge = np.append(np.zeros(k + 1), np.full(len(linear), self.problem.alpha_linear))

        def metric(rows: NDArray[np.bool_]) -> Floats:
            if np.flatnonzero(rows).tolist() == [k]:  # the intercept alone
                return np.array([self.rows.weight])
            return positive(self.rows.squared_norms(H) + ridge)[rows]

        return duality_gap(self.problem, k, ridge, metric, P, G, gradient.value, gradient.conjugate)

    def smooth_value_grad(self, x: Floats, k: int, g: Floats) -> float:
        """The objective in the smooth form of the penalty at a packed model; its gradient to g."""
        value = self.rows.value_grad(x, k, g)
        model, G = self.unpack(x, k), self.unpack(g, k)
        if k:
            value += self.form.value_grad(model.H, model.V, self.problem.alpha, G.H, G.V)
        if self.form.fixed:
            G.V[:] = 0.0
        if self.explicit:
            G.linear[:] += self.problem.alpha_linear * model.linear
            value += self.problem.ridge_value(model.linear)
        return value
