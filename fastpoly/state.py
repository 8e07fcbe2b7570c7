"""The state that one step of Algorithm 1 yields, and the check that a run can start from it."""

from dataclasses import dataclass, field
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from fastpoly.kernels.checks import Floats, as_float_array

STOPS = (None, "optimal", "unconfirmed", "n_components", "no progress", "max_iter")
TIMED = ("gradient", "selection", "refit")


class Model(NamedTuple):
    """The parameters: o(x) = V's(H x) + intercept + linear'x."""

    H: Floats  # basis vectors, (k, d)
    V: Floats  # output layer, (k, m)
    intercept: Floats  # (m,)
    linear: Floats | None  # linear weights, (d, m), with fit_lower="explicit"

    def append(self, H: Floats, V: Floats) -> Self:
        """The model with further basis vectors."""
        return self._replace(H=np.vstack([self.H, H]), V=np.vstack([self.V, V]))

    def keep(self, rows: NDArray) -> Self:
        """The model with these basis vectors only."""
        return self._replace(H=self.H[rows], V=self.V[rows])

    def nonzero(self) -> Self:
        """The model without the basis vectors that no output uses."""
        return self.keep(self.V.any(axis=1))


class RunMemory(NamedTuple):
    """What a run remembers of its earlier rounds."""

    seed: int = 0  # the random numbers of every round are derived from it
    recent: tuple[float, ...] = ()  # objectives of the last states, to detect a lack of progress
    vectors: Floats | None = None  # eigenvectors from which the selection starts, (m, d)
    spent: int = 0  # iterations of all refits


@dataclass(frozen=True)
class State:
    """One step of Algorithm 1: a model and what is known of its optimality.

    Attributes
    ----------
    H : ndarray, (k, n_features)
        Basis vectors, of norm at most 1.
    V : ndarray, (k, m)
        Output layer.
    intercept : ndarray, (m,)
    linear : ndarray, (d, m) or None
        Linear weights, with fit_lower="explicit".
    objective : float
        Loss, plus penalty in the penalized form, plus the ridge of the linear weights.
    loss : float
        sum_i w_i l(y_i, o_i): a sum over the rows, not a mean.
    penalty : float
        Omega(V).
    violation : float
        The largest dual norm of a gradient row that was found: a lower bound on Omega*(G). In the
        penalized form the model is optimal when Omega*(G) <= alpha.
    violation_bound : float
        Upper bound on Omega*(G), as far as the eigen-solver's bounds hold.
    gap, gap_found : float
        Constrained form: the duality gap with `violation_bound`, an upper bound on
        objective - optimum, and with `violation`, which the true gap may exceed. NaN otherwise.
        Linear terms that no penalty bounds (an intercept, or all of them with alpha_linear = 0)
        enter as if their optimum were near (see `fastpoly.refit.Refit`); with nearly collinear
        features and alpha_linear = 0 the gap can be far too small.
    n_iter : int
        Rounds so far.
    stop : str or None
        Why the run ends here; None if it continues. "optimal": within the tolerance, no basis
        vector would improve the model, and the refit is accurate. "unconfirmed": the same, but
        the search for such vectors was not thorough, and the true violation may be larger. That
        is so with finish=False, and for l1/l2 and l1/linf where the m matrices of a thorough
        search do not fit in 128 MB (8 d^2 m bytes). "n_components": the model is full. "no
        progress": further rounds gain almost nothing (for a tol far below 1e-3 this often comes
        first). "max_iter": the refit ran out of iterations, or all refits of the run together.
    refit_gap : float
        Duality gap of this model among those with the same basis vectors. It is an upper bound on
        its error, up to the rows that nothing bounds (see `fastpoly.refit.Refit`).
    timings : dict
        Seconds so far in "gradient", "selection" and "refit".
    alpha, tau : float or None
    alpha_linear : float
    own_dual_norm : float
        The largest dual norm of a gradient row of the model's own basis vectors.
    memory : RunMemory
        What a run that starts here needs to go on as if it had not been interrupted.
    """

    H: Floats
    V: Floats
    intercept: Floats
    linear: Floats | None
    objective: float
    loss: float
    penalty: float
    violation: float = np.nan
    violation_bound: float = np.nan
    gap: float = np.nan
    gap_found: float = np.nan
    n_iter: int = 0
    stop: str | None = None
    refit_gap: float = np.nan
    timings: dict[str, float] = field(default_factory=dict)
    alpha: float | None = None
    tau: float | None = None
    alpha_linear: float = np.nan
    own_dual_norm: float = np.nan
    memory: RunMemory = field(default=RunMemory(), repr=False)

    @property
    def refit_gain(self) -> float:
        """An estimate of the gain of a refit of V.

        For a small alpha `refit_gap` is far larger, because it lets Omega of the best model be
        objective / alpha. Here Omega is that of this model.
        """
        if self.alpha is None or not self.n_components:
            return self.refit_gap
        return min(self.refit_gap, (self.own_dual_norm - self.alpha) * self.penalty)

    @property
    def model(self) -> Model:
        """The parameters."""
        return Model(self.H, self.V, self.intercept, self.linear)

    @property
    def n_components(self) -> int:
        """Number of basis vectors."""
        return len(self.H)


def check_start(start: State, d: int, m: int, explicit: bool) -> None:
    """Raise unless the state is consistent and can be a model of d features and m outputs."""
    if not isinstance(start, State):
        raise TypeError(f"start must be a State of an earlier run, got {type(start)}")
    for name in ("H", "V"):
        as_float_array(getattr(start, name), f"start.{name}", (None, None))
    (k, features), outputs = start.H.shape, start.V.shape[1]
    if (features, outputs) != (d, m):
        raise ValueError(
            f"start has {features} features and {outputs} outputs, the data {d} and {m}"
        )
    if (start.linear is None) == explicit:
        raise ValueError('start and design must both have fit_lower="explicit", or neither of them')
    for name, array, shape in (
        ("V", start.V, (k, m)),
        ("intercept", start.intercept, (m,)),
        ("linear", start.linear, (d, m)),
        ("memory.vectors", start.memory.vectors, (m, d)),
    ):
        if array is not None:
            as_float_array(array, f"start.{name}", shape)
    norm = float(np.linalg.norm(start.H, axis=1).max(initial=0.0))
    if norm > 1 + 1e-6:
        raise ValueError(f"start.H must have rows of norm at most 1, got {norm}; scale them")
    if not np.isfinite(start.objective):
        raise ValueError(f"start.objective must be finite, got {start.objective}")
