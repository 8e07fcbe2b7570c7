"""PathSearchCV against the naive grid search, which fits every pair from scratch."""

import warnings

import numpy as np
import pytest
from estimator_cases import PAPER, watching_scores
from joblib import parallel_config
from scipy.special import softmax
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import DataConversionWarning
from sklearn.metrics import log_loss, make_scorer, mean_squared_error
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, ShuffleSplit
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler, scale

from fastpoly import (
    FactorizationMachineClassifier,
    FactorizationMachineOrdinalRegressor,
    PathSearchCV,
    PolynomialNetworkClassifier,
    PolynomialNetworkRegressor,
    TableEncoder,
    alpha_max,
)
from fastpoly.algorithm import Options
from fastpoly.objective import Objective
from fastpoly.path import walk
from fastpoly.problem import Problem
from fastpoly.rows import as_rows
from fastpoly.rows.design import Design

ALPHAS = [20.0, 2.0, 0.2]


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    return scale(X), y


def warm_path(X, y, test, n_components, **options):
    """The same walk by the functional core."""
    scaler = StandardScaler().fit(X)
    design = Design(scaler.transform(X), fit_lower="explicit", n_threads=1)
    test, rows = scaler.transform(test), as_rows(design, y, loss="logistic")
    objective = Objective(Problem.of(rows.loss, "l1/l2", rows.m, alpha=1.0), rows)
    options = Options(n_components, finish=False, **options)
    for i, state in walk(objective, ALPHAS, options):
        O = Design(test).outputs(state.H, state.V) + state.intercept + test @ state.linear
        yield ALPHAS[i], state.n_components, softmax(O, axis=1)


@pytest.mark.parametrize("options", [{}, PAPER, {"block": 2}], ids=["joint", "paper", "block"])
def test_rows_have_the_score_of_the_last_model_of_that_size(iris, options):
    """The table against the path by hand, scored by scikit-learn."""
    X, y = iris
    rows, test = np.arange(0, 150, 2), np.arange(1, 150, 2)
    model = PolynomialNetworkClassifier(n_components=12, n_threads=1, random_state=0, **options)
    search = PathSearchCV(model, alphas=ALPHAS, cv=[(rows, test)]).fit(X, y)
    table = search.cv_results_["mean_test_score"].reshape(len(ALPHAS), 12)
    visited = list(warm_path(X[rows], y[rows], X[test], 12, tol=0.1, **options))
    assert len({size for _, size, _ in visited}) > 2
    for alpha, scores in zip(ALPHAS, table, strict=True):
        for k, score in enumerate(scores, 1):
            found = [P for a, size, P in visited if a == alpha and size <= k]
            expected = -log_loss(y[test], found[-1]) if found else np.nan
            assert score == pytest.approx(expected, rel=1e-6, nan_ok=True)
    best = search.best_params_
    assert (best["alpha"], best["n_components"]) in {(a, max(k, 1)) for a, k, _ in visited}
    assert search.best_score_ == np.nanmax(table)


def test_same_winner_as_naive_search(iris):
    """Close to a fit of every pair from scratch, by `GridSearchCV`."""
    X, y = iris
    model = PolynomialNetworkClassifier(n_components=4, tol=1e-4, random_state=0)
    cv = KFold(3, shuffle=True, random_state=0)
    search = PathSearchCV(model, alphas=ALPHAS, cv=cv).fit(X, y)
    grid = {"alpha": ALPHAS, "n_components": [1, 2, 3, 4]}
    naive = GridSearchCV(model, grid, cv=cv, scoring="neg_log_loss").fit(X, y)
    assert search.cv_results_["params"] == naive.cv_results_["params"]
    last = slice(3, None, 4)  # the largest size, where both have reached their optimum
    np.testing.assert_allclose(
        search.cv_results_["mean_test_score"][last], naive.cv_results_["mean_test_score"][last],
        rtol=0.02,
    )  # fmt: skip
    # A warm path has no model with few vectors where alpha is small.
    scored = ~np.isnan(search.cv_results_["mean_test_score"])
    naive_scores = np.where(scored, naive.cv_results_["mean_test_score"], -np.inf)
    assert (
        search.best_params_["alpha"] == search.cv_results_["params"][naive_scores.argmax()]["alpha"]
    )
    assert search.best_score_ == pytest.approx(naive_scores.max(), rel=0.01)


