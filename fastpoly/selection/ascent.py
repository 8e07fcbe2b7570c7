"""Monotone ascent of ||q(h)||_* over |h| <= 1 on m explicit matrices.

    q_c(h) = h' G_c h,   G (m, p, p),   M(w) = sum_c w_c G_c,   w = slopes of ||.||_* at q(h)

The problem is not convex in h, but the dual norm is convex in q. So a step to any h+ with
h+' M h+ >= h' M h never loses:  ||q(h+)||_* >= w'q(h+) = h+' M h+ >= h' M h = ||q(h)||_*.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dsyevr

from fastpoly.kernels.checks import BLOCK_DOUBLES, Floats

SAME_POINT = 0.97  # |cosine| at which two points of the ascent count as one
FLIPS = 2  # slopes that are negated at each point; four find hardly more, in twice the time


class Points(NamedTuple):
    """Unit vectors Y (k, p), their forms Q (k, m) and dual norms (k,)."""

    Y: Floats
    Q: Floats
    values: Floats

    def take(self, which: NDArray | list[int] | slice) -> Self:
        return type(self)(self.Y[which], self.Q[which], self.values[which])

    def join(self, other: Self) -> Self:
        return type(self)(*(np.concatenate(pair) for pair in zip(self, other, strict=True)))

    def best_first(self) -> Self:
        return self.take(np.argsort(-self.values, kind="stable"))

    def distinct(self, most: int = 3) -> Self:
        """The best few points that are not nearly the same, best first."""
        points = self.best_first()
        return points.take(thin(points.Y, most, SAME_POINT))


def unit(H: Floats) -> Floats:
    """Rows scaled to norm 1."""
    return H / np.linalg.norm(H, axis=-1, keepdims=True)


def unit_or_zero(X: Floats, least: float = 0.0) -> Floats:
    """Rows scaled to norm 1; those of at most the least norm become 0."""
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    return X / np.where(norms > least, norms, np.inf)


def thin(
    signatures: Floats, most: int, limit: float, groups: NDArray[np.intp] | None = None
) -> list[int]:
    """The first rows of `signatures`, unit vectors, with |cosine| < limit within a group."""
    kept: list[int] = []
    free = np.ones(len(signatures), dtype=bool)
    while len(kept) < most and free.any():
        row = int(free.argmax())
        kept.append(row)
        unlike = np.abs(signatures @ signatures[row]) < limit
        free &= unlike if groups is None else unlike | (groups != groups[row])
        free[row] = False
    return kept


def blocks(n: int, doubles: int) -> Iterator[slice]:
    """Slices of n items, each of that many doubles, that fit in one temporary array."""
    size = max(1, BLOCK_DOUBLES // doubles)
    return (slice(first, min(first + size, n)) for first in range(0, n, size))


def _times(M: Floats, Y: Floats) -> Floats:
    return np.matmul(M, Y[:, :, None])[:, :, 0]


def weighted_sums(W: Floats, G: Floats) -> Floats:
    """M_k = sum_c W_kc G_c, (k, p, p), in the precision of G."""
    m, p, _ = G.shape
    return (W.astype(G.dtype) @ G.reshape(m, p * p)).reshape(-1, p, p)


def in_single_precision(G: Floats) -> Floats:
    """G at a scale where no entry overflows; only directions may be taken from it.

    Single-precision BLAS reads past the end of short rows, and may call that invalid.
    """
    return np.ldexp(G, -np.frexp(np.abs(G).max())[1]).astype(np.float32)


def images_of(G: Floats, Y: Floats) -> Floats:
    """G_c y_k, (k, m, p)."""
    m, p, _ = G.shape
    return (Y @ G.reshape(m * p, p).T).reshape(len(Y), m, p)


def forms_of(G: Floats, Y: Floats) -> Floats:
    """y_k' G_c y_k, (k, m)."""
    Q = np.empty((len(Y), len(G)), Y.dtype)
    for part in blocks(len(Y), G[:, 0].size):
        Q[part] = _times(images_of(G, Y[part]), Y[part])
    return Q


