"""Models are trained in the span of their rows: the optimum is that of all features."""

import tracemalloc

import numpy as np
import pytest
from scipy.sparse import csr_array, random_array
from sklearn.base import clone

from fastpoly import (
    Design,
    FactorizationMachineClassifier,
    FactorizationMachineRegressor,
    PathSearchCV,
    PolynomialNetworkClassifier,
    PolynomialNetworkRegressor,
    conditional_gradient,
)
from fastpoly.rows.statistics import Scaling, row_statistics
from fastpoly.state import Model

EXACT = {"alpha": 0.5, "alpha_linear": 0.3, "tol": 1e-6, "random_state": 0}


def wide(n=12, d=60, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) + 1
    return X, X[:, 0] * X[:, 1] + X[:, 2] + rng.standard_normal(n)


@pytest.mark.parametrize("fit_lower", ["explicit", "augment", None])
def test_few_rows_have_the_optimum_of_all_features(fit_lower):
    X, y = wide()
    model = PolynomialNetworkRegressor(fit_lower=fit_lower, standardize=False, **EXACT).fit(X, y)
    # The core knows nothing of spans.
    *_, state = conditional_gradient(
        Design(X, fit_lower=fit_lower), y[:, None], loss="squared", n_components=50, **EXACT
    )
    assert model.components_.shape[1] == state.H.shape[1]
    assert model.objective_ == pytest.approx(state.objective, rel=1e-4)
    assert model._state.H.shape[1] == state.H.shape[1]


def test_the_span_of_centered_rows_predicts_as_all_features_do():
    X, y = wide()
    model = PolynomialNetworkRegressor(**EXACT).fit(X, y)
    unit = (X - X.mean(axis=0)) / X.std(axis=0)
    target = (y - y.mean()) / y.std()
    *_, state = conditional_gradient(
        Design(unit, fit_lower="explicit"), target[:, None], loss="squared", **EXACT
    )
    new = np.random.default_rng(1).standard_normal(X.shape) + 1
    outputs = Design((new - X.mean(axis=0)) / X.std(axis=0)).outputs(state.H, state.V)
    outputs = outputs + state.intercept + (new - X.mean(axis=0)) / X.std(axis=0) @ state.linear
    expected = y.mean() + y.std() * outputs[:, 0]
    np.testing.assert_allclose(model.predict(new), expected, rtol=0, atol=0.02 * y.std())


@pytest.mark.parametrize("kind", [PolynomialNetworkClassifier, FactorizationMachineClassifier])
@pytest.mark.parametrize("sparse", [False, True])
def test_features_that_never_occur_change_nothing(kind, sparse):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 5)) * (rng.random((80, 5)) < 0.7)
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    full = np.zeros((80, 12))
    columns = [1, 3, 4, 8, 11]
    full[:, columns] = X
    few, many = (csr_array(A) if sparse else A for A in (X, full))
    a = kind(random_state=0).fit(few, y)
    b = kind(random_state=0).fit(many, y)
    np.testing.assert_array_equal(b.components_[:, columns], a.components_)
    outputs = a.decision_function(few)
    np.testing.assert_allclose(b.decision_function(many), outputs, rtol=1e-12)
    assert np.count_nonzero(b.components_) == np.count_nonzero(a.components_)
    assert not b.linear_coef_[:, [0, 2, 5, 6, 7, 9, 10]].any()


def test_only_constant_features():
    model = PolynomialNetworkRegressor(random_state=0).fit(np.ones((20, 3)), np.arange(20.0))
    np.testing.assert_allclose(model.predict(np.ones((1, 3))), 9.5)


def test_a_million_features():
    """Of 200 sparse rows with 2,000 entries, and of 4 dense rows."""
    rng = np.random.default_rng(0)
    X = random_array((200, 10**6), density=1e-5, rng=rng, format="csr")
    model = PolynomialNetworkRegressor(random_state=0).fit(X, rng.standard_normal(200))
    assert np.isfinite(model.predict(X)).all()
    rows = rng.standard_normal((4, 10**6))
    model = PolynomialNetworkRegressor(alpha=0.1, random_state=0).fit(rows, np.arange(4.0))
    np.testing.assert_allclose(model.predict(rows), np.arange(4.0), atol=0.2)
    assert model._scaling.span is None  # it is as large as X, and no part of what is kept


@pytest.mark.parametrize(
    ("dense", "fit_lower"), [(False, "augment"), (False, None), (True, "explicit")]
)
def test_what_a_fit_keeps_is_as_wide_as_the_columns_that_occur(dense, fit_lower):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((90, 6))
    y = 3 * X[:, 0] * X[:, 1] + rng.standard_normal(90)
    full, columns = np.full((90, 5000), 2.0 * dense), 700 * np.arange(6) + 3
    full[:, columns] = X
    few, many = (A if dense else csr_array(A) for A in (X, full))
    machine = FactorizationMachineRegressor(
        alpha=0.5, alpha_linear=1.0, block=1, fit_lower=fit_lower, random_state=0, warm_start=True
    )
    a, b = (clone(machine).fit(A[:60], y[:60]) for A in (few, many))
    assert b._stages.n_features == b._state.H.shape[1] == 6 + (fit_lower == "augment")
    assert b.components_.shape[1] == 5000 + (fit_lower == "augment")
    stages = list(b.staged_predict(many))
    assert len(stages) > 1
    np.testing.assert_allclose(stages, list(a.staged_predict(few)), rtol=0, atol=1e-9)
    np.testing.assert_array_equal(stages[-1], b.predict(many))
    known = b.model_.with_background(many[:60]).background
    np.testing.assert_allclose(b.model_.background, known, rtol=0, atol=1e-9)
    before = b.objective_
    assert b.fit(many[:60], y[:60]).objective_ == pytest.approx(before, rel=1e-6)
    a.fit(few[:60], y[:60]).partial_fit(few[60:], y[60:])
    b.partial_fit(many[60:], y[60:])
    np.testing.assert_allclose(a.predict(few), b.predict(many), rtol=0, atol=1e-3)
    np.testing.assert_array_equal(list(b.staged_predict(many)), [b.predict(many)])