def test_the_final_fit_starts_from_a_fold_and_ends_at_the_optimum(iris):
    X, y = iris
    model = PolynomialNetworkClassifier(n_components=10, tol=1e-4, random_state=0)
    search = PathSearchCV(model, alphas=[20.0, 2.0], cv=3).fit(X, y)
    best = search.best_estimator_
    fresh = clone(model).set_params(alpha=best.alpha).fit(X, y)
    assert best.objective_ == pytest.approx(fresh.objective_, rel=1e-4)
    assert best.history_["n_components"][0] > 0
    assert best.history_["objective"][0] < fresh.history_["objective"][0]


def test_a_path_ends_where_smaller_alphas_do_not_help():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 5)), rng.integers(0, 2, 60)  # nothing to learn
    model = PolynomialNetworkClassifier(n_components=20, random_state=0)
    search = PathSearchCV(model, n_alphas=9, alpha_min_ratio=1e-4, cv=0.5).fit(X, y)
    table, alphas = search.cv_results_, search.alphas_
    runs = (table["mean_fit_time"].reshape(9, 20)[:, 0] > 0).sum()
    assert 4 <= runs < 9
    scores = table["mean_test_score"].reshape(9, 20)
    np.testing.assert_array_equal(scores[runs:], np.tile(scores[runs - 1], (9 - runs, 1)))
    assert search.best_params_["alpha"] == alphas[runs - 4]
    given = PathSearchCV(model, alphas=alphas, cv=0.5).fit(X, y)  # alphas that a user names
    assert (given.cv_results_["mean_fit_time"] > 0).all()


def test_one_standard_error(iris):
    X, y = iris
    model = PolynomialNetworkClassifier(n_components=6, random_state=0)
    best = PathSearchCV(model, n_alphas=6, cv=5).fit(X, y)
    simple = PathSearchCV(model, n_alphas=6, cv=5, one_standard_error=True).fit(X, y)
    i, table = best.best_index_, best.cv_results_
    error = np.std([table[f"split{f}_test_score"][i] for f in range(5)], ddof=1) / np.sqrt(5)
    within = table["mean_test_score"] >= table["mean_test_score"][i] - error
    assert simple.best_index_ == np.flatnonzero(within)[0] < i
    assert simple.best_params_["alpha"] >= best.best_params_["alpha"]


def test_warnings_at_the_borders(iris):
    X, y = iris
    model = PolynomialNetworkClassifier(n_components=1, random_state=0)
    with pytest.warns(UserWarning, match="smallest of the grid: add smaller .* n_components=1"):
        PathSearchCV(model, alphas=[20.0, 10.0], cv=3).fit(X, y)
    with pytest.warns(UserWarning, match="smallest of the grid: lower alpha_min_ratio"):
        PathSearchCV(model, n_alphas=2, alpha_min_ratio=0.5, cv=3).fit(X, y)
    noise = np.random.default_rng(0).integers(0, 2, len(X))
    with pytest.warns(UserWarning, match="best alpha, 9, is the largest of the grid: add larger"):
        PathSearchCV(model, alphas=[9.0, 0.1], cv=3).fit(X, noise)
    with pytest.warns(UserWarning, match="largest of the grid: the best model has no") as caught:
        PathSearchCV(model, n_alphas=3, cv=3).fit(X, noise)
    assert not any("raise n_components" in str(each.message) for each in caught)
    with pytest.warns(UserWarning, match="no basis vectors and is linear.* lower alpha, which is"):
        PathSearchCV(model, alphas=[1e6], cv=3).fit(X, y)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="the best")
        PathSearchCV(clone(model).set_params(n_components=9), cv=3).fit(X, X[:, 0] * X[:, 1] > 0)


