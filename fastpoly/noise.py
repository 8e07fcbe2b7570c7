"""An alpha from the data, in proportion to the violation that pure noise would have.

Where the row gradients have random signs, nothing is left to learn, and their violation is about
the `noise_level` of the rows. An alpha of that size would keep out all noise, but also much of what
can be learned; a fraction of it predicts best. The gradients are first those of the model without
basis vectors, whose errors include the interactions. Then they are those of the model that this
alpha gives. `bench/defaults.py` compares the rule with shares of the number of rows.

The best fraction depends on the data: the whole level where the truth is linear, a third where
there are interactions, and one share per class where many classes hardly overlap. So a third of the
rows is held out to choose it.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from fastpoly.algorithm import conditional_gradient
from fastpoly.kernels.blas_threads import one_blas_thread
from fastpoly.problem import PERFECT, Problem, problem_options
from fastpoly.refit.joint import FIRST_BLOCK, JointRefit
from fastpoly.rows import as_rows
from fastpoly.rows.contract import Rows, Sums
from fastpoly.state import Model, State

# The smallest alpha is the noise level over this, or over the number of classes if that is larger.
# Chosen on some tables and judged on others, by bench/defaults.py.
NOISE_DIVISOR = 3.0
# A second run is worth its cost where alpha falls below this share of the first one.
LOWER = 0.85


def divisors(problem: Problem) -> list[float]:
    """The divisors of the noise level that may be best for this problem, in increasing order."""
    most = max(NOISE_DIVISOR, problem.m if problem.loss.target == "label" else 0)
    return [1.0, math.sqrt(most), most]


def noise_alpha(sums: Sums, model: Model, divisor: float) -> float:
    """The alpha for the errors that a model makes.

    Parameters
    ----------
    sums : Sums
    model : Model
    divisor : float
        The share of the noise level that alpha should be is one over this.

    Returns
    -------
    float
    """
    problem = sums.problem
    level = sums.noise_level(model) * _dual_size(problem.penalty, problem.m)
    # A perfect fit has no noise left; the floor keeps alpha above zero. It is far below what any
    # table of bench/defaults.py needs: 1e-5 of the sum of the weights for ratings of many users and
    # items, at least 2e-4 for the others.
    return max(level / divisor, PERFECT * sums.weight)


def _dual_size(penalty: Any, m: int) -> float:
    """The mean dual norm of a random vector (m,) of length 1; for l1/l2 it is 1."""
    Q = np.random.default_rng(0).standard_normal((1000, m))
    return float(np.mean(penalty.dual_norms(Q / np.linalg.norm(Q, axis=1, keepdims=True))))


def _alphas_of(
    design: Rows, y: Any, options: dict[str, Any], divisors: list[float], model: Model | None = None
) -> list[float]:
    """The alphas for a model, by default the best one without basis vectors.

    The sums are new ones, because they may hold gradients of all rows, which nothing else needs.
    """
    sums = design.sums(_problem(design, y, options))
    with one_blas_thread():
        if model is None:
            model = JointRefit(sums, 1e-3, 1000, 1).first(sums.empty_model())
        return [noise_alpha(sums, model, divisor) for divisor in divisors]


def _problem(design: Rows, y: Any, options: dict[str, Any]) -> Problem:
    return design.problem(y, alpha=1.0, **problem_options(options))


def _validated(design: Rows, y: Any, options: dict[str, Any]) -> float:
    """The best divisor by the loss of rows that are held out."""
    problem = _problem(design, y, options)
    candidates, parts = divisors(problem), design.held_out_weights(problem.w)
    if parts is None:
        return candidates[-1]
    # The vectors of one round show which share is best, at half the cost of a whole fit.
    most = min(options.get("n_components", np.inf), max(FIRST_BLOCK, 2 * problem.m))
    options = {**options, "n_outputs": problem.m, "n_components": most}
    train, test = ({**options, "sample_weight": w} for w in parts)
    held = design.sums(_problem(design, y, test))
    alphas = _alphas_of(design, y, train, candidates)
    best, least, state = candidates[0], np.inf, None
    for divisor, alpha in zip(candidates, alphas, strict=True):
        run = conditional_gradient(design, y, alpha=alpha, start=state, finish=False, **train)
        *_, state = run
        loss = held.value(state.model)
        if loss >= least:
            break  # a smaller alpha would overfit even more, and take longer
        best, least = divisor, loss
    return best


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
        Further arguments of `conditional_gradient`, without `finish`.

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
    if start is None or start.alpha is None:
        divisor = _validated(design, y, options)
    else:
        divisor = _divisor_of(design, y, options, start.alpha)
        if divisor is None:  # the second run was interrupted
            yield from conditional_gradient(design, y, alpha=start.alpha, start=start, **options)
            return
    (alpha,) = _alphas_of(design, y, options, [divisor])
    # Only the last model is worth finishing.
    run = conditional_gradient(design, y, alpha=alpha, start=start, finish=False, **options)
    for state in run:
        if not state.stop:
            yield state
    (lower,) = _alphas_of(design, y, options, [divisor], state.model)
    # A run that starts where it had ended before is finished.
    ended = start is not None and start.alpha is not None and state.n_iter == start.n_iter
    state = replace(state, stop=start.stop if ended else None)
    if lower <= LOWER * alpha:
        alpha = lower
        if not ended and not math.isnan(state.violation):  # a full model has no certificate yet
            yield state
    yield from conditional_gradient(design, y, alpha=alpha, start=state, **options)


def _divisor_of(design: Rows, y: Any, options: dict[str, Any], alpha: float) -> float | None:
    """The divisor that gave an alpha in a first run, or None if a second run has this alpha."""
    candidates = divisors(_problem(design, y, options))
    alphas = _alphas_of(design, y, options, candidates)
    for divisor, first in zip(candidates, alphas, strict=True):
        if math.isclose(alpha, first, rel_tol=1e-6):
            return divisor
    return None
