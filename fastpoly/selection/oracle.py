"""Basis vector selection: the linear minimization oracle of the conditional gradient algorithm.

    maximize  ||q(h)||_*   over |h| <= 1,      q_c(h) = h' Gamma_c h,  c < m

with the dual norm of the penalty's row: max|q| (l1), |q|_2 (l1/l2), |q|_1 (l1/linf). For l1 the
answer is an eigenvector of one Gamma_c. For the others the ascent starts from eigenvectors, and
their eigenvalues bound what can be reached.

The oracle returns a block: the best vector, and others that violate the optimality condition and
differ from the ones before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastpoly.kernels.checks import as_float_array, as_generator, as_positive
from fastpoly.kernels.explicit import ExplicitGamma
from fastpoly.kernels.gamma import Gamma
from fastpoly.kernels.penalties import complete_penalty, get_penalty
from fastpoly.selection.ascent import NORMAL, THOROUGH, Floats, forms_of, unit
from fastpoly.selection.baselines import best_row
from fastpoly.selection.blocks import Signatures, choose
from fastpoly.selection.candidates import (
    Candidates,
    Request,
    from_random,
    from_rows,
    from_spectra,
    from_vertices,
    is_dense,
)

if TYPE_CHECKING:
    from fastpoly.kernels.penalties import MatrixPenalty, PenaltyLike  # for type checkers only

METHODS = ("refine", "l1", "random+refine", "random", "best_data", "exact")


class Selection(NamedTuple):
    """The result of `select_basis`: a block of b basis vectors, the best one first.

    Attributes
    ----------
    h : ndarray, (d,)
        The best basis vector, of norm 1; its largest entry in size is positive. H[0].
    q : ndarray, (m,)
        The forms h' Gamma_c h: the gradient of the loss in the row of V that h would get. Q[0].
    value : float
        Dual norm of q: a lower bound on the true maximum. values[0].
    bound : float
        Upper bound on the true maximum, as far as the eigen-solver's bounds hold; infinity for the
        methods that solve no eigenproblem ("random+refine", "random", "best_data").
    vectors : ndarray, (m, d), or None
        Dominant eigenvectors of the outputs: a `start` for the next selection.
    n_matvecs : int
        Passes over X for all outputs; 0 where the matrices are explicit and small.
    H : ndarray, (b, d)
        The basis vectors, each like h.
    Q : ndarray, (b, m)
        Their forms.
    values : ndarray, (b,)
        Their dual norms; for l1 the |form| of the vector's own output.
    outputs : ndarray of int, (b,)
        For l1, the output that each vector is for; -1 for the other penalties.
    confirmed : bool
        Whether `value` is the maximum as far as the package can tell. For l1, for one output and
        where all sign vectors are tried it follows from eigenvalues. Else it takes a thorough
        search whose random starts kept ending where others had; that is no proof, as `bound` is.
    """

    h: Floats
    q: Floats
    value: float
    bound: float
    vectors: Floats | None
    n_matvecs: int
    H: Floats
    Q: Floats
    values: Floats
    outputs: NDArray[np.intp]
    confirmed: bool


def select_basis(
    gamma: Gamma,
    penalty: str | PenaltyLike = "l1/l2",
    method: str = "refine",
    *,
    n_vectors: int = 1,
    threshold: float = 0.0,
    tol: float = 5e-3,
    max_iter: int = 30,
    start: ArrayLike | None = None,
    data: Any = None,
    thorough: bool = False,
    sign_budget: float = 5e5,
    random_state: object = None,
) -> Selection:
    """The basis vectors with the largest dual norms of their gradient rows.

    Parameters
    ----------
    gamma : Gamma
    penalty : {"l1", "l1/l2", "l1/linf"} or a penalty object
        Its dual norm is maximized. The dual norm of your own object may be any norm of |q|.
    method : str
        ===============  ========================================================================
        "refine"         ascend from the dominant eigenvectors (for l1 the same as "l1")
        "l1"             eigenvectors by |eigenvalue|, the largest first; optimal for l1
        "random+refine"  ascend from one random vector
        "random"         one random vector
        "best_data"      the best row of X, scaled to norm 1; looks at all n rows
        "exact"          the optimum, for l1 and l1/linf; 2^(m-1) eigenproblems, m <= 20
        ===============  ========================================================================
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
        For "refine", search harder: more starting points, more local maxima, flips of single
        signs, and all sign vectors for l1/linf if that takes less than a second. The m matrices are
        formed, if they fit in 128 MB (8 d^2 m bytes). It is used to confirm that a model is
        optimal, and ends early with vectors above a positive `threshold`.
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
    """
    if not isinstance(gamma, Gamma):
        raise TypeError(f"gamma must be a Gamma, made by Design.gamma(D); got {type(gamma)}")
    if method not in METHODS:
        raise ValueError(f"unknown method {method!r}; known: {', '.join(METHODS)}")
    n_vectors = _as_count(n_vectors, "n_vectors", 1)
    rng = as_generator(random_state)
    request = Request(
        penalty=complete_penalty(get_penalty(penalty)),
        method=method,
        n_vectors=n_vectors,
        threshold=as_positive(threshold, "threshold", or_zero=True),
        tol=as_positive(tol, "tol"),
        max_iter=_as_count(max_iter, "max_iter", 0),
        start=None if start is None else as_float_array(start, "start", (gamma.m, gamma.d)),
        sign_budget=as_positive(sign_budget, "sign_budget", or_zero=True),
        effort=THOROUGH if thorough else NORMAL,
        signatures=None if n_vectors == 1 else Signatures(gamma, rng),
        rng=rng,
    )
    if method == "exact":
        found = from_vertices(gamma, request)
    elif method == "best_data":
        found = Candidates(best_row(gamma, request.penalty, data)[None])
    elif method.startswith("random"):
        found = from_random(gamma, request)
    elif is_dense(gamma, request):
        found = from_spectra(gamma, request)
    else:
        found = from_rows(gamma, request)
    return _block(gamma, request, found)


def _as_count(number: object, name: str, least: int) -> int:
    if isinstance(number, bool) or not isinstance(number, (int, np.integer)) or number < least:
        raise ValueError(f"{name} must be an integer >= {least}, got {number!r}")
    return int(number)


def _block(gamma: Gamma, request: Request, found: Candidates) -> Selection:
    """The best candidates that differ from one another, with their certificates.

    A rule for one vector (`n_vectors=1`) belongs in `candidates.py`, where `from_spectra` and
    `_every_vertex` then keep only their best vector.
    """
    penalty, H, Q, values, outputs = request.penalty, *found[:4]
    if values is None:
        Q = _forms(gamma, H) if Q is None else Q
        values = _own_values(penalty, Q, outputs)
    order = np.arange(len(H)) if found.ranked else np.argsort(-values, kind="stable")
    if request.signatures is not None:
        groups = None if outputs is None else outputs[order]
        signatures = request.signatures(H[order])
        order = order[
            choose(values[order], signatures, request.n_vectors, request.threshold, groups)
        ]
    order = order[: request.n_vectors]
    H = unit(H[order])
    H *= np.copysign(1.0, H[np.arange(len(H)), np.abs(H).argmax(axis=1)])[:, None]
    Q = _forms(gamma, H) if Q is None else Q[order]
    Q[0] = gamma.forms(H[0])
    outputs = None if outputs is None else outputs[order]
    values = _own_values(penalty, Q, outputs)
    if not np.isfinite(values[0]):
        raise ValueError("Gamma overflows; scale the data or the loss gradients down")
    outputs = np.full(len(H), -1) if outputs is None else outputs
    return Selection(
        H[0], Q[0], float(values[0]), max(float(values[0]), found.bound), found.vectors,
        found.n_matvecs, H, Q, values, outputs, found.confirmed,
    )  # fmt: skip


def _forms(gamma: Gamma, H: Floats) -> Floats:
    if isinstance(gamma, ExplicitGamma) and len(H) > 1:
        return forms_of(gamma.dense(), H)
    return np.array([gamma.forms(h) for h in H])


def _own_values(penalty: MatrixPenalty, Q: Floats, outputs: NDArray[np.intp] | None) -> Floats:
    """The dual norms, or the |forms| of the outputs that the vectors are for."""
    return penalty.dual_norms(Q) if outputs is None else np.abs(Q[np.arange(len(Q)), outputs])
