"""The climb to a local maximum of the dual norm of q_c(h) = h' Gamma_c h over |h| <= 1.

The problem is not convex in h, but it is in q. So the step

    h <- a better vector for M = sum_c w_c Gamma_c,   w in the subdifferential at q(h)

never loses: ||q(new)||_* >= w'q(new) = new' M new >= h' M h = ||q(h)||_*. The top eigenvector of M
is the best such step, the better vector of span{h, M h} a cheap one. (The paper's h <- M h / |M h|
needs a line search; from one start on users x items it took up to 28 steps where eigen-steps took
3, on dense data of few features about as many.)

Two things keep the climb from ending on a poor local maximum. It starts from many points at once.
And for the first few steps w comes from a smoothed dual norm: with signs for w an eigenvector of
Gamma_c is a fixed point already, since multi-class gradients sum to zero over the outputs. The
smoothing is the penalty's own criterion (Huber for l1/linf), with a threshold relative to the
largest |q_c|, so that the scale of the gradients does not matter.

Few features: all of this happens on the m matrices. Many: on their projections to a subspace that
holds the starts and grows by the direction that promises most, one pass over X each. A pass for all
outputs tells the whole projected problem. A pass for one combination does not; it is cheaper with
many outputs, but not with the four of users x items.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fastpoly.kernels.gamma import Gamma
from fastpoly.kernels.penalties import L1L2, L1Linf

if TYPE_CHECKING:
    from fastpoly.kernels.penalties import PenaltyLike  # a protocol, known to type checkers only

SMOOTH_STEPS = 5  # steps during which the dual norm is smoothed, less and less
SHARP = 1e-6  # threshold that smooths nothing worth mentioning
MAX_STARTS = 16  # vectors put in the subspace to begin with, each a pass over X
MAX_PEAKS = 3  # local maxima that are followed
THOROUGH_PEAKS = 20  # the same in a thorough search
RANDOM_STARTS = 128  # of a thorough search
MOST_DOUBLES = 2**24  # of one array; with thousands of outputs there are fewer starts
HOPE = 0.5  # share of a residual that counts as gain to come; the gain is quadratic in it

Floats = NDArray[np.float64]


def unit(h: Floats) -> Floats:
    return h / np.linalg.norm(h)


def dual_norm(penalty: PenaltyLike, q: Floats) -> float:
    return float(penalty.dual_norm(q[None]))


def dual_norms(penalty: PenaltyLike, q: Floats) -> Floats:
    """Dual norm of every row; the common penalties all rows at once."""
    if type(penalty) is L1L2:
        return np.linalg.norm(q, axis=1)
    if type(penalty) is L1Linf:
        return np.abs(q).sum(axis=1)
    return np.array([dual_norm(penalty, row) for row in q])


def forms_of(G: Floats, Y: Floats) -> Floats:
    """y_k' G_c y_k, (k, m)."""
    return np.einsum("kcp,kp->kc", _images(G, Y), Y)


def _images(G: Floats, Y: Floats) -> Floats:
    """G_c y_k, (k, m, p)."""
    m, p, _ = G.shape
    return (Y @ G.reshape(m * p, p).T).reshape(len(Y), m, p)


def _weights(penalty: PenaltyLike, q: Floats, threshold: float) -> Floats:
    """Slopes of the dual norm at the rows of q, smoothed below `threshold` times the largest |q_c|.

    Scaled so that w'q is the dual norm, as it is for a subgradient.
    """
    largest = np.abs(q).max(axis=1, keepdims=True)
    scaled = q / np.where(largest > 0, largest, 1) / threshold
    if type(penalty) is L1L2:
        W = scaled
    elif type(penalty) is L1Linf:
        W = np.clip(scaled, -1, 1)
    else:
        W = np.array([penalty.criterion(row)[1] for row in scaled])
    products = np.einsum("kc,kc->k", W, q)
    W *= (dual_norms(penalty, q) / np.where(products > 0, products, 1))[:, None]
    return W


