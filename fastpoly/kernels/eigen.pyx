"""Dominant eigenvectors of all Gamma_c together: one pass over X per step serves every output.

For each output c, this finds the unit vector h_c with the largest |h' Gamma_c h|, an eigenvalue at
either end of the spectrum. Factorization machines on users x items have bipartite Gamma_c, whose
eigenvalues come in pairs +-sigma, for which the plain power method never settles. Two methods do:

lanczos     m recurrences in lockstep, with full reorthogonalization. Q_c (d, j) spans the Krylov
            space of Gamma_c; the eigenvalues of T_c = Q_c' Gamma_c Q_c at both ends are inner
            bounds.
power       the paper's method with a Rayleigh-Ritz step on span{h, Gamma_c h}, which separates a
            pair +-sigma. It is the reference: slower, and it may settle on an eigenvalue that is
            not the largest.

A third, `eigh` of explicit matrices, is used where d is small. The Lanczos recurrences know more
than one eigenvector of each output: `ritz_vectors` returns those of the largest |eigenvalues|.

Outer bounds: A small residual only says that theta is close to some eigenvalue. A start that has
little of the dominant eigenvector v finds the next one first. But the start b is random, so
|v'b| < delta with probability at most delta sqrt(2 d / pi). The Lanczos polynomial
p(t) = det(t I - T_j) has |p(Gamma) b| = beta_1 ... beta_j >= |p(lambda)| |v'b|, so

    prod_i |lambda - theta_i| <= beta_1 ... beta_j / delta,

which bounds |lambda| where it is above all |theta_i|. It is wrong with probability at most FAILURE.
"""

from typing import NamedTuple

import numpy as np

from fastpoly.kernels.explicit cimport ExplicitGamma
from fastpoly.kernels.gamma cimport Gamma
from fastpoly.kernels.gamma_loops cimport choose_gamma_loops, gamma_loops

from fastpoly.kernels.checks import as_float_array, as_generator, as_positive

cdef const gamma_loops* loops = choose_gamma_loops()

METHODS = ("auto", "lanczos", "power", "eigh")

FAILURE = 1e-3                       # probability that an upper bound is wrong, for each output
RANDOM_SHARE = 0.3                   # share of a random vector that is mixed into a given start

EIGH_FEATURES = 48                   # features up to which all spectra cost a few mat-vecs at most


class Dominant(NamedTuple):
    """The result of `dominant_eigenvectors`.

    Attributes
    ----------
    values : ndarray, (m,)
        Rayleigh quotients theta_c = h_c' Gamma_c h_c.
    vectors : ndarray, (m, d)
        Unit vectors h_c.
    residuals : ndarray, (m,)
        |Gamma_c h_c - theta_c h_c|: some eigenvalue is at most this far from theta_c.
    bounds : ndarray, (m,)
        Upper bounds on the largest |eigenvalue|. They are exact for "eigh", and wrong with
        probability at most 1e-3 for "lanczos". For "power" they are only |theta| + residual, and
        the largest |eigenvalue| may exceed them.
    n_matvecs : int
        Passes over X.
    """

    values: np.ndarray
    vectors: np.ndarray
    residuals: np.ndarray
    bounds: np.ndarray
    n_matvecs: int


class Ritz(NamedTuple):
    """The result of `ritz_vectors`; largest |values| first."""

    values: np.ndarray               # (r,), Rayleigh quotients h' Gamma_c h, c the vector's output
    vectors: np.ndarray              # (r, d), unit vectors; those of one output are orthogonal
    outputs: np.ndarray              # (r,), int
    dominant: Dominant               # of `dominant_eigenvectors` after the same steps


class _Krylov(NamedTuple):
    """Lanczos recurrences after j steps: Gamma_c ~ Q_c T_c Q_c', T_c = S_c diag(theta_c) S_c'."""

    Q: np.ndarray                    # (j, d, m)
    theta: np.ndarray                # (m, j), in units of `units`
    S: np.ndarray                    # (m, j, j)
    beta: np.ndarray                 # (m,)
    units: np.ndarray                # (m,)
    log_norm: np.ndarray             # (m,)


