"""What draws of models are good for: their mean as one small model, diagnostics, calibration."""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, logit, softmax

from fastpoly.state import Floats, Model


def compressed(
    models: Callable[[], Iterator[Model]], fields: NDArray[np.intp], exclusive: NDArray[np.bool_],
    squared: bool, unit: Floats, n_components: int, width: int = 40,
) -> tuple[Floats, Floats, float]:  # fmt: skip
    """H (r, d), V (r, m) of the mean of models that share V, and the share of squares they miss.

    Output c of the mean is x' M_c x with M_c = sum_r v_rc E[h_r h_r'], which has no low rank. It is
    approximated in the least squares of the entries that matter, weighted by `unit` (d,), the root
    mean squares of columns, and within `width` dimensions of each field.
    """
    own = [np.flatnonzero(fields == f) for f in range(len(exclusive))]
    V, n, units = next(models()).V, 0, [unit[j].astype(np.float32) for j in own]

    def draws() -> Iterator[list[NDArray[np.float32]]]:  # (k, d_f) by field, of a draw at a time
        for model in models():
            H = np.asarray(model.H, np.float32)
            yield [H[:, j] * u for j, u in zip(own, units, strict=True)]

    bases = field_ranges(draws, [len(j) for j in own], V, exclusive, width)
    labels = np.repeat(np.arange(len(own)), [Q.shape[1] for Q in bases])
    G, H = np.zeros((V.shape[1], len(labels), len(labels))), np.zeros((len(V), len(labels)))
    for parts in draws():
        n += 1
        P = np.hstack([part @ Q for part, Q in zip(parts, bases, strict=True)])
        H += P
        for c, core in enumerate(G):
            core += (P.T * V[:, c]) @ P
    mask = (labels[:, None] != labels) | ~exclusive[labels]
    if not squared:  # a column does not meet itself
        whole = np.array([len(j) == Q.shape[1] for j, Q in zip(own, bases, strict=True)])
        mask &= ~np.diag(whole[labels])
    largest = np.argsort(-np.linalg.norm(H, axis=1), kind="stable")[:n_components]
    H, V, missed = factorize(G / n, mask, H[largest] / n, V[largest])
    full = np.zeros((len(H), len(fields)))
    for f, (j, Q) in enumerate(zip(own, bases, strict=True)):
        full[:, j] = H[:, labels == f] @ Q.T
    H = np.divide(full, unit, out=np.zeros_like(full), where=unit > 0)
    norms = np.linalg.norm(H, axis=1, keepdims=True)
    norms[norms == 0] = 1.0
    return H / norms, V * norms**2, missed


def field_ranges(
    draws: Callable[[], Iterator[list[NDArray[np.float32]]]], sizes: list[int], V: Floats,
    exclusive: NDArray[np.bool_], width: int,
) -> list[Floats]:  # fmt: skip
    """Orthonormal columns for every field, (d_f, at most width), that nearly span the mean."""
    rng = np.random.default_rng(0)
    tests = np.split(rng.standard_normal((sum(sizes), width)), np.cumsum(sizes)[:-1])
    weight = V @ rng.standard_normal((V.shape[1], width))
    for _ in range(2):  # the second sketch has far less of the noise of the draws
        sketches = [np.zeros((size, width)) for size in sizes]
        for parts in draws():
            ahead = [part @ np.float32(test) for part, test in zip(parts, tests, strict=True)]
            total = sum(ahead)
            for sketch, part, one, apart in zip(sketches, parts, ahead, exclusive, strict=True):
                sketch += part.T @ np.float32(weight * (total - apart * one))
        bases = [np.linalg.qr(sketch)[0] for sketch in sketches]
        for test, Q in zip(tests, bases, strict=True):
            test[:, : Q.shape[1]] = Q
    return [np.eye(s) if s <= width else Q for s, Q in zip(sizes, bases, strict=True)]


