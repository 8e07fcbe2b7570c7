"""The largest products of pairs of features, without a matrix of all of them."""

import numpy as np
from numpy.typing import NDArray

from fastpoly.kernels.checks import BLOCK_DOUBLES
from fastpoly.state import Floats


def largest_pairs(
    F: Floats, weights: Floats, count: int, fields: NDArray[np.int64] | None = None
) -> tuple[NDArray[np.intp], NDArray[np.intp], Floats]:
    """The pairs i < j with the largest |P_ij|, P = F' diag(weights) F.

    F (k, d), weights (k,). The same in NumPy, with P in memory:

        i, j = np.triu_indices(d, 1);  p = (F.T @ (weights[:, None] * F))[i, j]
        best = np.lexsort((j, i, -abs(p)))[:count];  i[best], j[best], p[best]

    With g_i = sqrt|weights| * F_:i, |P_ij| <= |g_i| |g_j|. Features are taken in decreasing order
    of |g_i|, one block of rows of P at a time; the bound cuts off columns, and then everything that
    remains. BLAS finds the candidates, but products are sums over k in a fixed order, so that
    results do not depend on blocks or BLAS. Pairs of one field (d,), but for -1, and products of 0
    are left out.
    """
    norms = _column_norms(np.sqrt(np.abs(weights))[:, None] * F)
    order = np.argsort(-norms, kind="stable")
    order = order[norms[order] > 0]
    norms, F = norms[order], F[:, order]
    fields = None if fields is None else fields[order]
    with np.errstate(over="ignore"):
        if len(norms) and not np.isfinite(norms[0] * norms[0]):
            raise ValueError("the products overflow float64; rescale the factors")
    # |computed - exact| <= rounding |g_i| |g_j|: a generous bound for products and norms.
    rounding = 4 * (len(weights) + 8) * np.finfo(float).eps

    i = j = np.empty(0, dtype=np.intp)
    products = np.empty(0)
    first, stop = 0, len(norms)
    while first < stop - 1:
        last = min(stop, first + max(1, BLOCK_DOUBLES // (stop - first)))
        block = (F[:, first:last] * weights[:, None]).T @ F[:, first:stop]
        block[np.tril_indices(last - first)] = 0
        if fields is not None:
            block[same_field(fields[first:last], fields[first:stop])] = 0
        np.abs(block, out=block)
        slack = rounding * norms[first] * norms[first]
        least = np.abs(products[-1]) if len(products) == count else 0.0
        at = np.flatnonzero(block > max(least - slack, 0))
        # Done only now that few are left: the count-th largest of the block is a threshold, too.
        if len(at) > count:
            known = np.partition(block.ravel()[at], -count)[-count]
            at = at[block.ravel()[at] >= known - 2 * slack]
        rows, columns = first + at // block.shape[1], first + at % block.shape[1]
        found = _products(F, weights, rows, columns)
        rows, columns = order[rows], order[columns]
        i = np.append(i, np.minimum(rows, columns))
        j = np.append(j, np.maximum(rows, columns))
        products = np.append(products, found)
        best = np.lexsort((j, i, -np.abs(products)))
        best = best[products[best] != 0][:count]
        i, j, products = i[best], j[best], products[best]

        first = last
        if first < stop and len(products) == count:
            bounds = norms[first:stop] * norms[first] * (1 + rounding)
            stop = first + int(np.count_nonzero(bounds >= np.abs(products[-1])))
    return i, j, products


def same_field(a: NDArray[np.int64], b: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which features of fields a (p,) and of fields b (q,) have the same one, (p, q)."""
    return (a[:, None] == b) & (a >= 0)[:, None]


def _column_norms(G: Floats) -> Floats:
    """Euclidean norms of columns; scaled, so that no square underflows."""
    largest = np.abs(G).max(axis=0, initial=0)
    scale = np.where(largest > 0, largest, 1)
    return largest * np.sqrt(((G / scale) ** 2).sum(axis=0))


def _products(F: Floats, weights: Floats, i: NDArray[np.intp], j: NDArray[np.intp]) -> Floats:
    """P_ij of given pairs; the same bits for (i, j) and (j, i)."""
    total = np.zeros(len(i))
    for f, weight in zip(F, weights, strict=True):
        total += weight * (f[i] * f[j])
    return total


def strongest_features(
    F: Floats, weights: Floats, count: int, *, squares: bool,
    fields: NDArray[np.int64] | None = None,
) -> NDArray[np.intp]:  # fmt: skip
    """The `count` features with the largest max_j |P_ij|, P = F' diag(weights) F, without P.

    Going down the entries of P by size, a feature first appears at its largest one, and more than
    (count - 1) (count - 2) / 2 pairs have at least `count` features among them. With `squares` the
    diagonal of P counts. Returns positions, increasing; all d if there are no more than `count`.
    """
    d = F.shape[1]
    if d <= count:
        return np.arange(d)
    i, j, products = largest_pairs(F, weights, (count - 1) * (count - 2) // 2 + 1, fields)
    largest = np.abs(weights @ F**2) if squares else np.zeros(d)
    for features in (i, j):
        np.maximum.at(largest, features, np.abs(products))
    return np.sort(np.argsort(-largest, kind="stable")[:count])


def importances(F: Floats, V: Floats, linear: Floats, squares: bool) -> Floats:
    """Shares of the features in the coefficients of all terms of all outputs, (d,).

    F (k, d), V (k, m), linear (m, d). A feature has the root of the sum of squares of the
    coefficients of its terms: linear, products and, with `squares`, its square.
    """
    total = (linear**2).sum(axis=0)
    products = F @ F.T
    for v in V.T[:, :, None]:
        # The rows of C = F' diag(v) F have |C_j|^2 = f_j' diag(v) F F' diag(v) f_j. The coefficient
        # of x_i x_j is 2 C_ij, that of x_i^2 is C_ii.
        rows = np.einsum("rj,rj->j", F, (v * products * v.T) @ F)
        own = (v[:, 0] @ F**2) ** 2
        total += 4 * np.maximum(rows - own, 0) + squares * own
    roots = np.sqrt(total)
    return roots / (roots.sum() or 1.0)
