"""PathSearchCV against the naive grid search, which fits every pair anew."""

import numpy as np
import pytest
from estimator_cases import PAPER
from joblib import parallel_config
from scipy.special import softmax
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, ShuffleSplit
from sklearn.preprocessing import scale

import fastpoly.estimators.base
from fastpoly import (
    FactorizationMachineOrdinalRegressor,
    PathSearchCV,
    PolynomialNetworkClassifier,
    PolynomialNetworkRegressor,
    alpha_max,
)
from fastpoly.estimators.splitting import level_strata
from fastpoly.rows.design import Design

ALPHAS = [20.0, 2.0, 0.2]
SIZES = 4


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    return scale(X), y


@pytest.fixture
def count_fits(monkeypatch):
    """Runs of Algorithm 1."""
    counts = []
    original = fastpoly.estimators.base.conditional_gradient

    def counted(*args, **options):
        counts.append(options["alpha"])
        return original(*args, **options)

    monkeypatch.setattr(fastpoly.estimators.base, "conditional_gradient", counted)
    return counts


@pytest.mark.parametrize("scoring", [None, "neg_log_loss"])
def test_same_table_and_winner_as_naive_search(iris, count_fits, scoring):
    X, y = iris
    model = PolynomialNetworkClassifier(n_components=SIZES, **PAPER, random_state=0)
    cv = KFold(2, shuffle=True, random_state=0)
    search = PathSearchCV(model, alphas=ALPHAS, cv=cv, scoring=scoring).fit(X, y)
    assert len(count_fits) == len(ALPHAS) * 2 + 1
    count_fits.clear()
    grid = {"alpha": ALPHAS, "n_components": list(range(1, SIZES + 1))}
    naive = GridSearchCV(model, grid, cv=cv, scoring=scoring).fit(X, y)
    assert len(count_fits) == len(ALPHAS) * SIZES * 2 + 1

    assert search.cv_results_["params"] == naive.cv_results_["params"]
    for name in (
        "split0_test_score",
        "split1_test_score",
        "mean_test_score",
        "std_test_score",
        "rank_test_score",
    ):
        np.testing.assert_allclose(search.cv_results_[name], naive.cv_results_[name], rtol=1e-12)
    assert search.best_params_ == naive.best_params_
    assert search.best_score_ == pytest.approx(naive.best_score_, rel=1e-12)
    np.testing.assert_array_equal(search.predict(X), naive.predict(X))
    np.testing.assert_allclose(search.predict_proba(X), naive.predict_proba(X))
    np.testing.assert_allclose(search.decision_function(X), naive.decision_function(X))
    assert search.score(X, y) == naive.score(X, y)


@pytest.mark.parametrize("block", ["auto", 1, 2])
def test_rows_have_the_score_of_the_last_model_of_that_size(iris, block, count_fits):
    """A run in blocks has models of few sizes, and the best pair names one of them."""
    X, y = iris
    rows, test = np.arange(0, 150, 2), np.arange(1, 150, 2)
    model = PolynomialNetworkClassifier(n_components=12, block=block, random_state=0)
    search = PathSearchCV(
        model, alphas=ALPHAS, cv=[(rows, test)], scoring="neg_log_loss", refit=False
    ).fit(X, y)
    assert len(count_fits) == len(ALPHAS)
    table = search.cv_results_["mean_test_score"].reshape(len(ALPHAS), 12)
    for alpha, scores in zip(ALPHAS, table, strict=True):
        run = clone(model).set_params(alpha=alpha).fit(X[rows], y[rows])
        sizes = run.history_["n_components"]
        assert max(sizes) > 2
        for k, score in enumerate(scores, 1):
            if block == 1 and k in sizes:
                stage = list(sizes).index(k)
            else:
                stage = np.flatnonzero(sizes <= k)[-1]
            proba = softmax(list(run.staged_decision_function(X[test]))[stage], axis=1)
            assert score == pytest.approx(-log_loss(y[test], proba), rel=1e-9)
        if alpha == search.best_params_["alpha"]:
            assert search.best_params_["n_components"] in sizes


def test_default_grid_starts_at_alpha_max(iris):
    X, y = iris
    model = PolynomialNetworkClassifier(n_components=2, random_state=0)
    search = PathSearchCV(model, n_alphas=3, alpha_min_ratio=1e-2, cv=0.25).fit(X, y)
    largest = alpha_max(Design(X, fit_lower="augment"), y)
    np.testing.assert_allclose(search.alphas_, largest * np.array([1, 0.1, 0.01]), rtol=1e-5)
    assert search.n_splits_ == 1
    assert search.best_params_.keys() == {"alpha", "n_components"}


def test_hold_out_share_is_stratified(iris):
    model = PolynomialNetworkClassifier(n_components=1, random_state=0)
    model._prepare(*iris, None)
    search = PathSearchCV(model, cv=0.2)
    ((train, test),) = search._splits(model, iris[1], *iris, None)
    assert len(test) == 30
    assert (np.bincount(iris[1][test]) == 10).all()
    assert not set(train) & set(test)