@pytest.mark.parametrize("n_jobs", [None, 2])
def test_pipelines_are_fitted_in_every_fold(iris, n_jobs):
    X, y = iris
    X = X * [1, 100, 1e-3, 5] + 7
    # A small alpha and few vectors would have several minima.
    options = {"alphas": [5.0, 2.0], "cv": KFold(3, shuffle=True, random_state=0), "n_jobs": n_jobs}
    model = PolynomialNetworkClassifier(
        n_components=4, standardize=False, n_threads=1, random_state=0
    )
    pipeline = make_pipeline(StandardScaler(), model)
    search = PathSearchCV(pipeline, **options).fit(X, y)
    plain = PathSearchCV(clone(model).set_params(standardize=True), **options).fit(X, y)
    name = "polynomialnetworkclassifier__"
    assert search.best_params_ == {name + k: v for k, v in plain.best_params_.items()}
    np.testing.assert_allclose(
        search.cv_results_["mean_test_score"], plain.cv_results_["mean_test_score"], rtol=1e-6
    )
    np.testing.assert_allclose(search.predict_proba(X), plain.predict_proba(X), atol=1e-3)
    assert search.best_estimator_[0].n_features_in_ == 4
    assert set(search.classes_) == {0, 1, 2}
    assert isinstance(search.best_estimator_, Pipeline)
    assert search.score(X, y) == pytest.approx(-log_loss(y, search.predict_proba(X)))


def test_progress_bar(iris, capsys):
    model = PolynomialNetworkClassifier(n_components=2, random_state=0)
    PathSearchCV(model, alphas=[10.0, 1.0], cv=3, verbose=1).fit(*iris)
    shown = capsys.readouterr().err
    assert "6/6" in shown
    assert "best score of a fold=-0." in shown
    rng = np.random.default_rng(0)  # nothing to learn: the path ends before the grid does
    PathSearchCV(model, alphas=np.geomspace(10, 0.01, 9), cv=2, verbose=1).fit(
        rng.standard_normal((60, 4)), rng.integers(0, 2, 60)
    )
    assert "18/18" in capsys.readouterr().err


def test_a_column_of_classes_is_one_dimensional(iris):
    X, y = iris
    model = PolynomialNetworkClassifier(n_components=3, random_state=0)
    flat = PathSearchCV(model, alphas=[10.0, 1.0], cv=3).fit(X, y)
    with pytest.warns(DataConversionWarning):
        column = PathSearchCV(model, alphas=[10.0, 1.0], cv=3).fit(X, y[:, None])
    np.testing.assert_allclose(
        column.cv_results_["mean_test_score"], flat.cv_results_["mean_test_score"]
    )


