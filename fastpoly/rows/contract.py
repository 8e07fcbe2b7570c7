"""All that the algorithm may ask of the data: sums over rows, wherever the rows are.

`Rows` is the data with an activation: a `Design` in memory, a `ShardDesign` in files or on a
cluster. `Sums` are its sums for one problem. Every method takes small arguments and returns a small
sum over rows; no array of n numbers is passed across.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fastpoly.kernels.gamma import Gamma
from fastpoly.problem import Problem
from fastpoly.rows.statistics import Statistics
from fastpoly.state import Model

Floats = NDArray[np.float64]


class Gradient(NamedTuple):
    """The loss at a model, its gradients (as `Model`), and what selection and certificate use."""

    value: float
    V: Floats
    intercept: Floats | None
    linear: Floats | None
    gamma: Gamma
    conjugate: Callable[[float], float]


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
    intercept: Floats | None
    linear: Floats | None


class Sums(Protocol):
    """The sums of one problem over the rows.

    Attributes
    ----------
    problem : Problem
    explicit : bool
        Whether the model has an intercept and linear terms in addition to the network.
    n_samples, n_features : int
    weight : float
        Sum of the weights of the rows.
    design : Design or None
        The rows themselves, where they are in memory.
    """

    problem: Problem
    explicit: bool
    n_samples: int
    n_features: int
    weight: float
    design: Any

    def empty_model(self) -> Model:
        """The model without basis vectors, all zero."""

    def value(self, model: Model) -> float:
        """The loss."""

    def value_grad_packed(self, x: Floats, k: int, g: Floats) -> float:
        """The loss at the packed model [H | V | intercept | linear]; its gradient goes to g."""

    def value_layers(self, model: Model) -> tuple[float, Floats, Floats | None, Floats | None]:
        """The loss and its gradients in V, intercept and linear weights."""

    def value_dual(self, model: Model) -> tuple[Any, ...]:
        """As `value_layers`, and c -> sum_i w_i l*(c d_i / w_i) at the row gradients d_i."""

    def gradient(self, model: Model) -> Gradient:
        """The loss and its gradient, with the operators Gamma_c of the row gradients."""

    def ray(
        self, model: Model, H: Floats, V: Floats
    ) -> tuple[Callable[[float], tuple[float, float]], float]:
        """The loss and its slope at the model with t V appended on H, as a function of t.

        Also returns a bound on its second derivative. Where the smoothness of the loss is not
        known, the bound is that of a loss of smoothness 1.
        """

    def noise_level(self, model: Model) -> float:
        """The violation that the row gradients of a model would have if their signs were random."""

    def squared_norms(self, H: Floats) -> Floats:
        """sum_i w_i a_i^2 for each activation, the constant and each feature, (k + 1 + d,)."""

    def curvature(self, model: Model, penalty: Floats) -> Curvature:
        """The sums of the preconditioner; `penalty` (k,) is the penalty's mean curvature."""


class Rows(Protocol):
    """The data with an activation.

    Attributes
    ----------
    n_samples, n_features : int
    activation : {"squared", "anova"}
    fit_lower : {None, "augment", "explicit"}
    """

    n_samples: int
    n_features: int
    activation: str
    fit_lower: str | None

    def largest(self) -> float:
        """The largest |x|."""

    def statistics(self, y: Any = None, sample_weight: Any = None) -> Statistics:
        """What is known before a fit: sizes, moments, unseen features, and classes where y has any.

        Shards hold y, and their sample_weight has one entry per class. Features are as stored, not
        scaled.
        """

    def held_out_weights(self, w: Floats | None) -> tuple[Floats, Floats] | None:
        """Weights of rows to train on, and of a random third to validate with; 0 for the others.

        None where rows cannot be weighted one by one, or are too few.
        """

    def problem(self, y: Any, **options: Any) -> Problem:
        """The problem of these rows and targets, with everything checked; see `Problem.of`."""

    def sums(self, problem: Problem) -> Sums:
        """The sums over the rows for that problem."""
