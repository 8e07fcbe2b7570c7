"""The estimators as scikit-learn sees them, and against the functional core."""

import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise

import joblib
import numpy as np
import pytest
import scipy.sparse as sp
from joblib import Parallel, delayed
from scipy.special import expit
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from subprocesses import run_python

import fastpoly
from fastpoly import Design, PolyModel, conditional_gradient
from fastpoly.estimators.base import PolyEstimator
from fastpoly.estimators.ordinal import level_probabilities

CLASSIFIERS = (fastpoly.PolynomialNetworkClassifier, fastpoly.FactorizationMachineClassifier)
REGRESSORS = (fastpoly.PolynomialNetworkRegressor, fastpoly.FactorizationMachineRegressor)
ORDINAL = (
    fastpoly.PolynomialNetworkOrdinalRegressor,
    fastpoly.FactorizationMachineOrdinalRegressor,
)
ALL = CLASSIFIERS + REGRESSORS + ORDINAL


def activation(cls):
    return "squared" if cls.__name__.startswith("PolynomialNetwork") else "anova"


@pytest.fixture(scope="module")
def data():
    """X (120, 5), and a score with interactions and a linear term."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 5))
    return X, X[:, 0] * X[:, 1] + 0.7 * X[:, 2] + 0.05 * rng.standard_normal(120)


def targets(cls, score):
    if cls in REGRESSORS:
        return score
    return np.digitize(score, [-0.5, 0.5])


SMALL = {"n_components": 4, "alpha": 0.5}


@parametrize_with_checks(
    [cls(**SMALL) for cls in ALL]
    + [fastpoly.FactorizationMachineClassifier(fit_lower="explicit", **SMALL)]
    + [
        fastpoly.PathSearchCV(cls(random_state=0, **SMALL), alphas=[0.5], cv=0.3)
        for cls in ALL[::3]
    ]
)
def test_scikit_learn(estimator, check):
    check(estimator)


def test_all_six_are_tested():
    named = {getattr(fastpoly, name) for name in fastpoly.__all__ if name[0].isupper()}
    assert {c for c in named if isinstance(c, type) and issubclass(c, PolyEstimator)} == set(ALL)
    assert all(map(is_classifier, (cls() for cls in CLASSIFIERS)))
    assert all(map(is_regressor, (cls() for cls in REGRESSORS + ORDINAL)))


@pytest.mark.parametrize("cls", ALL)
def test_docstring_names_every_parameter(cls):
    for name in cls().get_params():
        assert f"\n{name} : " in cls.__doc__
    assert "{" not in cls.__doc__.replace('{"', "").replace("{False", "")


@pytest.mark.parametrize("fit_lower", ["augment", "explicit", None])
@pytest.mark.parametrize("cls", ALL)
def test_equals_the_functional_core(cls, data, fit_lower):
    """Same problem, stated by hand: class codes, columns, or the reduction to y <= level."""
    X, score = data
    y = targets(cls, score)
    if cls in CLASSIFIERS:
        Y, loss = y, "multiclass_logistic"
    elif cls in REGRESSORS:
        Y, loss = y[:, None], "squared"
    else:
        Y = np.column_stack([2.0 * (y <= 0) - 1, 2.0 * (y <= 1) - 1])
        loss = "binary_logistic"
    model = cls(n_components=3, fit_lower=fit_lower, random_state=0).fit(X, y)
    design = Design(X, activation(cls), fit_lower=fit_lower, n_threads=1)
    *_, state = conditional_gradient(
        design, Y, loss=loss, alpha=1.0, n_components=3, random_state=0
    )
    np.testing.assert_array_equal(model.components_, state.H)
    np.testing.assert_array_equal(model.coef_, state.V)
    np.testing.assert_array_equal(model.intercept_, state.intercept)
    assert hasattr(model, "linear_coef_") == (fit_lower == "explicit")
    if fit_lower == "explicit":
        np.testing.assert_array_equal(model.linear_coef_, state.linear.T)
    assert (model.objective_, model.violation_) == (state.objective, state.violation)
    assert not hasattr(model, "dual_gap_")
    # Predictions from the numbers, by their definitions.
    O = design.outputs(state.H, state.V) + state.intercept
    if fit_lower == "explicit":
        O = O + X @ state.linear
    if cls in CLASSIFIERS:
        expected = O.argmax(axis=1)
    elif cls in REGRESSORS:
        expected = O[:, 0]
    else:
        low, high = np.sort(expit(O), axis=1).T
        crossed = expit(O[:, 0]) > expit(O[:, 1])
        low = np.where(crossed, (low + high) / 2, low)
        high = np.where(crossed, low, high)
        expected = (high - low) + 2 * (1 - high)
    np.testing.assert_allclose(model.predict(X), expected, atol=1e-10)


@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
@pytest.mark.parametrize("cls", CLASSIFIERS)
def test_multilabel_equals_the_core_on_signs(cls, data, loss):
    X, score = data
    labels = np.column_stack([score > 0, X[:, 0] > 0, X[:, 1] * X[:, 3] > 0.2]).astype(int)
    model = cls(n_components=3, loss=loss, random_state=0).fit(X, labels)
    design = Design(X, activation(cls), fit_lower="augment", n_threads=1)
    *_, state = conditional_gradient(
        design, 2.0 * labels - 1, loss="binary_" + loss, alpha=1.0, n_components=3, random_state=0
    )
    O = design.outputs(state.H, state.V)
    np.testing.assert_allclose(model.decision_function(X), O, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(model.predict(X), (O > 0).astype(int))
    if loss == "logistic":
        np.testing.assert_allclose(model.predict_proba(X), expit(O), rtol=1e-12)
    for same in (sp.csr_array(labels), labels.astype(bool), labels.tolist()):
        other = clone(model).fit(X, same)
        np.testing.assert_array_equal(other.coef_, model.coef_)


@pytest.mark.parametrize("cls", ALL)
def test_warm_start_equals_a_straight_fit(cls, data):
    X, score = data
    y = targets(cls, score)
    options = {"alpha": 0.05, "random_state": 0}
    straight = cls(n_components=5, **options).fit(X, y)
    model = cls(n_components=2, warm_start=True, **options).fit(X, y)
    first = model.components_
    model.set_params(n_components=5).fit(X, y)
    np.testing.assert_array_equal(model.components_, straight.components_)
    np.testing.assert_array_equal(model.coef_, straight.coef_)
    assert model.n_components_ > len(first)
    np.testing.assert_array_equal(model.history_["objective"], straight.history_["objective"])
    staged = zip(model.staged_predict(X), straight.staged_predict(X), strict=True)
    for a, b in staged:
        np.testing.assert_array_equal(a, b)
    with pytest.raises(ValueError, match="can only grow"):
        model.set_params(n_components=1).fit(X, y)
    with pytest.raises(ValueError, match="fit_lower"):
        model.set_params(n_components=6, fit_lower=None).fit(X, y)


def test_warm_start_refuses_other_classes(data):
    X, score = data
    model = CLASSIFIERS[0](n_components=2, warm_start=True).fit(X, score > 0)
    with pytest.raises(ValueError, match="classes_ was"):
        model.fit(X, np.digitize(score, [-0.5, 0.5]))


@pytest.mark.parametrize("refit", ["output", "full", None])
@pytest.mark.parametrize("cls", ALL)
def test_stages(cls, data, refit):
    X, score = data
    y = targets(cls, score)
    model = cls(n_components=4, refit=refit, alpha=0.1, random_state=0).fit(X, y)
    predictions = list(model.staged_predict(X))
    outputs = list(model.staged_decision_function(X))
    assert len(predictions) == len(outputs) == len(model.history_["objective"])
    np.testing.assert_array_equal(predictions[-1], model.predict(X))
    assert not outputs[0].any()  # the model without basis vectors
    # Stage i is what a shorter fit gives.
    short = clone(model).set_params(n_components=2).fit(X, y)
    i = model._stages.first_of_size(2)
    np.testing.assert_array_equal(predictions[i], short.predict(X))
    if refit == "output":
        assert len(model._stages.pool) <= model.n_iter_  # each basis vector once


@pytest.mark.parametrize("cls", ALL)
def test_early_stopping_keeps_the_best(cls, data):
    X, _ = data
    rng = np.random.default_rng(1)
    y = targets(cls, rng.standard_normal(len(X)))  # noise: more basis vectors only harm
    model = cls(
        n_components=30, alpha=1e-3, early_stopping=True, n_iter_no_change=3, random_state=0
    ).fit(X, y)
    scores = model.history_["validation_score"]
    best = int(scores.argmax())
    assert len(scores) == best + 1 + 3
    assert len(list(model.staged_predict(X))) == best + 1
    assert model.n_components_ == model.history_["n_components"][best]


@pytest.mark.parametrize("cls", ALL)
def test_warm_start_holds_out_the_same_rows(cls, data):
    """Else rows that were trained on would be validated with."""
    X, score = data
    y = targets(cls, score)
    model = cls(n_components=1, early_stopping=True, warm_start=True).fit(X, y)
    _, first = model._hold_out(y)
    model.set_params(n_components=2).fit(X, y)
    np.testing.assert_array_equal(model._hold_out(y)[1], first)


@pytest.mark.parametrize("fit_lower", ["explicit", "augment"])
def test_machines_learn_imbalance_with_an_intercept(fit_lower):
    """The products of a machine have no constant term, whatever the constant feature."""
    X = np.random.default_rng(0).standard_normal((200, 3))
    y = np.arange(200) % 20 == 0
    model = CLASSIFIERS[1](fit_lower=fit_lower, alpha=20.0, random_state=0).fit(X, y)
    at_zero = model.decision_function(np.zeros((1, 3)))[0]
    assert at_zero < -1 if fit_lower == "explicit" else at_zero == 0
    assert model.__sklearn_tags__().classifier_tags.poor_score == (fit_lower == "augment")


@pytest.mark.parametrize("cls", CLASSIFIERS)
@pytest.mark.parametrize(
    "names", [["a", "b", "c"], [-7, -1, 3], [False, True], [0.0, 1.0, 2.0]], ids=str
)
def test_label_types(cls, data, names):
    X, score = data
    y = np.array(names)[np.digitize(score, [0.0] if len(names) == 2 else [-0.5, 0.5])]
    model = cls(n_components=8, alpha=0.1, random_state=0).fit(X, y)
    assert model.classes_.dtype == y.dtype
    np.testing.assert_array_equal(model.classes_, names)
    assert model.predict(X).dtype == y.dtype
    assert model.score(X, y) > 0.8
    proba = model.predict_proba(X)
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    np.testing.assert_array_equal(model.classes_[proba.argmax(axis=1)], model.predict(X))
    if len(names) == 2:
        np.testing.assert_array_equal(model.decision_function(X) > 0, model.predict(X))
    name = str(names[1])
    np.testing.assert_array_equal(model.interaction_matrix(name), model.interaction_matrix(1))


@pytest.mark.parametrize("cls", CLASSIFIERS)
def test_three_labels_are_never_folded(cls, data):
    X, score = data
    with pytest.raises(ValueError, match="label indicator"):
        cls().fit(X, np.column_stack([np.digitize(score, [-0.5, 0.5])] * 2))
    with pytest.raises(ValueError, match="label indicator"):
        cls().fit(X, np.where(np.column_stack([score, X[:, 0]]) > 0, 1, -1))
    with pytest.raises(ValueError, match="continuous"):
        cls().fit(X, score)
    assert len(cls(n_components=1).fit(X, np.digitize(score, [-0.5, 0.5])).classes_) == 3


@pytest.mark.parametrize("cls", ORDINAL)
def test_ordinal_levels(cls, data):
    X, score = data
    codes = np.digitize(score, [-1, 0, 1])
    stars = np.array([0.5, 1.0, 2.5, 5.0])
    model = cls(n_components=4, random_state=0).fit(X, stars[codes])
    np.testing.assert_array_equal(model.classes_, stars)
    proba = model.predict_proba(X)
    assert proba.shape == (len(X), 4)
    assert proba.min() >= 0
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    np.testing.assert_allclose(model.predict(X), proba @ stars)
    assert model.decision_function(X).shape == (len(X), 3)
    # The same problem with names: ranks take the place of the numbers.
    words = cls(n_components=4, random_state=0).fit(X, np.array(["a", "b", "c", "d"])[codes])
    np.testing.assert_array_equal(words.predict_proba(X), proba)
    np.testing.assert_allclose(words.predict(X), proba @ [1, 2, 3, 4])
    assert words.score(X, np.array(["a", "b", "c", "d"])[codes]) > 0.5
    with pytest.raises(ValueError, match="did not see"):
        words.score(X[:2], ["a", "z"])


@pytest.mark.parametrize("cls", ORDINAL)
def test_declared_order_of_levels(cls, data):
    """An ordered categorical says which level is higher; the alphabet does not."""
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    X, score = data
    codes, order = np.digitize(score, [-0.5, 0.5]), ["low", "medium", "high"]
    words = np.array(order)[codes]
    numbers = cls(n_components=3, random_state=0).fit(X, codes + 1)
    categorical = pandas.Categorical(words, categories=["none", *order], ordered=True)
    for y in (
        categorical,
        pandas.Series(categorical),
        polars.Series(words, dtype=polars.Enum(order)),
    ):
        model = cls(n_components=3, random_state=0).fit(X, y)
        assert list(model.classes_) == order
        np.testing.assert_array_equal(model.predict(X), numbers.predict(X))
        assert model.score(X, words) == numbers.score(X, codes + 1)
    unordered = pandas.Series(pandas.Categorical(words, categories=order))
    assert list(cls(n_components=1).fit(X, unordered).classes_) == ["high", "low", "medium"]


def test_crossing_probabilities_are_repaired():
    rng = np.random.default_rng(0)
    O = 5 * rng.standard_normal((200, 4))
    p = level_probabilities(O)
    assert p.min() >= 0
    np.testing.assert_allclose(p.sum(axis=1), 1)
    ordered = np.sort(O, axis=1)
    expected = np.diff(expit(ordered), axis=1, prepend=0, append=1)
    np.testing.assert_allclose(level_probabilities(ordered), expected, atol=1e-15)


@pytest.mark.parametrize("fit_lower", ["augment", "explicit", None])
@pytest.mark.parametrize("cls", ALL)
def test_unseen_category_contributes_nothing(cls, fit_lower):
    rng = np.random.default_rng(0)
    users, items = rng.integers(0, 6, 150), rng.integers(0, 7, 150)
    X = np.zeros((150, 15))  # columns 6 and 14 are categories that training does not see
    X[np.arange(150), users] = X[np.arange(150), 7 + items] = 1
    y = targets(cls, np.cos(users) * np.sin(items + 1) * 2)
    model = cls(n_components=3, alpha=0.1, fit_lower=fit_lower, random_state=0).fit(
        sp.csr_array(X), y
    )
    new = np.zeros((2, 15))
    new[0, 6] = new[1, 14] = 1
    outputs = model.model_.decision(new)
    np.testing.assert_allclose(outputs, model.model_.decision(np.zeros((2, 15))), rtol=1e-12)


@pytest.mark.parametrize("cls", ALL)
def test_integer_weights_equal_repeated_rows_on_large_data(cls, monkeypatch, data):
    """Also where rows are not merged first: within the tolerance of the solver."""
    monkeypatch.setattr("fastpoly.estimators.rows.SMALL", 0)
    X, score = data
    y, w = targets(cls, score), np.arange(len(X)) % 3
    options = {"alpha": 2.0, "n_components": 3, "random_state": 0, "tol": 1e-8}
    weighted = cls(**options).fit(X, y, sample_weight=w)
    repeated = cls(**options).fit(X.repeat(w, axis=0), y.repeat(w))
    assert weighted.objective_ == pytest.approx(repeated.objective_, rel=1e-6)
    plain = cls(**options).fit(X, y)
    assert plain.objective_ != pytest.approx(repeated.objective_, rel=1e-3)


@pytest.mark.parametrize("cls", CLASSIFIERS)
def test_class_weight_equals_sample_weight(cls, data):
    X, score = data
    y = np.digitize(score, [-0.5, 1.0])
    options = {"n_components": 3, "random_state": 0}
    by_class = cls(class_weight={0: 2, 1: 1, 2: 5}, **options).fit(X, y)
    by_row = cls(**options).fit(X, y, sample_weight=np.array([2, 1, 5])[y])
    np.testing.assert_allclose(by_class.predict_proba(X), by_row.predict_proba(X))
    balanced = cls(class_weight="balanced", **options).fit(X, y)
    assert (balanced.predict(X) == 2).sum() > (cls(alpha=20).fit(X, y).predict(X) == 2).sum()


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("cls", ALL)
def test_frames_and_names(cls, data, library):
    frames = pytest.importorskip(library)
    X, score = data
    names = ["age", "income", "c", "d", "e"]
    frame = frames.DataFrame({name: X[:, j] for j, name in enumerate(names)})
    if not hasattr(StandardScaler().fit(frame), "feature_names_in_"):
        pytest.skip(f"this scikit-learn is older than this {library} and sees no names")
    y = targets(cls, score)
    model = cls(n_components=3, random_state=0).fit(frame, frames.Series(y))
    assert list(model.feature_names_in_) == names
    assert set(model.top_interactions(k=1)[0][:2]) == {"age", "income"}
    np.testing.assert_array_equal(model.predict(frame), model.predict(frame))
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame[names[::-1]])
    text = frames.DataFrame({"age": ["young", "old"], "income": [1.0, 2.0]})
    with pytest.raises(ValueError, match="could not convert string|dtype"):
        cls().fit(text, [0, 1])
    early = clone(model).set_params(early_stopping=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        early.fit(frame, y)


def test_works_in_scikit_learn_tools(data):
    X, score = data
    y = np.digitize(score, [-0.5, 0.5])
    model = CLASSIFIERS[0](n_components=8, random_state=0)
    pipeline = make_pipeline(StandardScaler(), model)
    assert cross_val_score(pipeline, X, y, cv=2).min() > 0.6
    pytest.importorskip("pandas")
    pipeline.set_output(transform="pandas").fit(X, y)
    assert list(pipeline[-1].feature_names_in_) == ["x0", "x1", "x2", "x3", "x4"]
    assert set(pipeline[-1].top_interactions(2, k=1)[0][:2]) == {"x0", "x1"}
    search = GridSearchCV(model, {"alpha": [0.1, 10.0]}, cv=2).fit(X, y)
    assert search.best_params_["alpha"] in (0.1, 10.0)
    assert OneVsRestClassifier(model).fit(X, y).score(X, y) > 0.6


@pytest.mark.parametrize("cls", ALL)
def test_pickle_and_threads(cls, data, tmp_path):
    X, score = data
    model = cls(n_components=3, random_state=0).fit(X, targets(cls, score))
    expected = model.predict(X)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), expected)
    np.testing.assert_array_equal(list(again.staged_predict(X))[-1], expected)
    model.model_.save(tmp_path / "m.npz")
    assert PolyModel.load(tmp_path / "m.npz") == model.model_
    with ThreadPoolExecutor(4) as pool:
        for result in pool.map(lambda _: model.predict(X), range(16)):
            np.testing.assert_array_equal(result, expected)


def test_pickles_from_another_process(data, tmp_path):
    """What one process fits and dumps, another one loads and goes on with."""
    X, score = data
    problems = {cls.__name__: targets(cls, score) for cls in ALL}
    joblib.dump((X, problems), tmp_path / "data")
    run_python(
        "import joblib, fastpoly\n"
        f"X, problems = joblib.load({str(tmp_path / 'data')!r})\n"
        "options = dict(n_components=2, warm_start=True, random_state=0)\n"
        "models = {name: getattr(fastpoly, name)(**options).fit(X, y)\n"
        "          for name, y in problems.items()}\n"
        f"joblib.dump(models, {str(tmp_path / 'models')!r})\n"
    )
    for name, model in joblib.load(tmp_path / "models").items():
        y = problems[name]
        here = clone(model).fit(X, y)
        np.testing.assert_array_equal(model.predict(X), here.predict(X))
        for each in (model, here):
            each.set_params(n_components=3).fit(X, y)
        np.testing.assert_array_equal(model.predict(X), here.predict(X))


def test_threads_of_a_pool_share_the_cores(data, monkeypatch):
    """By default a kernel takes all cores only where no other Python thread asks for them."""
    monkeypatch.setattr("fastpoly.estimators.prediction.SMALL", 0)
    X, score = data
    model, asked = REGRESSORS[0](), CLASSIFIERS[0](n_threads=3)
    assert (model._threads(X), asked._threads(X)) == (None, 3)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(model._threads, X).result() == 1
        assert pool.submit(asked._threads, X).result() == 3
    monkeypatch.undo()
    assert model._threads(X) == 1  # small data


@pytest.mark.parametrize("cls", ALL)
def test_kinds_of_X(cls, data):
    """Formats, precisions and index types of the same numbers give the same model."""
    X, score = data
    X = np.where(np.abs(X) < 0.3, 0, X).astype(np.float32)
    y = targets(cls, score)
    expected = cls(n_components=3, random_state=0).fit(X.astype(float), y).predict(X)
    long = sp.csr_array(X)
    long.indices, long.indptr = long.indices.astype(np.int64), long.indptr.astype(np.int64)
    for kind in (X, X.tolist(), sp.csr_matrix(X), sp.csc_array(X), sp.coo_array(X), long):
        model = cls(n_components=3, random_state=0).fit(kind, y)
        np.testing.assert_allclose(model.predict(kind), expected, rtol=1e-4, atol=1e-4)


def test_joblib_processes(data):
    X, score = data
    model = REGRESSORS[1](n_components=2, n_threads=1, random_state=0).fit(X, score)
    results = Parallel(n_jobs=2)(delayed(model.predict)(X) for _ in range(2))
    for result in results:
        np.testing.assert_array_equal(result, model.predict(X))


@pytest.mark.parametrize("cls", ALL)
def test_constrained_form(cls, data):
    X, score = data
    y = targets(cls, score)
    model = cls(tau=0.5, penalty="l1", n_components=4, random_state=0).fit(X, y)
    assert np.abs(model.coef_).sum() <= 0.5 * (1 + 1e-9)
    assert model.dual_gap_ >= 0
    assert all(b <= a * (1 + 1e-12) for a, b in pairwise(model.history_["objective"]))


def test_regressor_keeps_the_shape_of_y(data):
    X, score = data
    Y = np.column_stack([score, -score])
    model = REGRESSORS[0](n_components=4, alpha=0.1, random_state=0)
    assert model.fit(X, score).predict(X).shape == (120,)
    assert clone(model).fit(X, score[:, None]).predict(X).shape == (120, 1)
    both = clone(model).fit(X, Y).predict(X)
    np.testing.assert_allclose(both[:, 0], -both[:, 1], atol=1e-6)
    assert not hasattr(model, "decision_function")


def test_progress(data, capsys, caplog):
    X, score = data
    model = REGRESSORS[0](n_components=3, random_state=0)
    model.fit(X, score)
    assert capsys.readouterr() == ("", "")
    model.set_params(verbose=1, early_stopping=True).fit(X, score)
    shown = capsys.readouterr().err
    for word in ("objective=", "violation=", "validation=", "3/3"):
        assert word in shown
    with caplog.at_level("INFO", logger="fastpoly"):
        model.set_params(verbose=2, early_stopping=False).fit(X, score)
    assert [record.getMessage() for record in caplog.records][-1] == "stopped: n_components"
    assert "step 3: 3 basis vectors, objective" in caplog.text


def test_convergence_warning_names_a_cure(data):
    X, score = data
    model = CLASSIFIERS[0](solver="fista", alpha=1e-6, max_iter=1, random_state=0, n_components=5)
    with pytest.warns(
        ConvergenceWarning, match="scale the features .* raise max_iter, which is 1$"
    ):
        model.fit(X * [1, 10, 100, 1, 1], score > 0)


def test_convergence_warning_of_no_progress(data):
    X, score = data
    model = REGRESSORS[0](n_components=2, random_state=0).fit(X, score)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model._warn_unless_converged()
        model._state = replace(model._state, stop="no progress")
        model.violation_ = 1.9 * model.alpha
        model._warn_unless_converged()
    model.violation_ = 2.1 * model.alpha
    with pytest.warns(ConvergenceWarning, match="gained nothing.* scale the features"):
        model._warn_unless_converged()


@pytest.mark.parametrize("cls", ALL)
@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"alpha": -1.0}, "alpha"),
        ({"tau": 0.0}, "tau"),
        ({"penalty": "l3"}, "l1/l2"),
        ({"loss": "cubic"}, "known"),
        ({"n_components": 0}, "n_components"),
        ({"refit": "half"}, "refit"),
        ({"fit_lower": "some"}, "fit_lower"),
        ({"solver": "sgd"}, "solver"),
        ({"max_iter": 0}, "max_iter"),
        ({"tol": 0.0}, "tol"),
        ({"selection": "best"}, "selection"),
        ({"early_stopping": 1}, "early_stopping"),
        ({"validation_fraction": 1.0}, "validation_fraction"),
        ({"n_iter_no_change": 0}, "n_iter_no_change"),
        ({"verbose": 3}, "verbose"),
        ({"n_threads": 0}, "n_threads"),
        ({"alpha_linear": -1.0, "fit_lower": "explicit"}, "alpha_linear"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_bad_parameters_are_named(cls, data, options, error):
    X, score = data
    with pytest.raises((ValueError, TypeError), match=error):
        cls(**options).fit(X, targets(cls, score))


@pytest.mark.parametrize("cls", ALL)
def test_bad_data(cls, data):
    X, score = data
    y = targets(cls, score)
    for bad in (np.nan, np.inf):
        X_bad = X.copy()
        X_bad[3, 2] = bad
        with pytest.raises(ValueError, match="NaN|infinity"):
            cls().fit(X_bad, y)
    with pytest.raises(NotFittedError):
        cls().predict(X)
    with pytest.raises(NotFittedError):
        next(cls().staged_predict(X))
    with pytest.raises(NotFittedError):
        cls().top_interactions()
    model = cls(n_components=1).fit(X, y)
    with pytest.raises(ValueError, match="4 features, but .* is expecting 5"):
        model.predict(X[:, :4])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        cls().fit(X, y[:-1])
    with pytest.raises(ValueError, match="sample_weight"):
        cls().fit(X, y, sample_weight=-np.ones(len(X)))
    if cls not in REGRESSORS:
        with pytest.raises(ValueError, match="one class"):
            cls().fit(X, np.ones(len(X), dtype=int))
