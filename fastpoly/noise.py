"""An alpha from the data, in proportion to the violation that pure noise would have.

Where the row gradients have random signs, nothing is left to learn, and their violation is about
the `noise_level` of the rows. An alpha of that size would keep out all noise, but also much of what
can be learned; a fraction of it predicts best. The gradients are first those of the model without
basis vectors, whose errors include the interactions. Then they are those of the model that this
alpha gives. `bench/defaults.py` compares the rule with shares of the number of rows.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from fastpoly.algorithm import conditional_gradient
from fastpoly.kernels.blas_threads import one_blas_thread
from fastpoly.problem import PERFECT, problem_options
from fastpoly.refit.joint import JointRefit
from fastpoly.rows import as_rows
from fastpoly.rows.contract import Rows, Sums
from fastpoly.state import Model, State

# alpha is the noise level divided by this; for class codes, by the number of classes. Chosen on
# twenty tables and judged on others, by bench/defaults.py.
NOISE_DIVISOR = 3.0
# A second run is worth its cost where alpha falls below this share of the first one.
LOWER = 0.85


def noise_alpha(sums: Sums, model: Model) -> float:
    """The alpha for the errors that a model makes.

    Parameters
    ----------
    sums : Sums
    model : Model

    Returns
    -------
    float
    """
    problem = sums.problem
    divisor = problem.m if problem.loss.target == "label" else NOISE_DIVISOR
    level = sums.noise_level(model) * _dual_size(problem.penalty, problem.m)
    # A perfect fit has no noise left. The tables of bench/defaults.py need at least 2e-4 of the sum
    # of the weights; ratings of many users and items need 1e-5.
    return max(level / divisor, PERFECT * sums.weight)


def _dual_size(penalty: Any, m: int) -> float:
    """The mean dual norm of a random vector (m,) of length 1; for l1/l2 it is 1."""
    if not hasattr(penalty, "dual_norms"):
        return 1.0
    Q = np.random.default_rng(0).standard_normal((1000, m))
    return float(np.mean(penalty.dual_norms(Q / np.linalg.norm(Q, axis=1, keepdims=True))))


def _alpha_of(design: Rows, y: Any, options: dict[str, Any], model: Model | None = None) -> float:
    """The alpha for a model, by default the best one without basis vectors.

    The sums are new ones, because they may hold gradients of all rows, which nothing else needs.
    """
    sums = design.sums(design.problem(y, alpha=1.0, **problem_options(options)))
    with one_blas_thread():
        if model is None:
            model = JointRefit(sums, 1e-3, 1000, 1).first(sums.empty_model())
        return noise_alpha(sums, model)


def fit_above_noise(
    design: Rows, y: Any = None, *, start: State | None = None, **options: Any
) -> Iterator[State]:
    """Run Algorithm 1 with alphas that are chosen by the noise level.

    Parameters
    ----------
    design : Design, ShardDesign or Shards
    y : array-like
    start : State, optional
        A state of an earlier run of the same kind, from which this run continues.
    **options
        Further arguments of `conditional_gradient`.

    Yields
    ------
    State
        The states of a run with the first alpha. Where the errors of its model allow a smaller
        alpha, the states of a second run follow, which starts from that model. The objective never
        rises.

    Examples
    --------
    >>> import numpy as np
    >>> from fastpoly import Design
    >>> from fastpoly.noise import fit_above_noise
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 5))
    >>> y = X[:, :1] * X[:, 1:2] + rng.standard_normal((200, 1))
    >>> design = Design(X, "anova", fit_lower="explicit")
    >>> *_, state = fit_above_noise(design, y, loss="squared", random_state=0)
    >>> largest = np.linalg.norm(state.V, axis=1).argmax()
    >>> np.abs(state.H[largest]).round(1).tolist()[:2]
    [0.7, 0.7]
    """
    design = as_rows(design)
    alpha = _alpha_of(design, y, options)
    if start is None or start.alpha is None or start.alpha > LOWER * alpha:
        for state in conditional_gradient(design, y, alpha=alpha, start=start, **options):
            if not state.stop:
                yield state
                continue
            lower = _alpha_of(design, y, options, state.model)
            if lower > LOWER * alpha:
                yield state
                return
            if start is None or state.n_iter > start.n_iter or start.alpha is None:
                yield replace(state, stop=None)  # unless the run was interrupted at this state
        start, alpha = state, lower
    else:
        alpha = start.alpha
    yield from conditional_gradient(design, y, alpha=alpha, start=start, **options)
