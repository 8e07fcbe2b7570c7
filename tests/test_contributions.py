"""Contributions against Shapley values by their definition, and against their axioms."""

import sys
from itertools import combinations
from math import factorial
from types import SimpleNamespace

import numpy as np
import pytest
from estimator_cases import ALL, CLASSIFIERS, REGRESSORS, targets
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.sparse import csr_array

from fastpoly import PolyModel
from fastpoly.tables import Encoding

D = 8


def random_model(seed, activation="squared", m=2, d=D, augment=False, **fields):
    rng = np.random.default_rng(seed)
    H, V = rng.standard_normal((3, d + augment)), rng.standard_normal((3, m))
    linear = rng.standard_normal((m, d))
    return PolyModel(H, V, rng.standard_normal(m), linear, activation, augment, **fields)


def by_definition(model, x, rows, players):
    """Shapley values of groups of features, (players, m); the rest comes from the rows."""
    n = len(players)

    def worth(members):
        mixed = rows.copy()
        for p in members:
            mixed[:, players[p]] = x[players[p]]
        return model.decision(mixed).mean(axis=0)

    values = np.zeros((n, model.n_outputs))
    for p in range(n):
        others = [q for q in range(n) if q != p]
        for size in range(n):
            weight = factorial(size) * factorial(n - size - 1) / factorial(n)
            for members in combinations(others, size):
                values[p] += weight * (worth((*members, p)) - worth(members))
    return values


@pytest.mark.parametrize("augment", [False, True])
@pytest.mark.parametrize("activation", ["squared", "anova"])
def test_equal_shapley_values_by_definition(activation, augment):
    rng = np.random.default_rng(1)
    model = random_model(0, activation, augment=augment)
    x, rows = rng.standard_normal(D), rng.standard_normal((5, D)) @ rng.standard_normal((D, D)) + 1
    want = by_definition(model, x, rows, [[j] for j in range(D)])
    kept = model.with_background(rows)
    for X, z in ((x[None], rows), (csr_array(x[None]), csr_array(rows))):
        found = model.contributions(X, background=z)
        assert_allclose(found.values[0], want, atol=1e-10)
        assert_allclose(found.base_values[0], model.decision(rows).mean(axis=0), atol=1e-10)
        assert_allclose(kept.contributions(X).values, found.values, atol=1e-10)
    for c in range(2):
        assert_allclose(kept.contributions(x[None], c).values[0], want[:, c], atol=1e-10)


def interaction_by_definition(model, x, rows, i, j, d):
    """Half of the Shapley interaction of two features, as shap defines it."""

    def worth(members):
        mixed = rows.copy()
        mixed[:, list(members)] = x[list(members)]
        return model.decision(mixed).mean(axis=0)

    others, total = [q for q in range(d) if q not in (i, j)], 0.0
    for size in range(d - 1):
        weight = factorial(size) * factorial(d - size - 2) / (2 * factorial(d - 1))
        for s in combinations(others, size):
            both, one, other = worth((*s, i, j)), worth((*s, i)), worth((*s, j))
            total = total + weight * (both - one - other + worth(s))
    return total


@pytest.mark.parametrize("activation", ["squared", "anova"])
def test_pairs_are_shapley_interactions(activation):
    rng, d = np.random.default_rng(2), 4
    model, X = random_model(3, activation, d=d), rng.standard_normal((3, d))
    rows = rng.standard_normal((6, d)) @ rng.standard_normal((d, d)) + 1
    for given_ in (X, csr_array(X)):
        found = model.contributions(given_, background=rows, pairs=True).values
        assert found.shape == (3, d, d, 2)
        for i, j in ((0, 1), (2, 3), (3, 0)):
            want = interaction_by_definition(model, X[1], rows, i, j, d)
            assert_allclose(found[1, i, j], want, atol=1e-10)
        plain = model.contributions(X, background=rows).values
        assert_allclose(found.sum(axis=2), plain, atol=1e-10)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.sampled_from(["squared", "anova"]), st.booleans())