def test_levels_are_stratified():
    """Also where the rows are sorted by level."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((90, 3))
    y = np.digitize(X[:, 0] * X[:, 1], [-0.3, 0.3])
    order = np.argsort(y, kind="stable")
    model = FactorizationMachineOrdinalRegressor(n_components=3, random_state=0)
    search = PathSearchCV(model, n_alphas=4, cv=3).fit(X[order], y[order])
    assert search.best_score_ > 0.3


def test_one_standard_error_needs_splits(iris):
    model = PolynomialNetworkClassifier(n_components=1, random_state=0)
    with pytest.raises(ValueError, match="two splits or more"):
        PathSearchCV(model, alphas=[1.0], cv=0.3, one_standard_error=True).fit(*iris)


@pytest.mark.parametrize("cls", [PolynomialNetworkClassifier, FactorizationMachineClassifier])
def test_log_loss_of_labels(cls):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 4))
    Y = (np.column_stack([X[:, 0] * X[:, 1], X[:, 2]]) + rng.standard_normal((120, 2)) > 0) * 1
    model = cls(n_components=3, random_state=0)
    search = PathSearchCV(model, alphas=[3.0], cv=[(np.arange(80), np.arange(80, 120))]).fit(X, Y)
    fitted = clone(model).set_params(alpha=3.0).fit(X[:80], Y[:80])
    P = fitted.predict_proba(X[80:])
    expected = np.mean([log_loss(Y[80:, c], P[:, c]) for c in range(2)])
    assert search.scorer_(fitted, X[80:], Y[80:]) == pytest.approx(-expected, rel=1e-6)
    assert search.cv_results_["mean_test_score"][-1] == pytest.approx(-expected, rel=0.01)


def test_default_grid_starts_at_alpha_max(iris):
    X, y = iris
    model = PolynomialNetworkClassifier(n_components=2, alpha_linear=1.0, random_state=0)
    search = PathSearchCV(model, n_alphas=3, alpha_min_ratio=1e-2, cv=0.25).fit(X, y)
    largest = alpha_max(Design(StandardScaler().fit_transform(X), fit_lower="explicit"), y)
    # The first alpha is as accurate as the fits, with tol = 0.1; on iris ten times as accurate.
    np.testing.assert_allclose(search.alphas_, largest * np.array([1, 0.1, 0.01]), rtol=1e-2)
    assert search.n_splits_ == 1
    assert search.best_params_.keys() == {"alpha", "n_components"}


def test_hold_out_share_is_stratified(iris):
    model = PolynomialNetworkClassifier(n_components=1, random_state=0)
    _, y_test = held_out(PathSearchCV(model, alphas=[1.0], cv=0.2), *iris)
    assert (np.bincount(y_test) == 10).all()


def test_hold_out_share_follows_the_random_state(iris):
    first, again, other = (
        held_out(
            PathSearchCV(
                PolynomialNetworkClassifier(n_components=1, random_state=seed),
                alphas=[1.0],
                cv=0.2,
            ),
            *iris,
        )[0]
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def held_out(search, X, y):
    """The rows of the single test part, as the scorer sees them."""
    seen = []

    def scoring(estimator, X_test, y_test):
        seen.append((X_test, y_test))
        return 0.0

    search.set_params(scoring=scoring).fit(X, y)
    assert all(np.array_equal(a, b) for one in seen for a, b in zip(one, seen[0], strict=True))
    return seen[0]


@pytest.mark.parametrize("names", [[0, 1, 2, 3, 4], ["e", "d", "c", "b", "a"]], ids=str)
def test_hold_out_share_has_levels_in_both_parts(names):
    """Rare levels, which a random split may put into the test part only, are also trained on."""
    rng = np.random.default_rng(0)
    codes = np.repeat([0, 1, 2, 3, 4], [2, 2, 2, 3, 51])
    X, y = rng.standard_normal((60, 2)), np.array(names)[codes]
    for seed in range(10):
        model = FactorizationMachineOrdinalRegressor(
            n_components=1, levels=names, random_state=seed
        )
        search = PathSearchCV(model, alphas=[1.0], cv=0.25)
        X_test, y_test = held_out(search, X, y)
        trained = ~(X[:, None] == X_test).all(axis=2).any(axis=1)
        assert set(y[trained]) == set(names)
        assert len(y_test) == (~trained).sum() == 15
        watched, seen = watching_scores(FactorizationMachineOrdinalRegressor)
        watched(n_components=1, early_stopping=True, levels=names, random_state=seed).fit(X, y)
        X_test, y_test = seen[0]
        trained = ~(X[:, None] == X_test).all(axis=2).any(axis=1)
        assert set(y[trained]) == set(names)
        assert len(y_test) == (~trained).sum() == 15


@pytest.mark.parametrize("cls", [FactorizationMachineOrdinalRegressor, PolynomialNetworkClassifier])
def test_labels_unseen_in_training_cost_a_split_not_the_search(cls, capsys):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    y = np.array(["a", "b", "c"])[np.digitize(X[:, 0] * X[:, 1], [-0.2, 0.2])]
    y[0] = "z"
    unseen, single = np.arange(20), np.flatnonzero(y == "a")
    cv = [(np.delete(np.arange(60), unseen), unseen), (single, unseen)]
    cv += [(np.arange(40), np.arange(40, 60)), (np.arange(30), np.arange(40, 60))]
    scoring = None if cls is FactorizationMachineOrdinalRegressor else _strict_accuracy
    model = cls(n_components=2, random_state=0)
    if cls is FactorizationMachineOrdinalRegressor:
        model.set_params(levels=["a", "b", "c", "z"])
    search = PathSearchCV(model, alphas=[1.0], cv=cv, scoring=scoring, verbose=1)
    if cls is FactorizationMachineOrdinalRegressor:  # a declared level has a rank
        with pytest.warns(UserWarning, match="1 of 4 splits cannot be scored"):
            search.fit(X, y)
        assert "4/4" in capsys.readouterr().err  # the progress bar counts them
        table = search.cv_results_
        assert np.isfinite(table["split0_test_score"]).all()
        assert np.isnan(table["split1_test_score"]).all()
        return
    with pytest.warns(UserWarning, match="2 of 4 splits cannot be scored"):
        search.fit(X, y)
    assert "4/4" in capsys.readouterr().err
    table = search.cv_results_
    assert np.isnan([table["split0_test_score"], table["split1_test_score"]]).all()
    means = (table["split2_test_score"] + table["split3_test_score"]) / 2
    np.testing.assert_allclose(table["mean_test_score"], means)
    assert search.best_score_ == means.max()
    with pytest.raises(ValueError, match="all scores are NaN"):
        PathSearchCV(model, alphas=[1.0], cv=cv[:2], scoring=scoring).fit(X, y)
    with pytest.raises(ValueError, match="broken"):  # other errors of a scorer are passed on
        PathSearchCV(model, alphas=[1.0], cv=cv[2:], scoring=_broken).fit(X, y)


def _strict_accuracy(estimator, X, y):
    if not set(y) <= set(estimator.classes_):
        raise ValueError("labels without a model")
    return estimator.score(X, y)


def _broken(estimator, X, y):
    raise ValueError("broken")


@pytest.mark.parametrize("fit_lower", ["augment", "explicit"])
def test_scorers_see_the_model_of_the_round(iris, fit_lower):
    """What they see is what a fit with that many basis vectors gives, attribute by attribute.

    Only the violation is not computed, which would take a search for vectors that nobody adds.
    """
    seen = []

    def scorer(estimator, X, y):
        seen.append(estimator)
        return -estimator.n_components_

    model = PolynomialNetworkClassifier(
        n_components=3, fit_lower=fit_lower, alpha=0.2, tol=1e-3, random_state=0, **PAPER
    )
    rows = np.arange(len(iris[1]))
    search = PathSearchCV(model, alphas=[0.2], cv=[(rows, rows)], scoring=scorer).fit(*iris)
    assert search.best_params_["n_components"] == 1
    assert [view.n_components_ for view in seen] == [0, 1, 2, 3]
    for view in seen[1:]:
        fitted = clone(model).set_params(n_components=view.n_components_).fit(*iris)
        for name in (
            "components_", "output_weights_", "intercept_", "linear_coef_", "n_iter_", "objective_",
            "violation_", "alpha_",
        ):  # fmt: skip
            assert hasattr(view, name) == hasattr(fitted, name)
            if name == "violation_":
                assert np.isnan(view.violation_)
            else:
                np.testing.assert_array_equal(getattr(view, name, 0), getattr(fitted, name, 0))


def test_times_of_the_runs(iris):
    model = PolynomialNetworkClassifier(n_components=3, random_state=0)
    table = PathSearchCV(model, alphas=[1.0, 0.5], cv=2).fit(*iris).cv_results_
    for name in ("fit_time", "score_time"):
        mean = table[f"mean_{name}"].reshape(2, 3)
        assert (mean > 0).all()
        assert (mean == mean[:, :1]).all()  # a run is shared by its sizes
        assert (table[f"std_{name}"].reshape(2, 3) <= mean).all()


def test_alpha_of_the_estimator_is_not_used(iris):
    model = PolynomialNetworkClassifier(alpha=123.0, n_components=1, random_state=0)
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


@pytest.mark.parametrize(("n_jobs", "asked", "used"), [(2, None, 1), (2, 3, 3), (1, None, None)])
def test_parallel_folds_share_the_cores(n_jobs, asked, used, iris):
    """Each fold has one thread, unless the user asks for more."""
    seen = set()

    def scoring(estimator, X, y):
        seen.add(estimator.n_threads)
        return 0.0

    model = PolynomialNetworkClassifier(n_components=1, n_threads=asked, random_state=0)
    with parallel_config("threading"):
        PathSearchCV(model, alphas=[1.0], cv=2, scoring=scoring, refit=False, n_jobs=n_jobs).fit(
            *iris
        )
    assert seen == {used}


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
    with pytest.raises(AttributeError, match="no attribute 'predict'") as error:
        search.predict(iris[0])
    assert "`refit=False`" in str(error.value.__cause__)
    with pytest.raises(AttributeError, match="refit=False"):
        search.score(*iris)


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


def test_a_column_of_classes_and_a_fold_of_one_class(iris):
    """The fold is left out with a warning, as for classes (n,)."""
    X, y = iris
    splits = [(np.arange(50), np.arange(50, 150)), (np.arange(0, 150, 2), np.arange(1, 150, 2))]
    model = PolynomialNetworkClassifier(n_components=2, random_state=0)
    with pytest.warns(UserWarning, match="1 of 2 splits cannot be scored"):
        search = PathSearchCV(model, alphas=[10.0, 1.0], cv=splits).fit(X, y[:, None])
    assert np.isnan(search.cv_results_["split0_test_score"]).all()


def test_an_interrupted_search_keeps_the_earlier_one(iris):
    X, y = iris
    search = PathSearchCV(PolynomialNetworkClassifier(n_components=2, random_state=0), cv=3)
    before = dict(vars(search.fit(X, y)))

    def interrupted(model, X, y):
        raise KeyboardInterrupt

    search.scoring = interrupted
    with pytest.raises(KeyboardInterrupt):
        search.fit(X, y)
    assert vars(search) == {**before, "scoring": interrupted}
    search.scoring, search.refit = None, False
    search.fit(X, y)
    assert not hasattr(search, "best_estimator_")


@pytest.mark.parametrize("cv", [None, 3, 0.25])
@pytest.mark.parametrize("cls", [FactorizationMachineOrdinalRegressor, PolynomialNetworkClassifier])
def test_groups_need_a_splitter(iris, cv, cls):
    X, y = iris
    with pytest.raises(ValueError, match="groups need a splitter .*cv=GroupKFold"):
        PathSearchCV(cls(n_components=1), cv=cv).fit(X, y, groups=np.arange(150) % 5)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_search_of_many_levels_warns_once(iris, n_jobs):
    """Folds have other numbers of levels, but it is the same warning, at the caller's line."""
    X, _ = iris
    y = np.random.default_rng(0).standard_normal(len(X))
    model = FactorizationMachineOrdinalRegressor(n_components=1, random_state=0)
    search = PathSearchCV(model, alphas=[5.0], cv=KFold(3), n_jobs=n_jobs, refit=False)
    with pytest.warns(UserWarning, match="150 levels in 150 rows") as caught:
        search.fit(X, y)
    levels = [each for each in caught if "levels in" in str(each.message)]
    assert len(levels) == 1
    assert levels[0].filename == __file__


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_search_warns_once(iris, n_jobs):
    """Each fold and the final fit see the column that costs digits."""
    X, y = iris
    model = PolynomialNetworkClassifier(n_components=1, alpha=None, random_state=0)
    with pytest.warns(UserWarning, match="mean of column 0 of X") as caught:
        PathSearchCV(model, alphas=[1.0], cv=3, n_jobs=n_jobs).fit(X + 1e7, y)
    messages = [str(each.message) for each in caught]
    assert len(messages) == len(set(messages))
    assert {each.filename for each in caught} == {__file__}


