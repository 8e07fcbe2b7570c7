"""What a fit tells its users: its progress, that it is slow, what is wrong with its model."""

import logging
import math
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic
from types import FrameType
from typing import Any

from sklearn.exceptions import ConvergenceWarning
from tqdm.auto import tqdm

from fastpoly.refit.output import LOOSEST_REFIT_TOL
from fastpoly.state import State

logger = logging.getLogger("fastpoly")

SLOW_SECONDS = 5.0  # after which a fit warns that it is slow for its size
# Packages whose frames lie between the code of a user and a warning of fastpoly, and those in which
# another thread or process begins.
PASSED_PACKAGES = ("fastpoly", "sklearn", "joblib")
WORKER_PACKAGES = ("threading", "multiprocessing", "concurrent")

Advice = tuple[str, type[Warning]]
_collected: ContextVar[list[Advice] | None] = ContextVar("collected", default=None)


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line of the user's code that called fastpoly, perhaps by scikit-learn.

    In a worker of joblib there is no such line: there, at the method of fastpoly that was called.
    (`skip_file_prefixes` of `warnings.warn` finds the line only from Python 3.12 on.)
    """
    if (collected := _collected.get()) is not None:
        collected.append((message, category))
        return
    packages = [package for package, _ in _callers(sys._getframe(1))]
    level = next((i for i, each in enumerate(packages) if each not in PASSED_PACKAGES), 0)
    if packages[level] in WORKER_PACKAGES:
        level = max(i for i in range(level) if packages[i] == "fastpoly")
    warnings.warn(message, category, stacklevel=level + 2)


def _callers(frame: FrameType | None) -> Iterator[tuple[str, FrameType]]:
    """The packages and the frames of a frame and its callers, outward."""
    while frame is not None:
        yield frame.f_globals.get("__name__", "").partition(".")[0], frame
        frame = frame.f_back


def is_searched(parameter: str) -> bool:
    """Whether this fit is one of a search of scikit-learn that tries values of the parameter."""
    for package, frame in _callers(sys._getframe(1)):
        if package == "sklearn":
            local = frame.f_locals
            chosen = getattr(local.get("self"), "best_params_", None)  # while it fits the best one
            for tried in (local.get("parameters"), chosen):
                if any(name.rpartition("__")[2] == parameter for name in tried or ()):
                    return True
    return False


@contextmanager
def collected_warnings() -> Iterator[list[Advice]]:
    """A context, as in a fold of a search, in which `warn` only collects its arguments."""
    collected: list[Advice] = []
    token = _collected.set(collected)
    try:
        yield collected
    finally:
        _collected.reset(token)


def warn_once(collected: list[Advice]) -> None:
    """Give collected warnings, those that differ only in numbers once."""
    unique: dict[Advice, str] = {}
    for text, category in collected:
        unique.setdefault((re.sub(r"\d[\d.e+-]*", "0", text), category), text)
    for (_, category), text in unique.items():
        warn(text, category)


@contextmanager
def progress(model: Any, data: Any) -> Iterator[Callable[[State, float | None], None]]:
    """A function that shows a round and its score, by a tqdm bar (verbose=1) or in a log."""
    watch = SlowFit(model, data)
    with tqdm(total=model.n_components, unit="basis", disable=model.verbose != 1) as bar:

        def show(state: State, score: float | None) -> None:
            numbers = {"objective": f"{state.objective:.5g}", "violation": f"{state.violation:.3g}"}
            if score is not None:
                numbers["validation"] = f"{score:.4f}"
            bar.set_postfix(numbers, refresh=False)
            bar.update(state.n_components - bar.n)
            if model.verbose > 1:
                shown = ", ".join(f"{name} {value}" for name, value in numbers.items())
                k = state.n_components
                logger.info("round %d: %d basis vectors, %s", state.n_iter, k, shown)
                if state.stop:
                    logger.info("stopped: %s", state.stop)
            watch.round_ended(state)

        yield show
        bar.total = bar.n  # it needed no more basis vectors


class SlowFit:
    """One warning if few or small rows take long."""

    def __init__(self, model: Any, data: Any) -> None:
        self.model, self.data, self.begun = model, data, monotonic()

    def round_ended(self, state: State) -> None:
        """Warn if the rows do not explain the time so far."""
        (n, d), m, model = self.data.shape, self.data.m, self.model
        if state.stop:
            self.begun = max(self.begun, monotonic())  # of the next alpha, unless it has warned
        # Else, in a linear model with more parameters than rows they do not explain it.
        elif monotonic() - self.begun >= SLOW_SECONDS and (d * m > n or self.data.is_small):
            self.begun = math.inf
            strength = f"alpha={state.alpha:.2g}" if model.tau is None else f"tau={model.tau:.2g}"
            warn(
                f"the fit has taken more than {SLOW_SECONDS:g} seconds so far: {n} rows, {d} "
                f"features and {m} outputs, {strength}, {state.n_components} of n_components="
                f"{model.n_components} basis vectors; raise alpha or tol, lower n_components"
                + ", set standardize=True" * (not model.standardize)
                + ", or drop features, and set verbose=1 to watch"
            )


def poor_fit(model: Any, small: float, by_score: bool = False) -> Advice | None:
    """What is worse than the parameters of a fitted model promise, and what to change.

    A ConvergenceWarning says that more training would help. `small` is the objective below which a
    fit is perfect. `by_score` says that the size of the model was chosen for its score.
    """
    state, tol, penalized = model._state, model.tol, model.tau is None
    objective, alpha, violation = abs(state.objective), state.alpha, state.violation
    chosen = model.early_stopping and state.stop is None  # an intermediate model, by its score
    ended = chosen or state.stop in ("optimal", "unconfirmed")
    gap = state.refit_gain if model.refit in ("auto", "full") else state.refit_gap
    inaccurate = not ended and gap > max(tol, LOOSEST_REFIT_TOL) * max(objective, small)
    # A perfect fit leaves nothing for basis vectors; its violation is a rounding error.
    worthless = not inaccurate and violation > 0 and objective > small
    if not state.n_components and (chosen or worthless):
        if chosen:
            why = "none improved the score of the rows held out; set early_stopping=False"
        elif penalized and model.alpha is None:
            why = f"none improved predictions of rows held out; give alpha, below {alpha:.3g},"
        else:
            cure = f"lower alpha, which is {alpha:.3g}," if penalized else "raise tau"
            why = f"none is worth its penalty (the largest violation is {violation:.3g}); {cure}"
        lower = "linear" if model.fit_lower == "explicit" else "constant"
        text = f"the model has no basis vectors and is {lower}: {why} to fit interactions"
        return text, UserWarning
    far = bool(alpha) and violation > 2 * alpha  # at an optimum it is at most alpha
    stuck = far and state.stop == "no progress"
    if inaccurate or stuck or not is_near_enough(tol, state, small):
        cures = "" if model.standardize else "set standardize=True, "
        cures += "raise alpha" if penalized else "lower tau"
        if inaccurate:
            what = f"the output layer is inaccurate: a gap of {gap:.2g} for an objective of "
            what += f"{objective:.2g}; {cures}"
        else:
            why = "gained nothing" if state.stop == "no progress" else "take too long"
            what = f"tol={tol:g} is not reached: new basis vectors {why}; raise tol, {cures}"
        last = f"raise max_iter, which is {model.max_iter}" if model.refit else 'use refit="output"'
        return f"{what}, or {last}", ConvergenceWarning
    if state.stop == "n_components" and far and not (by_score or is_searched("n_components")):
        return (
            f"training stopped at n_components={model.n_components}, and more basis vectors would "
            f"improve the model: the violation is {violation / alpha:.2g} alpha; raise "
            "n_components, or raise alpha"
        ), ConvergenceWarning
    return None


def is_near_enough(tol: float, state: State, small: float) -> bool:
    """Whether a run that ended by itself is near enough: within ten times its tolerance."""
    if state.stop not in ("no progress", "max_iter") or abs(state.objective) <= small:
        return True
    size = 10 * tol * max(abs(state.objective), small)
    if state.alpha is None:
        return bool(state.gap_found <= size)
    return bool(state.violation <= (1 + 10 * tol) * state.alpha and state.refit_gain <= size)