def test_axioms(seed, activation, augment):
    """Efficiency; a feature without weights is worth nothing; equal features are worth the same."""
    rng = np.random.default_rng(seed)
    model = random_model(seed, activation, 3, 6, augment, task="classification")
    H, linear = model.H.copy(), model.linear.copy()
    H[:, -1] = linear[:, -1] = 0
    H[:, -2], linear[:, -2] = H[:, -3], linear[:, -3]
    model = PolyModel(H, model.V, model.intercept, linear, activation, augment)
    X, rows = rng.standard_normal((4, 6)), rng.standard_normal((5, 6))
    X[:, -2], rows[:, -2] = X[:, -3], rows[:, -3]
    found = model.contributions(X, background=rows)
    assert_allclose(found.values.sum(axis=1) + found.base_values, model.decision(X), atol=1e-9)
    assert_allclose(found.values[:, -1], 0, atol=1e-12)
    assert_allclose(found.values[:, -2], found.values[:, -3], atol=1e-9)


@pytest.mark.parametrize("cls", ALL)
@pytest.mark.parametrize("sparse", [False, True])
def test_estimators_keep_their_training_rows(cls, sparse, tmp_path):
    """The default background is the weighted training rows, also after saving."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 4)) + 2
    y = targets(cls, X[:, 0] * X[:, 1] - 4 + 0.1 * rng.standard_normal(60))
    w = rng.integers(1, 3, 60)
    X = csr_array(X) if sparse else X
    model = cls(alpha=0.5, random_state=0).fit(X, y, w)
    found = model.contributions(X[:7])
    rows = X[np.repeat(np.arange(60), w)]
    again = model.contributions(X[:7], background=rows)
    assert_allclose(found.values, again.values, atol=1e-10)
    assert_allclose(found.base_values, again.base_values, atol=1e-10)
    sums = found.values.sum(axis=1) + found.base_values
    assert_allclose(sums, model.model_.decision_function(X[:7]), atol=1e-10)
    assert model.components_ is model.model_.H
    model.model_.save(tmp_path / "model.npz")
    loaded = PolyModel.load(tmp_path / "model.npz")
    assert loaded == model.model_
    assert_allclose(loaded.contributions(X[:7]).values, found.values, atol=0)


def test_outputs_are_named_by_classes():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    y = np.array(["a", "b", "c"])[np.digitize(X[:, 0] * X[:, 1], [-0.3, 0.3])]
    model = CLASSIFIERS[0](alpha=1.0, random_state=0).fit(X, y)
    every, one = model.contributions(X), model.contributions(X, "b")
    assert every.values.shape == (60, 3, 3)
    assert every.output_names == ["a", "b", "c"]
    assert_allclose(one.values, every.values[:, :, 1])
    assert len(every[:5]) == 5
    assert every[3].values.shape == (3, 3)


def test_two_classes_explain_the_decision_function():
    model = random_model(5, m=2, task="classification")
    X = np.random.default_rng(0).standard_normal((6, D))
    found = model.contributions(X, background=X)
    sums = found.values.sum(axis=1) + found.base_values
    assert_allclose(sums, model.decision_function(X), atol=1e-10)


def test_large_offsets_cost_no_digits():
    """Means are taken off before products: 1e6 added to a column leaves its values."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 3))
    y = X[:, 0] * X[:, 1]
    far = X + np.array([1e6, 0, 0])
    near, moved = (REGRESSORS[0](alpha=0.1, random_state=0).fit(Z, y) for Z in (X, far))
    assert_allclose(
        moved.contributions(far).values, near.contributions(X).values, atol=1e-3, rtol=1e-3
    )


def test_what_is_missing_is_said():
    model = random_model(0)
    X = np.zeros((2, D))
    with pytest.raises(ValueError, match="does not know its training rows: give background="):
        model.contributions(X)
    with pytest.raises(ValueError, match="pairs=True needs rows: give background="):
        model.with_background(X).contributions(X, pairs=True)
    with pytest.raises(ValueError, match="no rows"):
        model.contributions(X, background=X[:0])
    with pytest.raises(ValueError, match="features"):
        model.contributions(X[:, :3], background=X)


def test_contributions_that_overflow_are_an_error():
    model = random_model(0).with_background(np.eye(D))
    with pytest.raises(ValueError, match="the contributions overflow"):
        model.contributions(np.eye(2, D) * 1e200)


