"""Regressors with the losses of outliers and of counts, against unrelated solvers."""

import numpy as np
import pytest
from estimator_cases import REGRESSORS
from scipy.optimize import minimize
from sklearn.linear_model import PoissonRegressor

import fastpoly
from fastpoly.kernels.losses import Huber, get_loss
from fastpoly.rows.statistics import Moments

pytestmark = pytest.mark.filterwarnings("ignore:the model has no basis vectors")
EVERY_REGRESSOR = pytest.mark.parametrize("cls", REGRESSORS)
LINEAR = {"alpha": 1e6, "standardize": False, "tol": 1e-6, "random_state": 0}


def counts(n=300, scale=1.0, seed=0):
    """Rows, and counts whose log rate has an interaction."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 6))
    log_rate = np.log(scale) + 0.5 * X[:, 0] + 0.5 * X[:, 1] * X[:, 2]
    return X, rng.poisson(np.exp(log_rate)).astype(float), log_rate


def outliers(n=400, seed=1):
    """Rows, targets of which one in twenty is far off, and the truth."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 6))
    truth = X[:, 0] + X[:, 1] * X[:, 2]
    y = truth + 0.1 * rng.standard_normal(n)
    y[: n // 20] += 100 * rng.random(n // 20)
    return X, y, truth


# --- the linear part, where other solvers know the optimum ---


@EVERY_REGRESSOR
@pytest.mark.parametrize("weighted", [False, True])
def test_poisson_without_interactions_is_that_of_scikit_learn(cls, weighted):
    X, y, _ = counts()
    w = np.random.default_rng(3).random(len(X)) if weighted else np.ones(len(X))
    model = cls(loss="poisson", alpha_linear=2.0, **LINEAR).fit(X, y, sample_weight=w)
    other = PoissonRegressor(alpha=2.0 / w.sum(), tol=1e-9, max_iter=1000)
    other.fit(X, y, sample_weight=w)
    assert len(model.components_) == 0
    np.testing.assert_allclose(model.predict(X), other.predict(X), rtol=1e-4)


@EVERY_REGRESSOR
def test_huber_without_interactions_is_the_minimum(cls):
    X, y, _ = outliers()

    def objective(x):
        r = np.abs(x[0] + X @ x[1:] - y)
        return np.where(r < 0.5, r**2 / 2, 0.5 * r - 0.125).sum() + x[1:] @ x[1:]

    best = minimize(objective, np.zeros(7), method="BFGS", options={"gtol": 1e-6})
    model = cls(loss=Huber(0.5), alpha_linear=2.0, **LINEAR).fit(X, y)
    np.testing.assert_allclose(model.predict(X), best.x[0] + X @ best.x[1:], atol=2e-3)
    assert model.objective_ == pytest.approx(best.fun, rel=1e-6)


# --- interactions ---


@EVERY_REGRESSOR
@pytest.mark.parametrize("alpha", [None, 10.0])
@pytest.mark.parametrize("scale", [0.3, 1.0, 1000.0])
def test_rates_are_found(cls, alpha, scale):
    X, y, log_rate = counts(1000, scale)
    model = cls(loss="poisson", alpha=alpha, random_state=0).fit(X, y)
    error = np.abs(np.log(model.predict(X)) - log_rate).mean()
    linear = PoissonRegressor(alpha=1e-9, max_iter=1000).fit(X, y)
    assert error < 0.6 * np.abs(np.log(linear.predict(X)) - log_rate).mean()
    names = [pair[:2] for pair in model.top_interactions(k=1)]
    assert names == [(1, 2)]


@EVERY_REGRESSOR
@pytest.mark.parametrize("alpha", [None, 1.0])
def test_outliers_do_not_matter(cls, alpha):
    X, y, truth = outliers()
    models = [cls(loss=loss, alpha=alpha, random_state=0) for loss in ("huber", "squared")]
    errors = [np.abs(model.fit(X, y).predict(X) - truth).mean() for model in models]
    assert errors[0] < 0.2 < 1 < errors[1]


@EVERY_REGRESSOR
@pytest.mark.parametrize(("unit", "offset"), [(1000.0, 1e6), (2.0**-20, 0.0)])
def test_huber_does_not_depend_on_the_units_of_the_targets(cls, unit, offset):
    X, y, _ = outliers()
    model = cls(loss="huber", alpha=1.0, random_state=0)
    want = model.fit(X, y).predict(X)
    got = (model.fit(X, unit * y + offset).predict(X) - offset) / unit
    np.testing.assert_allclose(got, want, atol=1e-2)


def test_several_outputs_files_and_other_forms(tmp_path):
    X, y, _ = counts()
    Y = np.column_stack([y, 1 + y])
    model = REGRESSORS[0](loss="poisson", alpha=3.0, random_state=0).fit(X, Y)
    rates = model.predict(X)
    assert rates.shape == Y.shape
    np.testing.assert_array_equal(rates, np.exp(model.decision_function(X)))
    assert model.model_.task == "rates"
    model.model_.save(tmp_path / "model.npz")
    np.testing.assert_array_equal(fastpoly.PolyModel.load(tmp_path / "model.npz").predict(X), rates)
    *_, last = model.staged_predict(X)
    np.testing.assert_array_equal(last, rates)
    with pytest.raises(ValueError, match="no probabilities"):
        model.model_.predict_proba(X)
    constrained = REGRESSORS[0](loss="poisson", tau=1.0, random_state=0).fit(X, y)
    assert constrained.dual_gap_ < 0.2 * constrained.objective_


def test_shards_give_the_same_rates(tmp_path):
    X, y, _ = counts()
    model = REGRESSORS[0](loss="poisson", alpha=3.0, tol=1e-4, random_state=0)
    want = model.fit(X, y).predict(X)
    shards = fastpoly.write_shards(tmp_path / "rows", [(X, y + 0.5)], rows_per_shard=100)
    got = model.fit(shards).predict(X)
    np.testing.assert_allclose(got, model.fit(X, y + 0.5).predict(X), rtol=1e-2)
    assert np.abs(got - want).max() > 0.1
    shards = fastpoly.write_shards(tmp_path / "below", [(X, y - 0.5)], rows_per_shard=100)
    with pytest.raises(ValueError, match="not negative"):
        model.fit(shards)


# --- edges ---


def test_bad_targets_and_widths():
    X, y, _ = counts()
    with pytest.raises(ValueError, match=r"y holds -1, but counts and rates are not negative"):
        REGRESSORS[0](loss="poisson").fit(X, y - 1)
    for width in (0.0, -1.0, np.inf, "1"):
        with pytest.raises((TypeError, ValueError), match="width must be"):
            Huber(width)
    assert Huber(2) == Huber(2.0) != Huber(3.0)
    assert get_loss("huber") == Huber()
    assert repr(Huber(0.5)) == "Huber(width=0.5)"


@pytest.mark.filterwarnings("ignore:training stopped")
@pytest.mark.parametrize("y", [np.zeros(50), np.full(50, 7.0), np.r_[np.zeros(49), 1e9]])
def test_degenerate_counts(y):
    """No count at all has a log rate of minus infinity; the fit ends nevertheless."""
    X = np.random.default_rng(0).standard_normal((50, 4))
    model = REGRESSORS[0](loss="poisson", alpha=1.0, n_components=5, random_state=0).fit(X, y)
    assert np.isfinite(model.predict(X)).all()
    assert np.isfinite(model.objective_)


def test_rates_that_overflow_are_an_error():
    X, y, _ = counts()
    model = REGRESSORS[0](loss="poisson", alpha=3.0, random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="rates overflow"):
        model.predict(1e3 * X)


def test_robust_moments():
    rng = np.random.default_rng(0)
    Y = np.column_stack([rng.standard_normal(1001), np.r_[np.zeros(700), rng.random(301)]])
    w = rng.integers(0, 3, 1001)
    found = Moments.robust(Y, w.astype(float))
    repeated = np.repeat(Y, w, axis=0)
    if len(repeated) % 2:
        np.testing.assert_array_equal(found.mean, np.median(repeated, axis=0))
    again = Moments.robust(repeated)
    np.testing.assert_array_equal(found.mean, again.mean)
    np.testing.assert_allclose(found.deviation, again.deviation, rtol=1e-12)
    assert found.deviation[0] == pytest.approx(1, rel=0.1)
    assert found.deviation[1] == pytest.approx(repeated[:, 1].std())  # half of it is 0
