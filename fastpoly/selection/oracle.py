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
from fastpoly.kernels.eigen import EIGH_FEATURES, dominant_eigenvectors, ritz_vectors
from fastpoly.kernels.explicit import ExplicitGamma
from fastpoly.kernels.gamma import Gamma
from fastpoly.kernels.penalties import get_penalty, with_matrix_verbs
from fastpoly.selection.ascent import NORMAL, THOROUGH, Effort, Floats, ascend, forms_of, unit
from fastpoly.selection.baselines import best_of_vertices, best_row, enumeration_flops
from fastpoly.selection.blocks import PARALLEL, Signatures, choose, thin
from fastpoly.selection.bounds import upper_bound
from fastpoly.selection.subspace import explore

if TYPE_CHECKING:
    from fastpoly.kernels.penalties import MatrixPenalty, PenaltyLike  # for type checkers only

METHODS = ("refine", "l1", "random+refine", "random", "best_data", "exact")

MAX_VERTICES = 2**19  # of method "exact", in minutes: l1/linf with 20 outputs
LANCZOS_STEPS = 40  # most steps taken for the sake of a block; the stop rule may take more
MAX_STARTS = 16  # starts of the subspace if one vector is asked for, each a pass over X


class Selection(NamedTuple):
    """What `select_basis` returns: a block of b basis vectors, the best one first.

    Attributes
    ----------
    h : ndarray, (d,)
        The best basis vector, of norm 1; its largest entry in size is positive. H[0].
    q : ndarray, (m,)
        The forms h' Gamma_c h: the gradient of the loss in the row of V that h would get. Q[0].
    value : float
        Dual norm of q: a lower bound of the true maximum. values[0].
    bound : float
        Upper bound of the true maximum, as far as the eigen-solver's bounds hold; infinity for the
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
        For l1 the output that each vector is for, -1 for the other penalties.
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


class _Candidates(NamedTuple):
    """Vectors H (r, d) among which the block is chosen, and what is known of them."""

    H: Floats
    Q: Floats | None = None  # their forms (r, m), if known
    values: Floats | None = None  # their dual norms (r,), if known
    outputs: NDArray[np.intp] | None = None  # (r,), where every vector is for one output
    bound: float = np.inf
    vectors: Floats | None = None
    n_matvecs: int = 0
    ranked: bool = False  # whether the order is to be kept


class _Request(NamedTuple):
    """What was asked for, checked."""

    penalty: MatrixPenalty
    method: str
    n_vectors: int
    threshold: float
    tol: float
    max_iter: int
    start: Floats | None
    sign_budget: float
    effort: Effort
    signatures: Signatures | None
    rng: np.random.Generator


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
        Its dual norm is what is maximized. An object of your own may be any norm of |q|.
    method : str
        ==============  =========================================================================
        "refine"        ascend from the dominant eigenvectors (for l1 the same as "l1")
        "l1"            eigenvectors by |eigenvalue|, the largest first; optimal for l1
        "random+refine" ascend from one random vector
        "random"        one random vector
        "best_data"     the best row of X, scaled to norm 1; looks at all n rows
        "exact"         the optimum, for l1 and l1/linf; 2^(m-1) eigenproblems, m <= 20
        ==============  =========================================================================
    n_vectors : int
        How many vectors to return at most. Those after the first differ from the ones before:
        |cosine| < 0.9 between the vectors, or where `gamma` has rows, between their activations.
        The random methods and "best_data" return one.
    threshold : float
        The vectors after the first have dual norms above this; alpha of a penalized problem.
    tol : float
        Relative tolerance of the eigen-solver and of the ascent.
    max_iter : int
        Steps of the ascent; where there are many features, directions added, a pass over X each.
    start : array-like, (m, d), optional
        Where the iterative eigen-solver begins: `vectors` of an earlier selection.
    data : Design, Matrix or array-like, (n, d), optional
        Rows for "best_data"; by default those of `gamma`, which explicit matrices do not have.
    thorough : bool
        For "refine", search harder: more starting points, more local maxima, and all sign vectors
        for l1/linf where that is a matter of seconds. Used to confirm that a model is optimal.
    sign_budget : float
        For "refine" and l1/linf on explicit matrices: enumerate all sign vectors if that takes no
        more than about so many floating-point operations. The value is then exact, and the bound.
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
    request = _Request(
        penalty=with_matrix_verbs(get_penalty(penalty)),
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
        found = _exact(gamma, request, penalty)
    elif method == "best_data":
        found = _Candidates(best_row(gamma, request.penalty, data)[None])
    elif method.startswith("random"):
        found = _random(gamma, request)
    elif _is_dense(gamma, request):
        found = _from_spectra(gamma, request)
    else:
        found = _from_rows(gamma, request)
    return _block(gamma, request, found)


def _as_count(number: object, name: str, least: int) -> int:
    if isinstance(number, bool) or not isinstance(number, (int, np.integer)) or number < least:
        raise ValueError(f"{name} must be an integer >= {least}, got {number!r}")
    return int(number)


def _is_dense(gamma: Gamma, request: _Request) -> bool:
    """Whether to work on the matrices themselves: where that is cheapest, or finds most."""
    many = request.n_vectors > 1 or request.effort is THOROUGH
    return isinstance(gamma, ExplicitGamma) and (many or gamma.d <= EIGH_FEATURES)


def _is_eigenproblem(gamma: Gamma, penalty: MatrixPenalty) -> bool:
    """Whether the best vectors are eigenvectors of single outputs."""
    return gamma.m == 1 or penalty.separable


def _block(gamma: Gamma, request: _Request, found: _Candidates) -> Selection:
    """The best candidates that differ from one another, with what is to be told of them."""
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
    outputs = np.full(len(H), -1) if outputs is None else outputs
    return Selection(
        H[0], Q[0], float(values[0]), max(float(values[0]), found.bound), found.vectors,
        found.n_matvecs, H, Q, values, outputs,
    )  # fmt: skip


def _forms(gamma: Gamma, H: Floats) -> Floats:
    if isinstance(gamma, ExplicitGamma) and len(H) > 1:
        return forms_of(gamma.dense(), H)
    return np.array([gamma.forms(h) for h in H])


def _own_values(penalty: MatrixPenalty, Q: Floats, outputs: NDArray[np.intp] | None) -> Floats:
    """The dual norms, or the |forms| of the outputs that the vectors are for."""
    return penalty.dual_norms(Q) if outputs is None else np.abs(Q[np.arange(len(Q)), outputs])


def _from_spectra(gamma: Gamma, request: _Request) -> _Candidates:
    """Candidates from explicit matrices and all their eigenvectors."""
    penalty, m, d = request.penalty, gamma.m, gamma.d
    G = gamma.dense()
    spectra, vectors = np.linalg.eigh(G)
    bound = upper_bound(G, spectra, vectors, penalty)
    # The dominant eigenvectors of all outputs, then all others; by |eigenvalue|.
    sizes = np.abs(spectra)
    dominant = sizes.argmax(axis=1)
    first = np.zeros((m, d), dtype=bool)
    n_others = max(request.effort.eigenvectors, 4 * request.n_vectors)
    if not _is_eigenproblem(gamma, penalty):
        first[np.arange(m), dominant] = True
    order = np.lexsort((-sizes.ravel(), ~first.ravel()))[: m + n_others]
    outputs, which = np.unravel_index(order, sizes.shape)
    rows = vectors.transpose(0, 2, 1)
    H = rows[outputs, which]
    found = _Candidates(H, bound=bound, vectors=rows[np.arange(m), dominant])
    if _is_eigenproblem(gamma, penalty):
        return _eigenvectors(found, penalty, sizes[outputs, which], outputs)
    if request.method == "l1" or sizes.max() == 0:
        return found._replace(ranked=True)
    if enumeration_flops(penalty, m, d) <= max(request.sign_budget, request.effort.sign_flops):
        n_best = 1 if request.n_vectors == 1 else 2 * request.n_vectors
        best, bound = best_of_vertices(G, penalty, n_best)
    else:
        starts = H[: m + request.effort.eigenvectors]
        best = ascend(
            G, starts, penalty, request.tol, request.max_iter, request.effort, request.rng
        ).Y
    H = best[:1] if request.n_vectors == 1 else np.vstack([best, H])
    return found._replace(H=H, Q=forms_of(G, H), bound=bound)


def _eigenvectors(
    found: _Candidates, penalty: MatrixPenalty, sizes: Floats, outputs: NDArray[np.intp]
) -> _Candidates:
    """Candidates that are eigenvectors, with their |eigenvalues| (r,): for l1, or one output."""
    if penalty.separable:
        return found._replace(values=sizes, outputs=outputs)
    return found._replace(values=penalty.dual_norms(sizes[:, None]))


def _from_rows(gamma: Gamma, request: _Request) -> _Candidates:
    """Candidates from one Lanczos run over the rows, and an ascent in their span."""
    penalty, b, m = request.penalty, request.n_vectors, gamma.m
    ritz = ritz_vectors(
        gamma,
        0 if b == 1 else 4 * b + 2 * m,
        1 if b == 1 else min(12 + 2 * b, LANCZOS_STEPS),
        tol=request.tol,
        start=None if request.start is None else request.start.T,
        random_state=request.rng,
    )
    top = ritz.dominant
    outputs = np.argsort(-np.abs(top.values), kind="stable")
    sizes = np.abs(top.values)[outputs]
    found = _Candidates(
        top.vectors[outputs],
        bound=float(penalty.dual_norms(top.bounds[None])[0]),
        vectors=top.vectors,
        n_matvecs=top.n_matvecs,
    )
    if b > 1:
        found = found._replace(H=ritz.vectors)
        sizes, outputs = np.abs(ritz.values), ritz.outputs
    if _is_eigenproblem(gamma, penalty):
        return _eigenvectors(found, penalty, sizes, outputs)
    if request.method == "l1" or sizes[0] == 0:
        return found._replace(ranked=True)
    count = penalty.n_vertices(m)
    if count is not None and count <= request.effort.row_signs and hasattr(gamma, "combined"):
        return _every_vertex(gamma, request, found)
    starts = found.H[:MAX_STARTS]
    if request.signatures is not None:
        most = max(b + 4, min(m, MAX_STARTS))
        starts = found.H[thin(request.signatures(found.H), most, PARALLEL)]
    points, passes = explore(
        gamma, starts, penalty, request.tol, request.max_iter, request.effort, request.rng
    )
    return found._replace(H=points.Y, Q=points.Q, n_matvecs=found.n_matvecs + passes)


def _every_vertex(gamma: Gamma, request: _Request, found: _Candidates) -> _Candidates:
    """Candidates for few vertices s: the operators sum_c s_c Gamma_c are so many outputs."""
    S = request.penalty.vertices(gamma.m)
    top = dominant_eigenvectors(gamma.combined(S.T), tol=request.tol, random_state=request.rng)
    best = np.argsort(-np.abs(top.values), kind="stable")
    best = best[: 1 if request.n_vectors == 1 else 2 * request.n_vectors]
    return found._replace(
        H=top.vectors[best],
        bound=float(top.bounds.max()),
        n_matvecs=found.n_matvecs + top.n_matvecs,
    )


def _random(gamma: Gamma, request: _Request) -> _Candidates:
    """One random vector, or where the ascent from it ends."""
    H = unit(request.rng.standard_normal(gamma.d))[None]
    passes = 0
    if request.method == "random+refine":
        how = request.penalty, request.tol, request.max_iter, NORMAL
        if _is_dense(gamma, request):
            H = ascend(gamma.dense(), H, *how).Y[:1]
        else:
            points, passes = explore(gamma, H, *how)
            H = points.Y[:1]
    return _Candidates(H, n_matvecs=passes, ranked=True)


def _exact(gamma: Gamma, request: _Request, penalty: str | PenaltyLike) -> _Candidates:
    """The optimum and its value, by enumeration of the vertices of the unit ball."""
    count = request.penalty.n_vertices(gamma.m)
    if count is None:
        raise ValueError(f"method 'exact' is for the penalties l1 and l1/linf, got {penalty!r}")
    if count > MAX_VERTICES:
        raise ValueError(
            f"method 'exact' solves 2^(m-1) eigenproblems and takes at most "
            f"{MAX_VERTICES.bit_length()} outputs, got {gamma.m}; use 'refine'"
        )
    if _is_eigenproblem(gamma, request.penalty):
        return _from_spectra(gamma, request)._replace(vectors=None)
    n_best = 1 if request.n_vectors == 1 else 2 * request.n_vectors
    H, bound = best_of_vertices(gamma.dense(), request.penalty, n_best)
    return _Candidates(H, bound=bound)