def climb(
    G: Floats,
    Y: Floats,
    penalty: PenaltyLike,
    tol: float,
    steps: int = 20,
    peaks: int = MAX_PEAKS,
) -> tuple[Floats, Floats, Floats]:
    """Points (k, p), forms (k, m) and dual norms (k,) of the local maxima found, best first."""
    smooth = min(steps, SMOOTH_STEPS)
    Y = _peaks(G, _ritz_steps(G, Y, penalty, smooth), penalty, peaks)
    return _eigen_steps(G, Y, penalty, tol / 10, steps - smooth)


def _ritz_steps(G: Floats, Y: Floats, penalty: PenaltyLike, steps: int) -> Floats:
    """Smoothed steps from all starts at once: y <- the better vector of span{y, M y}.

    Returns where they ended and, last, the best point seen, (k + 1, p).
    """
    image = _images(G, Y)
    q = np.einsum("kcp,kp->kc", image, Y)
    best, best_value = Y[0], -1.0
    for t in range(steps + 1):
        values = dual_norms(penalty, q)
        top = values.argmax()
        if values[top] > best_value:
            best, best_value = Y[top], values[top]
        if t == steps:
            break
        W = _weights(penalty, q, 1 - t / SMOOTH_STEPS)
        MY = np.einsum("kc,kcp->kp", W, image)
        theta = np.einsum("kp,kp->k", MY, Y)
        U = MY - theta[:, None] * Y
        U -= np.einsum("kp,kp->k", U, Y)[:, None] * Y
        coupling = np.linalg.norm(U, axis=1)
        coupling[coupling <= 1e-8 * np.linalg.norm(MY, axis=1)] = 0
        U /= np.where(coupling > 0, coupling, np.inf)[:, None]
        image_U = _images(G, U)
        cross = np.einsum("kcp,kp->kc", image, U)
        q_U = np.einsum("kcp,kp->kc", image_U, U)
        # The top eigenvector (cos, sin) of [[theta, coupling], [coupling, w'q_U]] on (y, u).
        angle = np.arctan2(2 * coupling, theta - np.einsum("kc,kc->k", W, q_U)) / 2
        cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
        Y = cos * Y + sin * U
        image = cos[:, :, None] * image + sin[:, :, None] * image_U
        q = cos**2 * q + 2 * cos * sin * cross + sin**2 * q_U
    return np.vstack([Y, best])


def _eigen_steps(
    G: Floats, Y: Floats, penalty: PenaltyLike, tol: float, steps: int
) -> tuple[Floats, Floats, Floats]:
    """y <- the top eigenvector of M, until no start gains more than tol.

    Returns the points (k, p), their forms (k, m) and dual norms (k,), best first.
    """
    q = forms_of(G, Y)
    values = dual_norms(penalty, q)
    for _ in range(steps):
        M = np.tensordot(_weights(penalty, q, SHARP), G, 1)
        new = np.linalg.eigh(M)[1][:, :, -1]
        new_q = forms_of(G, new)
        new_values = dual_norms(penalty, new_q)
        better = new_values > values
        Y = np.where(better[:, None], new, Y)
        q = np.where(better[:, None], new_q, q)
        gained = new_values - values > tol * values.max()
        values = np.where(better, new_values, values)
        if not gained.any():
            break
    order = np.argsort(-values, kind="stable")
    return Y[order], q[order], values[order]


def _peaks(G: Floats, Y: Floats, penalty: PenaltyLike, most: int) -> Floats:
    """The best few points of Y that are not nearly the same, best first."""
    order = np.argsort(-dual_norms(penalty, forms_of(G, Y)), kind="stable")
    chosen: list[int] = []
    for k in order:
        if len(chosen) < most and (np.abs(Y[chosen] @ Y[k]) < 0.99).all():
            chosen.append(k)
    return Y[chosen]


