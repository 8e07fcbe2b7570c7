"""What a fit tells its users: its progress, that it is slow, what is wrong with its model."""

import logging
import math
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic
from types import FrameType
from typing import Any, Self

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
    collected = _collected.get()
    if collected is not None:
        collected.append((message, category))
        return
    ours = 1
    for level, (package, _) in enumerate(_callers(), start=2):
        if package in WORKER_PACKAGES:
            level = ours
        elif package in PASSED_PACKAGES:
            ours = level if package == "fastpoly" else ours
            continue
        break
    warnings.warn(message, category, stacklevel=level)


def _callers() -> Iterator[tuple[str, FrameType]]:
    """The package and the frame of every caller of a function of this module, from it outward."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        yield frame.f_globals.get("__name__", "").partition(".")[0], frame
        frame = frame.f_back


def is_searched(parameter: str) -> bool:
    """Whether this fit is one of a search of scikit-learn that tries values of the parameter."""
    for package, frame in _callers():
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


class Progress:
    """What a fit shows of its rounds: a tqdm bar (verbose=1) or a log, and one warning if slow."""

    def __init__(self, model: Any, data: Any) -> None:
        self.model, self.data, self.begun = model, data, monotonic()
        self.bar: Any = None

    def __enter__(self) -> Self:
        if self.model.verbose == 1:
            self.bar = tqdm(total=self.model.n_components, unit="basis")
        return self

    def __exit__(self, *exception: object) -> None:
        if self.bar is not None:
            if exception == (None, None, None):
                self.bar.total = self.bar.n  # it needed no more basis vectors
            self.bar.close()

    def show(self, state: State, score: float | None = None) -> None:
        """Show a round, and its score if there is one."""
        numbers = {"objective": f"{state.objective:.5g}", "violation": f"{state.violation:.3g}"}
        if score is not None:
            numbers["validation"] = f"{score:.4f}"
        if self.bar is not None:
            self.bar.set_postfix(numbers, refresh=False)
            self.bar.update(state.n_components - self.bar.n)
        elif self.model.verbose:
            shown = ", ".join(f"{name} {value}" for name, value in numbers.items())
            logger.info("round %d: %d basis vectors, %s", state.n_iter, state.n_components, shown)
            if state.stop:
                logger.info("stopped: %s", state.stop)
        self.warn_if_slow(state)

    def warn_if_slow(self, state: State) -> None:
        """Warn once, at the end of a round, that few or small rows take long."""
        if state.stop:
            self.begun = max(self.begun, monotonic())  # of the next alpha, unless it has warned
        (n, d), m, model = self.data.shape, self.data.m, self.model
        slow = not state.stop and monotonic() - self.begun >= SLOW_SECONDS
        # A linear model with more parameters than rows: the rows do not explain the time.
        if slow and (d * m > n or self.data.is_small):
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
    state, objective = model._state, abs(model._state.objective)
    alpha, violation = state.alpha, state.violation
    chosen = model.early_stopping and state.stop is None  # an intermediate model, by its score
    gap = state.refit_gain if model.refit in ("auto", "full") else state.refit_gap
    inaccurate = (
        not chosen
        and state.stop not in ("optimal", "unconfirmed")
        and gap > max(model.tol, LOOSEST_REFIT_TOL) * max(objective, small)
    )
    # A perfect fit leaves nothing for basis vectors; its violation is a rounding error.
    worthless = not inaccurate and violation > 0 and objective > small
    if not state.n_components and (chosen or worthless):
        if chosen:
            why = "none improved the score of the rows held out; set early_stopping=False"
        elif model.alpha is None and model.tau is None:
            why = f"none improved predictions of rows held out; give alpha, below {alpha:.3g},"
        else:
            cure = f"lower alpha, which is {alpha:.3g}," if model.tau is None else "raise tau"
            why = f"none is worth its penalty (the largest violation is {violation:.3g}); {cure}"
        lower = "linear" if model.fit_lower == "explicit" else "constant"
        return (
            f"the model has no basis vectors and is {lower}: {why} to fit interactions"
        ), UserWarning
    far = bool(alpha) and violation > 2 * alpha  # at an optimum it is at most alpha
    stuck = far and state.stop == "no progress"
    if inaccurate or stuck or not is_near_enough(model.tol, state, small):
        cures = "" if model.standardize else "set standardize=True, "
        cures += "raise alpha" if model.tau is None else "lower tau"
        if inaccurate:
            what = "the output layer is inaccurate: a gap of "
            what += f"{gap:.2g} for an objective of {objective:.2g}"
        else:
            why = "gained nothing" if state.stop == "no progress" else "take too long"
            what = f"tol={model.tol:g} is not reached: new basis vectors {why}"
            cures = f"raise tol, {cures}"
        last = f"raise max_iter, which is {model.max_iter}" if model.refit else 'use refit="output"'
        return f"{what}; {cures}, or {last}", ConvergenceWarning
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
