"""What training minimizes: a problem on rows.

    F(H, V, b, W) = sum_i w_i l(y_i, o_i) + alpha Omega(V) + alpha_linear / 2 |W|^2

Parameters are a `Model`, or one packed vector [H | V | b | W].
"""

from copy import copy
from typing import Self

from fastpoly.kernels.checks import LARGEST, Floats
from fastpoly.kernels.smooth_forms import SmoothForm
from fastpoly.problem import Problem
from fastpoly.rows import Rows
from fastpoly.rows.rows import Gradient
from fastpoly.state import Model

# A fit is perfect when its objective is below this share of the loss of a model without parameters:
# tolerances are not relative to anything smaller.
PERFECT_SHARE = 1e-6


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
        nothing, largest = self.rows.loss_at_zero, LARGEST**2  # that of targets of the largest size
        if nothing and not 1 / largest <= nothing <= largest:
            raise ValueError(
                f"the loss of a model without parameters is {nothing:.1e}, beyond "
                f"{1 / largest:g}..{largest:g}; rescale y or sample_weight"
            )
        return PERFECT_SHARE * nothing

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
