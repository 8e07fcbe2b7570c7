"""Basis vector selection: the linear minimization oracle of the conditional gradient algorithm.

    maximize  ||q(h)||_*   over |h| <= 1,      q_c(h) = h' Gamma_c h,  c < m

with the dual norm of the penalty's row: max|q| (l1), |q|_2 (l1/l2), |q|_1 (l1/linf). An oracle
proposes candidates. Here they are checked, and a block of them is chosen.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from fastpoly.kernels import checks
from fastpoly.kernels.checks import Floats, shown
from fastpoly.kernels.explicit import ExplicitGamma
from fastpoly.kernels.features import ACTIVATIONS, make_features
from fastpoly.kernels.gamma import Gamma, RowGamma
from fastpoly.kernels.matrix import Matrix, as_matrix
from fastpoly.kernels.penalties import complete_penalty, get_penalty
from fastpoly.kernels.summed import SummedGamma
from fastpoly.rows.design import take_rows
from fastpoly.selection.ascent import forms_of, thin, unit, unit_or_zero

# |cosine| at which two candidates count as one. With 0.99, l1/linf on digits takes 1.4 times as
# long, because neighbors enter that do not help.
SAME_COSINE = 0.9

Signatures = Callable[[Floats], Floats]


@dataclass(frozen=True)
class Request:
    """What an oracle is asked for.

    An oracle is a callable ``oracle(request)`` that returns unit vectors H, an array (b, d) with at
    least one row, or a `Selection` (of `select_basis`, for example). It may return more vectors
    than asked for: the best ones that differ are chosen. It draws only from `rng`, so that a fit
    can be repeated. What an own oracle finds is a lower bound, and nothing else about it is
    believed: a fit is called optimal only if the package's own thorough search agrees.

    Attributes
    ----------
    gamma, penalty, n_vectors, threshold, tol, max_iter, data, known, sign_budget
        As for `select_basis`, checked. Use `gamma.d`, `gamma.m`, `gamma.forms(h)`,
        `gamma.matvecs(B)`, `gamma.combine(w, h)`, `gamma.dense()`, (m, d, d), where d is small, and
        `penalty.dual_norms(Q)`, the values of forms Q (b, m).
    start : ndarray, (m, d), or None
        Dominant eigenvectors of the outputs in an earlier round.
    rng : numpy.random.Generator
    thorough : bool
        Whether to search harder; own oracles are never asked to.
    signatures : callable or None
        Takes vectors (b, d) to unit vectors whose cosines tell which of them count as one; None if
        one vector is asked for.
    """

    gamma: Gamma
    penalty: Any
    n_vectors: int
    threshold: float
    tol: float
    max_iter: int
    start: Floats | None
    rng: np.random.Generator
    data: Any
    thorough: bool
    known: Floats
    sign_budget: float
    signatures: Signatures | None


class Selection(NamedTuple):
    """The result of `select_basis`: a block of b basis vectors, the best one first.

    `confirmed` says whether `value` is the maximum as far as the package can tell. For l1, for one
    output and where all sign vectors are tried it follows from eigenvalues. Else it takes a
    thorough search whose random starts kept ending where others had; that is no proof, as `bound`.
    """

    h: Floats  # the best vector, H[0], (d,)
    H: Floats  # vectors of norm 1; the largest entry of each in size is positive, (b, d)
    Q: Any = None  # forms h' Gamma_c h, the gradients in the rows of V that they would get, (b, m)
    values: Any = None  # dual norms of Q; for l1 the |form| of the vector's own output, (b,)
    outputs: Any = None  # for l1, the output that each is for; -1 for other penalties, (b,)
    bound: float = np.inf  # on the true maximum; infinite for methods without eigenproblems
    vectors: Floats | None = None  # dominant eigenvectors, a `start` for the next selection, (m, d)
    n_matvecs: int = 0  # passes over X for all outputs; 0 where matrices are explicit and small
    confirmed: bool = False

    @property
    def q(self) -> Floats:
        """The forms of the best vector, (m,). Q[0]."""
        return self.Q[0]

    @property
    def value(self) -> float:
        """The dual norm of the best vector: a lower bound on the true maximum. values[0]."""
        return float(self.values[0])

    @classmethod
    def of(cls, H: Floats, **known: Any) -> Self:
        """Candidates H (r, d), the best first, and what an oracle knows about them."""
        return cls(H[0], H, **known)


Oracle = Callable[[Request], "ArrayLike | Selection"]
ORACLES: dict[str, Oracle] = {}


def named(name: str) -> Callable[[Any], Any]:
    """Make an oracle of the package known by name."""
    return lambda oracle: ORACLES.setdefault(name, oracle)


METHODS = ORACLES.keys()


def as_oracle(oracle: object, name: str) -> Oracle:
    """The oracle of that name, or the callable itself; ValueError or TypeError for others."""
    known = ", ".join(map(repr, METHODS))
    if isinstance(oracle, str):
        if oracle not in ORACLES:
            raise ValueError(f"unknown {name} {shown(oracle)}; known: {known}, or a callable")
        return ORACLES[oracle]
    if not callable(oracle):
        raise TypeError(f"{name} must be one of {known}, or a callable, got {oracle!r}")
    return oracle


def select_basis(
    gamma: Gamma,
    penalty: Any = "l1/l2",
    method: str | Oracle = "refine",
    *,
    n_vectors: int = 1,
    threshold: float = 0.0,
    tol: float = 5e-3,
    max_iter: int = 30,
    start: ArrayLike | None = None,
    data: Any = None,
    thorough: bool = False,
    known: ArrayLike | None = None,
    sign_budget: float = 5e5,
    random_state: object = None,
) -> Selection:
    """The basis vectors with the largest dual norms of their gradient rows.

    Parameters
    ----------
    gamma : Gamma
    penalty : {"l1", "l1/l2", "l1/linf"} or a penalty object
        Its dual norm is maximized. The dual norm of your own object may be any norm of |q|.
    method : str or callable
        ===============  ========================================================================
        "refine"         ascend from the dominant eigenvectors (for l1 the same as "l1")
        "l1"             eigenvectors by |eigenvalue|, the largest first; optimal for l1
        "random+refine"  ascend from one random vector
        "random"         one random vector
        "best_data"      the best row of X, scaled to norm 1; looks at all n rows
        "exact"          the optimum, for l1 and l1/linf; 2^(m-1) eigenproblems, m <= 20
        ===============  ========================================================================

        A callable takes a `fastpoly.selection.Request`, which says what it is asked for, and
        returns unit vectors (b, d).
    n_vectors : int
        Largest number of vectors to return. Each one after the first differs from those before it:
        |cosine| < 0.9 between the vectors or, if `gamma` has rows, between their activations.
        The random methods and "best_data" return one vector.
    threshold : float
        The vectors after the first have dual norms above this. In a penalized problem it is alpha.
    tol : float
        Relative tolerance of the eigen-solver and of the ascent.
    max_iter : int
        Steps of the ascent; with many features, directions added, at one pass over X each.
    start : array-like, (m, d), optional
        Start of the iterative eigen-solver: `vectors` of an earlier selection.
    data : Design, Matrix or array-like, (n, d), optional
        Rows for "best_data"; by default those of `gamma`, which explicit matrices do not have.
    thorough : bool
        For "refine", search harder: flips of single signs, random restarts until they find nothing
        new, and all sign vectors for l1/linf if that takes less than a second. The m matrices are
        formed, if they fit in 128 MB (8 d^2 m bytes). It is used to confirm that a model is
        optimal, and ends early with vectors above a positive `threshold`.
    known : array-like, (k, d), optional
        Basis vectors of the model, where a thorough search expects its restarts to end.
    sign_budget : float
        For "refine" and l1/linf on explicit matrices: enumerate all sign vectors if that takes at
        most about this many floating-point operations. Value and bound are then exact.
    random_state : int, Generator or None

    Returns
    -------
    Selection

    Examples
    --------
    >>> import numpy as np
    >>> from fastpoly import Design, select_basis
    >>> design = Design(np.array([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]]))
    >>> gamma = design.gamma([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    >>> result = select_basis(gamma, "l1/l2")
    >>> np.round(result.h, 3), round(result.value, 3)
    (array([0., 1.]), 4.0)
    >>> np.round(select_basis(gamma, "l1/l2", n_vectors=5).H, 3)
    array([[0., 1.],
           [1., 0.]])

    Your own oracle, here one that looks along the axes:

    >>> select_basis(gamma, "l1/l2", lambda request: np.eye(request.gamma.d)).h
    array([0., 1.])
    """
    if not isinstance(gamma, Gamma):
        raise TypeError(f"gamma must be a Gamma, made by Design.gamma(D); got {type(gamma)}")
    oracle = as_oracle(method, "method")
    b, rng = checks.as_count(n_vectors, "n_vectors"), checks.as_generator(random_state)
    shape, known = (gamma.m, gamma.d), np.empty((0, gamma.d)) if known is None else known
    request = Request(
        gamma=gamma,
        penalty=complete_penalty(get_penalty(penalty)),
        n_vectors=b,
        threshold=checks.as_positive(threshold, "threshold", or_zero=True),
        tol=checks.as_positive(tol, "tol"),
        max_iter=checks.as_count(max_iter, "max_iter", or_zero=True),
        start=None if start is None else checks.as_float_array(start, "start", shape),
        rng=rng,
        data=data,
        thorough=checks.as_flag(thorough, "thorough"),
        known=checks.as_float_array(known, "known", (None, gamma.d)),
        sign_budget=checks.as_positive(sign_budget, "sign_budget", or_zero=True),
        signatures=None if b == 1 else make_signatures(gamma, rng),
    )
    found = oracle(request)
    if oracle not in ORACLES.values():
        found = _check(found, oracle, request)
    return choose_block(request, found)


def _check(found: Any, oracle: Oracle, request: Request) -> Selection:
    """The vectors that an own oracle found, sorted; what it says about them is not believed."""
    what = f"what the oracle {getattr(oracle, '__name__', oracle)!r} returns"
    H = found.H if isinstance(found, Selection) else found
    H = checks.as_float_array(H, what, (None, request.gamma.d))
    if not len(H):
        raise ValueError(f"{what} must have at least one row, got none")
    norms = np.linalg.norm(H, axis=1)
    worst = np.abs(norms - 1).argmax()
    if abs(norms[worst] - 1) > 1e-6:
        raise ValueError(f"{what} must have rows of norm 1; row {worst} has norm {norms[worst]}")
    Q = forms_at(request.gamma, H)
    order = np.argsort(-request.penalty.dual_norms(Q), kind="stable")
    return Selection.of(H[order], Q=Q[order])


def choose_block(request: Request, found: Selection) -> Selection:
    """The best candidates that differ from one another and, after the first, exceed the threshold.

    For l1, only candidates for the same output are compared.
    """
    gamma, penalty, H, Q, values, outputs = request.gamma, request.penalty, *found[1:5]
    if values is None:
        Q = forms_at(gamma, H) if Q is None else Q
        values = penalty.dual_norms(Q)
    chosen = np.arange(1)
    if request.signatures is not None:
        chosen = np.flatnonzero((values > request.threshold) | (np.arange(len(H)) == 0))
        groups = None if outputs is None else outputs[chosen]
        signatures = request.signatures(H[chosen])
        chosen = chosen[thin(signatures, request.n_vectors, SAME_COSINE, groups)]
    H = unit(H[chosen])
    H *= np.copysign(1.0, H[np.arange(len(H)), np.abs(H).argmax(axis=1)])[:, None]
    Q = forms_at(gamma, H) if Q is None else Q[chosen]
    Q[0] = gamma.forms(H[0])
    outputs = np.full(len(H), -1) if outputs is None else outputs[chosen]
    own = np.abs(Q[np.arange(len(Q)), outputs])
    values = own if outputs[0] >= 0 else penalty.dual_norms(Q)
    if not np.isfinite(values[0]):
        raise ValueError("Gamma overflows; scale the data or the loss gradients down")
    bound = max(float(values[0]), found.bound)
    return found._replace(h=H[0], H=H, Q=Q, values=values, outputs=outputs, bound=bound)


def forms_at(gamma: Gamma, H: Floats) -> Floats:
    """h' Gamma_c h for the rows of H, (b, m)."""
    if isinstance(gamma, ExplicitGamma) and len(H) > 1:
        return forms_of(gamma.dense(), H)
    return np.array([gamma.forms(h) for h in H])


def make_signatures(gamma: Gamma, rng: np.random.Generator) -> Signatures:
    """A function that takes H (k, d) to unit vectors whose cosines say how alike its rows are.

    These are activations on sampled rows, (k, n), or H itself where there are no rows.
    """
    # With as many candidates as rows, the activations fill one block of memory. The sampling error
    # of a cosine is then about 1 / 32.
    n_rows, activations = math.isqrt(checks.BLOCK_DOUBLES), np.transpose
    if isinstance(gamma, RowGamma):
        rows, activation = sample_rows(gamma.X, n_rows, rng), ACTIVATIONS[gamma.anova]
        activations = lambda H: make_features(rows, H, activation).activations()  # noqa: E731
    elif isinstance(gamma, SummedGamma) and gamma.sample is not None:
        activations = gamma.sample(n_rows, rng)
    return lambda H: unit_or_zero(activations(H).T)


def sample_rows(X: Matrix, most: int, rng: np.random.Generator) -> Matrix:
    """At most so many distinct rows of X, drawn at random."""
    if X.n <= most:
        return X
    return as_matrix(take_rows(X, np.unique(rng.integers(X.n, size=most))), bool(X.augment))
