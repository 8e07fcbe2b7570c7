"""What a warm start asks of the earlier fit."""

from typing import Any

import numpy as np

# Parameters of the problem that is solved, beside alpha and tau.
PROBLEM = ("loss", "penalty", "block", "refit", "alpha_linear", "class_weight")

# What a y is that is not, and that is, what the attribute says.
KINDS = {
    "_one_dimensional": ("2-D", "1-D"),
    "_multilabel": ("1-D, a class a row", "a 2-D label indicator"),
    "_graded": ("continuous", "of levels"),
}


def warm_problem(estimator: Any) -> dict[str, Any]:
    """What must be the same for a warm start to continue the history."""
    strength = {"alpha": estimator.alpha} if estimator.tau is None else {"tau": estimator.tau}
    held = {"held_out": estimator.early_stopping and estimator.validation_fraction}
    return strength | held | {name: getattr(estimator, name, None) for name in PROBLEM}


def check_same_kind(estimator: Any, decoding: dict[str, Any]) -> None:
    """Raise unless predictions are decoded as in the earlier fit of the estimator."""
    for name, now in decoding.items():
        before = getattr(estimator, name)
        if np.array_equal(now, before):
            continue
        what = name
        if name in KINDS:
            what, before, now = "y", KINDS[name][before], KINDS[name][now]
        raise ValueError(
            f"warm_start=True needs the same kind of y as the earlier fit: {what} was {before}, "
            f"now {now}; set warm_start=False to start afresh"
        )
