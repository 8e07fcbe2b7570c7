"""Standard units: the folded model is the same function, and scales do not matter."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from estimator_cases import ALL, CLASSIFIERS, ORDINAL, REGRESSORS, targets
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.feature_selection import SelectFromModel
from sklearn.preprocessing import StandardScaler

from fastpoly import PolyModel
from fastpoly.rows.statistics import Moments, Scaling, row_statistics
from fastpoly.state import Model

SHIFT = np.array([0, 3, -20, 100, 1])


def outputs(model, X, activation, augment=False):
    linear = None if model.linear is None else model.linear.T
    poly = PolyModel(
        model.H, model.V, model.intercept, linear, activation=activation, augment=augment
    )
    return poly.decision(X)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10**6), st.sampled_from(["squared", "anova"]),
    st.sampled_from(["explicit", "augment", None]), st.booleans(), st.booleans(),
)  # fmt: skip
def test_folded_is_the_same_function(seed, activation, fit_lower, sparse, weighted):
    rng = np.random.default_rng(seed)
    n, d, k, m = 20, 4, 3, 2
    X = rng.standard_normal((n, d)) * 10.0 ** rng.integers(-3, 4, d) + rng.integers(-5, 6, d)
    Y = rng.standard_normal((n, m)) * [10.0, 1e-3] + [5.0, 1.0]
    w = rng.uniform(0, 2, n) if weighted else None
    explicit = fit_lower == "explicit"
    rows = sp.csr_array(X) if sparse else X
    scaling = Scaling.standard(row_statistics(rows, w=w), explicit)
    scaling = scaling.with_targets(Moments.of(Y, w), explicit)
    scaled = scaling.features(rows)
    augment = fit_lower == "augment"
    model = Model(
        rng.standard_normal((k, d + augment)), rng.standard_normal((k, m)),
        rng.standard_normal(m) if explicit else np.zeros(m),
        rng.standard_normal((d, m)) if explicit else None,
    )  # fmt: skip
    inner = outputs(model, scaled, activation, augment)
    expected = scaling.target_center + scaling.target_unit * inner
    folded = scaling.fold(model, activation)
    got = outputs(folded, X, activation, augment)
    size = np.abs(expected).max(axis=0) + 1e6 * np.abs(expected).max(axis=0)
    np.testing.assert_allclose(got / size, expected / size, atol=1e-12)
    np.testing.assert_allclose(scaling.targets(Y) * scaling.target_unit, Y - scaling.target_center)
    back = scaling.unfold(folded, activation)
    np.testing.assert_allclose(np.linalg.norm(back.H, axis=1), 1)
    again = outputs(back, scaled, activation, augment)
    np.testing.assert_allclose(again, inner, rtol=1e-6, atol=1e-6 * np.abs(inner).max())


@pytest.mark.parametrize("weighted", [False, True])
def test_mean_and_deviation(weighted):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50, 3)) * [1, 1e150, 1e-150] + [100, 0, 0]
    w = rng.integers(0, 3, 50).astype(float) if weighted else np.ones(50)
    found = Moments.of(X, w if weighted else None)
    mean, deviation = found.mean, found.deviation
    repeated = X.repeat(w.astype(int), axis=0) / [1, 1e150, 1e-150]
    np.testing.assert_allclose(mean / [1, 1e150, 1e-150], repeated.mean(axis=0))
    np.testing.assert_allclose(deviation / [1, 1e150, 1e-150], repeated.std(axis=0))


def test_standard_units_are_those_of_scikit_learn():
    X, _ = load_wine(return_X_y=True)
    scaled = Scaling.standard(row_statistics(X), True).features(X)
    np.testing.assert_allclose(scaled, StandardScaler().fit_transform(X), atol=1e-12)
    for rows in (X, sp.csr_array(X)):
        scaled = Scaling.standard(row_statistics(rows), False).features(rows)
        scaled = scaled if rows is X else scaled.toarray()
        np.testing.assert_allclose(np.abs(scaled).max(axis=0), 1)
    single = X.astype(np.float32)
    assert Scaling.standard(row_statistics(single), True).features(single).dtype == np.float32


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("cls", ALL)
def test_scales_do_not_matter(cls, kind, data):
    X, score = data
    y = targets(cls, score)
    factor = 2.0 ** np.array([-40, 30, 0, 7, -3])  # exact in binary: the same bits
    model = cls(random_state=0)
    one, other = clone(model).fit(kind(X), y), clone(model).fit(kind(X * factor), y)
    np.testing.assert_array_equal(other.components_, one.components_ / factor)
    np.testing.assert_array_equal(one.predict(X), other.predict(X * factor))
    tiny = clone(model).fit(kind(X * 1e-10), y)
    np.testing.assert_allclose(tiny.predict(X * 1e-10), one.predict(X), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("cls", ALL)
def test_positions_do_not_matter(cls, data):
    """Centering: adding a constant to a column has no effect."""
    X, score = data
    y = targets(cls, score)
    one = cls(random_state=0).fit(X, y)
    other = cls(random_state=0).fit(X + SHIFT, y)
    np.testing.assert_allclose(other.objective_, one.objective_, rtol=1e-6)
    np.testing.assert_allclose(other.predict(X + SHIFT), one.predict(X), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("fit_lower", ["explicit", "augment", None])
@pytest.mark.parametrize("cls", REGRESSORS)
def test_the_scale_of_targets_does_not_matter(cls, fit_lower, data):
    X, score = data
    model = cls(fit_lower=fit_lower, random_state=0)
    one, other = clone(model).fit(X, score), clone(model).fit(X, 1024 * score)
    np.testing.assert_array_equal(1024 * one.predict(X), other.predict(X))
    assert one.objective_ == other.objective_
    Y = np.column_stack([score, X[:, 2] * X[:, 3]])
    both, scaled = clone(model).fit(X, Y), clone(model).fit(X, Y * [2.0**20, 2.0**-20])
    np.testing.assert_array_equal(both.predict(X) * [2.0**20, 2.0**-20], scaled.predict(X))


def test_raw_tables_as_good_as_scaled_ones():
    for load, cls in (
        (load_wine, CLASSIFIERS[0]), (load_breast_cancer, CLASSIFIERS[1]),
        (load_diabetes, REGRESSORS[0]),
    ):  # fmt: skip
        X, y = load(return_X_y=True)
        raw = cls(random_state=0).fit(X, y)
        Z = StandardScaler().fit_transform(X)
        scaled = cls(random_state=0).fit(Z, y)
        assert raw.score(X, y) == pytest.approx(scaled.score(Z, y), abs=0.01)
        off = cls(random_state=0, standardize=False).fit(Z, y)
        assert off.score(Z, y) > 0.4


def test_weights_count_in_the_units(data):
    X, score = data
    w = np.arange(len(X)) % 3
    model = REGRESSORS[0](alpha=1.0, tol=1e-6, random_state=0)
    weighted = clone(model).fit(X, score, sample_weight=w)
    repeated = clone(model).fit(X.repeat(w, axis=0), score.repeat(w))
    assert weighted.objective_ == pytest.approx(repeated.objective_, rel=1e-6)
    np.testing.assert_allclose(weighted.predict(X), repeated.predict(X), rtol=1e-3, atol=1e-3)


def test_constant_columns_and_their_changes(data):
    X, score = data
    X = np.column_stack([X, np.full(len(X), 0.1), np.zeros(len(X))])
    model = REGRESSORS[0](random_state=0).fit(X, score)
    assert not model.components_[:, 5:].any()
    assert not model.linear_coef_[:, 5:].any()
    np.testing.assert_allclose(model.predict(X + np.array([0] * 5 + [1, 1])), model.predict(X))


@pytest.mark.parametrize("n", [100, 220, 400, 1000, 5000])
@pytest.mark.parametrize("constant", [1.0, 0.1, -3.3, 1e6])
def test_a_constant_column_changes_nothing(n, constant):
    """However its sum is rounded."""
    rng = np.random.default_rng(n)
    X = rng.standard_normal((n, 4))
    y = X[:, 0] * X[:, 1] + X[:, 2]
    more = np.column_stack([X, np.full(n, constant)])
    for rows in (more, more.astype(np.float32)):
        assert not Scaling.standard(row_statistics(rows), True).seen[4]
        assert not Scaling.standard(row_statistics(rows, w=rng.uniform(0.5, 2, n)), True).seen[4]
    one, other = (REGRESSORS[0](alpha=5.0, random_state=0).fit(A, y) for A in (X, more))
    np.testing.assert_allclose(other.predict(more), one.predict(X), atol=0.01)
    units = Scaling.none(row_statistics(X)).with_targets(
        Moments.of(np.full((n, 1), constant)), True
    )
    assert units.target_unit == 1


def test_a_small_deviation_about_a_large_mean_in_float32():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 3)).astype(np.float32)
    X[:, 0] = 1e7 + 8 * np.round(4 * X[:, 0])  # exact in float32
    y = (X[:, 0] - 1e7) / 30 * X[:, 1]
    with pytest.warns(UserWarning, match="mean of column 0"):
        model = REGRESSORS[0](random_state=0).fit(X, y)
    assert model.score(X, y) > 0.9


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_rows_of_weight_zero_set_no_units(kind):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 3))
    w = np.ones(200)
    X[100:], w[100:] = X[100:] * 1e4, 0.0
    for centered in (True, False):
        weighted = Scaling.standard(row_statistics(kind(X), w=w), centered)
        dropped = Scaling.standard(row_statistics(kind(X[:100])), centered)
        np.testing.assert_allclose(weighted.factor, dropped.factor)


def test_warning_for_a_mean_that_costs_digits(data):
    X, score = data
    with pytest.warns(UserWarning, match="mean of column 2 .* subtract a constant"):
        REGRESSORS[0](random_state=0).fit(X + np.array([0, 0, 1e7, 0, 0]), score)


@pytest.mark.parametrize("fit_lower", ["explicit", "augment", None])
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_ordinary_columns_do_not_warn(kind, fit_lower, data):
    X, score = data
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*column.* of X")
        REGRESSORS[0](random_state=0, fit_lower=fit_lower).fit(kind(X), score)


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_a_feature_of_one_row_is_seen(kind):
    found = row_statistics(kind(np.eye(3)[[0, 1, 1]]))
    assert Scaling.none(found).seen.tolist() == [True, True, False]
    assert Scaling.standard(found, centered=False).seen.tolist() == [True, True, False]


def test_a_loss_object_sees_targets_as_they_are(data):
    X, score = data

    class Recorded:
        target = "real"

        def value(self, Y, O, w=None):
            return self.value_grad(Y, O, w)[0]

        def value_grad(self, Y, O, w=None):
            self.seen = Y
            return 0.5 * ((O - Y) ** 2).sum(), O - Y

        def smoothness(self, m):
            return 1.0

    loss = Recorded()
    REGRESSORS[0](loss=loss, n_components=1).fit(X, 100 * score)
    np.testing.assert_array_equal(loss.seen[:, 0], 100 * score)
    loss.equivariant = True  # it says that units do not matter
    REGRESSORS[0](loss=loss, n_components=1).fit(X, 100 * score)
    np.testing.assert_allclose(loss.seen[:, 0], (score - score.mean()) / score.std())


def test_the_alpha_of_a_default_fit(data):
    X, score = data
    one = CLASSIFIERS[0](random_state=0).fit(X, score > 0)
    three = CLASSIFIERS[0](random_state=0).fit(X, score > 0, sample_weight=np.full(len(X), 3.0))
    assert three.alpha_ != one.alpha_
    assert CLASSIFIERS[0](alpha=0.25, random_state=0).fit(X, score > 0).alpha_ == 0.25
    assert not hasattr(CLASSIFIERS[0](tau=1.0).fit(X, score > 0), "alpha_")


@pytest.mark.parametrize("cls", ALL)
def test_importances_by_brute_force(cls, data):
    """By the coefficients of a model that was fitted to standardized data."""
    X, score = data
    y = targets(cls, score)
    Z = StandardScaler().fit_transform(X)
    options = {"alpha": 0.3, "tol": 1e-4, "random_state": 0}
    model = cls(**options).fit(X * [1, 10, 0.1, 1, 1] + SHIFT, y)
    poly = cls(**options).fit(Z, y).model_
    total = np.zeros(5)
    for c in range(poly.n_outputs):
        C = poly.interaction_matrix(c)
        terms = 2 * C - np.diag(np.diag(C))  # coefficients of x_i x_j
        total += (terms**2).sum(axis=1) + poly.linear_terms(c) ** 2
    importances = np.sqrt(total) / np.sqrt(total).sum()
    np.testing.assert_allclose(model.feature_importances_, importances, atol=2e-3)
    first = model.top_interactions(None if cls in REGRESSORS else 0, k=1, standardized=True)[0]
    C = poly.interaction_matrix(0)
    assert first[:2] == (0, 1)
    assert first[2] == pytest.approx(2 * C[0, 1], rel=2e-2)
    if cls not in ORDINAL:
        chosen = SelectFromModel(model, prefit=True).get_support()
        assert chosen[:2].all()
        assert not hasattr(model, "coef_")


@pytest.mark.parametrize("cls", ALL)
def test_a_mean_that_leaves_no_digits_is_refused(cls, data):
    X, score = data
    X = np.column_stack([X, 1e12 + np.arange(len(X))])
    with pytest.raises(ValueError, match=f"column {X.shape[1] - 1} of X .* subtract a constant"):
        cls().fit(X, targets(cls, score))
    cls(standardize=False, n_components=1).fit(X[:, :-1], targets(cls, score))


@pytest.mark.parametrize("cls", ALL)
def test_a_column_that_its_offset_drowns_is_told(cls, data):
    """1e15 + 0, 1/8, 2/8, ... has 29 values, but too few digits to be fitted."""
    X, score = data
    y = targets(cls, score)
    for offset, column in ((1e15, np.arange(len(X)) % 29 / 8), (0.0, 1e-310 * X[:, 0])):
        wide = np.column_stack([X, offset + column])
        with pytest.warns(UserWarning, match=f"column {X.shape[1]} of X varies by no more than"):
            model = cls(alpha=1.0, random_state=0).fit(wide, y)
        assert not model.components_[:, -1].any()
        plain = cls(alpha=1.0, random_state=0).fit(X, y)
        np.testing.assert_allclose(model.predict(wide), plain.predict(X), atol=0.03)


@pytest.mark.parametrize("lower", ["explicit", None])
@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_float32_columns_whose_units_are_beyond_float32(lower, make, data):
    X, score = data
    model = REGRESSORS[0](alpha=0.1, fit_lower=lower, random_state=0)
    want = model.fit(make(X.astype(np.float32)), score).predict(make(X.astype(np.float32)))
    small = X.copy()
    small[:, 0] *= 1e-39
    small = make(small.astype(np.float32))
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        got = model.fit(small, score).predict(small)
    np.testing.assert_allclose(got, want, atol=2e-2)


def test_strengths_beyond_the_range_of_floats():
    for alpha in (10**400, np.inf, -(10**400)):
        with pytest.raises(ValueError, match="alpha must be finite"):
            REGRESSORS[0](alpha=alpha).fit(np.eye(4), np.arange(4.0))
