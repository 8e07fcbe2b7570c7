"""Basis vector selection: the linear minimisation oracle of the conditional gradient algorithm.

    maximise  ||q(h)||_*   over |h| <= 1,      q_c(h) = h' Gamma_c h,  c < m

with the dual norm of the penalty's row: max|q| (l1), |q|_2 (l1/l2), |q|_1 (l1/linf). For l1 the
answer is an eigenvector. For the others the dominant eigenvectors of the outputs are where the
climb of `climb.py` starts from, and their eigenvalues bound what can be reached.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fastpoly.kernels.checks import as_float_array, as_generator, as_positive
from fastpoly.kernels.eigen import dominant_eigenvectors
from fastpoly.kernels.explicit import ExplicitGamma
from fastpoly.kernels.gamma import Gamma
from fastpoly.kernels.matrix import Matrix, as_matrix
from fastpoly.kernels.penalties import L1, L1L2, L1Linf, get_penalty
from fastpoly.selection.ascent import Floats, dual_norm, dual_norms, forms_of, refine, unit

if TYPE_CHECKING:
    from fastpoly.kernels.penalties import PenaltyLike  # a protocol, known to type checkers only

METHODS = ("refine", "l1", "random+refine", "random", "best_data", "exact")

DENSE_FEATURES = 48  # up to here the m spectra cost less than the passes that avoid them
MORE_STARTS = 96  # further eigenvectors to climb from, where that takes no pass over X
THOROUGH_STARTS = 1000
THOROUGH_SIGNS = 2**9  # up to here the thorough search tries all signs on small matrices,
ITERATIVE_SIGNS = 2**6  # and up to here on others, as so many more outputs
EXACT_OUTPUTS = 20
BLOCK_DOUBLES = 2**20


class Selection(NamedTuple):
    """What `select_basis` returns.

    Attributes
    ----------
    h : ndarray, (d,)
        The basis vector, of norm 1; its largest entry in size is positive.
    q : ndarray, (m,)
        The forms h' Gamma_c h: the gradient of the loss in the row of V that h would get.
    value : float
        Dual norm of q: a lower bound of the true maximum.
    bound : float
        Upper bound of the true maximum, as far as the eigen-solver's bounds hold; infinity for the
        methods that solve no eigenproblem ("random+refine", "random", "best_data").
    vectors : ndarray, (m, d), or None
        Dominant eigenvectors of the outputs: a `start` for the next selection.
    n_matvecs : int
        Passes over X for all outputs; 0 where the matrices are explicit and small.
    """

    h: Floats
    q: Floats
    value: float
    bound: float
    vectors: Floats | None
    n_matvecs: int


def select_basis(
    gamma: Gamma,
    penalty: str | PenaltyLike = "l1/l2",
    method: str = "refine",
    *,
    tol: float = 5e-3,
    max_iter: int = 30,
    start: ArrayLike | None = None,
    data: Any = None,
    thorough: bool = False,
    random_state: object = None,
) -> Selection:
    """The basis vector with the largest dual norm of its gradient row.

    Parameters
    ----------
    gamma : Gamma
    penalty : {"l1", "l1/l2", "l1/linf"} or a penalty object
        Its dual norm is what is maximised. An object of your own may be any norm of |q|.
    method : str
        ==============  =========================================================================
        "refine"        climb from the dominant eigenvectors (for l1 the same as "l1")
        "l1"            the dominant eigenvector with the largest |eigenvalue|; optimal for l1
        "random+refine" climb from one random vector
        "random"        one random vector
        "best_data"     the best row of X, scaled to norm 1; looks at all n rows
        "exact"         the optimum, for l1 and l1/linf; 2^(m-1) eigenproblems, m <= 20
        ==============  =========================================================================
    tol : float
        Relative tolerance of the eigen-solver and of the climb.
    max_iter : int
        Steps of the climb; where there are many features, directions added, a pass over X each.
    start : array-like, (m, d), optional
        Where the iterative eigen-solver begins: `vectors` of an earlier selection.
    data : Design, Matrix or array-like, (n, d), optional
        Rows for "best_data"; by default those of `gamma`, which explicit matrices do not have.
    thorough : bool
        For "refine", spare no effort: climb from many more starts, follow more of them, try all
        signs where they are few. Meant for the last word on whether a model is optimal.
    random_state : int, Generator or None

    Returns
    -------
    Selection

    Examples
    --------
    >>> import numpy as np
    >>> from fastpoly import Design, select_basis
    >>> design = Design(np.array([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]]))
    >>> result = select_basis(design.gamma([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]), "l1/l2")
    >>> np.round(result.h, 3), round(result.value, 3)
    (array([0., 1.]), 4.0)
    """
    if not isinstance(gamma, Gamma):
        raise TypeError(f"gamma must be a Gamma, made by Design.gamma(D); got {type(gamma)}")
    if method not in METHODS:
        raise ValueError(f"unknown method {method!r}; known: {', '.join(METHODS)}")
    penalty = get_penalty(penalty)
    tol = as_positive(tol, "tol")
    if isinstance(max_iter, bool) or not isinstance(max_iter, (int, np.integer)) or max_iter < 0:
        raise ValueError(f"max_iter must be an integer >= 0, got {max_iter!r}")
    if start is not None:
        start = as_float_array(start, "start", (gamma.m, gamma.d))
    rng = as_generator(random_state)
    if method == "exact":
        h, bound = _exact(gamma, penalty)
        return _result(gamma, penalty, h, bound)
    if method == "best_data":
        return _result(gamma, penalty, _best_row(gamma, penalty, data))
    dense = _few_features(gamma, thorough)
    if method.startswith("random"):
        h = unit(rng.standard_normal(gamma.d))
        passes = 0
        if method == "random+refine":
            h, passes = refine(gamma, dense, h[None], penalty, tol, max_iter)
        return _result(gamma, penalty, h, n_matvecs=passes)

    if dense is None:
        top = dominant_eigenvectors(
            gamma, tol=tol, start=None if start is None else start.T, random_state=rng
        )
        vectors, sizes, passes = top.vectors, np.abs(top.values), top.n_matvecs
        bound = dual_norm(penalty, top.bounds)
        others = np.empty((0, gamma.d))
    else:
        vectors, sizes, others, bound = _spectra(dense, penalty)
        passes = 0
    order = np.argsort(-sizes, kind="stable")
    h = vectors[order[0]]
    if method == "refine" and gamma.m > 1 and not isinstance(penalty, L1) and sizes[order[0]] > 0:
        if thorough and _few_signs(gamma, penalty):
            h, bound, more = _every_sign(gamma, tol, rng)
            passes += more
        else:
            starts = np.vstack(
                [vectors[order], others[: THOROUGH_STARTS if thorough else MORE_STARTS]]
            )
            wild = rng if thorough else None
            h, more = refine(gamma, dense, starts, penalty, tol, max_iter, wild)
            passes += more
    return _result(gamma, penalty, h, bound, vectors, passes)


def _result(
    gamma: Gamma,
    penalty: PenaltyLike,
    h: Floats,
    bound: float = np.inf,
    vectors: Floats | None = None,
    n_matvecs: int = 0,
) -> Selection:
    """Everything recomputed at h."""
    h = unit(h) * np.copysign(1.0, h[np.abs(h).argmax()])
    q = gamma.forms(h)
    value = dual_norm(penalty, q)
    return Selection(h, q, value, max(value, bound), vectors, n_matvecs)


def _few_features(gamma: Gamma, thorough: bool = False) -> Floats | None:
    """The matrices (m, d, d) where working on them is cheapest, or finds most."""
    few = isinstance(gamma, ExplicitGamma) and (thorough or gamma.d <= DENSE_FEATURES)
    return gamma.dense() if few else None


# ---- the other methods ---------------------------------------------------------------------------


def _few_signs(gamma: Gamma, penalty: PenaltyLike) -> bool:
    """Whether trying all signs is a matter of moments."""
    small = isinstance(gamma, ExplicitGamma) and gamma.d <= DENSE_FEATURES
    most = THOROUGH_SIGNS if small else ITERATIVE_SIGNS
    can = isinstance(penalty, L1Linf) and hasattr(gamma, "combined")
    return can and 2 ** (gamma.m - 1) <= most


def _signs(m: int, first: int, last: int) -> Floats:
    """Rows first..last-1 of all 2^(m-1) sign vectors, where s and -s are one."""
    return 1.0 - 2.0 * (np.arange(first, last)[:, None] >> np.arange(m) & 1)


def _every_sign(gamma: Gamma, tol: float, rng: np.random.Generator) -> tuple[Floats, float, int]:
    """The best vector for l1/linf, an upper bound of the maximum, and passes over X.

    |q|_1 is the largest s'q over signs s: the operators sum_c s_c Gamma_c are so many outputs, and
    their dominant eigenvectors are found together.
    """
    signs = _signs(gamma.m, 0, 2 ** (gamma.m - 1))
    top = dominant_eigenvectors(gamma.combined(signs.T), tol=tol, random_state=rng)
    best = np.abs(top.values).argmax()
    return top.vectors[best], float(top.bounds.max()), top.n_matvecs


def _spectra(G: Floats, penalty: PenaltyLike) -> tuple[Floats, Floats, Floats, float]:
    """Dominant eigenvectors (m, d), their |eigenvalues| (m,), all the other eigenvectors, those of
    large ones first, and an upper bound of the dual norm.
    """
    m, d, _ = G.shape
    values, vectors = np.linalg.eigh(G)
    sizes = np.abs(values)
    top = sizes.argmax(axis=1)
    every = np.arange(m)
    bounds = [dual_norm(penalty, sizes[every, top])]
    if isinstance(penalty, (L1L2, L1Linf)):
        # |q|_2^2 <= sum_c |Gamma_c h|^2 = h' (sum_c Gamma_c^2) h, and |q|_2 is at most the largest
        # singular value of the map hh' -> q.
        tall, flat = G.reshape(m * d, d), G.reshape(m, d * d)
        small = flat @ flat.T if m <= d * d else flat.T @ flat
        largest = min(_top_eigenvalue(tall.T @ tall), _top_eigenvalue(small))
        bounds.append(np.sqrt(largest) * (1 if isinstance(penalty, L1L2) else np.sqrt(m)))
    if isinstance(penalty, L1Linf):
        # |q|_1 <= h' (sum_c |Gamma_c|) h
        bounds.append(_top_eigenvalue(np.einsum("cij,cj,ckj->ik", vectors, sizes, vectors)))
    rows = vectors.transpose(0, 2, 1)
    rest = np.ones((m, d), dtype=bool)
    rest[every, top] = False
    others = rows[rest][np.argsort(-sizes[rest], kind="stable")]
    return rows[every, top], sizes[every, top], others, float(min(bounds))


def _top_eigenvalue(S: Floats) -> float:
    return np.linalg.eigvalsh(S)[-1]


def _exact(gamma: Gamma, penalty: PenaltyLike) -> tuple[Floats, float]:
    """The optimum and its value: |q|_1 is the largest s'q over signs s, where s and -s are one."""
    if not isinstance(penalty, (L1, L1Linf)):
        raise ValueError(f"method 'exact' is for the penalties l1 and l1/linf, got {penalty!r}")
    if isinstance(penalty, L1):
        vectors, sizes, _, bound = _spectra(gamma.dense(), penalty)
        return vectors[sizes.argmax()], bound
    m, d = gamma.m, gamma.d
    if m > EXACT_OUTPUTS:
        raise ValueError(
            f"method 'exact' solves 2^(m-1) eigenproblems and takes at most {EXACT_OUTPUTS} "
            f"outputs, got {m}; use 'refine'"
        )
    G = gamma.dense()
    n_signs, block = 2 ** (m - 1), max(1, BLOCK_DOUBLES // d**2)
    best, best_signs = -1.0, np.ones(m)
    for first in range(0, n_signs, block):
        signs = _signs(m, first, min(first + block, n_signs))
        ends = np.abs(np.linalg.eigvalsh(np.tensordot(signs, G, 1))[:, [0, -1]]).max(axis=1)
        top = ends.argmax()
        if ends[top] > best:
            best, best_signs = float(ends[top]), signs[top]
    values, vectors = np.linalg.eigh(np.tensordot(best_signs, G, 1))
    return vectors[:, np.abs(values).argmax()], best


def _best_row(gamma: Gamma, penalty: PenaltyLike, data: Any) -> Floats:
    """The row of X, scaled to norm 1, with the largest dual norm; a block of rows at a time."""
    if data is None:
        data = getattr(gamma, "X", None)
        if data is None:
            raise ValueError(
                "method 'best_data' needs the rows of X, which explicit matrices do not hold; "
                "pass data=design"
            )
    data = getattr(data, "matrix", data)
    X = data if isinstance(data, Matrix) else as_matrix(data)
    if X.d != gamma.d:
        raise ValueError(f"data must have {gamma.d} features, got {X.d}; pass data=design")
    forms = _many_forms(gamma)
    best, best_value = np.eye(1, gamma.d)[0], -1.0
    block = max(1, min(64, BLOCK_DOUBLES // gamma.d))
    for first in range(0, X.n, block):
        H = _rows(X, first, min(first + block, X.n))
        norms = np.linalg.norm(H, axis=1)
        H = H[norms > 0] / norms[norms > 0, None]
        values = dual_norms(penalty, forms(H))
        if len(H) and values.max() > best_value:
            best, best_value = H[values.argmax()], values.max()
    return best


def _rows(X: Matrix, first: int, last: int) -> Floats:
    """Rows first..last-1 as the kernels see them, dense, (last - first, d)."""
    H = np.zeros((last - first, X.d))
    H[:, : X.augment] = 1
    if X.sparse:
        values, indices, indptr = X.arrays
        entries = slice(indptr[first], indptr[last])
        of_row = np.repeat(np.arange(last - first), np.diff(indptr[first : last + 1]))
        H[of_row, indices[entries] + X.augment] = values[entries]
    else:
        H[:, X.augment :] = X.array[first:last]
    return H


def _many_forms(gamma: Gamma) -> Callable[[Floats], Floats]:
    """The function H (k, d) -> forms (k, m)."""
    if isinstance(gamma, ExplicitGamma):
        G = gamma.dense()
        return lambda H: forms_of(G, H)
    return lambda H: np.array([gamma.forms(h) for h in H]).reshape(len(H), gamma.m)