def points_at(G: Floats, Y: Floats, penalty: Any) -> Points:
    Q = forms_of(G, Y)
    return Points(Y, Q, penalty.dual_norms(Q))


# ---- steps ---------------------------------------------------------------------------------------


def top_eigenvectors(G: Floats, W: Floats, Y: Floats | None = None) -> Floats:
    """The top eigenvectors of M_k = sum_c W_kc G_c, (k, p): the best step."""
    p = G.shape[1]
    vectors = np.empty((len(W), p))
    for part in blocks(len(W), p**2):
        M = np.tensordot(W[part], G, 1)
        if p <= 24:  # with 80 features this takes three times as long as one at a time
            vectors[part] = np.linalg.eigh(M)[1][:, :, -1]
        else:
            vectors[part] = [dsyevr(matrix, range="I", il=p, iu=p)[1][:, 0] for matrix in M]
    return vectors


def ritz_vectors(G: Floats, W: Floats, Y: Floats) -> Floats:
    """The best vectors of the Krylov spaces of M_k from y_k, (k, p): nearly as good, and cheap."""
    new = np.empty_like(Y)
    for part in blocks(len(Y), G[0].size):
        new[part] = _best_of_krylov(weighted_sums(W[part], G), Y[part])
    return new


def _best_of_krylov(M: Floats, Y: Floats) -> Floats:
    """The top Ritz vectors of M (k, p, p) on span{y, M y, M^2 y, ...}."""
    # Measured: four are best for ten features, nine for two hundred, where forming M costs more.
    size = min(4 + Y.shape[1] // 32, 10, Y.shape[1])
    B = np.zeros((len(Y), size, Y.shape[1]), Y.dtype)
    images = np.empty_like(B)
    B[:, 0] = Y
    for j in range(size):
        images[:, j] = _times(M, B[:, j])
        if j + 1 < size:
            basis, U = B[:, : j + 1], unit_or_zero(images[:, j])
            for _ in range(2):
                U = U - _times(basis.transpose(0, 2, 1), _times(basis, U))
            B[:, j + 1] = unit_or_zero(U, 1e-3)  # nothing is left where the space is complete
    A = np.matmul(B, images.transpose(0, 2, 1))
    turn = np.linalg.eigh(A + A.transpose(0, 2, 1))[1][:, :, -1]
    best = unit_or_zero(_times(B.transpose(0, 2, 1), turn), 0.5)
    return np.where(best.any(axis=1, keepdims=True), best, Y)


def climb(
    G: Floats, points: Points, penalty: Any, tol: float, steps: int,
    step: Callable[[Floats, Floats, Floats], Floats] = ritz_vectors, ends: Floats | None = None,
) -> Points:  # fmt: skip
    """Steps of each point until it gains no more than tol times the best value.

    A point also stops when it comes near to one of `ends` (r, p). Computes in the precision of G.
    """
    Y, Q, values = (array.copy() for array in points)
    moving = np.arange(len(Y))
    for _ in range(steps):
        new = points_at(G, step(G, penalty.slopes(Q[moving]), Y[moving]), penalty)
        gains = new.values - values[moving]
        better = gains > 0
        Y[moving[better]], Q[moving[better]], values[moving[better]] = new.take(better)
        on = gains > tol * values.max()
        if ends is not None:
            on &= (np.abs(Y[moving] @ ends.T) < SAME_POINT).all(axis=1)
        moving = moving[on]
        if not len(moving):
            break
    return Points(Y, Q, values)


def ascend(G: Floats, Y: Floats, penalty: Any, tol: float, max_iter: int = 30) -> Points:
    """The best maxima where ascents from the rows of Y (k, p), unit vectors, end; best first.

    The first slopes are of a smoothed dual norm: with plain signs an eigenvector of G_c is often a
    fixed point already, because multi-class gradients sum to zero over the outputs.
    """
    Y = Y[next(blocks(len(Y), len(G) * Y.shape[1]))]
    points = points_at(G, Y, penalty)
    few = G.shape[1] <= 8  # where single precision gains nothing
    first, Y = (G, Y) if few else (in_single_precision(G), Y.astype(np.float32))
    steps = min(max_iter, 5)
    with np.errstate(invalid="ignore"):  # see `in_single_precision`
        for t in range(steps):
            Y = ritz_vectors(first, penalty.slopes(forms_of(first, Y), 1 - t / steps), Y)
    Y = Y if few else unit(Y.astype(np.float64))
    points = points.join(points_at(G, Y, penalty)).distinct()
    return finish(G, points, penalty, tol, max_iter)


def finish(G: Floats, points: Points, penalty: Any, tol: float, steps: int) -> Points:
    """Steps to the top eigenvectors, until one gains less than a share of tol; best first."""
    return climb(G, points, penalty, 0.1 * tol, steps, last_step(G)).best_first()


def last_step(G: Floats) -> Callable[[Floats, Floats, Floats], Floats]:
    """The best step; with 2,000 features an eigenvector takes a third of a second."""
    return top_eigenvectors if G.shape[1] <= 512 else ritz_vectors


# ---- the thorough search -------------------------------------------------------------------------


def search_thoroughly(
    G: Floats, starts: Floats, known: Floats, penalty: Any, tol: float, max_iter: int,
    rng: np.random.Generator, threshold: float, flops: float, vertex_flops: float,
) -> tuple[Points, bool, bool]:  # fmt: skip
    """The best distinct points, and whether the search for any above the threshold is complete,
    and exact.

    It ascends from `starts` (k, p), and if that finds nothing tries all vertices, if they are worth
    it, or random points until something is above or they find nothing new. At an optimum the
    vectors of the model, `known` (r, p), are maxima, and most ascents end there. The share that
    ends where nothing else did estimates the chance that one more finds a new maximum (Good and
    Turing); the search is complete when it is small. Where it falls too slowly, the rest is not
    worth its time. Single precision finds the maxima, and the best are followed further. A coarse
    tolerance is enough if even a maximum as far above the best as the median is below it (with
    kinks, the highest tenth, as flips would raise the others) would be within the tolerance of the
    threshold.
    """
    m, p, _ = G.shape
    kinks, coarse = penalty.n_vertices(m) is not None, tol >= 0.01
    stop, near = 0.1 * min(tol, 0.05), 1 - max(0.01, tol / 4)
    largest_share_alone = 0.02
    # A restart costs about so many times m p^2. With kinks, a maximum that one in a hundred ascents
    # finds has been missed by 256 of them, and one that three in a hundred find by 32. Flips take
    # most of their time, and find half as many more: coarse searches flip only the best.
    most = min(2048, int(flops / ((60.0 if kinks and not coarse else 30.0) * m * p**2)))
    least = 64 if coarse else 512 if kinks else 256  # 128 missed 1.005 alpha once in 550 problems
    at_once = 128 if not coarse else 256 if kinks else 32  # more cost less each, but end later
    size = max(1, min(at_once, BLOCK_DOUBLES // (m * p)))
    single = in_single_precision(G)

    @np.errstate(invalid="ignore")
    def maxima(Y: Floats, ends: Floats | None = None) -> Points:
        found = points_at(single, Y.astype(np.float32), penalty)
        if kinks:
            found = climb(single, found, penalty, stop, max_iter)
            if coarse or ends is None:  # a first look often finds something above at once
                found = flip(single, found.distinct(8), penalty, stop, max_iter).join(found)
            else:
                found = flip(single, found, penalty, stop, max_iter)
        else:
            fine = stop if coarse else 0.1 * stop
            found = climb(single, found, penalty, fine, max_iter, ends=ends)
        return points_at(G, unit(found.Y.astype(np.float64)), penalty)

    def add(points: Points, found: Points) -> Points:
        best = finish(G, found.distinct(), penalty, tol, max_iter)
        return points.join(best).join(found).distinct(24)

    others = points_at(G, unit(known), penalty).join(maxima(starts[:size]))
    points = add(others.take(slice(0)), others)
    if points.values[0] > threshold:
        return points, False, False
    if enumeration_flops(penalty, m, p) <= vertex_flops:
        H, _ = best_of_vertices(G, penalty, 24)
        return points_at(G, H, penalty).best_first(), True, True
    ends, heights = others.take(slice(0)), np.empty(0)
    while len(heights) < most and points.values[0] <= threshold:
        found = maxima(unit(rng.standard_normal((size, p))), others.Y.astype(np.float32))
        points = add(points, found)
        found = replace_alike(found, others)
        heights, ends = np.append(heights, found.values), ends.join(found)
        usual = np.quantile(heights, 0.9 if kinks else 0.5)
        if coarse and 2 * points.values[0] - usual <= (1 + tol) * threshold:
            return points, bool(points.values[0] <= threshold), False
        ends = ends.take(ends.values >= near * points.values[0])
        alone = is_alone(ends, others)
        if 0 < alone.sum() <= 8:  # so few are worth steps to exact eigenvectors
            last = climb(G, ends.take(alone), penalty, 0.1 * stop, 3, last_step(G))
            ends = ends.take(~alone).join(replace_alike(last, others))
            alone = is_alone(ends, others)
        enough = len(heights) >= least and len(alone) >= 32
        if enough and alone.mean() <= largest_share_alone:
            return points, bool(points.values[0] <= threshold), False
        if enough and alone.mean() * len(heights) > 4 * largest_share_alone * most:
            break
    return points, False, False


def is_alone(ends: Points, others: Points) -> NDArray[np.bool_]:
    """Which ends are unlike all the rest and unlike all others."""
    alike = np.abs(ends.Y @ np.vstack([ends.Y, others.Y]).T) >= SAME_POINT
    return alike.sum(axis=1) == 1


def replace_alike(points: Points, others: Points) -> Points:
    """The points, with others in place of those that came near to them."""
    cosines = np.abs(points.Y @ others.Y.T)
    near = cosines.max(axis=1, initial=0) >= SAME_POINT
    return points.take(~near).join(others.take(cosines[near].argmax(axis=1)))


def flip(G: Floats, points: Points, penalty: Any, tol: float, steps: int) -> Points:
    """Local search over the slopes: negate one, ascend, keep what is better, until nothing is."""
    Y, Q, values = (array.copy() for array in points)
    moving = np.arange(len(Y))
    while len(moving):
        flipped = []
        for part in blocks(len(moving), G[0].size):
            some = moving[part]
            flipped.append(flips(G, penalty.slopes(Q[some]).astype(G.dtype), Y[some], Q[some]))
        W, starts = (np.concatenate(arrays) for arrays in zip(*flipped, strict=True))
        found = points_at(G, ritz_vectors(G, W, starts), penalty)
        found = climb(G, found, penalty, tol, steps)
        best = found.values.reshape(-1, FLIPS).argmax(axis=1) + np.arange(0, len(W), FLIPS)
        better = found.values[best] > (1 + tol) * values[moving]
        moving = moving[better]
        Y[moving], Q[moving], values[moving] = found.take(best[better])
    return Points(Y, Q, values)


def flips(G: Floats, W: Floats, Y: Floats, Q: Floats) -> tuple[Floats, Floats]:
    """The most promising slopes with one negated, (k FLIPS, m), and starts for them, (k FLIPS, p).

    With w_c negated, M becomes M - 2 w_c G_c. What this promises is the largest value that it has
    on span{y, u_c}, where u_c is the part of G_c y that is orthogonal to y.
    """
    U = images_of(G, Y) - Q[:, :, None] * Y[:, None, :]
    U /= np.maximum(np.linalg.norm(U, axis=2), np.finfo(G.dtype).tiny)[:, :, None]
    images = np.matmul(U, weighted_sums(W, G))
    images -= 2 * W[:, :, None] * np.matmul(G, U.transpose(1, 2, 0)).transpose(2, 0, 1)
    first = np.einsum("kc,kc->k", W, Q)[:, None] - 2 * W * Q
    last = np.einsum("kcp,kcp->kc", U, images)
    both = np.einsum("kp,kcp->kc", Y, images)
    promises = (first + last) / 2 + np.hypot((first - last) / 2, both)
    outputs = np.argsort(-promises, axis=1)[:, :FLIPS].ravel()
    rows = np.repeat(np.arange(len(Y)), FLIPS)
    angles = np.arctan2(2 * both[rows, outputs], (first - last)[rows, outputs])[:, None] / 2
    W = W[rows]
    W[np.arange(len(W)), outputs] *= -1
    return W, unit(np.cos(angles) * Y[rows] + np.sin(angles) * U[rows, outputs])


# ---- exact values and bounds ---------------------------------------------------------------------


def enumeration_flops(penalty: Any, m: int, p: int) -> float:
    """The approximate cost of `best_of_vertices`; a small eigenproblem takes as long as 2e4."""
    count = penalty.n_vertices(m)
    return np.inf if count is None else count * (2e4 + 2.0 * m * p**2 + 2.0 * p**3)


def best_of_vertices(G: Floats, penalty: Any, n_best: int = 1) -> tuple[Floats, float]:
    """The exact maximum of the dual norm, with vectors (r, p), the optimum first.

    ||q||_* = max |s'q| over the vertices s of the penalty's unit ball: unit vectors for l1, signs
    for l1/linf. So the best vector is the dominant eigenvector of one of the matrices sum_c s_c
    G_c. With n_best > 1, the eigenvectors of both ends of the next vertices follow.
    """
    m, p, _ = G.shape
    ends = np.empty((penalty.n_vertices(m), 2))
    for part in blocks(len(ends), p**2):
        S = penalty.vertices(m, part.start, part.stop)
        ends[part] = np.linalg.eigvalsh(np.tensordot(S, G, 1))[:, [0, -1]]
    sizes = np.abs(ends).max(axis=1)
    best = np.argsort(-sizes, kind="stable")[:n_best]
    S = np.vstack([penalty.vertices(m, r, r + 1) for r in best])
    values, vectors = np.linalg.eigh(np.tensordot(S, G, 1))
    H = vectors[:, :, [0, -1]].transpose(0, 2, 1).reshape(-1, p)
    order = np.argsort(-np.abs(values[:, [0, -1]]).ravel(), kind="stable")
    return H[order[:1] if n_best == 1 else order], float(sizes[best[0]])


def upper_bound(
    G: Floats, penalty: Any, spectra: Floats | None = None, vectors: Floats | None = None
) -> float:
    """An upper bound on the largest dual norm; lower if eigenvalues and -vectors of G are given.

    With |q_c| <= sigma_c, the largest |eigenvalue| of G_c, and the ratios a = max ||q||_* / |q|_1
    and b = max ||q||_* / |q|_2 of the penalty, it is the smallest of

        ||q||_* <= ||sigma||_*
        ||q||_* <= a |q|_1,    |q|_1   <= h' (sum_c |G_c|) h
        ||q||_* <= b |q|_2,    |q|_2^2 <= sum_c |G_c h|^2 = h' (sum_c G_c^2) h,
                               |q|_2   <= the largest singular value of the map hh' -> q.

    The last is the only one, beside the first, with more than 512 features.
    """
    m, p, _ = G.shape
    bound, (to_sum, to_euclidean) = np.inf, penalty.dual_ratios(m)
    if spectra is not None:
        sizes = np.abs(spectra)
        bound = float(penalty.dual_norms(sizes.max(axis=1)[None])[0])
        if m == 1 or penalty.separable:
            return bound
        roots = (vectors * np.sqrt(sizes)[:, None, :]).transpose(1, 0, 2).reshape(p, m * p)
        bound = min(bound, to_sum * np.linalg.eigvalsh(roots @ roots.T)[-1])
    tall, flat = G.reshape(m * p, p), G.reshape(m, p * p)
    small = flat @ flat.T if m <= p * p else flat.T @ flat
    squares = [small] if p > 512 else [tall.T @ tall, small]
    squared = min(np.linalg.eigvalsh(square)[-1] for square in squares)
    return float(min(bound, to_euclidean * np.sqrt(max(squared, 0.0))))
