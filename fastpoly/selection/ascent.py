"""Monotone ascent of ||q(h)||_* over |h| <= 1 on m explicit matrices.

    q_c(h) = h' G_c h,   G (m, p, p),   M(w) = sum_c w_c G_c,   w = slopes of ||.||_* at q(h)

The problem is not convex in h, but the dual norm is convex in q. So a step to any h+ with
h+' M h+ >= h' M h never loses:

    ||q(h+)||_* >= w'q(h+) = h+' M h+ >= h' M h = ||q(h)||_*.

Two such steps are used. The better vector of span{h, M h} is cheap, and is taken from many starts
at once. The top eigenvector of M is the best step, and is taken from the few best points.

There are many local maxima. Three things help to find the highest. There are many starts, and the
better half of them continues after every ten steps. The cheap steps use slopes of a smoothed dual
norm, because with plain signs an eigenvector of G_c is often a fixed point already (multi-class
gradients sum to zero over the outputs). A thorough search also has random starts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastpoly.kernels.checks import BLOCK_DOUBLES

if TYPE_CHECKING:
    from fastpoly.kernels.penalties import MatrixPenalty  # a protocol, known to type checkers only

Floats = NDArray[np.float64]


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
        Steps from all starts; the better half of the starts continues after every ten.
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


# For l1/l2 they take about 1.5 and 20 ms with 11 outputs and 11 features, and 7 and 120 ms with 10
# outputs and 65 features. On three trained models with l1/l2 and l1/linf, six seeds each, the
# thorough search came within 4e-7 of the best known value in every run. With 128 random starts, 5
# cheap steps and precision 0.1 it missed the best by 5e-4 in 185 of 300 runs.
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
    eigenvectors=128,
    random=1024,
    cheap_steps=40,
    maxima=12,
    precision=1e-3,
    sign_flops=3e9,
    row_signs=64,
)


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


def with_random(Y: Floats, n_random: int, m: int, rng: np.random.Generator | None) -> Floats:
    """The points Y (k, p) and random points of the sphere, as many as memory allows."""
    most = max(1, BLOCK_DOUBLES // (m * Y.shape[1]))
    n_random = min(n_random, most - len(Y))
    if rng is None or n_random <= 0:
        return Y[:most]
    return np.vstack([Y, unit(rng.standard_normal((n_random, Y.shape[1])))])


def cheap_steps(G: Floats, Y: Floats, penalty: MatrixPenalty, steps: int) -> Points:
    """Steps from all starts at once: y <- the better vector of span{y, M y}.

    Returns the points where they ended and the best point seen, unsorted. Every ten steps, the
    worse half of the starts is given up.
    """
    image = images_of(G, Y)
    Q = _forms(image, Y)
    values = penalty.dual_norms(Q)
    best = _best(Y, Q, values)
    for t in range(steps):
        if t and t % 10 == 0:
            top = np.sort(np.argsort(-values, kind="stable")[: (len(Y) + 1) // 2])
            Y, Q, image = Y[top], Q[top], image[top]
        W = penalty.slopes(Q, 1 - t / steps)  # the dual norm becomes less and less smooth
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
    chosen = order[thin(points.Y[order], most, 0.99)]
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
        M = np.tensordot(penalty.slopes(Q[moving]), G, 1)
        new = np.linalg.eigh(M)[1][:, :, -1]
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