def dominant_eigenvectors(
    Gamma gamma not None, method="auto", tol=5e-3, max_matvecs=300, each=False, start=None,
    random_state=None
):
    """Dominant eigenvectors of all outputs.

    Parameters
    ----------
    gamma : Gamma
    method : {"auto", "lanczos", "power", "eigh"}
        "auto" takes "eigh" for explicit matrices of few features, else "lanczos".
    tol : float
        Stop when max(bounds) <= (1 + tol) max|theta| over all outputs.
    max_matvecs : int
    each : bool
        Whether every output on its own must meet this rule, instead of the largest one only.
    start : array-like, (d, m), optional
        Vectors to start from, one column per output. They are mixed with random ones, because a
        start that is already an eigenvector would find nothing else, and the bounds need a random
        start.
    random_state : int, Generator or None

    Returns
    -------
    Dominant

    Examples
    --------
    >>> import numpy as np
    >>> from fastpoly.kernels.eigen import dominant_eigenvectors
    >>> from fastpoly.kernels.explicit import ExplicitGamma
    >>> gamma = ExplicitGamma([np.diag([1.0, -3.0, 2.0])])
    >>> result = dominant_eigenvectors(gamma, "lanczos", random_state=0)
    >>> np.round(result.values, 3)
    array([-3.])
    """
    if method not in METHODS:
        raise ValueError(f"method must be one of {METHODS}, got {method!r}")
    tol = as_positive(tol, "tol")
    if not hasattr(max_matvecs, "__index__"):
        raise TypeError(f"max_matvecs must be an int, got {max_matvecs!r}")
    max_matvecs = max_matvecs.__index__()
    if max_matvecs < 2:
        raise ValueError(f"max_matvecs must be at least 2, got {max_matvecs}")
    gamma._check_made()
    if method == "auto":
        few = isinstance(gamma, ExplicitGamma) and gamma.d <= EIGH_FEATURES
        method = "eigh" if few else "lanczos"
    if method == "eigh":
        return _eigh(gamma)
    rng = as_generator(random_state)
    B, delta = _starts(gamma, start, rng)
    if method == "power":
        return _power(gamma, B, tol, max_matvecs, each)
    return _dominant(_lanczos(gamma, B, delta, tol, 1, max_matvecs, each, rng))


def ritz_vectors(
    Gamma gamma not None, Py_ssize_t n_vectors, Py_ssize_t n_steps, tol=5e-3, max_matvecs=300,
    start=None, random_state=None
):
    """Approximate eigenvectors of the largest |eigenvalues| over all outputs, by Lanczos: a Ritz.

    There are at most n_vectors, for all outputs together, after at least n_steps, even if the rule
    of `dominant_eigenvectors` would stop before. The other parameters are those of that function.

    Examples
    --------
    >>> import numpy as np
    >>> from fastpoly.kernels.eigen import ritz_vectors
    >>> from fastpoly.kernels.explicit import ExplicitGamma
    >>> gamma = ExplicitGamma([np.diag([1.0, -3.0, 2.0]), np.diag([5.0, 0.0, 0.5])])
    >>> result = ritz_vectors(gamma, 3, 3, random_state=0)
    >>> np.round(result.values, 3), result.outputs
    (array([ 5., -3.,  2.]), array([1, 0, 0]))
    """
    gamma._check_made()
    rng = as_generator(random_state)
    B, delta = _starts(gamma, start, rng)
    tol = as_positive(tol, "tol")
    space = _lanczos(gamma, B, delta, tol, n_steps, max(max_matvecs, n_steps), False, rng)
    values = space.units[:, None] * space.theta
    order = np.argsort(-np.abs(values), axis=None, kind="stable")[:n_vectors]
    outputs, which = np.unravel_index(order, values.shape)
    vectors = np.empty((len(order), gamma.d))
    for c in np.unique(outputs):
        own = outputs == c
        vectors[own] = space.S[c][:, which[own]].T @ space.Q[:, :, c]
    norms = np.linalg.norm(vectors, axis=1)
    whole = norms > 0.5              # an exhausted space ends in zeros
    vectors = vectors[whole] / norms[whole, None]
    return Ritz(values[outputs, which][whole], vectors, outputs[whole], _dominant(space))


def _starts(Gamma gamma, start, rng):
    """Unit vectors to start from (d, m); and delta, how little of a direction they may have, (m,).
    """
    B = rng.standard_normal((gamma.d, gamma.m))
    B /= np.linalg.norm(B, axis=0)
    share = np.ones(gamma.m)
    if start is not None:
        start = as_float_array(start, "start", (gamma.d, gamma.m))
        norms = np.linalg.norm(start, axis=0)
        B = RANDOM_SHARE * B + start / np.where(norms > 0, norms, 1)
        norms = np.linalg.norm(B, axis=0)
        B /= norms
        share = RANDOM_SHARE / norms
    return B, FAILURE * np.sqrt(np.pi / (2 * gamma.d)) * share