def factorize(
    G: Floats, mask: NDArray[np.bool_], H: Floats, V: Floats
) -> tuple[Floats, Floats, float]:
    """Minimize sum_c |mask (G_c - H' diag(V_c) H)|^2 from H (r, D), V (r, m); G is (m, D, D).

    Also returns the share of |G|^2 that is left.
    """
    r, D = H.shape
    total = float((G * mask * G).sum()) or 1.0

    def value_grad(x: Floats) -> tuple[float, Floats]:
        H, V = x[: r * D].reshape(r, D), x[r * D :].reshape(r, -1)
        E = (np.einsum("rc,ri,rj->cij", V, H, H, optimize=True) - G) * mask
        EH = np.einsum("cij,rj->cri", E, H, optimize=True)
        gH = 4 * np.einsum("rc,cri->ri", V, EH)
        gV = 2 * np.einsum("cri,ri->rc", EH, H)
        return float((E * E).sum()) / total, np.concatenate([gH.ravel(), gV.ravel()]) / total

    found = minimize(
        value_grad, np.concatenate([H.ravel(), V.ravel()]), jac=True, method="L-BFGS-B",
        options={"maxiter": 500, "ftol": 1e-8},
    )  # fmt: skip
    return found.x[: r * D].reshape(r, D), found.x[r * D :].reshape(r, -1), float(found.fun)


def composite_temper(O: Floats) -> float:
    """T for the outputs O (n, m) of ordered levels, whose loss counts each row m times.

    It is v'Hv / v'Jv for a common shift v of all outputs, with the curvature H of the loss and the
    covariance J of its gradients under the model itself: p_c (1 - p_e) for levels c <= e.
    """
    P = np.sort(expit(O), axis=1)
    curvature = (P * (1 - P)).sum()
    later = np.cumsum((1 - P)[:, ::-1], axis=1)[:, ::-1] - (1 - P)  # sum of 1 - p_e over e > c
    return float(curvature / (curvature + 2 * (P * later).sum())) if curvature else 1.0


def split_rhat(draws: Floats) -> float:
    """The median of the split R-hat over the outputs of draws, (N, ...): 1 if they have mixed."""
    half = len(draws) // 2
    if half < 2:
        return 1.0
    halves = np.stack([draws[:half], draws[-half:]])
    within = halves.var(axis=1, ddof=1).mean(axis=0)
    between = halves.mean(axis=1).var(axis=0, ddof=1)
    some = within > 0
    ratio = (half - 1) / half + between[some] / within[some]
    return float(np.sqrt(np.median(ratio))) if some.any() else 1.0


def effective_draws(draws: Floats) -> float:
    """The median over outputs of the number of independent draws, by means of batches."""
    length = max(1, int(np.sqrt(len(draws))))
    n_batches = len(draws) // length
    batches = draws[: n_batches * length].reshape(n_batches, length, *draws.shape[1:])
    spread = length * batches.mean(axis=1).var(axis=0)
    some = spread > 0
    found = len(draws) * draws.var(axis=0)[some] / spread[some]
    return float(min(np.median(found), len(draws))) if some.any() else float(len(draws))


def calibrated(model: Model, O: Floats, draws: Floats, target: str) -> Model:
    """The model with outputs scaled so that its probabilities are the means of those of draws.

    The probabilities of mean outputs are too sure. Each output gets the slope of the log odds of
    the mean probability over the outputs O (n, m) of the model; draws are (N, n, m).
    """
    if target == "sign":
        P = expit(draws).mean(axis=0)
        wanted, weight = logit(np.clip(P, 1e-9, 1 - 1e-9)), P * (1 - P)
        slope = (weight * wanted * O).sum(axis=0) / (weight * O * O).sum(axis=0)
    elif target == "label":
        P = softmax(draws, axis=2).mean(axis=0)
        wanted = np.log(np.maximum(P, 1e-9))
        wanted, O = (A - A.mean(axis=1, keepdims=True) for A in (wanted, O))
        slope = np.full(O.shape[1], (P * wanted * O).sum() / (P * O * O).sum())
    else:
        return model
    slope = np.where(np.isfinite(slope), np.clip(slope, 0.1, 1.0), 1.0)
    linear = None if model.linear is None else model.linear * slope
    return Model(model.H, model.V * slope, model.intercept * slope, linear)
