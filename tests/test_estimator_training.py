"""How the estimators train: stages, warm starts, early stopping, weights, progress, warnings."""

import warnings
from inspect import signature

import numpy as np
import pytest
from estimator_cases import (
    ALL,
    CLASSIFIERS,
    CORE,
    JOINT,
    ORDINAL,
    PAPER,
    REGRESSORS,
    targets,
    watching_scores,
)
from scipy.special import logsumexp
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fastpoly import (
    Design,
    PathSearchCV,
    PolynomialNetworkClassifier,
    PolynomialNetworkOrdinalRegressor,
    PolynomialNetworkRegressor,
    conditional_gradient,
)
from fastpoly.estimators.base import PolyEstimator
from fastpoly.estimators.folds import negative_log_loss
from fastpoly.kernels.losses import get_loss
from fastpoly.storage.checkpoint import Stages


@pytest.mark.parametrize("cls", ALL)
def test_warm_start_equals_a_straight_fit(cls, data):
    """With one vector per round, the run does not depend on n_components."""
    X, score = data
    y = targets(cls, score)
    options = {"alpha": 0.05, "random_state": 0, "tol": 1e-3, **PAPER}
    straight = cls(n_components=5, **options).fit(X, y)
    model = cls(n_components=2, warm_start=True, **options).fit(X, y)
    first = model.components_
    model.set_params(n_components=5).fit(X, y)
    np.testing.assert_array_equal(model.components_, straight.components_)
    np.testing.assert_array_equal(model.output_weights_, straight.output_weights_)
    assert model.n_components_ > len(first)
    # The history begins with this fit.
    last = straight.history_["objective"][-len(model.history_["objective"]) :]
    np.testing.assert_array_equal(model.history_["objective"], last)
    staged = list(model.staged_predict(X))
    for a, b in zip(staged, list(straight.staged_predict(X))[-len(staged) :], strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(ValueError, match="can only grow"):
        model.set_params(n_components=1).fit(X, y)
    with pytest.raises(ValueError, match="fit_lower"):
        model.set_params(n_components=6, fit_lower=None).fit(X, y)


@pytest.mark.parametrize("cls", ALL)
def test_warm_start_in_blocks_reaches_the_optimum_of_a_straight_fit(cls, data):
    """Blocks depend on n_components, so the run differs, but it reaches the same optimum."""
    X, score = data
    y = targets(cls, score)
    options = {"alpha": 0.5, "random_state": 0, "tol": 1e-3}
    straight = cls(n_components=30, **options).fit(X, y)
    model = cls(n_components=2, warm_start=True, **options).fit(X, y)
    first = model.objective_
    model.set_params(n_components=30).fit(X, y)
    assert len(list(model.staged_predict(X))) == len(model.history_["objective"])
    assert model.history_["objective"][0] <= first
    assert model.objective_ < first
    assert model.objective_ == pytest.approx(straight.objective_, rel=1e-3)
    with pytest.raises(ValueError, match="can only grow"):
        model.set_params(n_components=1).fit(X, y)


def test_warm_start_refuses_other_classes(data):
    X, score = data
    model = CLASSIFIERS[0](n_components=2, warm_start=True).fit(X, score > 0)
    with pytest.raises(ValueError, match="its classes or levels changed; set warm_start=False"):
        model.fit(X, np.digitize(score, [-0.5, 0.5]))


def test_warm_start_warns_of_another_kind_of_y(data):
    X, score = data
    model = REGRESSORS[0](n_components=1, warm_start=True).fit(X, score)
    with pytest.raises(ValueError, match="its shape or kind changed; set warm_start=False"):
        model.fit(X, score[:, None])
    # Another kind with the same classes_, 0 and 1.
    model = CLASSIFIERS[0](n_components=1, warm_start=True).fit(X, score > 0)
    model.classes_ = np.arange(2)
    with pytest.raises(ValueError, match="its shape or kind changed"):
        model.fit(X, np.column_stack([score > 0, X[:, 0] > 0]).astype(int))


@pytest.mark.parametrize("cls", ALL)
@pytest.mark.parametrize(
    "change", [{"alpha": 30.0}, {"penalty": "l1"}, {"refit": "output"}, {"early_stopping": False}]
)
@pytest.mark.filterwarnings("ignore:the output layer")  # 6 units of l1 serve an output each
@pytest.mark.parametrize("mode", [PAPER, JOINT], ids=["paper", "joint"])
def test_warm_start_of_another_problem_is_consistent(cls, data, change, mode):
    """The run starts from the earlier model, which is neither a candidate nor in the history."""
    X, score = data
    y = targets(cls, score)
    model = cls(
        alpha=0.01, n_components=4, early_stopping=True, n_iter_no_change=1, warm_start=True,
        random_state=0, **mode,
    ).fit(X, y)  # fmt: skip
    if mode["refit"] == change.get("refit"):
        change = {"refit": "full"}
    model.set_params(n_components=6, **change).fit(X, y)
    history = model.history_
    assert history["n_components"].max() <= 6
    kept = len(list(model.staged_predict(X))) - 1
    assert 0 <= kept < len(history["objective"])
    assert model.objective_ == history["objective"][kept]
    assert model.n_components_ == history["n_components"][kept]
    np.testing.assert_array_equal(list(model.staged_predict(X))[-1], model.predict(X))
    assert ("validation_score" in history) == model.early_stopping
    assert not np.isnan(history.get("validation_score", 0)).any()
    model.set_params(early_stopping=True, n_components=7).fit(X, y)
    assert not np.isnan(model.history_["validation_score"]).any()


def test_early_stopping_needs_rows_that_can_be_scored(data):
    X, score = data
    model = REGRESSORS[0](early_stopping=True, validation_fraction=0.1, random_state=0)
    with (
        pytest.warns(UserWarning, match="R.2 score is not well-defined"),
        pytest.raises(ValueError, match="enlarge validation_fraction, which is 0.1"),
    ):
        model.fit(X[:8], score[:8])


@pytest.mark.filterwarnings("ignore:the output layer is inaccurate")  # of single steps
@pytest.mark.parametrize("refit", ["output", "full", None])
@pytest.mark.parametrize("cls", ALL)
def test_stages(cls, data, refit):
    X, score = data
    y = targets(cls, score)
    model = cls(
        n_components=4, block=1, refit=refit, alpha=0.1, fit_lower="augment", random_state=0, **CORE
    ).fit(X, y)
    predictions = list(model.staged_predict(X))
    outputs = list(model.staged_decision_function(X))
    assert len(predictions) == len(outputs) == len(model.history_["objective"])
    np.testing.assert_array_equal(predictions[-1], model.predict(X))
    model.set_params(fit_lower=None)  # has no effect until the next fit
    np.testing.assert_array_equal(list(model.staged_predict(X))[-1], predictions[-1])
    model.set_params(fit_lower="augment")
    assert not outputs[0].any()  # the model without basis vectors
    # Stage i is what a shorter fit gives, up to its last descent, which takes more iterations.
    i = np.flatnonzero(model.history_["n_components"] == 2)[-1]
    short = clone(model).set_params(n_components=2).fit(X, y)
    if refit == "full":
        assert short.n_iter_ == i
        assert short.objective_ <= model.history_["objective"][i] * (1 + 1e-5)
        np.testing.assert_allclose(short.objective_, model.history_["objective"][i], rtol=1e-2)
    else:
        np.testing.assert_array_equal(predictions[i], short.predict(X))


def test_stages_store_each_basis_vector_once(data):
    X, score = data
    stages, options = Stages(), {"alpha": 0.1, "n_components": 6, "random_state": 0}
    for state in conditional_gradient(Design(X), score, loss="squared", **options, **PAPER):
        stages = stages.after(state, state.model)
    assert sum(len(model.H) for model in stages.models) > 2 * len(stages)
    assert len(stages.arrays()["stages.pool"]) < len(stages)
    np.testing.assert_array_equal(stages[len(stages) - 1].H, state.H)


@pytest.mark.parametrize("cls", ALL)
def test_stages_of_blocks(cls, data):
    """A stage per round, with the sizes in the history."""
    X, score = data
    options = {"alpha": 0.02, "tol": 1e-3, "n_components": 40}
    model = cls(random_state=0, **options).fit(X, targets(cls, score))
    sizes = model.history_["n_components"]
    assert len(sizes) > 2
    assert sizes[1] > 2  # a block
    predictions = list(model.staged_predict(X))
    np.testing.assert_array_equal(predictions[-1], model.predict(X))
    assert len(predictions) == len(sizes)
    # Each stage is the model of its round: its predictions have the loss in the history
    # (for regression, in standard units of y, on which the quotient does not depend).
    y, recorded = targets(cls, score), model.history_["loss"]
    losses = np.array([loss_sum(cls, y, O) for O in model.staged_decision_function(X)])
    np.testing.assert_allclose(losses / losses[0], recorded / recorded[0], rtol=1e-9)


def loss_sum(cls, y, O):
    """The default loss of an estimator, summed over rows, from its formula."""
    if cls in REGRESSORS:
        return ((O - y) ** 2).sum() / 2
    if cls in CLASSIFIERS:
        return (logsumexp(O, axis=1) - O[np.arange(len(y)), y]).sum()
    below = y[:, None] <= np.arange(O.shape[1])  # output c is the log odds of y <= c
    return np.logaddexp(0, np.where(below, -O, O)).sum()


@pytest.mark.parametrize("mode", [PAPER, JOINT], ids=["paper", "joint"])
@pytest.mark.parametrize("cls", ALL)
def test_early_stopping_keeps_the_best(cls, data, mode):
    X, _ = data
    rng = np.random.default_rng(1)
    y = targets(cls, rng.standard_normal(len(X)))  # noise: more basis vectors only harm
    model = cls(
        n_components=30, alpha=1e-3, early_stopping=True, n_iter_no_change=3, random_state=0,
        **mode,
    ).fit(X, y)  # fmt: skip
    scores = model.history_["validation_score"]
    best = int(scores.argmax())
    assert len(scores) == best + 1 + 3
    assert len(list(model.staged_predict(X))) == best + 1
    assert model.n_components_ == model.history_["n_components"][best]


@pytest.mark.parametrize("cls", ALL)
def test_warm_start_holds_out_the_same_rows(cls, data):
    """Otherwise, training rows would be used for validation."""
    X, score = data
    y = targets(cls, score)
    watched, seen = watching_scores(cls)
    model = watched(n_components=1, early_stopping=True, warm_start=True).fit(X, y)
    first, rounds = seen[0][0], len(seen)
    assert len(first) == len(X) // 4
    model.set_params(n_components=2).fit(X, y)
    assert len(seen) > rounds
    for held, _ in seen:
        np.testing.assert_array_equal(held, first)


@pytest.mark.parametrize("cls", ALL)
def test_integer_weights_equal_repeated_rows_on_large_data(cls, monkeypatch, data):
    """Also where rows are not merged first: within the tolerance of the solver."""
    monkeypatch.setattr("fastpoly.estimators.data.SMALL_DATA_ENTRIES", 0)
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
    plain = cls(**options).fit(X, y)
    assert balanced.predict_proba(X)[:, 2].mean() > plain.predict_proba(X)[:, 2].mean()


@pytest.mark.parametrize("cls", ALL)
def test_negative_weights_are_refused(cls, data):
    """Also where they belong to rows that would be merged into others, or dropped."""
    X, score = data
    y = targets(cls, score)
    w = np.where(np.arange(len(X)) % 2, 1.0, -1.0)
    with pytest.raises(ValueError, match="sample_weight must be non-negative"):
        cls(n_components=1).fit(X, y, sample_weight=w)
    if cls in CLASSIFIERS:
        for weights in (None, w):
            with pytest.raises(ValueError, match="weight must be non-negative"):
                cls(class_weight={0: -1, 1: 1}).fit(X, score > 0, sample_weight=weights)


def test_progress(data, capsys, caplog):
    X, score = data
    model = REGRESSORS[0](alpha=0.01, n_components=3, random_state=0, **PAPER)
    model.fit(X, score)
    assert capsys.readouterr() == ("", "")
    model.set_params(verbose=1, early_stopping=True).fit(X, score)
    shown = capsys.readouterr().err
    for word in ("objective=", "violation=", "validation=", "3/3"):
        assert word in shown
    with caplog.at_level("INFO", logger="fastpoly"):
        model.set_params(verbose=10, early_stopping=False).fit(X, score)
    assert [record.getMessage() for record in caplog.records][-1] == "stopped: n_components"
    assert "round 3: 3 basis vectors, objective" in caplog.text


@pytest.mark.parametrize("options", [{**PAPER, "solver": "fista"}, {}], ids=["paper", "joint"])
def test_convergence_warning_names_a_cure(data, options):
    X, score = data
    options = {"alpha": 1e-6, "max_iter": 1, "n_components": 5, **CORE, **options}
    model = CLASSIFIERS[0](random_state=0, **options)
    cures = "set standardize=True, raise alpha, or raise max_iter, which is 1$"
    with pytest.warns(ConvergenceWarning, match=cures):
        model.fit(X * [1, 10, 100, 1, 1], score > 0)


@pytest.mark.parametrize("alpha", [1e-3, 1e-1])
@pytest.mark.parametrize("cls", ALL)
def test_no_convergence_warning_without_need(cls, data, alpha):
    """For a small alpha the duality gap is far above the error of the descent."""
    X, score = data
    y = targets(cls, score)
    model = cls(alpha=alpha, n_components=6, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message="training stopped at n_components")
        model.fit(X, y)
    best = clone(model).set_params(tol=1e-5).fit(X, y)
    assert model.objective_ <= best.objective_ * 1.01


def test_convergence_warning_of_no_progress(data):
    """Single steps become slow far from the optimum; the second fit ends near it."""
    X, score = data
    options = {"alpha": 0.01, "n_components": 300, "fit_lower": "augment", "standardize": False}
    model = REGRESSORS[0](refit=None, tol=0.6, random_state=0, **options)
    with pytest.warns(ConvergenceWarning, match="gained nothing.* set standardize=True.*output"):
        model.fit(X, score)
    assert model.violation_ > 2 * model.alpha
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.set_params(alpha=0.1).fit(X, score)


@pytest.mark.parametrize("cls", ALL)
def test_warnings_of_poor_fits(cls, data):
    """Each names what is wrong and what to change; a good fit is silent."""
    X, score = data
    y = targets(cls, score)
    with pytest.warns(UserWarning, match=r"no basis vectors .* lower alpha, which is 1e\+03"):
        empty = cls(alpha=1000.0, random_state=0).fit(X, y)
    assert empty.n_components_ == 0
    with pytest.warns(ConvergenceWarning, match="stopped at n_components=1, .* raise n_components"):
        cls(alpha=0.01, n_components=1, random_state=0).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = cls(alpha=1.0, warm_start=True, random_state=0).fit(X, y)
        model.fit(X, y)
    model.fit(X[:-1], y[:-1])  # other rows: the model is only the start
    fresh = cls(alpha=1.0, random_state=0).fit(X[:-1], y[:-1])
    assert model.objective_ == pytest.approx(fresh.objective_, rel=1e-2)


@pytest.mark.parametrize("cls", ALL)
def test_a_model_without_interactions_warns(cls, data):
    X, score = data
    y = targets(cls, score)
    largest = cls(alpha=1000.0).fit(X, y).violation_
    with pytest.warns(UserWarning, match="none is worth its penalty .* lower alpha"):
        cls(alpha=0.999 * largest, random_state=0).fit(X, y)  # within the tolerance
    with pytest.warns(UserWarning, match="none is worth its penalty .* raise tau"):
        cls(tau=1e-9, random_state=0).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        REGRESSORS[0](random_state=0).fit(
            X, np.ones(len(X))
        )  # nothing to fit, and nothing to advise


@pytest.mark.filterwarnings("ignore:training stopped")
@pytest.mark.parametrize("cls", ALL)
def test_alpha_zero(cls, data):
    X, score = data
    y = targets(cls, score)
    model = cls(alpha=0.0, n_components=3, random_state=0).fit(X, y)
    assert model.alpha_ == 0
    other = cls(alpha=1.0, n_components=3, random_state=0).fit(X, y)
    assert model.history_["loss"][-1] < other.history_["loss"][-1]


@pytest.mark.parametrize(
    "cls", [*ALL[1::2], *(pytest.param(cls, marks=pytest.mark.slow) for cls in ALL[::2])]
)
def test_a_warm_start_finds_the_default_alpha_anew(cls, data):
    """The alpha that an earlier fit had, or found for other rows, is not used."""
    X, score = data
    y = targets(cls, score)
    fresh = cls(random_state=0).fit(X, y)
    model = cls(alpha=1e-2, warm_start=True, random_state=0).fit(X, y)
    model.set_params(alpha=None).fit(X, y)
    assert model.alpha_ == pytest.approx(fresh.alpha_, rel=0.2)
    options = {"standardize": False, "random_state": 0}
    model = cls(warm_start=True, **options).fit(X[:60], y[:60])
    model.fit(X, y)
    assert model.alpha_ == pytest.approx(cls(**options).fit(X, y).alpha_, rel=0.2)


@pytest.mark.parametrize("cls", CLASSIFIERS)
def test_early_stopping_with_a_class_of_one_row(cls, data):
    X, score = data
    y = np.digitize(score, [-0.5, 0.5])
    y[3] = 7
    model = cls(early_stopping=True, random_state=0).fit(X, y)
    assert len(model.classes_) == 4


def test_weights_of_classes_that_are_all_zero(data):
    X, score = data
    with pytest.raises(ValueError, match="class_weight"):
        CLASSIFIERS[0](class_weight={0: 0.0, 1: 0.0}).fit(X, (score > 0).astype(int))


def test_a_slow_fit_of_little_data_says_so_while_it_runs(data, monkeypatch):
    X, score = data
    monkeypatch.setattr("fastpoly.estimators.advice.SLOW_SECONDS", 0.0)
    size = rf"{len(X)} rows, 5 features and 1 outputs, alpha=1e-06, 0 of n_components=50"
    with pytest.warns(UserWarning, match=rf"seconds so far: {size} .* raise alpha") as caught:
        REGRESSORS[0](alpha=1e-6, random_state=0).fit(X, score)
    assert sum("so far" in str(each.message) for each in caught) == 1
    with pytest.warns(UserWarning, match="seconds so far: .* standardize=True"):
        REGRESSORS[0](standardize=False, alpha=0.1, random_state=0).fit(X, score)
    with pytest.warns(UserWarning, match="seconds so far"):
        PathSearchCV(REGRESSORS[0](random_state=0), alphas=[1e-5, 1e-6], cv=0.3).fit(X, score)
    # Large data take long without a reason; wide data do not.
    monkeypatch.setattr("fastpoly.estimators.data.SMALL_DATA_ENTRIES", 0)
    with pytest.warns(UserWarning, match="seconds so far: 8 rows, 3 features and 4 outputs"):
        REGRESSORS[0](alpha=1.0, random_state=0).fit(X[:8, :3], np.tile(score[:8, None], 4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        REGRESSORS[0](alpha=1.0, random_state=0).fit(X, score)


def test_warnings_name_the_line_of_the_caller(data):
    X, score = data
    model = REGRESSORS[0](alpha=1e3, random_state=0)
    for fit in (
        model.fit,
        make_pipeline(StandardScaler(), model).fit,
        PathSearchCV(model, alphas=[1e3], cv=0.3).fit,
    ):
        with pytest.warns(UserWarning, match="no basis vectors") as caught:
            fit(X, score)
        assert {warning.filename for warning in caught} == {__file__}


@pytest.mark.parametrize("cls", ALL)
def test_an_empty_model_of_early_stopping_warns(cls, data):
    """None is worth its penalty, or none helps on the rows held out."""
    X, score = data
    y = targets(cls, score)
    options = {"early_stopping": True, "n_iter_no_change": 1, "random_state": 0}
    with pytest.warns(UserWarning, match="no basis vectors .* lower alpha, which is 1e"):
        cls(alpha=1e3, **options).fit(X, y)
    noise = np.random.default_rng(0).permutation(y)
    with pytest.warns(UserWarning, match="none improved the score of the rows held out"):
        model = cls(alpha=1e-3, **options).fit(X, noise)
    assert model.n_components_ == 0


def test_the_history_has_the_alpha_of_every_entry(data):
    X, score = data
    for cls in (REGRESSORS[0], CLASSIFIERS[0]):
        model = cls(random_state=0).fit(X, targets(cls, score))
        alphas = model.history_["alpha"]
        assert set(alphas) == {model.alpha_}
        objective = model.history_["loss"] + alphas * model.history_["penalty"]
        ridge = model.history_["objective"] - objective
        assert ((ridge > -1e-9) & (ridge < 0.1 * objective)).all()  # that of the linear terms
    fixed = REGRESSORS[0](alpha=0.5, random_state=0).fit(X, score)
    assert set(fixed.history_["alpha"]) == {0.5}
    constrained = REGRESSORS[0](tau=1.0, n_components=3, random_state=0).fit(X, score)
    assert np.isnan(constrained.history_["alpha"]).all()


def test_the_signatures_are_equal():
    """Parameters and defaults agree, except for losses and what a kind of target needs."""
    base = dict(signature(PolyEstimator.__init__).parameters)
    more = {CLASSIFIERS: {"class_weight"}, REGRESSORS: set(), ORDINAL: {"levels"}}
    for group, extra in more.items():
        for cls in group:
            own = dict(signature(cls.__init__).parameters)
            assert set(own) - set(base) == extra
            assert [name for name in own if name in base] == list(base)
            for name in base.keys() - {"loss", "self"}:
                assert own[name] == base[name]


def test_probabilities_need_a_logistic_loss():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    y = rng.integers(0, 3, 60)
    one = PolynomialNetworkClassifier(alpha=1.0, random_state=0).fit(X, y)
    other = clone(one).set_params(loss="multiclass_logistic").fit(X, y)
    np.testing.assert_array_equal(one.predict_proba(X), other.predict_proba(X))
    y = np.digitize(X[:, 0] * X[:, 1] + X[:, 2], [-0.5, 0.5])
    levels = PolynomialNetworkOrdinalRegressor(alpha=0.1, loss="squared_hinge", random_state=0)
    levels.fit(X, y)
    assert not hasattr(levels, "predict_proba")
    # The outputs are margins of y <= level, whose signs are right, and so is the expected level.
    assert ((levels.model_.decision(X) > 0) == (y[:, None] <= [0, 1])).mean() > 0.95
    assert levels.score(X, y) > 0.6


@pytest.mark.parametrize("cls", CLASSIFIERS + ORDINAL)
def test_probabilities_of_loss_objects(cls, data):
    """The loss says whether its outputs are log odds, by name or as an object."""
    X, score = data
    y = targets(cls, score)
    named = cls(alpha=1.0, n_components=3, random_state=0).fit(X, y)
    loss = get_loss("binary_logistic" if cls in ORDINAL else "multiclass_logistic")
    model = clone(named).set_params(loss=loss).fit(X, y)
    np.testing.assert_array_equal(model.predict_proba(X), named.predict_proba(X))
    hinge = get_loss("binary_squared_hinge" if cls in ORDINAL else "multiclass_squared_hinge")
    assert not hasattr(clone(named).set_params(loss=hinge), "predict_proba")
    search = PathSearchCV(model, alphas=[1.0], cv=0.3).fit(X, y)
    assert (search.scorer_ is negative_log_loss) == (cls in CLASSIFIERS)


@pytest.mark.parametrize("cls", CLASSIFIERS + ORDINAL)
def test_log_probabilities(cls, data):
    X, score = data
    y = targets(cls, score)
    model = cls(alpha=1.0, n_components=3, random_state=0).fit(X, y)
    logs = model.predict_log_proba(X)
    np.testing.assert_allclose(np.exp(logs), model.predict_proba(X), rtol=1e-9, atol=1e-12)
    if cls in CLASSIFIERS:
        far = model.predict_log_proba(1e3 * X)  # beyond the range of exp
        O = model.decision_function(1e3 * X)
        np.testing.assert_allclose(far, O - logsumexp(O, axis=1, keepdims=True))
        labels = np.column_stack([score > 0, score > 1]).astype(int)
        both = cls(alpha=1.0, n_components=3, random_state=0).fit(X, labels)
        np.testing.assert_allclose(
            both.predict_log_proba(X), np.log(both.predict_proba(X)), rtol=1e-9, atol=1e-15
        )
    search = PathSearchCV(model, alphas=[1.0], cv=0.3).fit(X, y)
    np.testing.assert_array_equal(
        search.predict_log_proba(X), search.best_estimator_.predict_log_proba(X)
    )
    assert not hasattr(clone(model).set_params(loss="squared_hinge"), "predict_log_proba")


def test_a_perfect_fit_does_not_warn(monkeypatch):
    """Its violation and its gap are rounding errors."""
    monkeypatch.setattr("fastpoly.estimators.advice.SLOW_SECONDS", np.inf)  # a busy machine
    X = np.random.default_rng(0).standard_normal((50, 3))
    wine = load_wine(return_X_y=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PolynomialNetworkRegressor(alpha_linear=0).fit(X, X[:, 0])
        PolynomialNetworkRegressor().fit(X, np.full(50, 0.1))
        PolynomialNetworkClassifier(alpha=0, random_state=0).fit(*wine)


def test_a_finished_progress_bar_is_full(data, capsys):
    X, score = data
    model = REGRESSORS[0](alpha=1.0, verbose=1, random_state=0).fit(X, score)
    k = model.n_components_
    assert f"100%|██████████| {k}/{k}" in capsys.readouterr().err.split("\r")[-1]
