"""Paths of decreasing alphas: where they begin, and how they are walked.

`Walk` serves the default alpha and `PathSearchCV`: at every alpha, new vectors enter the model of
the alpha before. Nothing is certified or polished on the way, as in `regularization_path`.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fastpoly.algorithm import (
    PROGRESS_SHARE_OF_TOL,
    STALL_ROUNDS,
    Options,
    Run,
    make_refit,
    train,
)
from fastpoly.kernels.blas_threads import one_blas_thread
from fastpoly.kernels.checks import as_count, as_float_array, as_positive, as_seed
from fastpoly.objective import Objective
from fastpoly.problem import Problem
from fastpoly.refit.joint import JointRefit, fit_linear_terms
from fastpoly.rows import as_rows
from fastpoly.selection import select_basis
from fastpoly.state import Floats, Model, State


def alpha_max(
    design: Any,
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
    design, y, loss, penalty, alpha_linear, sample_weight, n_outputs, random_state
        As for `conditional_gradient`.
    tol : float

    Examples
    --------
    >>> import numpy as np
    >>> from fastpoly import Design, alpha_max
    >>> design = Design(np.array([[1.0], [2.0]]))
    >>> round(alpha_max(design, [[3.0], [1.0]], loss="squared"), 6)
    7.0
    """
    rows = as_rows(design, y, loss=loss, sample_weight=sample_weight, n_outputs=n_outputs)
    problem = Problem.of(rows.loss, penalty, rows.m, alpha=1.0, alpha_linear=alpha_linear)
    return largest_alpha(Objective(problem, rows), as_positive(tol, "tol"), random_state)


def largest_alpha(objective: Objective, tol: float, random_state: object = 0) -> float:
    """`alpha_max` of an objective."""
    with one_blas_thread():
        model = fit_linear_terms(objective, tol)
        found = select_basis(
            objective.gradient(model).gamma(), objective.problem.penalty, tol=tol, thorough=True,
            random_state=random_state,
        )  # fmt: skip
    return found.value


def alpha_grid(largest: float, n_alphas: int = 10, alpha_min_ratio: float = 1e-3) -> Floats:
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


def as_alphas(alphas: ArrayLike) -> Floats:
    """Alphas as an array; ValueError unless they are positive and decreasing."""
    alphas = as_float_array(alphas, "alphas", (None,))
    if not alphas.size:
        raise ValueError("alphas is empty; give at least one, or None for a default grid")
    if alphas.min() <= 0 or (np.diff(alphas) >= 0).any():
        raise ValueError("alphas must be positive and decreasing; sort them, largest first")
    return alphas


class Walk(Run):
    """Algorithm 1 at weaker and weaker strengths, a round at a time, without certificates."""

    def __init__(self, objective: Objective, options: Options) -> None:
        super().__init__(objective, replace(options, finish=False))

    @property
    def blocks(self) -> bool:
        """Whether a round adds many vectors."""
        return isinstance(self.refit, JointRefit)

    def weaken(self, alpha: float, ridge: float | None = None, endless: bool = True) -> None:
        """Go on with other strengths; `endless`: no descent is the last one."""
        self.objective, size = self.objective.at(alpha, ridge), self.options.n_components
        options = replace(self.options, n_components=size + endless)
        self.refit = make_refit(self.objective, options)

    def descend(self, alpha: float, ridge: float | None, tol: float) -> None:
        """Descend from the last model to the end, without new vectors."""
        k = max(len(self.model.H), 1)
        options = replace(self.options, tol=tol, n_components=k, refit="auto")
        with one_blas_thread():
            self.model = make_refit(self.objective.at(alpha, ridge), options).first(self.model)

    def find_top(self, ridge: float) -> float:
        """About the largest alpha at which a vector enters."""
        self.weaken(0.0, ridge)
        return self.select(self.measure()).value

    def rounds(
        self, alpha: float, ridge: float | None = None, *, settle: bool = False
    ) -> Iterator[State]:
        """The states after each round at an alpha, until one gains little; the last has `stop`.

        `settle`: the model first descends without new vectors, and a full model to the end, as in
        a run of its own. Models are then smaller, and better by themselves.
        """
        full = self.options.n_components
        self.weaken(alpha, ridge, endless=not settle)
        self.memory = self.memory._replace(recent=(), spent=0)
        if settle:
            self.fit(self.refit.first, self.model)
        elif len(self.model.H) >= full:
            self.descend(alpha, ridge, self.options.tol)
        else:
            self.advance(self.measure())
        while True:
            state, stop = self.measure(), None
            if state.n_components >= full:
                stop = "n_components"
            elif self.exhausted(state):
                stop = "max_iter"
            elif gained_little(state, self.options.tol):
                stop = "no progress"
            yield replace(state, stop=stop)
            if stop:
                return
            self.advance(state)


def walk(
    objective: Objective, alphas: Floats, options: Options, start: Model | None = None
) -> Iterator[tuple[int, State]]:
    """Positions of decreasing alphas, and the states of all rounds there, from `start` if given."""
    path = Walk(objective, options)
    path.model = start or path.model
    for i, alpha in enumerate(alphas):
        for state in path.rounds(alpha, settle=True):
            yield i, state


def gained_little(state: State, tol: float) -> bool:
    """Whether the last round at this alpha gained little; there is more to gain at the next one."""
    recent, least = state.memory.recent, STALL_ROUNDS * PROGRESS_SHARE_OF_TOL * tol
    return bool(recent) and recent[-1] - state.objective <= least * abs(state.objective)


def regularization_path(
    design: Any,
    y: ArrayLike | None = None,
    *,
    loss: Any = "logistic",
    penalty: Any = "l1/l2",
    alphas: ArrayLike | None = None,
    n_alphas: int = 10,
    alpha_min_ratio: float = 1e-3,
    alpha_linear: float = 1.0,
    sample_weight: ArrayLike | None = None,
    n_outputs: int | None = None,
    random_state: object = 0,
    **options: Any,
) -> Iterator[State]:
    """Run Algorithm 1 for decreasing alphas, each from the model of the one before.

    Parameters
    ----------
    design, y, loss, penalty, alpha_linear, sample_weight, n_outputs
        As for `conditional_gradient`.
    alphas : array-like, optional
        Decreasing positive alphas; by default `alpha_grid` from `alpha_max`.
    n_alphas : int
    alpha_min_ratio : float
    random_state : int, Generator or None
    **options
        n_components, block, refit, max_iter, tol, selection and memory, as for
        `conditional_gradient`. The path ends at the first alpha that uses all n_components.

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
    how = Options(seed=as_seed(random_state), **options)
    rows = as_rows(design, y, loss=loss, sample_weight=sample_weight, n_outputs=n_outputs)
    problem = Problem.of(rows.loss, penalty, rows.m, alpha=1.0, alpha_linear=alpha_linear)
    objective = Objective(problem, rows)
    if alphas is None:
        # Where there is nothing to select, the empty model is optimal for every alpha.
        largest = largest_alpha(objective, 1e-6, how.seed) or 1.0
        alphas = alpha_grid(largest, n_alphas, alpha_min_ratio)
    grid = as_alphas(alphas)

    def last_states() -> Iterator[State]:
        last = None
        for alpha in grid:
            *_, last = train(objective.at(alpha), how, last)
            yield last
            if last.n_components >= how.n_components:
                return

    return last_states()