def _with_random(Y: Floats, rng: np.random.Generator | None, m: int) -> Floats:
    """The points Y (k, p) and, with a generator, random ones of the sphere.

    Only the first ones where (k, m, p) images would be too many.
    """
    most = max(1, MOST_DOUBLES // (m * Y.shape[1]))
    Y = Y[:most]
    if rng is None or len(Y) == most:
        return Y
    random = rng.standard_normal((min(RANDOM_STARTS, most - len(Y)), Y.shape[1]))
    return np.vstack([Y, random / np.linalg.norm(random, axis=1, keepdims=True)])


# ---- the climb on any Gamma ----------------------------------------------------------------------


class Subspace:
    """Gamma_c projected to the span of orthonormal vectors: A_c = Q' Gamma_c Q, (m, p, p)."""

    def __init__(self, gamma: Gamma, capacity: int) -> None:
        self.gamma = gamma
        self.Q = np.empty((capacity, gamma.d))
        self.images: list[Floats] = []  # Gamma_c Q_j for all outputs, (d, m) each
        self._A = np.empty((gamma.m, capacity, capacity))

    @property
    def size(self) -> int:
        return len(self.images)

    @property
    def A(self) -> Floats:
        return np.ascontiguousarray(self._A[:, : self.size, : self.size])

    def add(self, x: Floats) -> bool:
        """Take x in, for one pass over X; False when the span has it already."""
        p = self.size
        Q = self.Q[:p]
        x = unit(x)
        for _ in range(2):
            x = x - (Q @ x) @ Q
        norm = np.linalg.norm(x)
        if p == len(self.Q) or norm < 1e-6:
            return False
        self.Q[p] = x / norm
        image = self.gamma.matvecs(np.repeat(self.Q[p][:, None], self.gamma.m, axis=1))
        self.images.append(image)
        self._A[:, p, : p + 1] = self._A[:, : p + 1, p] = (self.Q[: p + 1] @ image).T
        return True

    def residual(self, y: Floats, w: Floats) -> Floats:
        """M h - (h' M h) h for h = Q y: the way out of the subspace that M points to."""
        h = y @ self.Q[: self.size]
        Mh = sum(y_j * (image @ w) for y_j, image in zip(y, self.images, strict=True))
        return Mh - (h @ Mh) * h


def refine(
    gamma: Gamma,
    dense: Floats | None,
    starts: Floats,
    penalty: PenaltyLike,
    tol: float,
    max_iter: int,
    rng: np.random.Generator | None = None,
) -> tuple[Floats, int]:
    """Climb from the rows of `starts`; the best vector and the passes over X it took.

    With a generator also from random points, as many as take no pass over X, and follow more.
    """
    peaks = MAX_PEAKS if rng is None else THOROUGH_PEAKS
    if dense is not None:
        starts = _with_random(starts, rng, gamma.m)
        return climb(dense, starts, penalty, tol, max_iter, peaks)[0][0], 0
    largest = max(4, int(np.sqrt(MOST_DOUBLES / gamma.m)))
    starts = starts[: min(MAX_STARTS, largest // 2)]
    space = Subspace(gamma, min(len(starts) + max_iter, largest))
    for x in starts:
        space.add(x)
    Y = _with_random(starts @ space.Q[: space.size].T, rng, gamma.m)
    Y, q, values = climb(space.A, Y, penalty, tol, peaks=peaks)
    for _ in range(max_iter):
        W = _weights(penalty, q, SHARP)
        residuals = np.array([space.residual(y, w) for y, w in zip(Y, W, strict=True)])
        # The rule of the eigen-solver: |residual| is what M may still add to a value.
        hopes = values + HOPE * np.linalg.norm(residuals, axis=1)
        top = hopes.argmax()
        if hopes[top] <= (1 + tol) * values[0] or not space.add(residuals[top]):
            break
        Y = np.pad(Y, ((0, 0), (0, 1)))
        Y, q, values = _eigen_steps(space.A, Y, penalty, tol / 10, 10)
    return Y[0] @ space.Q[: space.size], space.size
