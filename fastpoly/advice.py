"""What a fit tells its users: why it is slow, what is wrong with its model, what to change."""

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from fastpoly.refit.rounds import LOOSEST_REFIT_TOL
from fastpoly.rows.scaling import Scaling
from fastpoly.state import State

# A fit whose violation is above this multiple of alpha is far from its optimum, and warns. At an
# optimum the ratio is at most 1.
FAR_FROM_OPTIMUM = 2.0
# Where the scales of columns, or alpha_max and alpha, are farther apart than this factor, a fit is
# slow: such problems are badly conditioned.
FAR_APART = 1e3

# Packages whose frames lie between the code of a user and a warning of fastpoly.
BETWEEN = ("fastpoly", "sklearn", "joblib")

_given: ContextVar[set[str] | None] = ContextVar("given", default=None)
_kept: ContextVar[list[tuple[Any, ...]] | None] = ContextVar("kept", default=None)


def warn(message: str, category: type[Warning] = UserWarning, topic: str | None = None) -> None:
    """Warn at the line of the user's code that called fastpoly.

    `each_warning_once` takes warnings with the same topic, by default the message, as the same.
    (`skip_file_prefixes` of `warnings.warn` finds that line only from Python 3.12 on.)
    """
    given, kept = _given.get(), _kept.get()
    if kept is not None:
        kept.append((message, category, topic))
        return
    if given is not None:
        if (topic or message) in given:
            return
        given.add(topic or message)
    level, frame = 2, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in BETWEEN:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


@contextmanager
def each_warning_once() -> Iterator[None]:
    """A context in which `warn` gives every message once.

    Examples
    --------
    >>> import warnings
    >>> from fastpoly.advice import each_warning_once, warn
    >>> with warnings.catch_warnings(record=True) as caught, each_warning_once():
    ...     warnings.simplefilter("always")
    ...     for message in ("old", "new", "new"):
    ...         warn(message)
    >>> [str(each.message) for each in caught]
    ['old', 'new']
    """
    token = _given.set(set())
    try:
        yield
    finally:
        _given.reset(token)


@contextmanager
def kept_warnings() -> Iterator[list[tuple[Any, ...]]]:
    """A context, as in a worker of a search, in which `warn` only keeps its arguments.

    Examples
    --------
    >>> from fastpoly.advice import kept_warnings, warn
    >>> with kept_warnings() as kept:
    ...     warn("slow")
    >>> kept
    [('slow', <class 'UserWarning'>, None)]
    """
    kept: list[tuple[Any, ...]] = []
    token = _kept.set(kept)
    try:
        yield kept
    finally:
        _kept.reset(token)


def why_slow(model: Any, data: Any, state: State | None, first: State | None) -> str | None:
    """Say what makes a fit slow for its size, and what to do about it.

    Large data take long without a reason, and get no advice.

    Parameters
    ----------
    model : estimator
    data : TrainingData or ShardData
    state, first : State or None
        The last state and the first one, if there is one yet.

    Returns
    -------
    str or None
    """
    if not model.standardize:
        largest = Scaling.standard(data.statistics, centered=False).factor
        if largest is not None and largest.max() > FAR_APART * largest.min():
            return (
                f"the columns of X differ in size by a factor of "
                f"{largest.max() / largest.min():.0f}; set standardize=True"
            )
    if state is not None and state.alpha is not None and FAR_APART * state.alpha < first.violation:
        return (
            f"alpha={state.alpha:.2g} is tiny, {state.alpha / first.violation:.1g} of the "
            "alpha at which the first basis vector enters; raise alpha"
        )
    (n, d), m = data.shape, data.m
    # A linear model already has more parameters than rows: the rows do not explain the time.
    wide = d * m > n
    if not wide and (state is None or not data.is_small):
        return None
    size = f"{n} rows, {d} features and {m} outputs"
    so_far = "" if state is None else (
        f", {state.n_components} of n_components={model.n_components} basis vectors after round "
        f"{state.n_iter}"
    )  # fmt: skip
    what = "many features or outputs for few rows" if wide else "many iterations for small data"
    return (
        f"{what} ({size}{so_far}); lower n_components, raise tol or alpha, or drop features or "
        "rare classes, and set verbose=1 to watch"
    )


class Complaint(NamedTuple):
    """What is wrong with a model; `converged` is False if more training would help."""

    message: str
    converged: bool


def poor_fit(model: Any, small: Callable[[], float], by_score: bool = False) -> Complaint | None:
    """What is worse than the parameters of a fitted model promise, and what to change.

    Parameters
    ----------
    model : estimator
    small : callable
        Returns the objective below which a fit is perfect, as in `Problem`. It is called only if
        something seems to be wrong, because it may take a pass over the rows.
    by_score : bool
        Whether its size was chosen for its score, so that more basis vectors are no cure.
    """
    state, objective, alpha = model._state, abs(model.objective_), model._state.alpha
    lower = "linear" if model.fit_lower == "explicit" else "constant"
    empty = f"the model has no basis vectors and is {lower}: "
    if model.early_stopping and state.stop is None:  # an intermediate model, chosen for its score
        if state.n_components:
            return None
        return Complaint(
            f"{empty}none improved the score of the rows held out; raise alpha, or set "
            "early_stopping=False",
            True,
        )
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
    loose = state.stop != "optimal" and gap > relative * objective
    if loose and gap > relative * small():
        inaccuracy = f"a gap of {gap:.2g} for an objective of {objective:.2g}"
        return Complaint(f"the output layer is inaccurate: {inaccuracy}; {cure}", False)
    if state.stop == "no progress" and far:
        return Complaint(
            "training stopped because new basis vectors gained nothing, far from the optimum: "
            f"the violation is {model.violation_:.2g}, alpha {alpha:.2g}; {cure}",
            False,
        )
    if state.stop == "n_components" and far and not by_score:
        return Complaint(
            f"training stopped at n_components={model.n_components}, and more basis vectors "
            f"would improve the model: the violation is {model.violation_ / alpha:.2g} alpha; "
            "raise n_components, or raise alpha",
            False,
        )
    # A perfect fit leaves nothing for basis vectors; its violation is a rounding error.
    if not state.n_components and model.violation_ > 0 and objective > small():
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
