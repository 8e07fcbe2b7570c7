"""Whether a fit may continue an earlier one, by a warm start or from a checkpoint."""

import re
from typing import Any

import numpy as np

from fastpoly.storage.state_file import fingerprint

# Parameters of the problem that is solved, in addition to alpha and tau.
PROBLEM = ("loss", "penalty", "block", "refit", "alpha_linear", "standardize", "class_weight")

# Parameters that do not change the model; n_components may grow between runs of a checkpoint.
NOT_IN_FINGERPRINT = {"checkpoint", "checkpoint_every", "n_components", "n_threads", "verbose"}

# How to describe y in an error where the attribute is False, and where it is True.
KINDS = {
    "_one_dimensional": ("2-D", "1-D"),
    "_multilabel": ("1-D, a class per row", "a 2-D label indicator"),
    "_has_levels": ("continuous", "of levels"),
}


def problem_key(estimator: Any) -> dict[str, Any]:
    """The values that must be the same for a warm start to continue the history."""
    strength = {"alpha": estimator.alpha} if estimator.tau is None else {"tau": estimator.tau}
    held = {"held_out": estimator.early_stopping and estimator.validation_fraction}
    return strength | held | {name: getattr(estimator, name, None) for name in PROBLEM}


def fit_fingerprint(estimator: Any, data: Any) -> str:
    """A digest of the data and of the parameters that matter."""
    values = estimator.get_params(deep=False)
    values = {k: v for k, v in values.items() if k not in NOT_IN_FINGERPRINT}
    # Objects without a repr of their own show their address, which differs between runs.
    texts = [re.sub(r" at 0x[0-9a-fA-F]+", "", f"{k}={v!r}") for k, v in sorted(values.items())]
    classes = getattr(estimator, "classes_", None)
    return fingerprint(type(estimator).__name__, *texts, classes, data.digest())


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
            f"now {now}; set warm_start=False to start from scratch"
        )
