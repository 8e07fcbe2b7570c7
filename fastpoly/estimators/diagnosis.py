"""What is wrong with a fit, and what to change: while a slow one goes on, after a poor one."""

import warnings
from typing import Any

from sklearn.exceptions import ConvergenceWarning

from fastpoly.refit.rounds import LOOSEST_REFIT_TOL
from fastpoly.state import State

# A fit is far from its optimum where the violation is above this times alpha.
FAR_FROM_OPTIMUM = 2.0
# Below this share of alpha_max, or with scales of columns this far apart, a fit takes long.
TINY_ALPHA_SHARE, UNEQUAL_SCALES = 1e-4, 100.0


def why_slow(model: Any, data: Any, state: State, first: State) -> str | None:
    """What makes a fit slow, and what to do about it."""
    if not model.standardize:
        largest = data.feature_units(True, centered=False).factor
        if largest is not None and largest.max() > UNEQUAL_SCALES * largest.min():
            return (
                f"the columns of X differ in size by a factor of "
                f"{largest.max() / largest.min():.0f}; set standardize=True"
            )
    if state.alpha is not None and state.alpha < TINY_ALPHA_SHARE * first.violation:
        return (
            f"alpha={state.alpha:.2g} is tiny, {state.alpha / first.violation:.1g} of the "
            "alpha at which the first basis vector enters; raise alpha"
        )
    return None


def warn_of_a_poor_fit(model: Any) -> None:
    """Tell of a model that is worse than its parameters promise, and of what to change."""
    state, objective, alpha = model._state, abs(model.objective_), model._state.alpha
    if model.early_stopping and state.stop is None:
        return  # a model on the way, chosen for its score
    gap = state.refit_gain if model.refit in ("auto", "full") else state.refit_gap
    cure = "" if model.standardize else "set standardize=True, "
    cure += "raise alpha, "
    if state.stop == "n_components":
        cure += f"raise n_components, which is {model.n_components}, "
    cure += "or "
    cure += f"raise max_iter, which is {model.max_iter}" if model.refit else 'use refit="output"'
    far = bool(alpha) and model.violation_ > FAR_FROM_OPTIMUM * alpha
    kind: type[Warning] = ConvergenceWarning
    # A converged refit is at least that good.
    if gap > max(model.tol, LOOSEST_REFIT_TOL) * objective:
        trouble = f"a gap of {gap:.2g} for an objective of {objective:.2g}"
        message = f"the output layer is inaccurate: {trouble}; {cure}"
    elif state.stop == "no progress" and far:
        message = (
            "training stopped because new basis vectors gained nothing, far from the optimum: "
            f"the violation is {model.violation_:.2g}, alpha {alpha:.2g}; {cure}"
        )
    elif state.stop == "n_components" and far:
        message = (
            f"training stopped at n_components={model.n_components}, and more basis vectors "
            f"would improve the model: the violation is {model.violation_ / alpha:.2g} alpha; "
            "raise n_components, or raise alpha"
        )
    elif not state.n_components and model.violation_ > 0:
        lower = "linear" if model.fit_lower == "explicit" else "constant"
        cure = f"lower alpha, which is {alpha:.3g}," if model.tau is None else "raise tau"
        message = (
            f"the model has no basis vectors and is {lower}: none is worth its penalty (the "
            f"largest violation is {model.violation_:.3g}); {cure} to fit interactions"
        )
        kind = UserWarning
    else:
        return
    warnings.warn(message, kind, stacklevel=3)
