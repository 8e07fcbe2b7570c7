"""Candidates for a block of basis vectors, from spectra, from passes over the rows, or random.

Explicit matrices give all their eigenvectors. Over rows, one lockstep Lanczos run gives
approximate eigenvectors of both ends of all spectra. For l1, and for one output, these are the
candidates. For the group penalties the ascent starts from them. They stay candidates, because a
block needs vectors that differ rather than the same few local maxima.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastpoly.kernels.eigen import EIGH_FEATURES, dominant_eigenvectors, ritz_vectors
from fastpoly.kernels.explicit import ExplicitGamma
from fastpoly.kernels.gamma import Gamma
from fastpoly.selection.ascent import (
    NORMAL,
    RESTART_FLOPS,
    THOROUGH,
    Effort,
    Floats,
    ascend,
    ascend_thoroughly,
    forms_of,
    thin,
    unit,
)
from fastpoly.selection.baselines import best_of_vertices, enumeration_flops
from fastpoly.selection.blocks import PARALLEL, Signatures
from fastpoly.selection.bounds import upper_bound
from fastpoly.selection.subspace import explore

if TYPE_CHECKING:
    from fastpoly.kernels.penalties import MatrixPenalty  # a protocol, known to type checkers only


# The most that the matrices of a thorough search may take, 8 d^2 m bytes: 1,000 features with 16
# outputs. It needs about four times as much while it works.
DENSE_BYTES = 2**27


class Candidates(NamedTuple):
    """Vectors H (r, d) from which the block is chosen, and what is known about them."""

    H: Floats
    Q: Floats | None = None  # their forms (r, m), if known
    values: Floats | None = None  # their dual norms (r,), if known
    outputs: NDArray[np.intp] | None = None  # (r,), if every vector is for one output
    bound: float = np.inf
    vectors: Floats | None = None
    n_matvecs: int = 0
    ranked: bool = False  # whether the order must be kept
    confirmed: bool = False  # whether a thorough search found nothing above the best of them


class Request(NamedTuple):
    """The checked arguments of `select_basis`."""

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


def is_dense(gamma: Gamma, request: Request) -> bool:
    """Whether to work on the matrices themselves, because that is cheapest or finds most.

    A thorough search for a group penalty forms them from the rows if it has to.
    """
    thorough = request.effort is THOROUGH
    if thorough and not _is_eigenproblem(gamma, request.penalty):
        return 8.0 * gamma.d**2 * gamma.m <= DENSE_BYTES
    many = request.n_vectors > 1 or thorough
    return isinstance(gamma, ExplicitGamma) and (many or gamma.d <= EIGH_FEATURES)


def _is_eigenproblem(gamma: Gamma, penalty: MatrixPenalty) -> bool:
    """Whether the best vectors are eigenvectors of single outputs."""
    return gamma.m == 1 or penalty.separable


def from_spectra(gamma: Gamma, request: Request) -> Candidates:
    """Candidates from explicit matrices and all their eigenvectors."""
    penalty, m, d = request.penalty, gamma.m, gamma.d
    G = gamma.dense()
    spectra, vectors = np.linalg.eigh(G)
    bound = upper_bound(G, spectra, vectors, penalty)
    # The dominant eigenvectors of all outputs, then all others, each sorted by |eigenvalue|.
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
    found = Candidates(H, bound=bound, vectors=rows[np.arange(m), dominant])
    if _is_eigenproblem(gamma, penalty):
        return _eigenvectors(found, penalty, sizes[outputs, which], outputs)
    if request.method == "l1" or sizes.max() == 0:
        return found._replace(ranked=True)
    confirmed = False
    starts = H[: m + request.effort.eigenvectors]
    if enumeration_flops(penalty, m, d) <= max(request.sign_budget, request.effort.sign_flops):
        n_best = 1 if request.n_vectors == 1 else 2 * request.n_vectors
        best, bound = best_of_vertices(G, penalty, n_best)
        confirmed = True
    elif request.effort is THOROUGH:
        points, confirmed = ascend_thoroughly(
            G, starts, penalty, request.tol, request.max_iter, request.rng,
            request.threshold or np.inf, max(request.sign_budget, RESTART_FLOPS),
        )  # fmt: skip
        best = points.Y
    else:
        best = ascend(
            G, starts, penalty, request.tol, request.max_iter, request.effort, request.rng
        ).Y
    H = best[:1] if request.n_vectors == 1 else np.vstack([best, H])
    return found._replace(H=H, Q=forms_of(G, H), bound=bound, confirmed=confirmed)


def _eigenvectors(
    found: Candidates, penalty: MatrixPenalty, sizes: Floats, outputs: NDArray[np.intp]
) -> Candidates:
    """Candidates for l1, or for one output: eigenvectors with their |eigenvalues| (r,)."""
    found = found._replace(confirmed=True)
    if penalty.separable:
        return found._replace(values=sizes, outputs=outputs)
    return found._replace(values=penalty.dual_norms(sizes[:, None]))


def from_rows(gamma: Gamma, request: Request) -> Candidates:
    """Candidates from one Lanczos run over the rows, and an ascent in their span."""
    penalty, b, m = request.penalty, request.n_vectors, gamma.m
    ritz = ritz_vectors(
        gamma,
        0 if b == 1 else 4 * b + 2 * m,
        1 if b == 1 else min(12 + 2 * b, request.effort.lanczos_steps),
        tol=request.tol,
        start=None if request.start is None else request.start.T,
        random_state=request.rng,
    )
    top = ritz.dominant
    outputs = np.argsort(-np.abs(top.values), kind="stable")
    sizes = np.abs(top.values)[outputs]
    found = Candidates(
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
    starts = found.H[: request.effort.row_starts]
    if request.signatures is not None:
        most = max(b + 4, min(m, request.effort.row_starts))
        starts = found.H[thin(request.signatures(found.H), most, PARALLEL)]
    points, passes = explore(
        gamma, starts, penalty, request.tol, request.max_iter, request.effort, request.rng
    )
    return found._replace(H=points.Y, Q=points.Q, n_matvecs=found.n_matvecs + passes)


def _every_vertex(gamma: Gamma, request: Request, found: Candidates) -> Candidates:
    """Candidates for few vertices s: each operator sum_c s_c Gamma_c counts as an output."""
    S = request.penalty.vertices(gamma.m)
    top = dominant_eigenvectors(gamma.combined(S.T), tol=request.tol, random_state=request.rng)
    best = np.argsort(-np.abs(top.values), kind="stable")
    best = best[: 1 if request.n_vectors == 1 else 2 * request.n_vectors]
    return found._replace(
        H=top.vectors[best],
        bound=float(top.bounds.max()),
        n_matvecs=found.n_matvecs + top.n_matvecs,
        confirmed=True,
    )


def from_random(gamma: Gamma, request: Request) -> Candidates:
    """One random vector, or where the ascent from it ends."""
    H = unit(request.rng.standard_normal(gamma.d))[None]
    passes = 0
    if request.method == "random+refine":
        how = request.penalty, request.tol, request.max_iter, NORMAL
        if is_dense(gamma, request):
            H = ascend(gamma.dense(), H, *how).Y[:1]
        else:
            points, passes = explore(gamma, H, *how)
            H = points.Y[:1]
    return Candidates(H, n_matvecs=passes, ranked=True)


def from_vertices(gamma: Gamma, request: Request) -> Candidates:
    """The optimum and its value, by enumeration of the vertices of the unit ball."""
    count = request.penalty.n_vertices(gamma.m)
    if count is None:
        raise ValueError(
            f"method 'exact' is for the penalties l1 and l1/linf, got {request.penalty!r}"
        )
    if _is_eigenproblem(gamma, request.penalty):
        return from_spectra(gamma, request)._replace(vectors=None)
    if gamma.m > 20:
        raise ValueError(
            "method 'exact' solves 2^(m-1) eigenproblems and takes at most 20 outputs, "
            f"got {gamma.m}; use 'refine'"
        )
    n_best = 1 if request.n_vectors == 1 else 2 * request.n_vectors
    H, bound = best_of_vertices(gamma.dense(), request.penalty, n_best)
    return Candidates(H, bound=bound, confirmed=True)