def _eigh(Gamma gamma):
    G = gamma.dense()
    _check_finite(G)
    values, vectors = np.linalg.eigh(G)
    best = np.abs(values).argmax(axis=1)
    c = np.arange(gamma.m)
    theta = values[c, best]
    return Dominant(theta, np.ascontiguousarray(vectors[c, :, best]), np.zeros(gamma.m),
                    np.abs(theta), 0)


def _check_finite(image):
    if not np.isfinite(image).all():
        raise ValueError("Gamma overflows; scale the data or the loss gradients down")


def _units(image):
    """Powers of two, (m,), by which the columns are divided so that their squares stay in range.

    They are 1 wherever the squares are in range anyway.
    """
    _check_finite(image)
    largest = np.abs(image).max(axis=0)
    units = np.exp2(np.frexp(largest)[1] - 1.0)
    return np.where((largest > 0) & ((largest < 1e-100) | (largest > 1e100)), units, 1.0)


def _is_above(t, theta, log_norm):
    """Whether the bound excludes every |eigenvalue| above t (m,), from the Ritz values theta (m, j)
    and log_norm (m,), the logarithm of beta_1 ... beta_j / delta."""
    with np.errstate(divide="ignore"):
        above = np.log(np.maximum(t[:, None] - theta, 0)).sum(axis=1)
        below = np.log(np.maximum(t[:, None] + theta, 0)).sum(axis=1)
    return (above >= log_norm) & (below >= log_norm)


def _upper_bounds(theta, log_norm):
    """The smallest t that `_is_above`, by bisection."""
    low = np.abs(theta).max(axis=1)
    width = np.where(np.isneginf(log_norm), 0, np.maximum(low, np.finfo(float).tiny))
    while not _is_above(low + width, theta, log_norm).all():
        width = 2 * width
    for _ in range(40):
        width = width / 2
        low = np.where(_is_above(low + width, theta, log_norm), low, low + width)
    return low + width


def _lanczos(Gamma gamma, B, delta, tol, least, max_matvecs, each, rng):
    """Run at least this many steps, until the largest |eigenvalue| is known within tol."""
    cdef Py_ssize_t d = gamma.d, m = gamma.m, width = gamma.width, j = 0, c
    cdef Py_ssize_t steps = min(d, max_matvecs), capacity = min(steps, 16)
    cdef double[:, :, ::1] Q = np.empty((capacity + 1, d, width))
    cdef double[:, ::1] coef = np.zeros((2, width))
    cdef double[:, ::1] again = np.zeros((steps + 1, width))
    cdef double[::1] norms = np.zeros(width)
    cdef double[::1] work = np.empty(gamma.work_size() + 1)
    # T_c is tridiagonal: its diagonal and off-diagonal, one column per output.
    diagonal, off_diagonal = np.zeros((steps, m)), np.zeros((steps, m))
    scale = np.zeros(m)
    log_norm = -np.log(delta)
    Q.base[0, :, :m] = B
    Q.base[0, :, m:] = 0
    for j in range(steps):
        if j + 1 >= Q.shape[0]:
            grown = np.empty((min(steps + 1, 2 * Q.shape[0]), d, width))
            grown[:j + 1] = Q.base
            Q = grown
        gamma.apply_checked(&Q[j, 0, 0], &Q[j + 1, 0, 0], &work[0])
        if j == 0:
            units = _units(Q.base[1, :, :m])
            extreme = bool((units != 1).any())
        if extreme:
            Q.base[j + 1, :, :m] /= units
        with nogil:
            loops.column_dots(&Q[j + 1, 0, 0], &Q[j + 1, 0, 0], d, width, &norms[0])
            # The recurrence needs the last two vectors only. A sweep over all vectors removes the
            # rounding errors along the others.
            loops.orthogonalise(&Q[max(j - 1, 0), 0, 0], min(j + 1, 2), d, width,
                                &Q[j + 1, 0, 0], &coef[0, 0])
            loops.orthogonalise(&Q[0, 0, 0], j + 1, d, width, &Q[j + 1, 0, 0], &again[0, 0])
        _check_finite(norms.base)
        scale = np.maximum(scale, np.sqrt(norms.base[:m]))
        diagonal[j] = coef.base[min(j, 1), :m] + again.base[j, :m]
        with nogil:
            loops.column_dots(&Q[j + 1, 0, 0], &Q[j + 1, 0, 0], d, width, &norms[0])
        beta = np.sqrt(norms.base[:m])
        last = j + 1 == steps
        ended = beta <= 1e-13 * scale
        beta[ended] = 0
        with np.errstate(divide="ignore"):
            log_norm = log_norm + np.log(beta)
        if not last:
            Q.base[j + 1, :, :m] /= np.where(ended, 1.0, beta)
            for c in np.flatnonzero(ended):
                # The Krylov space is invariant: continue from a new direction, as in a restart.
                Q.base[j + 1, :, c] = _new_direction(Q.base[:j + 1, :, c], rng)
            off_diagonal[j] = beta
        if last or (j + 1 >= least and j >= 2 and (j < 8 or j % 3 == 0 or j + 1 == least)):
            theta = np.linalg.eigvalsh(_tridiagonal(diagonal[:j + 1], off_diagonal[:j]))
            values = np.abs(theta[:, [0, j]]).max(axis=1)
            target = (1 + tol) * (values if each else (units * values).max() / units)
            if last or _is_above(target, theta, log_norm).all():
                break
    theta, S = np.linalg.eigh(_tridiagonal(diagonal[:j + 1], off_diagonal[:j]))
    return _Krylov(Q.base[:j + 1, :, :m], theta, S, beta, units, log_norm)


