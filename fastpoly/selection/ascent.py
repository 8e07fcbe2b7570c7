"""Monotone ascent of ||q(h)||_* over |h| <= 1 on m explicit matrices.

    q_c(h) = h' G_c h,   G (m, p, p),   M(w) = sum_c w_c G_c,   w = slopes of ||.||_* at q(h)

The problem is not convex in h, but the dual norm is convex in q. So a step to any h+ with
h+' M h+ >= h' M h never loses:

    ||q(h+)||_* >= w'q(h+) = h+' M h+ >= h' M h = ||q(h)||_*.

Two such steps are used. The best vector of span{h, M h, last step} is cheap, and is taken from many
starts at once. The top eigenvector of M is the best step, and is taken from the few best points.

There are many local maxima. The plain search starts from eigenvectors. Its cheap steps use slopes
of a smoothed dual norm, because with plain signs an eigenvector of G_c is often a fixed point
already (multi-class gradients sum to zero over the outputs).

The thorough search asks whether there is anything above a threshold. It adds flips, where the dual
norm has kinks (at a maximum with slopes w, negate one w_c at a time and ascend from the top
eigenvector of M there: for l1/linf, a local search over the signs), and restarts, plain ascents
from random points. At an optimum the model's own vectors are maxima, so most restarts end at one of
them. The share of restarts that end at a maximum which nothing else led to estimates the chance
that one more finds a new one (Good and Turing). Only if it is small the search counts as complete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dsyevr

from fastpoly.kernels.checks import BLOCK_DOUBLES

if TYPE_CHECKING:
    from fastpoly.kernels.penalties import MatrixPenalty  # a protocol, known to type checkers only

Floats = NDArray[np.float64]

SAME_POINT = 0.99  # |cosine| at which two points of the ascent count as one
# Steps from all starts, and how many of the points are then followed to the end. A point stops when
# a step gains less than a share of the tolerance.
CHEAP_STEPS, FOLLOWED = 5, 3
STOP_SHARE_OF_TOL = 0.1
# Features up to which NumPy's `eigh` of many matrices is faster than LAPACK's search for the top
# eigenvector of one at a time; with 80 features it takes three times as long.
BATCHED_FEATURES = 24

# The thorough search. Restarts are complete when enough of them ended within a hundredth (a quarter
# of the tolerance, if that is more) of the best, and at most this share of those ended alone.
LARGEST_SHARE_ALONE = 0.02
LEAST_RESTARTS, LEAST_NEAR_BEST, MOST_RESTARTS = 128, 32, 1024
RESTART_STEPS = 40
RESTART_FLOPS = 1e10  # what restarts may cost in any case, about half a second
COARSE_TOL = 0.01  # from here on, maxima so far apart need fewer restarts
FLIPPED_MAXIMA = 12


class Points(NamedTuple):
    """Unit vectors Y (k, p), their forms Q (k, m) and dual norms (k,)."""

    Y: Floats
    Q: Floats
    values: Floats

    def take(self, which: NDArray | list[int] | slice) -> Self:
        return type(self)(self.Y[which], self.Q[which], self.values[which])

    def join(self, other: Points) -> Self:
        return type(self)(*(np.concatenate(pair) for pair in zip(self, other, strict=True)))

    def best_first(self) -> Self:
        return self.take(np.argsort(-self.values, kind="stable"))

    def distinct(self, most: int) -> Self:
        """The best few points that are not nearly the same, best first."""
        points = self.best_first()
        return points.take(thin(points.Y, most, SAME_POINT))


def unit(H: Floats) -> Floats:
    """Rows scaled to norm 1."""
    return H / np.linalg.norm(H, axis=-1, keepdims=True)


def thin(
    signatures: Floats, most: int, limit: float, groups: NDArray[np.intp] | None = None
) -> list[int]:
    """Rows of `signatures`, unit vectors, with |cosine| < limit between any two of a group.

    Greedy: a row is kept if it differs from all kept ones before it.
    """
    kept: list[int] = []
    free = np.ones(len(signatures), dtype=bool)
    for _ in range(min(most, len(signatures))):
        row = int(free.argmax())
        if not free[row]:
            break
        kept.append(row)
        unlike = np.abs(signatures @ signatures[row]) < limit
        free &= unlike if groups is None else unlike | (groups != groups[row])
        free[row] = False
    return kept


def images_of(G: Floats, Y: Floats) -> Floats:
    """G_c y_k, (k, m, p)."""
    m, p, _ = G.shape
    return (Y @ G.reshape(m * p, p).T).reshape(len(Y), m, p)


def forms_of(G: Floats, Y: Floats) -> Floats:
    """y_k' G_c y_k, (k, m); a few vectors at a time where there are many outputs."""
    block = max(1, BLOCK_DOUBLES // (G.shape[0] * G.shape[1]))
    if len(Y) <= block:
        return _forms(images_of(G, Y), Y)
    parts = [Y[first : first + block] for first in range(0, len(Y), block)]
    return np.concatenate([_forms(images_of(G, part), part) for part in parts])


def _forms(images: Floats, Y: Floats) -> Floats:
    return np.matmul(images, Y[:, :, None])[:, :, 0]


def points_at(G: Floats, Y: Floats, penalty: MatrixPenalty) -> Points:
    Q = forms_of(G, Y)
    return Points(Y, Q, penalty.dual_norms(Q))


def ascend(
    G: Floats, Y: Floats, penalty: MatrixPenalty, tol: float, max_iter: int = 30
) -> Points:  # fmt: skip
    """Ascend from the rows of Y (k, p), unit vectors; at most `FOLLOWED` local maxima, best first.

    Examples
    --------
    >>> import numpy as np
    >>> from fastpoly.kernels.penalties import L1L2
    >>> from fastpoly.selection.ascent import ascend
    >>> G = np.array([np.diag([3.0, 0.0]), np.diag([0.0, 4.0])])
    >>> np.round(ascend(G, np.array([[0.6, 0.8]]), L1L2(), 1e-6).values, 3)
    array([4.])
    """
    Y = Y[: max(1, BLOCK_DOUBLES // (len(G) * Y.shape[1]))]
    points = cheap_steps(G, Y, penalty, min(max_iter, CHEAP_STEPS)).distinct(FOLLOWED)
    return eigen_steps(G, points, penalty, STOP_SHARE_OF_TOL * tol, max_iter)


def cheap_steps(
    G: Floats, Y: Floats, penalty: MatrixPenalty, steps: int, smooth: bool = True,
    tol: float = 0.0,
) -> Points:  # fmt: skip
    """Steps from all starts at once: y <- the best vector of span{y, M y, last step}.

    The dual norm becomes less and less smooth. Without `smooth`, the steps end early when none
    gains more than tol times the best value. Returns the points where they ended and the best point
    seen, unsorted. It computes in the precision of G.
    """
    Y = Y.astype(G.dtype)
    images = images_of(G, Y)
    Q = _forms(images, Y)
    values = penalty.dual_norms(Q)
    top = values.argmax()
    best = Points(Y, Q, values).take([top])
    P = images_P = None  # the last step
    for t in range(steps):
        W = penalty.slopes(Q, 1 - t / steps) if smooth else penalty.slopes(Q)
        W = W.astype(G.dtype)[:, None, :]
        MY = np.matmul(W, images)[:, 0]
        U = _orthogonal(MY, Y)
        basis, images_B = [Y, U], [images, images_of(G, U)]
        MB = [MY, np.matmul(W, images_B[1])[:, 0]]
        if P is not None:
            a, b = _dots(Y, P), _dots(U, P)
            Z = P - a * Y - b * U
            size = np.linalg.norm(Z, axis=1, keepdims=True)
            scale = np.where(size > 1e-3, 1 / np.maximum(size, 1e-3), 0)
            basis.append(Z * scale)
            images_P -= a[:, :, None] * images + b[:, :, None] * images_B[1]
            images_P *= scale[:, :, None]
            images_B.append(images_P)
            MB.append(np.matmul(W, images_P)[:, 0])
        # The Ritz vector: the top eigenvector of the projected M, (k, 3, 3). A direction of length
        # zero has the eigenvalue 0, below that of y.
        A = np.array([[_dots(x, Mz)[:, 0] for Mz in MB] for x in basis]).transpose(2, 0, 1)
        turn = np.linalg.eigh(A + A.transpose(0, 2, 1))[1][:, :, -1].astype(G.dtype)
        turn[~A.any(axis=(1, 2))] = np.eye(1, len(basis))  # M = 0: stay
        turn *= np.copysign(1, turn[:, :1])
        first, *others = turn.T[:, :, None]
        P = sum(x * z for x, z in zip(others, basis[1:], strict=True))
        images_P = sum(x[:, :, None] * z for x, z in zip(others, images_B[1:], strict=True))
        Y, images = first * Y + P, first[:, :, None] * images + images_P
        length = np.linalg.norm(P, axis=1, keepdims=True)
        length[length == 0] = 1
        P, images_P = P / length, images_P / length[:, :, None]
        Q, before = _forms(images, Y), values
        values = penalty.dual_norms(Q)
        top = values.argmax()
        if values[top] > best.values[0]:
            best = Points(Y, Q, values).take([top])
        if tol and (values - before).max() <= tol * best.values[0]:
            break
    return Points(Y, Q, values).join(best)


def _dots(X: Floats, Y: Floats) -> Floats:
    return np.einsum("kp,kp->k", X, Y)[:, None]


def _orthogonal(X: Floats, Y: Floats) -> Floats:
    """The part of x_k that is orthogonal to y_k, scaled to norm 1; 0 where nothing is left."""
    sizes = np.linalg.norm(X, axis=1, keepdims=True)
    U = X - _dots(X, Y) * Y
    U -= _dots(U, Y) * Y
    length = np.linalg.norm(U, axis=1, keepdims=True)
    return U / np.where(length > 10 * np.finfo(X.dtype).eps ** 0.5 * sizes, length, np.inf)


def eigen_steps(
    G: Floats, points: Points, penalty: MatrixPenalty, tol: float, steps: int
) -> Points:
    """Steps y <- the top eigenvector of M, until none gains more than tol times the best value.

    Points that no longer gain stay where they are. The result is sorted, best first.
    """
    Y, Q, values = (a.copy() for a in points)
    moving = np.arange(len(Y))
    for _ in range(steps):
        new = points_at(G, top_eigenvectors(G, penalty.slopes(Q[moving])), penalty)
        gains = new.values - values[moving]
        better = gains > 0
        Y[moving[better]], Q[moving[better]], values[moving[better]] = new.take(better)
        moving = moving[gains > tol * values.max()]
        if not len(moving):
            break
    return Points(Y, Q, values).best_first()


def top_eigenvectors(G: Floats, W: Floats) -> Floats:
    """The top eigenvectors of M_k = sum_c W_kc G_c, (k, p)."""
    p = G.shape[1]
    vectors = np.empty((len(W), p))
    block = max(1, BLOCK_DOUBLES // p**2)
    for first in range(0, len(W), block):
        M = np.tensordot(W[first : first + block], G, 1)
        if p <= BATCHED_FEATURES:
            vectors[first : first + block] = np.linalg.eigh(M)[1][:, :, -1]
        else:
            for k, matrix in enumerate(M):
                vectors[first + k] = dsyevr(matrix, range="I", il=p, iu=p)[1][:, 0]
    return vectors


# ---- the thorough search -------------------------------------------------------------------------


def search_thoroughly(
    G: Floats, starts: Floats, known: Floats, penalty: MatrixPenalty, tol: float, max_iter: int,
    rng: np.random.Generator, threshold: float, flops: float,
) -> tuple[Points, bool]:  # fmt: skip
    """Search until something is above the threshold, or until nothing new is found.

    Parameters
    ----------
    G : ndarray, (m, p, p)
    starts, known : ndarray, (k, p)
        Unit vectors; many restarts are expected to end at those known.
    flops : float
        What restarts may cost.

    Returns
    -------
    points : Points
        The best distinct points, best first.
    complete : bool
        Whether nothing was above the threshold, and restarts found nothing new.
    """
    kinks = penalty.n_vertices(len(G)) is not None
    stop = STOP_SHARE_OF_TOL * min(tol, COARSE_TOL)
    starts = starts[: max(1, BLOCK_DOUBLES // (len(G) * G.shape[1]))]
    points = cheap_steps(G, starts, penalty, 2 * CHEAP_STEPS).distinct(2 * FLIPPED_MAXIMA)
    if points.values[0] <= threshold:
        points = follow(G, points, FLIPPED_MAXIMA if kinks else FOLLOWED, penalty, stop, max_iter)
    if points.values[0] <= threshold and kinks:
        points = flip_slopes(G, points, penalty, stop, max_iter)
    if points.values[0] > threshold:
        return points, False
    return restart(G, points, known, penalty, tol, max_iter, rng, threshold, flops)


def follow(
    G: Floats, points: Points, most: int, penalty: MatrixPenalty, tol: float, steps: int
) -> Points:
    """The points, best first, after eigen-steps of the best of them."""
    moved = eigen_steps(G, points.take(slice(most)), penalty, tol, steps)
    return moved.join(points.take(slice(most, None))).distinct(len(points.Y))


def flip_slopes(
    G: Floats, points: Points, penalty: MatrixPenalty, tol: float, steps: int
) -> Points:
    """Local search around the best maxima: negate one slope, ascend, repeat from what is new.

    It ends when a sweep over all single flips finds no new point among the best.
    """
    flips = 1 - 2 * np.eye(len(G))
    fresh = points.take(slice(FLIPPED_MAXIMA))
    for _ in range(steps):
        W = penalty.slopes(fresh.Q)[:, None, :] * flips
        found = points_at(G, top_eigenvectors(G, W.reshape(-1, len(G))), penalty)
        found = eigen_steps(G, found.distinct(FLIPPED_MAXIMA), penalty, tol, steps)
        least = points.values[:FLIPPED_MAXIMA][-1]
        new = (np.abs(found.Y @ points.Y.T) < SAME_POINT).all(axis=1)
        fresh = found.take(new & (found.values > (1 + tol) * least))
        if not len(fresh.Y):
            break
        points = points.join(fresh).distinct(len(points.Y))
    return points


def restart(
    G: Floats, points: Points, known: Floats, penalty: MatrixPenalty, tol: float, max_iter: int,
    rng: np.random.Generator, threshold: float, flops: float,
) -> tuple[Points, bool]:  # fmt: skip
    """Ascend from random points, without the smoothing, which favors a few large basins.

    Single precision finds the maxima; only the best of them are followed further. The share of
    ascents that end alone falls about as fast as their number grows; where that is too slow, the
    rest is not worth its time. With kinks, ascents end at many maxima of all heights. There a
    coarse tolerance is enough if even a maximum as far above the best as the median is below it
    would be within the tolerance of the threshold.
    """
    m, p, _ = G.shape
    coarse, kinks = tol >= COARSE_TOL, penalty.n_vertices(m) is not None
    stop, near = STOP_SHARE_OF_TOL * min(tol, COARSE_TOL), 1 - max(0.01, tol / 4)
    most = min(MOST_RESTARTS, int(flops / (RESTART_STEPS * 2.0 * m * p**2)))
    least = LEAST_RESTARTS // 2 if coarse else LEAST_RESTARTS
    if kinks and not coarse:  # one in a hundred ascents may lead above the threshold: make them all
        least = max(least, most)
    size = max(1, min(64, BLOCK_DOUBLES // (m * p)))
    # Only directions are taken from it; at this scale no entry overflows.
    single = np.ldexp(G, -np.frexp(np.abs(G).max())[1]).astype(np.float32)
    seen = points_at(G, known, penalty)
    ends, heights = seen.take(slice(0)), np.empty(0)
    while len(heights) < most and points.values[0] <= threshold:
        Y = unit(rng.standard_normal((size, p)))
        if p <= BATCHED_FEATURES:
            found = cheap_steps(G, Y, penalty, CHEAP_STEPS, smooth=False).take(slice(size))
            found = eigen_steps(G, found, penalty, stop, max_iter)
        else:
            found = cheap_steps(single, Y, penalty, RESTART_STEPS, False, stop).take(slice(size))
            found = points_at(G, unit(found.Y.astype(np.float64)), penalty)
        best = eigen_steps(G, found.distinct(FOLLOWED), penalty, stop, max_iter)
        points = points.join(best).distinct(len(points.Y))
        heights = np.append(heights, found.values)
        ends = ends.join(found)
        ends = ends.take(ends.values >= near * points.values[0])
        alone = share_alone(ends, seen)
        enough = len(heights) >= least and len(ends.Y) >= LEAST_NEAR_BEST
        if (enough and alone <= LARGEST_SHARE_ALONE) or (
            coarse and kinks and 2 * points.values[0] - np.median(heights) <= (1 + tol) * threshold
        ):
            return points, bool(points.values[0] <= threshold)
        if enough and alone * len(heights) > 4 * LARGEST_SHARE_ALONE * most:
            break
    return points, False


def share_alone(ends: Points, known: Points) -> float:
    """The share of ends unlike all others and unlike all known points, in y or in the forms."""
    if not len(ends.Y):
        return 1.0
    alike = [
        (np.abs(ends.Y @ others.Y.T) >= SAME_POINT)
        & (_units(ends.Q) @ _units(others.Q).T >= SAME_POINT)
        for others in (ends, known)
    ]
    return float((np.hstack(alike).sum(axis=1) == 1).mean())


def _units(Q: Floats) -> Floats:
    return Q / np.maximum(np.linalg.norm(Q, axis=1, keepdims=True), np.finfo(np.float64).tiny)


# ---- exact values and bounds ---------------------------------------------------------------------


def enumeration_flops(penalty: MatrixPenalty, m: int, p: int) -> float:
    """The approximate cost of `best_of_vertices`; a small eigenproblem takes as long as 2e4."""
    count = penalty.n_vertices(m)
    return np.inf if count is None else count * (2e4 + 2.0 * m * p**2 + 2.0 * p**3)


def best_of_vertices(G: Floats, penalty: MatrixPenalty, n_best: int = 1) -> tuple[Floats, float]:
    """Eigenvectors for the best vertices, and the exact maximum of the dual norm.

    The dual norm is a maximum over the vertices s of the penalty's unit ball, ||q||_* = max |s'q|:
    unit vectors for l1, vectors of signs for l1/linf. So the best vector is the dominant
    eigenvector of one of the matrices sum_c s_c G_c. For l1/linf there are 2^(m-1) of them.

    Returns
    -------
    vectors : ndarray, (r, p)
        The optimum first; with n_best > 1, the eigenvectors of both ends of the next vertices.
    value : float

    Examples
    --------
    >>> import numpy as np
    >>> from fastpoly.kernels.penalties import L1Linf
    >>> from fastpoly.selection.ascent import best_of_vertices
    >>> G = np.array([[[1.0, 0.0], [0.0, -1.0]], [[0.0, 1.0], [1.0, 0.0]]])
    >>> round(best_of_vertices(G, L1Linf())[1], 3)
    1.414
    """
    m, p, _ = G.shape
    count, block = penalty.n_vertices(m), max(1, BLOCK_DOUBLES // p**2)
    ends = np.empty((count, 2))
    for first in range(0, count, block):
        S = penalty.vertices(m, first, min(first + block, count))
        ends[first : first + len(S)] = np.linalg.eigvalsh(np.tensordot(S, G, 1))[:, [0, -1]]
    sizes = np.abs(ends).max(axis=1)
    best = np.argsort(-sizes, kind="stable")[:n_best]
    S = np.vstack([penalty.vertices(m, r, r + 1) for r in best])
    values, vectors = np.linalg.eigh(np.tensordot(S, G, 1))
    H = vectors[:, :, [0, -1]].transpose(0, 2, 1).reshape(-1, p)
    order = np.argsort(-np.abs(values[:, [0, -1]]).ravel(), kind="stable")
    return H[order[:1] if n_best == 1 else order], float(sizes[best[0]])


def upper_bound(
    G: Floats, penalty: MatrixPenalty, spectra: Floats | None = None, vectors: Floats | None = None
) -> float:
    """An upper bound on the largest dual norm; lower if eigenvalues and -vectors of G are given.

    With |q_c| <= sigma_c, the largest |eigenvalue| of G_c, and the ratios a = max ||q||_* / |q|_1
    and b = max ||q||_* / |q|_2 of the penalty, it is the smallest of

        ||q||_* <= ||sigma||_*
        ||q||_* <= a |q|_1,    |q|_1   <= h' (sum_c |G_c|) h
        ||q||_* <= b |q|_2,    |q|_2^2 <= sum_c |G_c h|^2 = h' (sum_c G_c^2) h,
                               |q|_2   <= the largest singular value of the map hh' -> q.

    Examples
    --------
    >>> import numpy as np
    >>> from fastpoly.kernels.penalties import L1L2
    >>> from fastpoly.selection.ascent import upper_bound
    >>> G = np.array([np.diag([3.0, 0.0]), np.diag([0.0, 4.0])])
    >>> upper_bound(G, L1L2(), *np.linalg.eigh(G))
    4.0
    """
    m, p, _ = G.shape
    bound, (to_sum, to_euclidean) = np.inf, penalty.dual_ratios(m)
    if spectra is not None:
        sizes = np.abs(spectra)
        bound = float(penalty.dual_norms(sizes.max(axis=1)[None])[0])
        if m == 1 or penalty.separable:
            return bound
        roots = (vectors * np.sqrt(sizes)[:, None, :]).transpose(1, 0, 2).reshape(p, m * p)
        bound = min(bound, to_sum * _top_eigenvalue(roots @ roots.T))
    tall, flat = G.reshape(m * p, p), G.reshape(m, p * p)
    small = flat @ flat.T if m <= p * p else flat.T @ flat
    squared = min(_top_eigenvalue(tall.T @ tall), _top_eigenvalue(small))
    return float(min(bound, to_euclidean * np.sqrt(max(squared, 0.0))))


def _top_eigenvalue(S: Floats) -> float:
    return float(np.linalg.eigvalsh(S)[-1])