@pytest.mark.parametrize("names", [[0, 1, 2, 3, 4], ["e", "d", "c", "b", "a"]], ids=str)
def test_hold_out_share_has_levels_in_both_parts(names):
    """Rare levels, which chance alone would put into the test part only, train too."""
    rng = np.random.default_rng(0)
    codes = np.repeat([0, 1, 2, 3, 4], [2, 2, 2, 3, 51])
    X, y = rng.standard_normal((60, 2)), np.array(names)[codes]
    for seed in range(10):
        model = FactorizationMachineOrdinalRegressor(
            n_components=1, early_stopping=True, random_state=seed
        )
        _, labels, *_ = model._prepare(X, y, None)
        ((train, test),) = PathSearchCV(model, cv=0.25)._splits(model, labels, X, y, None)
        assert set(y[train]) == set(names)
        assert len(test) == 15
        model._split_seed = seed
        train, test = model._hold_out(labels)
        assert set(y[train]) == set(names)
        assert len(test) == 15


@pytest.mark.parametrize(
    ("counts", "share", "strata"),
    [
        ([5, 5, 5], 0.4, [0, 1, 2]),
        ([5, 1, 5], 0.4, [0, 1, 1]),
        ([5, 5, 1], 0.4, [0, 1, 1]),
        ([1], 0.4, None),
        ([1] * 12, 0.25, [0] * 4 + [1] * 4 + [2] * 4),  # the test part has three rows
        ([2, 2, 2, 2], 0.75, [0, 0, 1, 1]),  # the training part has two
    ],
)
def test_strata_of_levels(counts, share, strata):
    codes = np.repeat(np.arange(len(counts)), counts)
    found = level_strata(codes, share)
    if strata is None:
        assert found is None
    else:
        np.testing.assert_array_equal(found, np.array(strata)[codes])


@pytest.mark.parametrize("cls", [FactorizationMachineOrdinalRegressor, PolynomialNetworkClassifier])
def test_labels_unseen_in_training_cost_a_split_not_the_search(cls):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    y = np.array(["a", "b", "c"])[np.digitize(X[:, 0] * X[:, 1], [-0.2, 0.2])]
    y[0] = "z"
    unseen, single = np.arange(20), np.flatnonzero(y == "a")
    cv = [(np.delete(np.arange(60), unseen), unseen), (single, unseen)]
    cv += [(np.arange(40), np.arange(40, 60)), (np.arange(30), np.arange(40, 60))]
    scoring = None if cls is FactorizationMachineOrdinalRegressor else _strict_accuracy
    model = cls(n_components=2, random_state=0)
    search = PathSearchCV(model, alphas=[1.0], cv=cv, scoring=scoring)
    with pytest.warns(UserWarning, match="2 of 4 splits cannot be scored"):
        search.fit(X, y)
    table = search.cv_results_
    assert np.isnan([table["split0_test_score"], table["split1_test_score"]]).all()
    means = (table["split2_test_score"] + table["split3_test_score"]) / 2
    np.testing.assert_allclose(table["mean_test_score"], means)
    assert search.best_score_ == means.max()
    with pytest.raises(ValueError, match="all scores are NaN"):
        PathSearchCV(model, alphas=[1.0], cv=cv[:2], scoring=scoring).fit(X, y)
    with pytest.raises(ValueError, match="broken"):  # other errors of a scorer are told
        PathSearchCV(model, alphas=[1.0], cv=cv[2:], scoring=_broken).fit(X, y)


def _strict_accuracy(estimator, X, y):
    if not set(y) <= set(estimator.classes_):
        raise ValueError("labels without a model")
    return estimator.score(X, y)


def _broken(estimator, X, y):
    raise ValueError("broken")


@pytest.mark.parametrize("fit_lower", ["augment", "explicit"])
def test_scorers_see_the_model_of_the_stage(iris, fit_lower):
    """Each view is what a fit with so many basis vectors gives, attribute by attribute."""
    seen = []

    def scorer(estimator, X, y):
        seen.append(estimator)
        return -estimator.n_components_

    model = PolynomialNetworkClassifier(
        n_components=3, fit_lower=fit_lower, alpha=0.2, random_state=0, **PAPER
    )
    rows = np.arange(len(iris[1]))
    search = PathSearchCV(model, alphas=[0.2], cv=[(rows, rows)], scoring=scorer).fit(*iris)
    assert search.best_params_["n_components"] == 1
    assert sorted(view.n_components_ for view in seen) == [1, 2, 3]
    for view in seen:
        fitted = clone(model).set_params(n_components=view.n_components_).fit(*iris)
        for name in (
            "components_", "coef_", "intercept_", "linear_coef_", "n_iter_", "objective_",
            "violation_",
        ):  # fmt: skip
            assert hasattr(view, name) == hasattr(fitted, name)
            np.testing.assert_array_equal(getattr(view, name, 0), getattr(fitted, name, 0))
        assert len(view.history_["loss"]) == len(list(view.staged_predict(iris[0])))