def _dominant(space):
    """The Ritz vector of every output whose |value| is the largest."""
    m, j = space.theta.shape
    best = np.where(-space.theta[:, 0] > space.theta[:, j - 1], 0, j - 1)
    every = np.arange(m)
    h = np.einsum("jdc,cj->cd", space.Q, space.S[every, :, best])
    h /= np.linalg.norm(h, axis=1, keepdims=True)
    residuals = space.units * space.beta * np.abs(space.S[every, j - 1, best])
    return Dominant(space.units * space.theta[every, best], h, residuals,
                    space.units * _upper_bounds(space.theta, space.log_norm), int(j))


def _tridiagonal(diagonal, off_diagonal):
    """The matrices (m, j, j) with these diagonals (j, m) and off-diagonals (j - 1, m)."""
    j, m = diagonal.shape
    T = np.zeros((m, j, j))
    i = np.arange(j)
    T[:, i, i] = diagonal.T
    T[:, i[1:], i[:j - 1]] = T[:, i[:j - 1], i[1:]] = off_diagonal.T
    return T


def _new_direction(Q, rng):
    """A random unit vector orthogonal to the rows of Q (j, d)."""
    for _ in range(3):
        v = rng.standard_normal(Q.shape[1])
        for _ in range(2):
            v -= Q.T @ (Q @ v)
        norm = np.linalg.norm(v)
        if norm > 1e-8:
            return v / norm
    return np.zeros(Q.shape[1])


def _power(Gamma gamma, H, tol, max_matvecs, each):
    """h <- the better Ritz vector of span{h, Gamma h}; one mat-vec per step."""
    image = gamma.matvecs(H)
    units = _units(image)
    image /= units
    for n_matvecs in range(1, max_matvecs + 1):
        theta = np.einsum("dc,dc->c", H, image)
        R = image - theta * H
        residuals = np.linalg.norm(R, axis=0)
        values = np.abs(theta)
        target = (1 + tol) * (values if each else (units * values).max() / units)
        if n_matvecs == max_matvecs or (values + residuals <= target).all():
            break
        U = R / np.where(residuals > 0, residuals, 1)
        U -= H * np.einsum("dc,dc->c", H, U)
        norms = np.linalg.norm(U, axis=0)
        U /= np.where(norms > 0, norms, 1)
        image_U = gamma.matvecs(U) / units
        # T = [[theta, b], [b, a]] on the orthonormal pair (h, u)
        T = np.empty((gamma.m, 2, 2))
        T[:, 0, 0] = theta
        T[:, 0, 1] = T[:, 1, 0] = np.einsum("dc,dc->c", H, image_U)
        T[:, 1, 1] = np.einsum("dc,dc->c", U, image_U)
        ritz, S = np.linalg.eigh(T)
        best = np.abs(ritz).argmax(axis=1)
        s = S[np.arange(gamma.m), :, best].T
        H = s[0] * H + s[1] * U
        image = s[0] * image + s[1] * image_U
        norms = np.linalg.norm(H, axis=0)
        H, image = H / norms, image / norms
    return Dominant(units * theta, np.ascontiguousarray(H.T), units * residuals,
                    units * (values + residuals), n_matvecs)