@pytest.mark.parametrize("form", ["codes", "plain", "matrix", "hinges"])
@pytest.mark.parametrize("activation", ["squared", "anova"])
def test_levels_and_shapes_add_up_to_their_column(form, activation):
    """As one player each: levels, a number with a gap, and a list of several levels."""
    rng = np.random.default_rng(0)
    frame = {
        "city": np.array(["Oslo", "Bergen", "Narvik"])[rng.integers(0, 3, 40)].tolist(),
        "age": np.where(rng.random(40) < 0.2, np.nan, rng.normal(40, 10, 40)),
        "likes": [["jazz", "rock"][: rng.integers(0, 3)] for _ in range(40)],
    }
    encoding = Encoding.learn(frame)[0].as_form(form)
    d = len(encoding.column_names)
    model = random_model(1, activation, d=d, encoding=encoding)
    found = model.contributions(frame, background=frame)
    assert found.feature_names == ["city", "age", "likes"]
    assert found.data[3, 0] == frame["city"][3]
    dense = model._encode(frame)
    dense = dense.toarray() if hasattr(dense, "toarray") else dense
    plain, players = random_model(1, activation, d=d), encoding.fields_of_columns
    want = by_definition(plain, dense[3], dense, [np.flatnonzero(players == p) for p in range(3)])
    assert_allclose(found.values[3], want, atol=1e-10)
    pairs = model.contributions(frame, background=frame, pairs=True).values
    assert pairs.shape == (40, 3, 3, 2)
    assert_allclose(pairs.sum(axis=2), found.values, atol=1e-10)


def test_top_interactions_of_an_encoded_frame():
    """Names of levels; no pairs within a field, but for those of a list; rare levels come last."""
    cities = ["Oslo"] * 20 + ["Bergen"] * 18 + ["Narvik"] * 2
    likes = [["jazz", "rock"], ["jazz"], ["rock"], []] * 10
    frame = {"city": cities, "sex": ["f", "m"] * 20, "likes": likes}
    encoding = Encoding.learn(frame)[0]
    d = len(encoding.column_names)
    model = PolyModel(np.ones((1, d)), [[1.0]], [0.0], activation="anova", encoding=encoding)
    model = model.with_background(frame)
    pairs = [set(pair[:2]) for pair in model.top_interactions(0, k=1000)]
    assert {"city=Oslo", "sex=f"} in pairs
    assert {"likes=jazz", "likes=rock"} in pairs
    assert not [pair for pair in pairs if all(name.startswith("city=") for name in pair)]
    first, last = pairs[0], [pair for pair in pairs if any("city" in name for name in pair)][-1]
    assert "city=Narvik" not in first
    assert "city=Narvik" in last
    raw = {coefficient for _, _, coefficient in model.top_interactions(0, k=9, standardized=False)}
    assert raw == {1.0}


@pytest.mark.parametrize("cls", CLASSIFIERS)
def test_columns_of_a_frame(cls):
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    city = np.array(["Oslo", "Bergen", "Narvik"])[rng.integers(0, 3, 150)]
    frame = pandas.DataFrame({"city": city, "age": rng.normal(40, 10, 150)})
    frame.loc[::9, "age"] = np.nan
    y = (city == "Oslo") ^ (frame["age"] > 40)
    model = cls(alpha=0.1, random_state=0).fit(frame, y)
    found = model.contributions(frame)
    assert found.feature_names == ["city", "age"]
    assert found.values.shape == (150, 2)
    sums = found.values.sum(axis=1) + found.base_values
    assert_allclose(sums, model.decision_function(frame), atol=1e-9)
    again = model.contributions(frame, background=frame)
    assert_allclose(again.values, found.values, atol=1e-9)
    names = {name for pair in model.top_interactions(k=4) for name in pair[:2]}
    assert any(name.startswith("city=") for name in names)


def test_to_shap(monkeypatch):
    """The arguments of `shap.Explanation`, which is not installed here."""

    def explanation(values, base_values, data, *, feature_names, output_names):
        return values, base_values, data, feature_names, output_names

    monkeypatch.setitem(sys.modules, "shap", SimpleNamespace(Explanation=explanation))
    X = np.ones((2, D))
    found = random_model(0, output_names=["a", "b"]).contributions(X, background=X)
    values, base, data, names, outputs = found.to_shap()
    assert values.shape == (2, D, 2)
    assert base.shape == (2, 2)
    assert_allclose(data, X)
    assert names == [f"x{j}" for j in range(D)]
    assert outputs == ["a", "b"]
