"""Monotone ascent of ||q(h)||_* over |h| <= 1 on m explicit matrices.

    q_c(h) = h' G_c h,   G (m, p, p),   M(w) = sum_c w_c G_c,   w = slopes of ||.||_* at q(h)

The problem is not convex in h, but the dual norm is convex in q. So a step to any h+ with
h+' M h+ >= h' M h never loses:

    ||q(h+)||_* >= w'q(h+) = h+' M h+ >= h' M h = ||q(h)||_*.

Two such steps are used. The better vector of span{h, M h} is cheap, and is taken from many starts
at once. The top eigenvector of M is the best step, and is taken from the few best points.

There are many local maxima. The plain search starts from eigenvectors. Its cheap steps use slopes
of a smoothed dual norm, because with plain signs an eigenvector of G_c is often a fixed point
already (multi-class gradients sum to zero over the outputs).

The thorough search asks whether there is anything above a threshold. It adds random starts; flips,
where the dual norm has kinks (at a maximum with slopes w, negate one w_c at a time and ascend from
the top eigenvector of M there: for l1/linf, a local search over the signs); and restarts, plain
ascents from random points until they keep ending at maxima that were seen before. The share of
ascents that ended alone estimates the chance that one more finds a new maximum (Good and Turing).
Only if it is small, or if the tolerance is coarse, the search counts as complete.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dsyevr

from fastpoly.kernels.checks import BLOCK_DOUBLES

if TYPE_CHECKING:
    from fastpoly.kernels.penalties import MatrixPenalty  # a protocol, known to type checkers only

Floats = NDArray[np.float64]

# |cosine| at which two points of the ascent count as one.
SAME_POINT = 0.99
# Restarts are complete when, of those that ended within a hundredth of the best, at least
# `LEAST_RESTARTS` and at most this share ended alone. The 16 false claims of 250 hard problems
# (noise as targets, l1/linf, m of 13 to 27) had shares of 0.12 to 0.98.
LARGEST_SHARE_ALONE = 0.02
NEAR_BEST = 0.99
LEAST_RESTARTS, MOST_RESTARTS = 128, 1024
RESTART_FLOPS = 2e9  # what restarts may cost in any case, about half a second
# Features up to which NumPy's `eigh` of many matrices is faster than LAPACK's search for the top
# eigenvector of one at a time; with 80 features it takes three times as long.
BATCHED_FEATURES = 24
FLIPPED_MAXIMA = 12


@dataclass(frozen=True)
class Effort:
    """How hard to search.

    Attributes
    ----------
    eigenvectors : int
        Eigenvectors to start from, in addition to the dominant one of every output.
    random : int
        Number of random starts.
    cheap_steps : int
        Steps from all starts.
    maxima : int
        Number of points that are followed to the end.
    precision : float
        A point stops moving when a step gains less than this share of the tolerance.
    sign_flops : float
        Floating-point operations that the enumeration of sign vectors may cost.
    row_signs : int
        Largest number of sign vectors to try as the outputs of one Lanczos run over the rows.
    row_starts : int
        Starts of an ascent over the rows, at one pass over X each; a block of vectors has more.
    lanczos_steps : int
        Largest number of steps for a block of vectors; the stop rule may require more.
    """

    eigenvectors: int
    random: int
    cheap_steps: int
    maxima: int
    precision: float
    sign_flops: float
    row_signs: int
    row_starts: int = 16
    lanczos_steps: int = 40


# On 42 models for l1/linf that an earlier search had called optimal at tol 1e-3 (m 4 to 30, d 10 to
# 171), the thorough one missed the best value of any search by 1e-3 in 6 cases with flips, and in
# 14 without. A tolerance of a hundredth or more is coarse: maxima so far apart need fewer starts.
NORMAL = Effort(
    eigenvectors=96,
    random=0,
    cheap_steps=5,
    maxima=3,
    precision=0.1,
    sign_flops=0.0,
    row_signs=0,
)
THOROUGH = Effort(
    eigenvectors=32,
    random=96,
    cheap_steps=10,
    maxima=24,
    precision=0.1,
    sign_flops=3e8,
    row_signs=64,
    row_starts=64,
)
COARSE = replace(THOROUGH, random=32, cheap_steps=5, maxima=8)
COARSE_TOL = 0.01


class Points(NamedTuple):
    """Unit vectors Y (k, p), their forms Q (k, m) and dual norms (k,), best first."""

    Y: Floats
    Q: Floats
    values: Floats


def unit(H: Floats) -> Floats:
    """Rows scaled to norm 1."""
    return H / np.linalg.norm(H, axis=-1, keepdims=True)


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


def _forms(image: Floats, Y: Floats) -> Floats:
    return np.matmul(image, Y[:, :, None])[:, :, 0]


def ascend(
    G: Floats,
    Y: Floats,
    penalty: MatrixPenalty,
    tol: float,
    max_iter: int = 30,
    effort: Effort = NORMAL,
    rng: np.random.Generator | None = None,
) -> Points:
    """Ascend from the rows of Y, and from random points if the effort asks for them.

    Parameters
    ----------
    G : ndarray, (m, p, p)
    Y : ndarray, (k, p)
        Unit vectors.
    penalty : MatrixPenalty
    tol : float
        Relative tolerance of the best value.
    max_iter : int
        Largest number of steps of each kind.
    effort : Effort
    rng : Generator, optional
        For the random starts.

    Returns
    -------
    Points
        The local maxima found, at most `effort.maxima`.

    Examples
    --------
    >>> import numpy as np
    >>> from fastpoly.kernels.penalties import L1L2
    >>> from fastpoly.selection.ascent import ascend
    >>> G = np.array([np.diag([3.0, 0.0]), np.diag([0.0, 4.0])])
    >>> np.round(ascend(G, np.array([[0.6, 0.8]]), L1L2(), 1e-6).values, 3)
    array([4.])
    """
    Y = with_random(Y, effort.random, len(G), rng)
    cheap = min(max_iter, effort.cheap_steps)
    points = distinct_maxima(cheap_steps(G, Y, penalty, cheap), effort.maxima)
    return eigen_steps(G, points, penalty, effort.precision * tol, max_iter)


def ascend_thoroughly(
    G: Floats, Y: Floats, penalty: MatrixPenalty, tol: float, max_iter: int,
    rng: np.random.Generator, threshold: float, flops: float,
) -> tuple[Points, bool]:  # fmt: skip
    """Search until something is above the threshold, or until nothing new is found.

    `flops` is what restarts may cost. Returns the maxima and whether the search was complete. For a
    coarse tolerance it is, if even a maximum as far above the best as the median of all ascents is
    below it would be within the tolerance of the threshold.
    """
    coarse, kinks = tol >= COARSE_TOL, penalty.n_vertices(len(G)) is not None
    effort = COARSE if coarse and not kinks else THOROUGH
    Y = with_random(Y, effort.random, len(G), rng)
    ends = cheap_steps(G, Y, penalty, min(max_iter, effort.cheap_steps))
    points = distinct_maxima(ends, effort.maxima)
    precision = effort.precision * min(tol, COARSE_TOL)
    points = eigen_steps(G, points, penalty, precision, max_iter)
    if kinks and points.values[0] <= threshold:
        points = flip_slopes(G, points, penalty, precision, max_iter)
    best = points.values[0]
    if best > threshold:
        return points, False
    if coarse and 2 * best - np.median(ends.values) <= (1 + tol) * threshold:
        return points, True
    return restart(G, points, penalty, precision, max_iter, rng, threshold, flops)


def restart(
    G: Floats, points: Points, penalty: MatrixPenalty, tol: float, steps: int,
    rng: np.random.Generator, threshold: float, flops: float,
) -> tuple[Points, bool]:  # fmt: skip
    """Ascend from random points, without the smoothing, which favors a few large basins.

    Returns the maxima and whether they are complete. The share of ascents that end alone falls
    about as fast as their number grows; where that is too slow, the rest is not worth its time.
    """
    m, p, _ = G.shape
    most = min(MOST_RESTARTS, int(flops / (4 * eigen_flops(m, p))))  # four eigenvectors each
    n_starts = 0 if most >= LEAST_RESTARTS else most
    ends = Points(np.empty((0, p)), np.empty((0, m)), np.empty(0))
    while n_starts < most and points.values[0] <= threshold:
        Y = unit(rng.standard_normal((min(most - n_starts, max(64, n_starts)), p)))
        found = cheap_steps(G, Y, penalty, 5, smooth=False)
        found = eigen_steps(G, found, penalty, tol, steps)
        points = distinct_maxima(joined(points, found), len(points.Y))
        n_starts += len(Y)
        ends = joined(ends, found)
        ends = Points(*(a[ends.values >= NEAR_BEST * ends.values.max()] for a in ends))
        alone = share_alone(ends, penalty)
        if len(ends.Y) >= LEAST_RESTARTS and alone <= LARGEST_SHARE_ALONE:
            return points, bool(points.values[0] <= threshold)
        if alone * n_starts > 4 * LARGEST_SHARE_ALONE * most:
            break
    return points, False


def share_alone(points: Points, penalty: MatrixPenalty) -> float:
    """The share of points unlike all others, in y or in the slopes (for l1/linf, the signs)."""
    W = unit(penalty.slopes(points.Q))
    alike = (np.abs(points.Y @ points.Y.T) >= SAME_POINT) & (W @ W.T >= SAME_POINT)
    return float((alike.sum(axis=1) == 1).mean())


def eigen_flops(m: int, p: int) -> float:
    """The cost of forming M and of an eigenvector; a small matrix takes as long as 2e4."""
    return 2e4 + 2.0 * m * p**2 + 2.0 * p**3


def joined(first: Points, second: Points) -> Points:
    return Points(*(np.concatenate(pair) for pair in zip(first, second, strict=True)))


def with_random(Y: Floats, n_random: int, m: int, rng: np.random.Generator | None) -> Floats:
    """The points Y (k, p) and random points of the sphere, as many as memory allows."""
    most = max(1, BLOCK_DOUBLES // (m * Y.shape[1]))
    n_random = min(n_random, most - len(Y))
    if rng is None or n_random <= 0:
        return Y[:most]
    return np.vstack([Y, unit(rng.standard_normal((n_random, Y.shape[1])))])


def cheap_steps(
    G: Floats, Y: Floats, penalty: MatrixPenalty, steps: int, smooth: bool = True
) -> Points:
    """Steps from all starts at once: y <- the better vector of span{y, M y}.

    Returns the points where they ended and the best point seen, unsorted.
    """
    image = images_of(G, Y)
    Q = _forms(image, Y)
    values = penalty.dual_norms(Q)
    best = _best(Y, Q, values)
    for t in range(steps):
        # The dual norm becomes less and less smooth.
        W = penalty.slopes(Q, 1 - t / steps) if smooth else penalty.slopes(Q)
        MY = np.matmul(W[:, None, :], image)[:, 0]
        theta = np.einsum("kp,kp->k", MY, Y)
        U = MY - theta[:, None] * Y
        U -= np.einsum("kp,kp->k", U, Y)[:, None] * Y
        coupling = np.sqrt(np.einsum("kp,kp->k", U, U))
        coupling[coupling <= 1e-8 * np.sqrt(np.einsum("kp,kp->k", MY, MY))] = 0
        U /= np.where(coupling > 0, coupling, np.inf)[:, None]
        image_U = images_of(G, U)
        cross, Q_U = _forms(image, U), _forms(image_U, U)
        # The top eigenvector (cos, sin) of [[theta, coupling], [coupling, w'q_U]] on (y, u).
        angle = np.arctan2(2 * coupling, theta - np.einsum("kc,kc->k", W, Q_U)) / 2
        cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
        Y = cos * Y + sin * U
        image *= cos[:, :, None]
        image_U *= sin[:, :, None]
        image += image_U
        Q = cos**2 * Q + 2 * cos * sin * cross + sin**2 * Q_U
        values = penalty.dual_norms(Q)
        best = max(best, _best(Y, Q, values), key=lambda point: point.values)
    return Points(
        *(np.concatenate([a, b[None]]) for a, b in zip((Y, Q, values), best, strict=True))
    )


def _best(Y: Floats, Q: Floats, values: Floats) -> Points:
    top = values.argmax()
    return Points(Y[top], Q[top], values[top])


def distinct_maxima(points: Points, most: int) -> Points:
    """The best few points that are not nearly the same, best first."""
    order = np.argsort(-points.values, kind="stable")
    chosen = order[thin(points.Y[order], most, SAME_POINT)]
    return Points(*(a[chosen] for a in points))


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


def eigen_steps(
    G: Floats, points: Points, penalty: MatrixPenalty, tol: float, steps: int
) -> Points:
    """Steps y <- the top eigenvector of M, until none gains more than tol times the best value.

    Points that no longer gain stay where they are. The result is sorted, best first.
    """
    Y, Q, values = (a.copy() for a in points)
    moving = np.arange(len(Y))
    for _ in range(steps):
        new = top_eigenvectors(G, penalty.slopes(Q[moving]))
        new_Q = forms_of(G, new)
        new_values = penalty.dual_norms(new_Q)
        gains = new_values - values[moving]
        better = gains > 0
        at = moving[better]
        Y[at], Q[at], values[at] = new[better], new_Q[better], new_values[better]
        moving = moving[gains > tol * values.max()]
        if not len(moving):
            break
    order = np.argsort(-values, kind="stable")
    return Points(Y[order], Q[order], values[order])


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


def flip_slopes(
    G: Floats, points: Points, penalty: MatrixPenalty, tol: float, steps: int
) -> Points:
    """Local search around the best maxima: negate one slope, ascend, repeat from what is new.

    It ends when a sweep over all single flips finds no new point among the best.
    """
    flips = 1 - 2 * np.eye(len(G))
    fresh = Points(*(a[:FLIPPED_MAXIMA] for a in points))
    for _ in range(steps):
        W = penalty.slopes(fresh.Q)[:, None, :] * flips
        Y = top_eigenvectors(G, W.reshape(-1, len(G)))
        Q = forms_of(G, Y)
        found = distinct_maxima(Points(Y, Q, penalty.dual_norms(Q)), FLIPPED_MAXIMA)
        found = eigen_steps(G, found, penalty, tol, steps)
        least = points.values[:FLIPPED_MAXIMA][-1]
        new = (np.abs(found.Y @ points.Y.T) < SAME_POINT).all(axis=1)
        fresh = Points(*(a[new & (found.values > (1 + tol) * least)] for a in found))
        if not len(fresh.Y):
            break
        points = distinct_maxima(joined(points, fresh), len(points.Y))
    return points