def test_weighted_scores_and_the_time_of_the_refit(iris):
    X, y = iris
    model = PolynomialNetworkClassifier(n_components=2, random_state=0)
    w = np.random.default_rng(0).integers(1, 4, len(X))
    again = X.repeat(w, axis=0), y.repeat(w)
    labels = np.column_stack([y == 0, y == 1]).astype(int)
    for targets, scoring in ((y, None), (y, "accuracy"), (labels, None)):
        search = PathSearchCV(model, alphas=[1.0], cv=3, scoring=scoring).fit(X, targets)
        repeated = search.score(again[0], targets.repeat(w, axis=0))
        assert search.score(X, targets, w) == pytest.approx(repeated)
        assert search.score(X, targets, w) != pytest.approx(search.score(X, targets))
        assert 0 < search.refit_time_ < 60


def test_metadata_goes_to_those_that_request_it():
    """Weights to the model, in a Pipeline too, and groups to the splitter."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((90, 3))
    y, w = X[:, 0] * X[:, 1] + 0.1 * rng.standard_normal(90), rng.integers(1, 4, 90).astype(float)
    groups = rng.integers(0, 6, 90)
    options = {"alphas": [1.0, 0.1], "cv": GroupKFold(3)}
    model = PolynomialNetworkRegressor(n_components=2, random_state=0)
    plain = PathSearchCV(model, **options).fit(X, y, w, groups=groups)
    with config_context(enable_metadata_routing=True):
        scorer = make_scorer(mean_squared_error).set_score_request(sample_weight=True)
        asking = clone(model).set_fit_request(sample_weight=True)
        asking.set_score_request(sample_weight=False)
        search = PathSearchCV(asking, **options).fit(X, y, sample_weight=w, groups=groups)
        np.testing.assert_array_equal(
            search.cv_results_["mean_test_score"], plain.cv_results_["mean_test_score"]
        )
        assert search.best_estimator_.model_ == plain.best_estimator_.model_
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        search = PathSearchCV(make_pipeline(scaler, asking), **options)
        search.fit(X, y, sample_weight=w, groups=groups)
        best = search.best_estimator_[-1]
        weighted = best.model_.background[0] * w.sum() - scaler.fit_transform(X).T @ w
        np.testing.assert_allclose(weighted, 0, atol=1e-8)
        silent = PathSearchCV(clone(model), **options, scoring=scorer)
        with pytest.raises(ValueError, match="sample_weight"):  # neither requested nor refused
            silent.fit(X, y, sample_weight=w, groups=groups)
        with pytest.raises(TypeError, match="price"):
            PathSearchCV(asking, **options).fit(X, y, price=w)
    with pytest.raises(TypeError, match="price.*enable_metadata_routing"):
        PathSearchCV(model, **options).fit(X, y, price=w)


def test_a_scorer_gets_the_weights_of_its_rows():
    rng = np.random.default_rng(0)
    X, w, seen = rng.standard_normal((60, 3)), rng.integers(1, 4, 60).astype(float), []
    y = X[:, 0] * X[:, 1]

    def weighted(y, predicted, sample_weight=None):
        seen.append((y, sample_weight))
        return 0.0

    with config_context(enable_metadata_routing=True):
        scorer = make_scorer(weighted).set_score_request(sample_weight=True)
        model = PolynomialNetworkRegressor(n_components=2, random_state=0)
        model.set_fit_request(sample_weight=False)
        search = PathSearchCV(model, alphas=[1.0], cv=3, scoring=scorer)
        search.fit(X, y, sample_weight=w)
        by_target = dict(zip(y, w, strict=True))
        assert seen
        for targets, weights in seen:
            assert [by_target[t] for t in targets] == weights.tolist()
        seen.clear()
        search.score(X, y, sample_weight=w)
        np.testing.assert_array_equal(seen[0][1], w)


def test_targets_that_are_the_array_of_a_series(iris):
    """pandas 3 has Arrow behind text: its arrays take no lists of positions."""
    pandas = pytest.importorskip("pandas")
    X, y = iris
    texts = pandas.Series(np.array(["a", "b", "c"])[y])
    model = PolynomialNetworkClassifier(n_components=2, random_state=0)
    one, other = (PathSearchCV(model, alphas=[1.0], cv=3).fit(X, t) for t in (texts, texts.array))
    assert one.best_score_ == other.best_score_
    assert other.classes_.tolist() == ["a", "b", "c"]


def test_what_a_search_shows(iris):
    """HTML with the best estimator and links to the documentation."""
    X, y = iris
    model = PolynomialNetworkClassifier(n_components=3, random_state=0)
    search = PathSearchCV(model, alphas=[5.0], cv=3)
    assert "best_estimator_: " not in search._repr_html_()
    html = search.fit(X, y)._repr_html_()
    assert "best_estimator_: PolynomialNetworkClassifier" in html
    for name in ("PathSearchCV", "PolynomialNetworkClassifier"):
        assert f"fastpoly.readthedocs.io/en/latest/api/fastpoly.{name}.html" in html
    assert "fastpoly.TableEncoder.html" in TableEncoder()._repr_html_()


def test_reading_the_best_model_of_a_pipeline(iris):
    """Names that its transformers give, and features that reach the last step."""
    X, y = iris
    model = PolynomialNetworkClassifier(n_components=3, random_state=0)
    pipeline = make_pipeline(PolynomialFeatures(1, include_bias=False), StandardScaler(), model)
    search = PathSearchCV(pipeline, alphas=[0.5], cv=3).fit(X, y)
    pairs = search.top_interactions(0, k=3)
    assert {name for pair in pairs for name in pair[:2]} <= {"x0", "x1", "x2", "x3"}
    best = search.best_estimator_[-1]
    assert [pair[2] for pair in pairs] == [pair[2] for pair in best.top_interactions(0, k=3)]
    np.testing.assert_array_equal(search.interaction_matrix(0), best.interaction_matrix(0))
    found = search.contributions(X)
    assert found.feature_names == ["x0", "x1", "x2", "x3"]
    sums = found.values.sum(axis=1) + found.base_values
    np.testing.assert_allclose(sums, search.decision_function(X), atol=1e-9)
    again = search.contributions(X, background=X)
    np.testing.assert_allclose(again.values, found.values, atol=1e-9)
