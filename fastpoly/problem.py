"""The problem: which loss and penalty are minimized, and how strong the penalty is.

    minimize  sum_i w_i l(y_i, o_i) + alpha Omega(V) + alpha_linear / 2 |W|^2

with alpha Omega(V) replaced by Omega(V) <= tau in the constrained form.
"""

from copy import copy
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from fastpoly.kernels.checks import Floats, as_array, as_positive, shown
from fastpoly.kernels.losses import LOSSES, complete_loss, get_loss
from fastpoly.kernels.penalties import complete_penalty, get_penalty

# name: (for class codes, for signs)
SHORT_NAMES = {
    "logistic": ("multiclass_logistic", "binary_logistic"),
    "smoothed_hinge": ("smoothed_multiclass_hinge", "smoothed_binary_hinge"),
    "squared_hinge": ("multiclass_squared_hinge", "binary_squared_hinge"),
}


@dataclass(frozen=True)
class Problem:
    """Loss, penalty and strengths: what is minimized, without the rows."""

    loss: Any  # with all verbs, as the penalty; see `fastpoly.kernels.verbs`
    penalty: Any
    m: int  # number of outputs
    alpha: float | None  # strength of the penalty, or None
    tau: float | None = None  # radius of the ball, or None
    alpha_linear: float = 1.0  # ridge penalty of the linear weights

    @classmethod
    def of(
        cls, loss: Any, penalty: Any, m: int, *, alpha: float | None = None,
        tau: float | None = None, alpha_linear: float = 1.0,
    ) -> Self:  # fmt: skip
        """Check everything."""
        alpha, tau = check_strength(alpha, tau)
        ridge = as_positive(alpha_linear, "alpha_linear", or_zero=True)
        penalty = complete_penalty(get_penalty(penalty))
        return cls(complete_loss(loss), penalty, m, alpha, tau, ridge)

    def at(self, alpha: float | None, alpha_linear: float | None) -> Self:
        """The same problem with other strengths; what is None stays."""
        other = copy(self)
        if alpha is not None:
            vars(other).update(alpha=float(alpha), tau=None)
        if alpha_linear is not None:
            vars(other).update(alpha_linear=float(alpha_linear))
        return other

    def omega(self, V: Floats) -> float:
        """Omega(V)."""
        return float(self.penalty.value(V)) if len(V) else 0.0

    def penalty_value(self, V: Floats) -> float:
        """alpha Omega(V), or 0 in the constrained form."""
        return 0.0 if self.tau is not None else self.alpha * self.omega(V)

    def ridge_value(self, W: Floats | None) -> float:
        """alpha_linear / 2 |W|^2."""
        return 0.0 if W is None else 0.5 * self.alpha_linear * float(np.vdot(W, W))


def check_strength(alpha: float | None, tau: float | None) -> tuple[float | None, float | None]:
    """Check alpha (>= 0, penalized form) or tau (> 0, constrained); alpha is 1 if both are None."""
    if alpha is not None and tau is not None:
        raise ValueError("give alpha (penalized form) or tau (constrained form), not both")
    if tau is not None:
        return None, as_positive(tau, "tau")
    return as_positive(1.0 if alpha is None else alpha, "alpha", or_zero=True), None


def check_choice(value: object, name: str, known: tuple) -> None:
    """Raise unless value is one of the known ones."""
    if not isinstance(value, (str, type(None))) or value not in known:
        raise ValueError(f"unknown {name} {shown(value)}; known: {', '.join(map(repr, known))}")


def named_loss(name: str, target: str, *others: str) -> str:
    """The full name of the loss that a name stands for, with targets "label", "sign" or "real".

    Full names may be of losses for other targets, too.
    """
    short = {} if target == "real" else SHORT_NAMES
    known = {each: names[target == "sign"] for each, names in short.items()}
    known |= {each: each for each, loss in LOSSES.items() if loss.target in (target, *others)}
    check_choice(name, "loss", tuple(known))
    return known[name]


def resolve_loss(loss: Any, y: ArrayLike) -> Any:
    """The loss for a name; short names are multi-class for class codes, and binary for signs.

    (A column without a -1 looks like class codes; give the full name, such as "binary_logistic".)
    """
    if not isinstance(loss, str):
        return get_loss(loss)
    y = as_array(y, "y")
    signs = y.ndim == 2 and y.shape[1] != 1
    if not signs and y.dtype.kind in "if":
        signs = bool((y == -1).any() and (np.abs(y) == 1).all())
    return get_loss(named_loss(loss, "sign" if signs else "label", "label", "sign", "real"))


def has_log_odds(loss: Any) -> bool:
    """Whether outputs fitted with this loss, by name or as an object, are log odds."""
    if isinstance(loss, str):
        loss = LOSSES.get(SHORT_NAMES.get(loss, (loss,))[0])
    return bool(getattr(loss, "log_odds", False))
