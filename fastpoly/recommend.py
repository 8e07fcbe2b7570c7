"""The best items of every user: scores of all pairs in blocks, by BLAS.

The features of a user and of an item are different columns, so the row of a pair is a sum x + t,
and the outputs of a model are those of both alone plus a product:

    o_c(x + t) = o_c(x) + o_c(t) - o_c(0) + a sum_r v_rc (h_r'x) (h_r't)      a: 1 for ANOVA, else 2
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from fastpoly import decoding
from fastpoly.kernels.checks import as_count
from fastpoly.kernels.matrix import as_csr
from fastpoly.model import PolyModel
from fastpoly.state import Floats


class Recommendations(NamedTuple):
    """The best items of every user, the best first.

    Attributes
    ----------
    items : ndarray of int, (n_users, n)
        Positions of items; -1 where there are fewer.
    scores : ndarray, (n_users, n)
        What `predict` gives for the pair; the log odds of the second of two classes.
    probabilities : ndarray, (n_users, n, n_levels), or None
        For levels, those of `predict_proba`.
    """

    items: NDArray[np.intp]
    scores: Floats
    probabilities: Floats | None


def recommend(
    model: Any, users: Any, n: int = 10, *, items: Any = None, exclude: Any = None
) -> Recommendations:
    """The n best items of every user.

    Parameters
    ----------
    model : PolyModel or fitted estimator
        Of one output, of two classes, or of levels, which are ranked by their expected value.
    users : array-like or sparse, (n_users, d)
        Rows of the training with the columns of the users only: the others are 0.
    n : int
    items : array-like or sparse, (n_items, d), optional
        The same of the items. By default, each column that is 0 in all users is an item.
    exclude : sparse or array-like, (n_users, n_items), optional
        Its stored entries (of an array, those that are not 0) are pairs to leave out, such as those
        that were rated.

    Returns
    -------
    Recommendations

    Examples
    --------
    >>> import numpy as np
    >>> from fastpoly import PolyModel, recommend
    >>> model = PolyModel([[1.0, -1.0, 1.0, 2.0, -3.0]], [[1.0]], [0.5], activation="anova")
    >>> users = np.eye(2, 5)  # columns 0 and 1; three items follow
    >>> found = recommend(model, users, 2)
    >>> found.items
    array([[1, 0],
           [2, 0]])
    >>> found.scores
    array([[ 2.5,  1.5],
           [ 3.5, -0.5]])
    """
    model = getattr(model, "model_", model)
    if not isinstance(model, PolyModel):
        raise TypeError(f"model must be a PolyModel or a fitted estimator, got {type(model)}")
    two_classes = model.task == "classification" and model.n_outputs <= 2
    if model.task != "ordinal" and model.n_outputs > 1 and not two_classes:
        raise ValueError("model must have one output, two classes or levels, to rank items by it")
    if model.encoding is not None:
        raise ValueError(
            "model must be fitted on one-hot rows or on Joined, to tell users from items by columns"
        )
    n, users = as_count(n, "n"), _rows(users, model, "users")
    used = np.zeros(model.n_features, dtype=bool)
    used[users.indices] = True
    if items is None:
        columns = np.flatnonzero(~used)
        if model.fields is not None and len(set(model.fields[columns].tolist())) > 1:
            raise ValueError(
                "the columns without users are more than ids of items; give items=, such as "
                "X.entity('item') of Joined rows"
            )
        ones, ends = np.ones(len(columns)), np.arange(len(columns) + 1)
        items = csr_array((ones, columns, ends), shape=(len(columns), model.n_features))
    items = _rows(items, model, "items")
    if not items.shape[0]:
        raise ValueError("there are no items: the users have entries in all columns")
    if used[items.indices].any():
        j = int(items.indices[used[items.indices]][0])
        raise ValueError(
            f"users and items both have entries in column {j}; it must belong to one of them"
        )
    shape = users.shape[0], items.shape[0]
    seen = None if exclude is None else as_csr(csr_array(exclude))
    if seen is not None and seen.shape != shape:
        raise ValueError(f"exclude must have shape {shape}, got {seen.shape}")
    return _best(model, users, items, min(n, shape[1]), seen)


def _rows(X: Any, model: PolyModel, name: str) -> csr_array:
    """Rows in CSR form, of the width of the model, with no stored zeros."""
    X = as_csr(X if issparse(X) else csr_array(np.atleast_2d(np.asarray(X, np.float64))))
    if X.shape[1] != model.n_features:
        raise ValueError(
            f"{name} have {X.shape[1]} columns, the model {model.n_features}; of Joined rows with "
            "newer tables, give X.entity(name, model)"
        )
    X = csr_array((X.data.copy(), X.indices, X.indptr), shape=X.shape)
    X.eliminate_zeros()
    return X


def _best(
    model: PolyModel, users: csr_array, items: csr_array, n: int, seen: Any
) -> Recommendations:
    """The n best items in single precision, and their scores in double."""
    H, V, pairs = model.H[:, model.augment :], model.V, 1.0 + (model.activation == "squared")
    ahead = model.decision(users) - model.decision(csr_array((1, model.n_features)))
    behind, P, Q = model.decision(items), pairs * (users @ H.T), items @ H.T
    levels = model.task == "ordinal"
    if model.task == "classification" and model.n_outputs == 2:  # the log odds of the second class
        V, ahead, behind = (A[:, 1:] - A[:, :1] for A in (V, ahead, behind))
    m, found = V.shape[1], np.full((users.shape[0], n), -1, dtype=np.intp)
    values = np.zeros(0)
    if levels:
        values = model.level_values
        values = decoding.level_values(model.classes, m + 1) if values is None else values
    # One product gives everything: [p v_c, a_c, 1] of a user times [q, 1, b_c] of an item.
    right = [np.column_stack([Q, np.ones(len(Q)), b]).astype(np.float32).T for b in behind.T]
    step = max(1, 2**17 // len(Q))  # scores that stay in the cache while levels are summed up
    for first in range(0, users.shape[0], step):
        rows = slice(first, first + step)
        one, sign = np.ones(len(P[rows])), -1 if levels else 1
        left = [np.column_stack([P[rows] * V[:, c], ahead[rows, c], one]) for c in range(m)]
        O = [(sign * L).astype(np.float32) @ R for L, R in zip(left, right, strict=True)]
        S = _expected(O, values) if levels else O[0]
        if seen is not None:
            own = seen[rows]
            S[np.repeat(np.arange(len(S)), np.diff(own.indptr)), own.indices] = -np.inf
        best = _top(S, n)
        found[rows] = np.where(np.isneginf(np.take_along_axis(S, best, axis=1)), -1, best)
    O = ahead[:, None] + behind[found] + np.einsum("ur,rc,unr->unc", P, V, Q[found], optimize=True)
    chances = decoding.level_probabilities(O.reshape(-1, m)) if levels else None
    scores = O[..., 0] if chances is None else (chances @ values).reshape(found.shape)
    scores = np.exp(scores) if model.task == "rates" else scores
    scores = np.where(found < 0, -np.inf, scores)
    order = np.argsort(-scores, axis=1, kind="stable")
    if chances is not None:
        chances = np.take_along_axis(chances.reshape(*found.shape, -1), order[..., None], axis=1)
    found, scores = (np.take_along_axis(each, order, axis=1) for each in (found, scores))
    return Recommendations(found, scores, chances)


def _top(S: NDArray[np.float32], n: int, size: int = 16) -> NDArray[np.intp]:
    """Positions of the n largest entries of each row, in any order.

    They lie in the n sets of `size` columns with the largest maxima, which are faster to find.
    """
    width = S.shape[1] // size
    if width <= n:
        return np.argpartition(S, S.shape[1] - n, axis=1)[:, S.shape[1] - n :]
    sets = _top(S[:, : size * width].reshape(len(S), size, width).max(axis=1), n)
    columns = (sets[:, None] + width * np.arange(size)[:, None]).reshape(len(S), -1)
    rest = np.broadcast_to(np.arange(size * width, S.shape[1]), (len(S), S.shape[1] % size))
    columns = np.hstack([columns, rest])
    return np.take_along_axis(columns, _top(np.take_along_axis(S, columns, axis=1), n), axis=1)


def _expected(O: list[NDArray[np.float32]], values: Floats) -> NDArray[np.float32]:
    """The expected value of levels, less the last, from -O, which is overwritten."""
    gaps = np.diff(values)
    for o in O:  # p(y <= level)
        np.exp(o, out=o)
        o += 1
        np.reciprocal(o, out=o)
    if len(set(gaps.tolist())) > 1:  # else neither their order nor the gaps matter
        O = [np.float32(gap) * o for gap, o in zip(gaps, np.sort(np.stack(O), axis=0), strict=True)]
    for o in O[1:]:
        O[0] += o
    return np.negative(O[0], out=O[0])