def test_the_memory_of_a_wide_fit_is_that_of_its_model():
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((300, 20))
    y = ((Z @ rng.standard_normal((20, 8))) ** 2) @ rng.standard_normal(8)
    places = np.repeat(np.arange(300), 20), np.tile(9999 * np.arange(20), 300)
    X = csr_array((Z.ravel(), places), shape=(300, 200_000))
    tracemalloc.start()
    try:
        model = FactorizationMachineRegressor(
            alpha=0.01, alpha_linear=1.0, n_components=10, block=1, tol=0.01, random_state=0
        ).fit(X, y)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(model._stages) == 11  # rounds, of about five vectors each
    assert peak < 4 * model.components_.nbytes


def test_a_cut_fit_in_a_span_goes_on_with_the_same_bits(tmp_path):
    X, y = wide(30, 90)
    options = {"alpha": 0.5, "tol": 1e-4, "random_state": 0, "block": 2}
    whole = PolynomialNetworkRegressor(**options).fit(X, y)
    path = tmp_path / "fit.npz"
    first = PolynomialNetworkRegressor(n_components=4, checkpoint=path, **options).fit(X, y)
    assert first.n_components_ <= 4 < whole.n_components_
    rest = PolynomialNetworkRegressor(checkpoint=path, **options).fit(X, y)
    again = PolynomialNetworkRegressor(checkpoint=path, **options).fit(X, y)
    np.testing.assert_array_equal(again.predict(X), rest.predict(X))
    assert rest.objective_ == pytest.approx(whole.objective_, rel=1e-2)
    stages = list(rest.staged_predict(X))
    np.testing.assert_array_equal(stages[-1], rest.predict(X))


def test_warm_start_and_search_in_a_span():
    X, y = wide(30, 90)
    model = PolynomialNetworkRegressor(alpha=0.5, tol=1e-3, random_state=0, warm_start=True)
    first = model.fit(X, y).objective_
    assert model.fit(X, y).objective_ == pytest.approx(first, rel=1e-6)
    other = model.fit(X[:29], y[:29])
    assert np.isfinite(other.predict(X)).all()
    search = PathSearchCV(PolynomialNetworkRegressor(random_state=0), n_alphas=3, cv=2).fit(X, y)
    assert search.best_estimator_.model_.n_features == 90
    sparse = FactorizationMachineRegressor(alpha=1.0, random_state=0)
    padded = np.hstack([X, np.zeros((30, 4))])
    assert PathSearchCV(sparse, n_alphas=2, cv=2).fit(csr_array(padded), y).predict(padded).size


@pytest.mark.parametrize("span", [np.array([0, 2]), np.linalg.qr(np.eye(4)[:, :2] + 0.1)[0]])
@pytest.mark.parametrize("constant", [0, 1])
def test_narrow_is_the_inverse_of_widen(span, constant):
    X = np.random.default_rng(0).standard_normal((9, 4))
    scaling = Scaling.none(row_statistics(X))._replace(span=span)
    rng = np.random.default_rng(1)
    linear = None if constant else rng.standard_normal((2, 3))
    model = Model(rng.standard_normal((5, 2 + constant)), np.ones((5, 3)), np.zeros(3), linear)
    there = scaling.widen(model)
    assert there.H.shape == (5, 4 + constant)
    narrow = scaling.features(X) @ model.H[:, constant:].T
    np.testing.assert_allclose(X @ there.H[:, constant:].T, narrow, atol=1e-12)
    for got, expected in zip(scaling.narrow(there), model, strict=True):
        assert (got is None) == (expected is None)
        if got is not None:
            np.testing.assert_allclose(got, expected, atol=1e-12)


def test_the_default_strengths_do_not_depend_on_the_order_of_few_rows():
    X, y = wide(40, 120)
    order = np.random.default_rng(2).permutation(40)
    a, b = (PolynomialNetworkRegressor(random_state=0).fit(X[i], y[i]) for i in (slice(40), order))
    assert b.alpha_ == pytest.approx(a.alpha_, rel=1e-6)
    assert b.alpha_linear_ == pytest.approx(a.alpha_linear_, rel=1e-6)


def test_rows_that_arrive_after_a_fit_in_a_span():
    X, y = wide(40, 120)
    model = PolynomialNetworkRegressor(alpha=0.5, random_state=0).partial_fit(X[:30], y[:30])
    before = ((model.predict(X[30:]) - y[30:]) ** 2).sum()
    model.partial_fit(X[30:], y[30:])
    assert ((model.predict(X[30:]) - y[30:]) ** 2).sum() < before
