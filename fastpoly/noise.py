"""How strong a penalty keeps noise out: an alpha from the errors of a model."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastpoly.kernels.blas_threads import one_blas_thread
from fastpoly.kernels.eigen import dominant_eigenvectors
from fastpoly.kernels.explicit import make_gamma
from fastpoly.problem import Problem
from fastpoly.refit.joint import JointRefit
from fastpoly.rows.design import Design, check_design, check_scale
from fastpoly.rows.sums import RowSums
from fastpoly.state import Model

Floats = NDArray[np.float64]

# alpha is the level of noise over this; over the number of classes with a multi-class loss. Both
# were chosen for the log-loss and the squared error of the tables of bench/defaults.py.
DIVISOR = 3.0
# alpha is not below this times the sum of the weights: a perfect fit has no noise.
LEAST_SHARE = 1e-5
# Accuracy of the linear part that the errors are of.
TOL = 1e-3


def noise_alpha(
    design: Design,
    y: ArrayLike,
    model: Model | None = None,
    *,
    loss: Any = "logistic",
    alpha_linear: float = 1.0,
    sample_weight: ArrayLike | None = None,
    n_outputs: int | None = None,
) -> float:
    """The alpha that suits the errors of a model.

    A basis vector is worth its place if it gains more than one that is fitted to noise. Give the
    gradients g_i of the loss at the outputs random signs, and the violation that is left is noise;
    it is about the root of the largest eigenvalue of

        sum_i w_i |g_i|^2 |x_i|^2 x_i x_i'

    (half of it without squares of features), by the matrix Khintchine inequality. alpha is this
    level over the number of classes, or over 3 for other losses. Rows that are alike in size and
    easy to fit get a small alpha, few and noisy ones a large one: no share of n suits both.

    Parameters
    ----------
    design : Design
        Features of similar scale, such as standardized ones.
    y, loss, alpha_linear, sample_weight, n_outputs
        As for `conditional_gradient`.
    model : Model, optional
        Whose errors to look at, as in `State.model`; the model without basis vectors by default,
        with lower-order terms fitted.

    Returns
    -------
    float

    Examples
    --------
    >>> import numpy as np
    >>> from fastpoly import Design
    >>> from fastpoly.noise import noise_alpha
    >>> design = Design(np.array([[1.0], [2.0]]))  # sqrt((3 * 1 * 1)^2 + (1 * 2 * 2)^2) = 5
    >>> round(noise_alpha(design, [[3.0], [1.0]], loss="squared"), 6)
    1.666667
    """
    check_design(design)
    check_scale(design)
    problem = Problem.of(
        design.n_samples, y, loss=loss, alpha=1.0, alpha_linear=alpha_linear,
        sample_weight=sample_weight, n_outputs=n_outputs,
    )  # fmt: skip
    sums = RowSums(design, problem)
    w = np.ones(design.n_samples) if problem.w is None else problem.w
    with one_blas_thread():
        if model is None:
            model = JointRefit(sums, TOL, 1000, 1).first(sums.empty_model(), TOL)
        # Without the weights: a row of weight 2 is that row twice, not an error twice as large.
        _, G = problem.loss.value_grad(problem.Y, sums.outputs(model))
        weights = w * np.einsum("ic,ic->i", G, G) * squared_lengths(design)
        gamma = make_gamma(design.matrix, weights[:, None], "squared", design.n_threads)
        largest = float(dominant_eigenvectors(gamma, random_state=0).values.max())
    level = np.sqrt(largest) / (1 if design.activation == "squared" else 2)
    divisor = problem.m if problem.loss.target == "label" else DIVISOR
    return float(max(level / divisor, LEAST_SHARE * w.sum()))


def squared_lengths(design: Design) -> Floats:
    """|x_i|^2 of every row, the constant of "augment" included."""
    X = design.matrix
    if X.sparse:
        values, _, starts = X.arrays
        rows = np.repeat(np.arange(X.n), np.diff(starts))
        squares = np.bincount(rows, np.square(values, dtype=np.float64), minlength=X.n)
    else:
        squares = np.einsum("ij,ij->i", X.array, X.array, dtype=np.float64)
    return squares + X.augment
