"""What a fit tells its users: why it is slow, what is wrong with its model, what to change."""

import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from sklearn.exceptions import ConvergenceWarning

from fastpoly.refit.rounds import LOOSEST_REFIT_TOL
from fastpoly.rows.statistics import Scaling
from fastpoly.state import State

# A fit whose violation is above this multiple of alpha is far from its optimum, and warns. At an
# optimum the ratio is at most 1.
FAR_FROM_OPTIMUM = 2.0
# Where the scales of columns, or alpha_max and alpha, are farther apart than this factor, a fit is
# slow: such problems are badly conditioned.
SLOW_FACTOR = 1e3
# Packages whose frames lie between the code of a user and a warning of fastpoly.
NOT_THE_USER = ("fastpoly", "sklearn", "joblib")

_collected: ContextVar[list[tuple[str, type[Warning]]] | None] = ContextVar(
    "collected", default=None
)


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line of the user's code that called fastpoly.

    (`skip_file_prefixes` of `warnings.warn` finds that line only from Python 3.12 on.)
    """
    collected = _collected.get()
    if collected is not None:
        collected.append((message, category))
        return
    level, frame = 2, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in NOT_THE_USER:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


@contextmanager
def collected_warnings() -> Iterator[list[tuple[str, type[Warning]]]]:
    """A context, as in a fold of a search, in which `warn` only collects its arguments."""
    collected: list[tuple[str, type[Warning]]] = []
    token = _collected.set(collected)
    try:
        yield collected
    finally:
        _collected.reset(token)


def warn_once(collected: list[tuple[str, type[Warning]]]) -> None:
    """Give collected warnings, those that differ only in numbers once."""
    unique = {(re.sub(r"\d[\d.e+-]*", "0", each[0]), each[1]): each for each in collected[::-1]}
    for each in list(unique.values())[::-1]:
        warn(*each)


def why_slow(model: Any, data: Any, state: State, first: State) -> str | None:
    """What makes a fit slow for its size, and what to do about it; None if it is just large.

    `state` and `first` are its last state and its first one.
    """
    if not model.standardize:
        largest = Scaling.standard(data.statistics, centered=False).factor
        if largest is not None and largest.max() > SLOW_FACTOR * largest.min():
            return (
                f"the columns of X differ in size by a factor of "
                f"{largest.max() / largest.min():.0f}; set standardize=True"
            )
    if state.alpha is not None and SLOW_FACTOR * state.alpha < first.violation:
        return (
            f"alpha={state.alpha:.2g} is tiny, {state.alpha / first.violation:.1g} of the "
            "alpha at which the first basis vector enters; raise alpha"
        )
    (n, d), m = data.shape, data.m
    # A linear model already has more parameters than rows: the rows do not explain the time.
    wide = d * m > n
    if not wide and not data.is_small:
        return None
    what = "many features or outputs for few rows" if wide else "many iterations for small data"
    return (
        f"{what} ({n} rows, {d} features and {m} outputs, {state.n_components} of "
        f"n_components={model.n_components} basis vectors after round {state.n_iter}); lower "
        "n_components, raise tol or alpha, or drop features or rare classes, and set verbose=1 to "
        "watch"
    )


class Complaint(NamedTuple):
    """What is wrong with a model; `converged` is False if more training would help."""

    message: str
    converged: bool = False

    def give(self) -> None:
        """Warn."""
        warn(self.message, UserWarning if self.converged else ConvergenceWarning)


def poor_fit(model: Any, small: float, by_score: bool = False) -> Complaint | None:
    """What is worse than the parameters of a fitted model promise, and what to change.

    `small` is the objective below which a fit is perfect. `by_score` says that the size of the
    model was chosen for its score, so that more basis vectors are no cure.
    """
    state, objective, alpha = model._state, abs(model.objective_), model._state.alpha
    lower = "linear" if model.fit_lower == "explicit" else "constant"
    empty = f"the model has no basis vectors and is {lower}: "
    if model.early_stopping and state.stop is None:  # an intermediate model, chosen for its score
        if state.n_components:
            return None
        why = "none improved the score of the rows held out; raise alpha, or set "
        return Complaint(f"{empty}{why}early_stopping=False", True)
    gap = state.refit_gain if model.refit in ("auto", "full") else state.refit_gap
    cure = "" if model.standardize else "set standardize=True, "
    cure += "raise alpha, "
    if state.stop == "n_components":
        cure += f"raise n_components, which is {model.n_components}, "
    cure += "or "
    cure += f"raise max_iter, which is {model.max_iter}" if model.refit else 'use refit="output"'
    far = bool(alpha) and model.violation_ > FAR_FROM_OPTIMUM * alpha
    # A converged refit is at least this accurate.
    relative = max(model.tol, LOOSEST_REFIT_TOL)
    loose = state.stop not in ("optimal", "unconfirmed")
    if loose and gap > relative * max(objective, small):
        inaccuracy = f"a gap of {gap:.2g} for an objective of {objective:.2g}"
        return Complaint(f"the output layer is inaccurate: {inaccuracy}; {cure}")
    if state.stop == "no progress" and far:
        return Complaint(
            "training stopped because new basis vectors gained nothing, far from the optimum: "
            f"the violation is {model.violation_:.2g}, alpha {alpha:.2g}; {cure}"
        )
    if state.stop == "n_components" and far and not by_score:
        return Complaint(
            f"training stopped at n_components={model.n_components}, and more basis vectors "
            f"would improve the model: the violation is {model.violation_ / alpha:.2g} alpha; "
            "raise n_components, or raise alpha"
        )
    # A perfect fit leaves nothing for basis vectors; its violation is a rounding error.
    if not state.n_components and model.violation_ > 0 and objective > small:
        if model.alpha is None and model.tau is None:
            message = f"{empty}interactions would not improve predictions, as far as can be seen"
            return Complaint(f"{message}; give alpha, below {alpha:.3g}, to fit some", True)
        cure = f"lower alpha, which is {alpha:.3g}," if model.tau is None else "raise tau"
        return Complaint(
            f"{empty}none is worth its penalty (the largest violation is "
            f"{model.violation_:.3g}); {cure} to fit interactions",
            True,
        )
    return None