def test_times_of_the_runs(iris):
    model = PolynomialNetworkClassifier(n_components=3, random_state=0)
    table = PathSearchCV(model, alphas=[1.0, 0.5], cv=2).fit(*iris).cv_results_
    for name in ("fit_time", "score_time"):
        mean = table[f"mean_{name}"].reshape(2, 3)
        assert (mean > 0).all()
        assert (mean == mean[:, :1]).all()  # a run is shared by its sizes
        assert (table[f"std_{name}"].reshape(2, 3) <= mean).all()


def test_alpha_of_the_estimator_is_not_used(iris):
    model = PolynomialNetworkClassifier(alpha=None, n_components=1, random_state=0)
    search = PathSearchCV(model, alphas=[1.0], cv=0.3).fit(*iris)
    assert search.best_estimator_.alpha == 1.0


def test_parallel_equals_serial(iris):
    X, y = iris
    model = PolynomialNetworkClassifier(n_components=2, n_threads=1, random_state=0)
    search = PathSearchCV(model, alphas=[2.0, 0.2], cv=2)
    serial = clone(search).fit(X, y)
    for backend in ("loky", "threading"):
        with parallel_config(backend):
            parallel = clone(search).set_params(n_jobs=2).fit(X, y)
        for name, values in serial.cv_results_.items():
            if not name.endswith("_time"):
                np.testing.assert_array_equal(values, parallel.cv_results_[name])


def test_weights_reach_the_fits():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    y = X[:, 0] ** 2
    w = np.ones(60)
    w[30:], y[30:] = 0, rng.standard_normal(30) * 100
    model = PolynomialNetworkRegressor(n_components=2, random_state=0)
    cv = [(np.arange(60), np.arange(30))]
    assert PathSearchCV(model, alphas=[0.1], cv=cv).fit(X, y, w).best_score_ > 0.95
    assert PathSearchCV(model, alphas=[0.1], cv=cv).fit(X, y).best_score_ < 0.9


def test_groups(iris):
    X, y = iris
    groups = np.arange(len(y)) % 5
    model = PolynomialNetworkClassifier(n_components=1, random_state=0)
    search = PathSearchCV(model, alphas=[1.0], cv=GroupKFold(5))
    assert search.fit(X, y, groups=groups).n_splits_ == 5
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        search.fit(X, y, groups=groups[:-1])


def test_ordinal_levels_and_frames():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    X = pandas.DataFrame(rng.standard_normal((90, 3)), columns=list("abc"))
    y = pandas.Series(np.clip(np.round(X["a"] * X["b"]), -1, 1) / 2)
    model = FactorizationMachineOrdinalRegressor(n_components=3, random_state=0)
    search = PathSearchCV(model, n_alphas=2, cv=ShuffleSplit(1, random_state=0)).fit(X, y)
    assert list(search.feature_names_in_) == ["a", "b", "c"]
    np.testing.assert_array_equal(search.classes_, [-0.5, 0.0, 0.5])
    np.testing.assert_allclose(search.predict_proba(X).sum(axis=1), 1)


def test_without_refit(iris):
    search = PathSearchCV(
        PolynomialNetworkClassifier(n_components=1, random_state=0), alphas=[1.0], cv=2, refit=False
    ).fit(*iris)
    assert search.best_params_ == {"alpha": 1.0, "n_components": 1}
    with pytest.raises(AttributeError, match="refit=False"):
        search.predict(iris[0])


def test_clone_and_parameters():
    search = PathSearchCV(PolynomialNetworkClassifier(n_components=3), alphas=[1.0], cv=0.5)
    assert clone(search).get_params()["estimator__n_components"] == 3
    assert search.set_params(estimator__n_components=5).estimator.n_components == 5
    assert not hasattr(PathSearchCV(PolynomialNetworkRegressor()), "predict_proba")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alphas": []}, "alphas is empty"),
        ({"alphas": [0.1, 1.0]}, "decreasing"),
        ({"alphas": [1.0, 1.0]}, "decreasing"),
        ({"alphas": [1.0, 0.0]}, "positive"),
        ({"alphas": [np.nan]}, "NaN"),
        ({"cv": 1.5}, "share of the rows"),
        ({"n_alphas": 0}, "n_alphas"),
        ({"alpha_min_ratio": 2.0}, "alpha_min_ratio"),
        ({"estimator": PolynomialNetworkClassifier(tau=1.0)}, "tau"),
        ({"estimator": PolynomialNetworkClassifier(early_stopping=True)}, "early_stopping"),
    ],
)
def test_bad_parameters(iris, options, message):
    options = {"estimator": PolynomialNetworkClassifier(n_components=1), **options}
    with pytest.raises(ValueError, match=message):
        PathSearchCV(**options).fit(*iris)


def test_bad_types(iris):
    model = PolynomialNetworkClassifier(n_components=1)
    with pytest.raises(TypeError, match="one scorer"):
        PathSearchCV(model, scoring=["accuracy", "r2"]).fit(*iris)
    with pytest.raises(TypeError, match="refit"):
        PathSearchCV(model, refit="accuracy").fit(*iris)


def test_foreign_estimators_are_refused(iris):
    with pytest.raises(TypeError, match="fastpoly's estimators"):
        PathSearchCV(KFold()).fit(*iris)
