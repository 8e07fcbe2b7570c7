"""The problem: which loss and penalty are minimized, for which targets. All checks are here.

    minimize  sum_i w_i l(y_i, o_i) + alpha Omega(V) + alpha_linear / 2 |W|^2

with alpha Omega(V) replaced by Omega(V) <= tau in the constrained form.
"""

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastpoly.kernels.checks import LARGEST, as_array, as_positive, as_weights
from fastpoly.kernels.losses import LOSSES, complete_loss, get_loss
from fastpoly.kernels.penalties import complete_penalty, get_penalty

Floats = NDArray[np.float64]

# A fit is perfect when its objective is below this share of the loss of a model without parameters:
# tolerances are not relative to anything smaller.
PERFECT = 1e-6

# name: (for class codes, for signs)
SHORT_NAMES = {
    "logistic": ("multiclass_logistic", "binary_logistic"),
    "smoothed_hinge": ("smoothed_multiclass_hinge", "smoothed_binary_hinge"),
    "squared_hinge": ("multiclass_squared_hinge", "binary_squared_hinge"),
}


@dataclass(frozen=True)
class Problem:
    """Loss, penalty, targets and strengths; made by `Problem.of`, which checks them.

    Attributes
    ----------
    loss, penalty : object
        Those that were given, with all verbs; see `fastpoly.kernels.verbs`.
    Y : ndarray, (n, 1 or m)
        Targets in the form of the loss; for rows in shards, one row per class.
    m : int
        Number of outputs.
    w : ndarray, (n,), or None
        Sample weights; for rows in shards, the weights of the classes.
    alpha, tau : float or None
        Strength of the penalty, or radius of the ball; one of them is None.
    alpha_linear : float
        Ridge penalty of the linear weights.
    small : float
        Tolerances are relative to the objective, or to this number where the objective is smaller.
        That is a perfect fit, whose objective may keep falling.
    """

    loss: Any
    penalty: Any
    Y: Floats = field(repr=False)
    m: int
    w: Floats | None = field(repr=False)
    alpha: float | None
    tau: float | None
    alpha_linear: float
    small: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "loss", complete_loss(self.loss))
        object.__setattr__(self, "penalty", complete_penalty(self.penalty))

    @classmethod
    def of(
        cls,
        n_samples: int,
        y: ArrayLike,
        *,
        loss: Any = "logistic",
        penalty: Any = "l1/l2",
        alpha: float | None = None,
        tau: float | None = None,
        alpha_linear: float = 1.0,
        sample_weight: ArrayLike | None = None,
        n_outputs: int | None = None,
    ) -> Self:
        """Check everything and encode the targets of `n_samples` rows."""
        alpha, tau = check_strength(alpha, tau)
        loss, penalty = resolve_loss(loss, y), get_penalty(penalty)
        Y, m = encode(loss, y, n_outputs, n_samples)
        w = as_weights(sample_weight, "sample_weight", n_samples, some=True)
        ridge = as_positive(alpha_linear, "alpha_linear", or_zero=True)
        nothing = float(loss.value(Y, np.zeros((n_samples, m)), w))
        return cls(loss, penalty, Y, m, w, alpha, tau, ridge, small_objective(nothing))

    def size(self, objective: float) -> float:
        """The number to which tolerances are relative."""
        return max(abs(objective), self.small)

    def omega(self, V: Floats) -> float:
        """Omega(V)."""
        return float(self.penalty.value(V)) if len(V) else 0.0

    def penalty_value(self, V: Floats) -> float:
        """alpha Omega(V), or 0 in the constrained form."""
        return 0.0 if self.tau is not None else self.alpha * self.omega(V)

    def ridge_value(self, W: Floats | None) -> float:
        """alpha_linear / 2 |W|^2."""
        return 0.0 if W is None else 0.5 * self.alpha_linear * float(np.vdot(W, W))


def small_objective(nothing: float) -> float:
    """The objective below which a fit is perfect, given the loss of a model without parameters."""
    largest = LARGEST**2  # the squared loss of targets of the largest size
    if nothing and not 1 / largest <= nothing <= largest:
        raise ValueError(
            f"the loss of a model without parameters is {nothing:.1e}, beyond "
            f"{1 / largest:g}..{largest:g}; rescale y or sample_weight"
        )
    return PERFECT * nothing


def problem_options(options: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `conditional_gradient` that belong to the problem, without strengths."""
    known = ("loss", "penalty", "alpha_linear", "sample_weight", "n_outputs")
    return {name: options[name] for name in known if name in options}


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
        raise ValueError(f"unknown {name} {value!r}; known: {', '.join(map(repr, known))}")


def resolve_loss(loss: Any, y: ArrayLike) -> Any:
    """The loss for a name, where the short names depend on the targets.

    "logistic", "smoothed_hinge" and "squared_hinge" are the multi-class losses for class codes and
    the binary ones for a matrix of signs, or for one column of -1 and +1. (A column without a -1
    looks like class codes; give the full name then, such as "binary_logistic".)
    """
    if not isinstance(loss, str) or loss not in SHORT_NAMES:
        if isinstance(loss, str) and loss not in LOSSES:
            known = ", ".join([*SHORT_NAMES, *LOSSES])
            raise ValueError(f"unknown loss {loss!r}; known: {known}")
        return get_loss(loss)
    y = as_array(y, "y")
    signs = y.ndim == 2 and y.shape[1] != 1
    if not signs and y.dtype.kind in "if":
        signs = bool((y == -1).any() and (np.abs(y) == 1).all())
    return get_loss(SHORT_NAMES[loss][signs])


def has_log_odds(loss: Any) -> bool:
    """Whether outputs fitted with this loss, by name or as an object, are log odds.

    Probabilities follow from log odds. An object says so by an attribute `log_odds`.
    """
    if isinstance(loss, str):
        loss = LOSSES.get(SHORT_NAMES.get(loss, (loss,))[0])
    return bool(getattr(loss, "log_odds", False))


def named_loss(name: str, target: str) -> str:
    """The full name of the loss that a name stands for, with targets "label", "sign" or "real".

    Every registered loss can be used by its name where it takes such targets.
    """
    if name in SHORT_NAMES and target != "real":
        return SHORT_NAMES[name][target == "sign"]
    if name in LOSSES and LOSSES[name].target == target:
        return name
    known = [*SHORT_NAMES] if target != "real" else []
    known += [each for each, loss in LOSSES.items() if loss.target == target]
    raise ValueError(f"unknown loss {name!r}; known: {', '.join(map(repr, known))}")


def encode(loss: Any, y: ArrayLike, n_outputs: int | None, n_samples: int) -> tuple[Floats, int]:
    """Check the targets; return them in the form of the loss, and the number of outputs."""
    Y = complete_loss(loss).encode(y, n_outputs)
    if len(Y) != n_samples:
        raise ValueError(f"y has {len(Y)} samples, X has {n_samples}")
    if not n_samples:
        raise ValueError("there are no samples: X and y are empty")
    if n_outputs is None:
        n_outputs = int(Y.max()) + 1 if loss.target == "label" else Y.shape[1]
        # Codes far beyond the number of samples are labels that were never encoded.
        if loss.target == "label" and n_outputs > 10 * n_samples:
            raise ValueError(
                f"y holds the class code {n_outputs - 1}, but there are only {n_samples} samples; "
                "number the classes 0 .. m - 1, e.g. with np.unique(y, return_inverse=True), or "
                "pass n_outputs"
            )
    return Y, n_outputs
