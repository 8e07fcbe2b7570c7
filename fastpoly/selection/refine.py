"""The oracle "refine": eigenvectors, and an ascent of the dual norm from them.

Explicit matrices give all their eigenvectors. Over rows, one lockstep Lanczos run gives
approximate eigenvectors of both ends of all spectra. For l1, and for one output, these are the
candidates. For the group penalties the ascent starts from them. They stay candidates, because a
block needs vectors that differ rather than the same few local maxima.

Over rows, the ascent works in a subspace that grows in the directions of the largest gain:

    A_c = B Gamma_c B'  (m, p, p),      B (p, d) orthonormal

It holds the starts, and the ascent on the projected matrices costs no pass over X. Then, for the
best points h = B'y, the residual M h - (h' M h) h with M = sum_c w_c Gamma_c is the direction of
the largest possible gain. It is added at the cost of one pass over X, until no residual allows a
gain above the tolerance. One pass gives the images for all outputs, and so the whole projected
problem.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fastpoly.kernels.checks import BLOCK_DOUBLES
from fastpoly.kernels.eigen import EIGH_FEATURES, dominant_eigenvectors, ritz_vectors
from fastpoly.kernels.explicit import ExplicitGamma
from fastpoly.kernels.gamma import Gamma
from fastpoly.selection.ascent import (
    RESTART_FLOPS,
    Floats,
    Points,
    ascend,
    best_of_vertices,
    climb,
    enumeration_flops,
    forms_of,
    points_at,
    search_thoroughly,
    thin,
    top_eigenvectors,
    unit,
    upper_bound,
)
from fastpoly.selection.oracle import SAME_COSINE, Request, Selection, named

if TYPE_CHECKING:
    from fastpoly.kernels.penalties import MatrixPenalty  # a protocol, known to type checkers only

# The most that the matrices of a thorough search may take, 8 d^2 m bytes: 1,000 features with 16
# outputs. It needs about four times as much while it works.
DENSE_BYTES = 2**27
# What a thorough search may spend on signs: on matrices, in operations (ten classes of digits take
# 3.4e8, a sixth of a second); over rows, as the outputs of one Lanczos run.
SIGN_FLOPS, ROW_SIGNS = 5e8, 64
# Starts of the ascent: on matrices, beside one per output; over rows, at one pass over X each.
EIGENVECTOR_STARTS, ROW_STARTS = 96, 16
LANCZOS_STEPS = 40  # at most, for a block of vectors; the stop rule may require more


@named("refine")
def refine(request: Request) -> Selection:
    """Ascend from the dominant eigenvectors; for l1 and for one output they are the optimum."""
    if is_eigenproblem(request):
        return eigenvectors(request)
    if request.thorough and 8.0 * request.gamma.d**2 * request.gamma.m <= DENSE_BYTES:
        return search_matrices(request)
    found = eigenvectors(request)
    if found.bound == 0:
        return found
    if is_dense(request):
        return ascend_matrices(request, found)
    count = request.penalty.n_vertices(request.gamma.m)
    if request.thorough and count is not None and count <= ROW_SIGNS:
        return try_vertices(request, found)
    return ascend_rows(request, found)


def is_eigenproblem(request: Request) -> bool:
    """Whether the best vectors are eigenvectors of single outputs."""
    return request.gamma.m == 1 or request.penalty.separable


def is_dense(request: Request) -> bool:
    """Whether the matrices are explicit, and all their eigenvectors are worth the time."""
    many = request.n_vectors > 1 or request.thorough
    return isinstance(request.gamma, ExplicitGamma) and (many or request.gamma.d <= EIGH_FEATURES)


def eigenvectors(request: Request) -> Selection:
    """Eigenvectors of the outputs, the largest |eigenvalue| first.

    On matrices and for a group penalty, the dominant eigenvectors of all outputs come first.
    """
    found = spectra(request) if is_dense(request) else ritz_pairs(request)
    if not is_eigenproblem(request):
        return found._replace(values=None, outputs=None)
    if request.penalty.separable:
        return found._replace(confirmed=True)
    values = request.penalty.dual_norms(found.values[:, None])
    return found._replace(values=values, outputs=None, confirmed=True)


def spectra(request: Request) -> Selection:
    """Eigenvectors of explicit matrices, with their |eigenvalues| as values."""
    m, G = request.gamma.m, request.gamma.dense()
    values, vectors = np.linalg.eigh(G)
    sizes, rows = np.abs(values), vectors.transpose(0, 2, 1)
    dominant = sizes.argmax(axis=1)
    first = np.zeros(sizes.shape, dtype=bool)
    if not is_eigenproblem(request):
        first[np.arange(m), dominant] = True
    most = m + max(EIGENVECTOR_STARTS, 4 * request.n_vectors)
    order = np.lexsort((-sizes.ravel(), ~first.ravel()))[:most]
    outputs, which = np.unravel_index(order, sizes.shape)
    return Selection.of(
        rows[outputs, which], values=sizes[outputs, which], outputs=outputs,
        bound=upper_bound(G, request.penalty, values, vectors), vectors=rows[range(m), dominant],
    )  # fmt: skip


def ritz_pairs(request: Request) -> Selection:
    """Approximate eigenvectors from one Lanczos run, with their |eigenvalues| as values."""
    b, m = request.n_vectors, request.gamma.m
    ritz = ritz_vectors(
        request.gamma,
        0 if b == 1 else 4 * b + 2 * m,
        1 if b == 1 else min(12 + 2 * b, LANCZOS_STEPS),
        tol=request.tol,
        start=None if request.start is None else request.start.T,
        random_state=request.rng,
    )
    top = ritz.dominant
    H, values, outputs = ritz.vectors, ritz.values, ritz.outputs
    if b == 1:
        outputs = np.argsort(-np.abs(top.values), kind="stable")
        H, values = top.vectors[outputs], top.values[outputs]
    return Selection.of(
        H, values=np.abs(values), outputs=outputs, vectors=top.vectors, n_matvecs=top.n_matvecs,
        bound=float(request.penalty.dual_norms(top.bounds[None])[0]),
    )  # fmt: skip


def ascend_matrices(request: Request, found: Selection) -> Selection:
    """The best of all vertices, if they are few, or of an ascent; and the eigenvectors."""
    penalty, G = request.penalty, request.gamma.dense()
    if enumeration_flops(penalty, *G.shape[:2]) <= request.sign_budget:
        best, bound = best_of_vertices(G, penalty, _n_best(request))
        found = found._replace(bound=bound, confirmed=True)
    else:
        starts = found.H[: request.gamma.m + EIGENVECTOR_STARTS]
        best = ascend(G, starts, penalty, request.tol, request.max_iter).Y
    return sort(G, best if request.n_vectors == 1 else np.vstack([best, found.H]), penalty, found)


def search_matrices(request: Request) -> Selection:
    """The thorough search, on the matrices themselves; it forms them if it has to."""
    penalty, rng, gamma, G = request.penalty, request.rng, request.gamma, request.gamma.dense()
    if not G.any():
        return Selection.of(np.eye(1, gamma.d), bound=0.0, confirmed=True)
    budget = max(request.sign_budget, SIGN_FLOPS)
    if enumeration_flops(penalty, gamma.m, gamma.d) <= budget:
        H, bound = best_of_vertices(G, penalty, _n_best(request))
        return sort(G, H, penalty, Selection.of(H, bound=bound, confirmed=True))
    if gamma.d <= EIGH_FEATURES:
        values, vectors = np.linalg.eigh(G)
        starts = np.vstack([vectors[:, :, -1], vectors[:, :, 0]])
        bound = upper_bound(G, penalty, values, vectors)
    else:
        starts = rng.standard_normal((gamma.m, gamma.d)) if request.start is None else request.start
        bound = upper_bound(G, penalty)
    points, complete = search_thoroughly(
        G, unit(starts), request.known, penalty, request.tol, request.max_iter, rng,
        request.threshold or np.inf, max(request.sign_budget, RESTART_FLOPS),
    )  # fmt: skip
    return Selection.of(points.Y, Q=points.Q, bound=bound, confirmed=complete)


def _n_best(request: Request) -> int:
    return 1 if request.n_vectors == 1 else 2 * request.n_vectors


def sort(G: Floats, H: Floats, penalty: MatrixPenalty, found: Selection) -> Selection:
    """The candidates H by their dual norms, the best first."""
    points = points_at(G, H, penalty).best_first()
    return found._replace(h=points.Y[0], H=points.Y, Q=points.Q)


def try_vertices(request: Request, found: Selection) -> Selection:
    """The optimum over rows for few vertices s: each sum_c s_c Gamma_c counts as an output."""
    S = request.penalty.vertices(request.gamma.m)
    top = dominant_eigenvectors(
        request.gamma.combined(S.T), tol=request.tol, random_state=request.rng
    )
    best = np.argsort(-np.abs(top.values), kind="stable")[: _n_best(request)]
    return found._replace(
        H=top.vectors[best],
        bound=float(top.bounds.max()),
        n_matvecs=found.n_matvecs + top.n_matvecs,
        confirmed=True,
    )


def ascend_rows(request: Request, found: Selection) -> Selection:
    """The maxima of an ascent over rows, and its starts."""
    most = 4 * ROW_STARTS if request.thorough else ROW_STARTS
    starts = found.H[:most]
    if request.signatures is not None:
        most = max(request.n_vectors + 4, min(request.gamma.m, most))
        starts = found.H[thin(request.signatures(found.H), most, SAME_COSINE)]
    points, passes = explore(request.gamma, starts, request.penalty, request.tol, request.max_iter)
    points = points.best_first()
    return found._replace(H=points.Y, Q=points.Q, n_matvecs=found.n_matvecs + passes)


class Subspace:
    """Gamma_c projected to the span of at most `capacity` orthonormal vectors."""

    def __init__(self, gamma: Gamma, capacity: int) -> None:
        self.gamma = gamma
        self.Q = np.empty((capacity, gamma.d))
        self.size = 0
        self._images = np.empty((capacity, gamma.d, gamma.m))  # Gamma_c Q_j for all outputs
        self._A = np.empty((gamma.m, capacity, capacity))

    @property
    def basis(self) -> Floats:
        """The orthonormal vectors, (p, d)."""
        return self.Q[: self.size]

    @property
    def A(self) -> Floats:
        """The projected matrices, (m, p, p)."""
        return np.ascontiguousarray(self._A[:, : self.size, : self.size])

    def add(self, x: Floats) -> bool:
        """Add x at the cost of one pass over X; False if the span contains it or is full."""
        p = self.size
        x = unit(x)
        for _ in range(2):
            x = x - (self.basis @ x) @ self.basis
        norm = np.linalg.norm(x)
        if p == len(self.Q) or norm < 1e-6:
            return False
        self.Q[p] = x / norm
        image = self.gamma.matvecs(np.repeat(self.Q[p][:, None], self.gamma.m, axis=1))
        self._images[p] = image
        self.size += 1
        self._A[:, p, : p + 1] = self._A[:, : p + 1, p] = (self.basis @ image).T
        return True

    def residuals(self, Y: Floats, W: Floats) -> Floats:
        """M_k h_k - (h_k' M_k h_k) h_k for h_k = B'y_k, Y (k, p), and M_k = sum_c W_kc Gamma_c."""
        p, (_, d, m) = self.size, self._images.shape
        images = (Y @ self._images[:p].reshape(p, d * m)).reshape(len(Y), d, m)
        MH, H = np.matmul(images, W[:, :, None])[:, :, 0], Y @ self.basis
        return MH - np.einsum("kd,kd->k", H, MH)[:, None] * H


def explore(
    gamma: Gamma, starts: Floats, penalty: MatrixPenalty, tol: float, max_iter: int
) -> tuple[Points, int]:
    """Ascend from the rows of `starts` (k, d).

    Returns the maxima found and then the starts, and the number of passes over X.
    """
    largest = max(4, int(np.sqrt(BLOCK_DOUBLES / gamma.m)))
    starts = starts[: largest // 2]
    space = Subspace(gamma, min(len(starts) + max_iter, largest))
    for x in starts:
        space.add(x)
    Y = starts @ space.basis.T
    start_forms = forms_of(space.A, Y)
    points = ascend(space.A, Y, penalty, tol)
    for _ in range(max_iter):
        residuals = space.residuals(points.Y, penalty.slopes(points.Q))
        # The rule of the eigen-solver: M may still add |residual| to a value.
        hopes = points.values + np.linalg.norm(residuals, axis=1)
        top = hopes.argmax()
        if hopes[top] <= (1 + tol) * points.values[0] or not space.add(residuals[top]):
            break
        points = points._replace(Y=np.pad(points.Y, ((0, 0), (0, 1))))
        points = climb(space.A, points, penalty, tol / 10, 10, top_eigenvectors).best_first()
    Q = np.vstack([points.Q, start_forms])
    H = np.vstack([points.Y @ space.basis, starts])
    return Points(H, Q, penalty.dual_norms(Q)), space.size
