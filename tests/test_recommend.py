"""The best items against predictions of all pairs, one by one."""

import numpy as np
import pytest
import scipy.sparse as sp

from fastpoly import FactorizationMachineRegressor, Joined, PolyModel, recommend
from fastpoly.metrics import recall

KINDS = {
    "regression": {"task": "regression"},
    "rates": {"task": "rates"},
    "ordinal": {"task": "ordinal", "classes": [1, 2, 3, 4]},
    "values": {"task": "ordinal", "classes": ["bad", "fair", "good", "best"],
               "level_values": [0.0, 1.0, 4.0, 9.0]},
    "classes": {"task": "classification", "classes": ["no", "yes"]},
}  # fmt: skip
OUTPUTS = {"regression": 1, "rates": 1, "ordinal": 3, "values": 3, "classes": 2}


def score_of(model, X):
    if model.task == "classification":
        return model.decision_function(X)
    return model.predict(X)


@pytest.mark.parametrize("augment", [False, True])
@pytest.mark.parametrize("activation", ["anova", "squared"])
@pytest.mark.parametrize("kind", KINDS)
def test_all_pairs(kind, activation, augment):
    rng = np.random.default_rng(0)
    d, n_users, n_items, m = 9, 4, 171, OUTPUTS[kind]
    model = PolyModel(
        rng.standard_normal((3, d + augment)), rng.standard_normal((3, m)) / 3,
        rng.standard_normal(m), rng.standard_normal((m, d)), activation=activation,
        augment=augment, **KINDS[kind],
    )  # fmt: skip
    users, items = np.zeros((n_users, d)), np.zeros((n_items, d))
    users[:, :4], items[:, 4:] = rng.standard_normal((n_users, 4)), rng.random((n_items, 5))
    items[:, 4:] *= rng.random((n_items, 5)) < 0.6
    seen = sp.random_array((n_users, n_items), density=0.3, rng=rng, format="coo")
    found = recommend(model, users, 5, items=sp.csc_array(items), exclude=seen)
    for u in range(n_users):
        all_scores = score_of(model, users[u] + items)
        all_scores[seen.tocsr()[[u]].indices] = -np.inf
        np.testing.assert_array_equal(found.items[u], np.argsort(-all_scores)[:5])
        np.testing.assert_allclose(found.scores[u], np.sort(all_scores)[::-1][:5], rtol=1e-6)
        if model.task == "ordinal":
            P = model.predict_proba(users[u] + items[found.items[u]])
            np.testing.assert_allclose(found.probabilities[u], P, atol=1e-12)
    assert (found.probabilities is None) == (model.task != "ordinal")


def test_few_items():
    """Where nothing is left, items are -1; by default the columns without users are the items."""
    model = PolyModel([[1.0, 2.0, 3.0, -1.0]], [[1.0]], [0.0], activation="anova")
    users = sp.csr_array(np.eye(2, 4))
    found = recommend(model, users, 5, exclude=sp.csr_array([[0, 1], [1, 1]]))
    np.testing.assert_array_equal(found.items, [[0, -1], [-1, -1]])
    assert found.scores[0, 0] == 3.0
    assert np.isneginf(found.scores[1]).all()


def test_bad_input():
    model = PolyModel([[1.0, 2.0, 3.0]], [[1.0]], [0.0])
    with pytest.raises(TypeError, match="PolyModel or a fitted"):
        recommend(object(), np.eye(1, 3))
    with pytest.raises(ValueError, match="users have 2 columns, the model 3"):
        recommend(model, np.eye(1, 2))
    with pytest.raises(ValueError, match="both have entries in column 0"):
        recommend(model, np.eye(1, 3), items=np.eye(2, 3))
    with pytest.raises(ValueError, match="no items"):
        recommend(model, np.ones((1, 3)))
    with pytest.raises(ValueError, match=r"exclude must have shape \(1, 2\)"):
        recommend(model, np.eye(1, 3), exclude=sp.csr_array((1, 3)))
    with pytest.raises(ValueError, match="one output"):
        recommend(PolyModel([[1.0, 2.0]], [[1.0, 2.0]], [0.0, 0.0]), np.eye(1, 2))


def test_a_model_of_a_frame_has_no_columns_of_users():
    frame = {"user": list("ab") * 20, "item": list("cdef") * 10}
    model = FactorizationMachineRegressor(alpha=0.1).fit(frame, np.arange(40.0))
    with pytest.raises(ValueError, match="one-hot rows or on Joined"):
        recommend(model, {"user": ["a"]})


def test_joined_rows():
    """Items are keys of a table, not its columns; rows themselves are no array."""
    rows = {"user": [0, 1] * 20, "item": [0, 1, 2, 3] * 10}
    X = Joined(rows, user=None, item={"item": range(4), "genre": list("abab")})
    model = FactorizationMachineRegressor(alpha=0.1).fit(X, np.arange(40.0) % 3)
    with pytest.raises(ValueError, match=r"more than ids of items; give items=, such as X.entity"):
        recommend(model, X.entity("user"))
    with pytest.raises(TypeError, match=r"Joined rows are no array: give X.plain\(\)"):
        recommend(model, X)
    seen = np.zeros((2, 4))
    seen[0, 3] = 1
    found = recommend(model, X.entity("user"), 4, items=X.entity("item"), exclude=seen)
    assert found.items[0, 3] == -1
    assert set(found.items[1]) == set(range(4))


def test_recall():
    y, users = np.array([1, 0, 1, 0, 1, 0, 0]), np.array([0, 0, 0, 1, 1, 2, 2])
    score = np.array([3.0, 2.0, 1.0, 5.0, 5.0, 1.0, 2.0])
    names, values = recall(y, score, users, 1, per_group=True)
    np.testing.assert_array_equal(names, [0, 1, 2])
    np.testing.assert_array_equal(values, [0.5, 0.5, np.nan])  # a tie counts by halves
    assert recall(y, score, users, 2) == 0.75
    assert recall(y, -score, users, 2) == 0.75
    assert recall(y, -score, users, 1) == 0.5
    with pytest.raises(ValueError, match="no group has a relevant"):
        recall(0 * y, score, users, 2)
