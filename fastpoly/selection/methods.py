"""The oracles that are known by name: "refine", and those that the paper compares with it.

Eigenvectors of single outputs are the answer for l1, and for one output. For the group penalties
an ascent starts from them. They stay candidates, because a block needs vectors that differ rather
than the same few local maxima.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from fastpoly.kernels.checks import BLOCK_DOUBLES, Floats
from fastpoly.kernels.eigen import EIGH_FEATURES, dominant_eigenvectors, ritz_vectors
from fastpoly.kernels.explicit import ExplicitGamma
from fastpoly.kernels.gamma import Gamma
from fastpoly.kernels.matrix import Matrix, as_matrix
from fastpoly.rows.design import take_rows
from fastpoly.selection import ascent
from fastpoly.selection.ascent import Points, unit
from fastpoly.selection.oracle import SAME_COSINE, Request, Selection, forms_at, named

# The most that the matrices of a thorough search may take, 8 d^2 m bytes: 1,000 features with 16
# outputs. It needs about four times as much while it works.
DENSE_BYTES = 2**27
EIGENVECTOR_STARTS = 96  # of the ascent on matrices, beside one per output


@named("refine")
def refine(request: Request) -> Selection:
    """Ascend from the dominant eigenvectors; for l1 and for one output they are the optimum."""
    gamma, penalty = request.gamma, request.penalty
    if is_eigenproblem(request):
        return eigenvectors(request)
    if request.thorough and 8.0 * gamma.d**2 * gamma.m <= DENSE_BYTES:
        return search_matrices(request)
    found = eigenvectors(request)
    if found.bound == 0:
        return found
    if is_dense(request):
        return ascend_matrices(request, found)
    if request.thorough and (penalty.n_vertices(gamma.m) or np.inf) <= 64:
        return try_vertices(request, found)
    return ascend_rows(request, found)


@named("l1")
def eigenvectors(request: Request) -> Selection:
    """Eigenvectors of single outputs, the largest |eigenvalue| first; optimal for l1.

    On matrices and for a group penalty, the dominant eigenvectors of all outputs come first.
    """
    found = spectra(request) if is_dense(request) else ritz_pairs(request)
    if request.penalty.separable:
        return found._replace(confirmed=True)
    values = request.penalty.dual_norms(found.values[:, None]) if request.gamma.m == 1 else None
    return found._replace(values=values, outputs=None, confirmed=request.gamma.m == 1)


@named("random+refine")
def random_refine(request: Request) -> Selection:
    """Where the ascent from one random vector ends."""
    H, gamma = random(request).H, request.gamma
    how = request.penalty, request.tol, request.max_iter
    if is_dense(request):
        return Selection.of(ascent.ascend(gamma.dense(), H, *how).Y[:1])
    points, passes = explore(gamma, H, *how)
    return Selection.of(points.Y[:1], n_matvecs=passes)


@named("random")
def random(request: Request) -> Selection:
    """One random vector."""
    return Selection.of(unit(request.rng.standard_normal(request.gamma.d))[None])


@named("best_data")
def best_data(request: Request) -> Selection:
    """The row of X with the largest dual norm when scaled to norm 1; one block at a time."""
    gamma, data = request.gamma, request.data
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
    best, best_value = np.eye(1, gamma.d), -1.0
    for part in ascent.blocks(X.n, max(X.d, BLOCK_DOUBLES // 64)):
        rows = take_rows(X, np.arange(part.start, part.stop))
        H = np.hstack(
            [np.ones((rows.shape[0], int(X.augment))), rows.toarray() if X.sparse else rows]
        )
        H = unit(H[H.any(axis=1)])
        values = request.penalty.dual_norms(forms_at(gamma, H)) if len(H) else np.zeros(0)
        if values.max(initial=-1.0) > best_value:
            best, best_value = H[values.argmax()][None], values.max()
    return Selection.of(best)


@named("exact")
def exact(request: Request) -> Selection:
    """The optimum and its value, by enumeration of the vertices of the unit ball."""
    gamma, penalty, most = request.gamma, request.penalty, 20
    if penalty.n_vertices(gamma.m) is None:
        raise ValueError(f"method 'exact' is for the penalties l1 and l1/linf, got {penalty!r}")
    if is_eigenproblem(request):
        request = replace(request, gamma=ExplicitGamma(gamma.dense()), thorough=True)
        return eigenvectors(request)._replace(vectors=None)
    if gamma.m > most:
        raise ValueError(
            f"method 'exact' solves 2^(m-1) eigenproblems and takes at most {most} outputs, "
            f"got {gamma.m}; use 'refine'"
        )
    H, bound = ascent.best_of_vertices(gamma.dense(), penalty, _n_best(request))
    return Selection.of(H, bound=bound, confirmed=True)


def is_eigenproblem(request: Request) -> bool:
    """Whether the best vectors are eigenvectors of single outputs."""
    return request.gamma.m == 1 or request.penalty.separable


def is_dense(request: Request) -> bool:
    """Whether the matrices are explicit, and all their eigenvectors are worth the time."""
    many = request.n_vectors > 1 or request.thorough
    return isinstance(request.gamma, ExplicitGamma) and (many or request.gamma.d <= EIGH_FEATURES)


def _n_best(request: Request) -> int:
    return 1 if request.n_vectors == 1 else 2 * request.n_vectors


# ---- eigenvectors, with |eigenvalues| as values --------------------------------------------------


def spectra(request: Request) -> Selection:
    """Eigenvectors of explicit matrices."""
    m, G = request.gamma.m, request.gamma.dense()
    values, vectors = np.linalg.eigh(G)
    sizes, rows = np.abs(values), vectors.transpose(0, 2, 1)
    dominant = sizes.argmax(axis=1)
    later = np.ones(sizes.shape, dtype=bool)
    if not is_eigenproblem(request):
        later[np.arange(m), dominant] = False
    most = m + max(EIGENVECTOR_STARTS, 4 * request.n_vectors)
    order = np.lexsort((-sizes.ravel(), later.ravel()))[:most]
    outputs, which = np.unravel_index(order, sizes.shape)
    return Selection.of(
        rows[outputs, which], values=sizes[outputs, which], outputs=outputs,
        bound=ascent.upper_bound(G, request.penalty, values, vectors),
        vectors=rows[range(m), dominant],
    )  # fmt: skip


def ritz_pairs(request: Request) -> Selection:
    """Approximate eigenvectors of both ends of all spectra, from one lockstep Lanczos run."""
    b, m = request.n_vectors, request.gamma.m
    ritz = ritz_vectors(
        request.gamma,
        0 if b == 1 else 4 * b + 2 * m,
        1 if b == 1 else min(12 + 2 * b, 40),  # steps, at most; the stop rule may require more
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


# ---- the ascent on matrices ----------------------------------------------------------------------


def ascend_matrices(request: Request, found: Selection) -> Selection:
    """The best of all vertices, if they are few, or of an ascent; and the eigenvectors."""
    penalty, G = request.penalty, request.gamma.dense()
    if ascent.enumeration_flops(penalty, *G.shape[:2]) <= request.sign_budget:
        best, bound = ascent.best_of_vertices(G, penalty, _n_best(request))
        found = found._replace(bound=bound, confirmed=True)
    else:
        starts = found.H[: len(G) + EIGENVECTOR_STARTS]
        best = ascent.ascend(G, starts, penalty, request.tol, request.max_iter).Y
    H = best if request.n_vectors == 1 else np.vstack([best, found.H])
    points = ascent.points_at(G, H, penalty).best_first()
    return found._replace(H=points.Y, Q=points.Q)


def search_matrices(request: Request) -> Selection:
    """The thorough search, on the matrices themselves; it forms them if it has to.

    It may spend 5e8 operations on signs (ten classes of digits take 3.4e8, a sixth of a second),
    and 5e9 on restarts, about a quarter of a second.
    """
    penalty, rng, gamma, G = request.penalty, request.rng, request.gamma, request.gamma.dense()
    if not G.any():
        return Selection.of(np.eye(1, gamma.d), bound=0.0, confirmed=True)
    spectra = np.linalg.eigh(G) if gamma.d <= EIGH_FEATURES else ()
    starts = request.start
    if spectra:
        starts = np.vstack([spectra[1][:, :, -1], spectra[1][:, :, 0]])
    elif starts is None:
        starts = rng.standard_normal((gamma.m, gamma.d))
    threshold, budget = request.threshold or np.inf, request.sign_budget
    points, complete, exact = ascent.search_thoroughly(
        G, unit(starts), request.known, penalty, request.tol, request.max_iter, rng, threshold,
        max(budget, 5e9), max(budget, 5e8),
    )  # fmt: skip
    bound = points.values[0] if exact else ascent.upper_bound(G, penalty, *spectra)
    return Selection.of(points.Y, Q=points.Q, bound=bound, confirmed=complete)


# ---- the ascent over rows ------------------------------------------------------------------------


def try_vertices(request: Request, found: Selection) -> Selection:
    """The optimum over rows for few vertices s: each sum_c s_c Gamma_c counts as an output."""
    combined = request.gamma.combined(request.penalty.vertices(request.gamma.m).T)
    top = dominant_eigenvectors(combined, tol=request.tol, random_state=request.rng)
    best = np.argsort(-np.abs(top.values), kind="stable")[: _n_best(request)]
    passes = found.n_matvecs + top.n_matvecs
    bound = float(top.bounds.max())
    return found._replace(H=top.vectors[best], bound=bound, n_matvecs=passes, confirmed=True)


def ascend_rows(request: Request, found: Selection) -> Selection:
    """The maxima of an ascent over rows, and its starts."""
    most = 64 if request.thorough else 16  # at one pass over X each
    starts = found.H[:most]
    if request.signatures is not None:
        most = max(request.n_vectors + 4, min(request.gamma.m, most))
        starts = found.H[ascent.thin(request.signatures(found.H), most, SAME_COSINE)]
    points, passes = explore(request.gamma, starts, request.penalty, request.tol, request.max_iter)
    points = points.best_first()
    return found._replace(H=points.Y, Q=points.Q, n_matvecs=found.n_matvecs + passes)


class Subspace:
    """Gamma_c projected to the span of at most `capacity` orthonormal vectors.

    A_c = B Gamma_c B'  (m, p, p),      B (p, d)
    """

    def __init__(self, gamma: Gamma, capacity: int) -> None:
        self.gamma, self.size = gamma, 0
        self.Q = np.empty((capacity, gamma.d))
        self._images = np.empty((capacity, gamma.d, gamma.m))  # Gamma_c Q_j for all outputs
        self._A = np.empty((gamma.m, capacity, capacity))

    @property
    def basis(self) -> Floats:
        """B."""
        return self.Q[: self.size]

    @property
    def A(self) -> Floats:
        """The projected matrices."""
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
    gamma: Gamma, starts: Floats, penalty: Any, tol: float, max_iter: int
) -> tuple[Points, int]:
    """Ascend from the rows of `starts` (k, d): maxima, then the starts; and the passes over X.

    The ascent works in a subspace, at no pass over X. For the best points h the residual
    M h - (h' M h) h is the direction of the largest possible gain. It is added at the cost of one
    pass, until no residual allows a gain above the tolerance.
    """
    largest = max(4, int(np.sqrt(BLOCK_DOUBLES / gamma.m)))
    starts = starts[: largest // 2]
    space = Subspace(gamma, min(len(starts) + max_iter, largest))
    for x in starts:
        space.add(x)
    Y = starts @ space.basis.T
    start_forms = ascent.forms_of(space.A, Y)
    points = ascent.ascend(space.A, Y, penalty, tol)
    for _ in range(max_iter):
        residuals = space.residuals(points.Y, penalty.slopes(points.Q))
        # The rule of the eigen-solver: M may still add |residual| to a value.
        hopes = points.values + np.linalg.norm(residuals, axis=1)
        top = hopes.argmax()
        if hopes[top] <= (1 + tol) * points.values[0] or not space.add(residuals[top]):
            break
        points = points._replace(Y=np.pad(points.Y, ((0, 0), (0, 1))))
        points = ascent.finish(space.A, points, penalty, tol, 10)
    Q = np.vstack([points.Q, start_forms])
    H = np.vstack([points.Y @ space.basis, starts])
    return Points(H, Q, penalty.dual_norms(Q)), space.size
