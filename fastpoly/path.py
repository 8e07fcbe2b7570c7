"""The regularization path: where it begins, which alphas to try, and a warm-started run."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastpoly.algorithm import PROGRESS_SHARE_OF_TOL, conditional_gradient
from fastpoly.kernels.blas_threads import one_blas_thread
from fastpoly.kernels.checks import as_count, as_float_array, as_positive
from fastpoly.problem import problem_options
from fastpoly.refit.fista import PATIENCE
from fastpoly.refit.joint import JointRefit
from fastpoly.rows import as_rows
from fastpoly.rows.contract import Rows
from fastpoly.rows.design import check_scale
from fastpoly.selection import select_basis
from fastpoly.state import State

# A search goes on to the next alpha, where there is more to gain, when a round gains less than
# this, relative to the objective and in units of tol. That halves the time of `PathSearchCV`, with
# the same log-loss.
LITTLE = PATIENCE * PROGRESS_SHARE_OF_TOL


def gained_little(state: State, tol: float) -> bool:
    """Whether the last round at this alpha gained almost nothing."""
    if not state.recent:
        return False
    return state.recent[-1] - state.objective <= LITTLE * tol * abs(state.objective)


def alpha_max(
    design: Rows,
    y: ArrayLike | None = None,
    *,
    loss: Any = "logistic",
    penalty: Any = "l1/l2",
    alpha_linear: float = 1.0,
    sample_weight: ArrayLike | None = None,
    n_outputs: int | None = None,
    tol: float = 1e-6,
    random_state: object = 0,
) -> float:
    """The smallest alpha for which the model without basis vectors is optimal.

    That is the dual norm Omega*(G) at V = 0, with lower-order terms fitted. For the l1 penalty it
    is exact up to `tol`; for the group penalties it is the largest value found, a lower bound.

    Parameters
    ----------
    design : Design
    y, loss, penalty, alpha_linear, sample_weight, n_outputs
        As for `conditional_gradient`.
    tol : float
    random_state : int, Generator or None

    Returns
    -------
    float

    Examples
    --------
    >>> import numpy as np
    >>> from fastpoly import Design, alpha_max
    >>> design = Design(np.array([[1.0], [2.0]]))
    >>> round(alpha_max(design, [[3.0], [1.0]], loss="squared"), 6)
    7.0
    """
    design = as_rows(design)
    check_scale(design)
    problem = design.problem(
        y, loss=loss, penalty=penalty, alpha=1.0, alpha_linear=alpha_linear,
        sample_weight=sample_weight, n_outputs=n_outputs,
    )  # fmt: skip
    sums = design.sums(problem)
    with one_blas_thread():
        model = JointRefit(sums, tol, 1000, 1).first(sums.empty_model(), tol**2)
        gamma = sums.gradient(model).gamma
        found = select_basis(
            gamma, problem.penalty, tol=tol, thorough=True, random_state=random_state
        )
    return found.value


def alpha_grid(
    largest: float, n_alphas: int = 10, alpha_min_ratio: float = 1e-3
) -> NDArray[np.float64]:
    """Geometric grid from `largest` down to `alpha_min_ratio` times it.

    Examples
    --------
    >>> from fastpoly.path import alpha_grid
    >>> alpha_grid(100.0, 3, 1e-2)
    array([100.,  10.,   1.])
    """
    largest = as_positive(largest, "largest")
    ratio = as_positive(alpha_min_ratio, "alpha_min_ratio")
    if ratio >= 1:
        raise ValueError(f"alpha_min_ratio must be below 1, got {ratio}")
    return np.geomspace(largest, ratio * largest, as_count(n_alphas, "n_alphas"))


def regularization_path(
    design: Rows,
    y: ArrayLike | None = None,
    *,
    alphas: ArrayLike | None = None,
    n_alphas: int = 10,
    alpha_min_ratio: float = 1e-3,
    n_components: int = 50,
    random_state: object = 0,
    **options: Any,
) -> Iterator[State]:
    """Run Algorithm 1 for decreasing alphas, each from the model of the one before.

    Parameters
    ----------
    design : Design
    y : array-like
    alphas : array-like, optional
        Decreasing positive alphas; by default `alpha_grid` from `alpha_max`.
    n_alphas : int
    alpha_min_ratio : float
    n_components : int
        Largest number of basis vectors; the path ends at the first alpha that uses them all.
    random_state : int, Generator or None
    **options
        Further arguments of `conditional_gradient`.

    Yields
    ------
    State
        The last state for each alpha; its attribute `alpha` holds it.

    Examples
    --------
    >>> import numpy as np
    >>> from fastpoly import Design
    >>> from fastpoly.path import regularization_path
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((100, 4))
    >>> y = (X[:, 0] * X[:, 1] + X[:, 2] ** 2)[:, None]
    >>> path = regularization_path(Design(X), y, n_alphas=4, loss="squared")
    >>> [state.n_components > 0 for state in path]
    [False, True, True, True]
    """
    if "tau" in options or "alpha" in options or "start" in options:
        raise ValueError("a path goes over `alphas`; alpha, tau and start cannot be given")
    if alphas is None:
        largest = alpha_max(design, y, random_state=random_state, **problem_options(options))
        # There is nothing to select: the model without basis vectors is optimal for every alpha.
        alphas = alpha_grid(largest or 1.0, n_alphas, alpha_min_ratio)
    alphas = as_float_array(alphas, "alphas", (None,))
    if not alphas.size or alphas.min() <= 0 or (np.diff(alphas) >= 0).any():
        raise ValueError("alphas must be positive and decreasing; sort them, largest first")
    return _run_path(design, y, alphas, n_components, random_state, options)


def _run_path(
    design: Rows,
    y: ArrayLike | None,
    alphas: NDArray[np.float64],
    n_components: int,
    random_state: object,
    options: dict[str, Any],
) -> Iterator[State]:
    state = None
    for alpha in alphas:
        run = conditional_gradient(
            design, y, alpha=alpha, n_components=n_components, start=state,
            random_state=random_state, **options,
        )  # fmt: skip
        for state in run:  # noqa: B007
            pass
        yield state
        if state.n_components >= n_components:
            return
