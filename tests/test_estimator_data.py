"""Which data the estimators accept (labels, levels, frames, formats) and which they refuse."""

import runpy
import warnings
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from estimator_cases import ALL, CLASSIFIERS, CORE, ORDINAL, PAPER, REGRESSORS, targets
from scipy.special import expit
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import KFold, cross_val_score
from sklearn.preprocessing import StandardScaler

from fastpoly import PolyModel
from fastpoly.decoding import level_probabilities
from fastpoly.kernels.losses import LOSSES, get_loss
from fastpoly.kernels.penalties import PENALTIES


@pytest.mark.parametrize("fit_lower", ["explicit", "augment"])
def test_machines_learn_imbalance_with_an_intercept(fit_lower):
    """The products of a machine have no constant term, even with the constant feature."""
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
    expected = model.model_.interaction_matrix(1)
    np.testing.assert_array_equal(model.interaction_matrix(name), expected)
    np.testing.assert_array_equal(model.interaction_matrix(names[1]), expected)
    with pytest.raises(ValueError, match=r"no class 17; known|no output 17"):
        model.top_interactions(17)
    if len(names) == 2:
        np.testing.assert_array_equal(model.interaction_matrix(), expected)
    else:
        with pytest.raises(ValueError, match="say for which class"):
            model.top_interactions()


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
    names = ["d", "a", "c", "b"]
    words = cls(n_components=4, levels=names, random_state=0).fit(X, np.array(names)[codes])
    assert list(words.classes_) == names
    np.testing.assert_array_equal(words.predict_proba(X), proba)
    np.testing.assert_allclose(words.predict(X), proba @ [1, 2, 3, 4])
    assert words.score(X, np.array(names)[codes]) > 0.5
    with pytest.raises(ValueError, match="'z', which is not one of levels"):
        words.score(X[:2], ["a", "z"])


@pytest.mark.parametrize("cls", ORDINAL)
def test_declared_order_of_levels(cls, data):
    """An ordered categorical says which level is higher; the alphabet does not."""
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    X, score = data
    codes, order = np.digitize(score, [-0.5, 0.5]), ["low", "medium", "high"]
    words = np.array(order)[codes]
    numbers = cls(alpha=1.0, n_components=3, random_state=0).fit(X, codes + 1)
    categorical = pandas.Categorical(words, categories=order, ordered=True)
    for y in (
        categorical,
        pandas.Series(categorical),
        polars.Series(words, dtype=polars.Enum(order)),
    ):
        model = cls(alpha=1.0, n_components=3, random_state=0).fit(X, y)
        assert list(model.classes_) == order
        np.testing.assert_array_equal(model.predict(X), numbers.predict(X))
        assert model.score(X, words) == numbers.score(X, codes + 1)
    unordered = pandas.Series(pandas.Categorical(words, categories=order))
    for y in (unordered, words, words.astype(object)):
        with pytest.raises(ValueError, match=r"order of the levels .* give levels=\[lowest"):
            cls().fit(X, y)
    model = cls(alpha=1.0, n_components=3, levels=["none", *order], random_state=0).fit(X, words)
    assert list(model.classes_) == order  # those that occur
    np.testing.assert_allclose(model.predict(X), numbers.predict(X) + 1)  # "none" has rank 1
    for levels, error, message in (
        (["low", "high"], ValueError, "'medium', which is not one of levels"),
        (["low", "low", "high"], ValueError, "distinct"),
        ("low", TypeError, "lowest level first"),
    ):
        with pytest.raises(error, match=message):
            cls(levels=levels).fit(X, words)
    with pytest.raises(ValueError, match="must increase"):
        cls(levels=[2, 1, 3]).fit(X, codes + 1)


@pytest.mark.parametrize("cls", ORDINAL)
def test_numbers_that_never_repeat_are_not_levels(cls, data):
    """They can be predicted, but have no probabilities; one that repeats is enough."""
    X, y = data[0][:30], data[1][:30].copy()
    model = cls(alpha=0.1, random_state=0).fit(X, y)
    assert not hasattr(model, "predict_proba")
    assert model.score(X, y) > 0.8
    # The expected value, with p(y <= value) from one output for all values but the last.
    expected = level_probabilities(model.model_.decision(X)) @ np.sort(y)
    np.testing.assert_allclose(model.predict(X), expected)
    y[1] = y[0]
    proba = model.fit(X, y).predict_proba(X)
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    np.testing.assert_allclose(model.predict(X), proba @ np.unique(y))


@pytest.mark.parametrize("cls", ORDINAL)
@pytest.mark.parametrize(
    "number", [int, float, Decimal, Fraction, np.float64, np.int64], ids=lambda kind: kind.__name__
)
def test_levels_that_are_numbers_in_an_array_of_objects(cls, data, number):
    """The values decide, not the dtype: predictions are expected levels, not expected ranks."""
    X, score = data
    codes = np.digitize(score, [-0.5, 0.5])
    stars = np.array([10, 20, 50])
    plain = cls(alpha=1.0, n_components=2, random_state=0).fit(X, stars[codes])
    objects = np.array([number(int(star)) for star in stars[codes]], dtype=object)
    model = cls(alpha=1.0, n_components=2, random_state=0).fit(X, objects)
    np.testing.assert_array_equal(model.classes_, stars)
    np.testing.assert_array_equal(model.predict(X), plain.predict(X))
    assert model.predict(X).max() > 5
    for y in (objects, objects.tolist(), stars[codes]):
        assert model.score(X, y) == plain.score(X, stars[codes])
    for each, y in ((model, objects), (plain, stars[codes])):
        each.set_params(early_stopping=True).fit(X, y)
    np.testing.assert_array_equal(
        model.history_["validation_score"], plain.history_["validation_score"]
    )
    halves = np.array([Decimal("0.1"), Decimal("0.2"), Decimal("0.7")], dtype=object)[codes]
    model = cls(alpha=1.0, n_components=1).fit(X, halves)
    np.testing.assert_array_equal(model.classes_, [0.1, 0.2, 0.7])


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("cls", CLASSIFIERS + REGRESSORS)
def test_outputs_are_named_by_the_columns_of_y(cls, data, library):
    frames = pytest.importorskip(library)
    X, score = data
    Y = np.column_stack([X[:, 2] * X[:, 3], score])
    if cls in CLASSIFIERS:
        Y = (Y > 0).astype(int)
    model = cls(n_components=6, alpha=0.5, fit_lower="augment", random_state=0, **CORE)
    model.fit(X, frames.DataFrame({"q": Y[:, 0], "p": Y[:, 1]}))
    assert model.top_interactions("q", k=1)[0][:2] == (2, 3)
    assert model.top_interactions("p", k=1)[0][:2] == (0, 1)
    np.testing.assert_array_equal(model.predict(X), clone(model).fit(X, Y).predict(X))
    if library == "pandas":  # numbers are positions
        model.fit(X, frames.DataFrame(Y))
        with pytest.raises(ValueError, match="no output 'p'"):
            model.top_interactions("p")


@pytest.mark.parametrize("cls", CLASSIFIERS)
def test_loss_objects_of_the_other_form(cls, data):
    X, score = data
    labels = np.column_stack([score > 0, X[:, 0] > 0]).astype(int)
    with pytest.raises(ValueError, match="BinaryLogistic .* 1-D and needs a multi-class loss"):
        cls(loss=get_loss("binary_logistic")).fit(X, labels[:, 0])
    with pytest.raises(ValueError, match="MulticlassLogistic .* indicator and needs a binary loss"):
        cls(loss=get_loss("multiclass_logistic")).fit(X, labels)
    for name, y in (("multiclass_logistic", labels[:, 0]), ("binary_logistic", labels)):
        model = cls(loss=get_loss(name), alpha=1.0, n_components=2, random_state=0).fit(X, y)
        np.testing.assert_array_equal(
            model.output_weights_,
            clone(model).set_params(loss="logistic").fit(X, y).output_weights_,
        )


# One class per kind of target and one penalty, with nothing but the methods that `get_loss` and
# `get_penalty` require. They are twins of compiled ones, so every fit has something to equal.
OWN_CLASSES = """
import numpy as np


class Own:
    def value(self, Y, O, w=None):
        return self.value_grad(Y, O, w)[0]

    def value_grad(self, Y, O, w=None):
        values, G = self.rows(Y, O)
        w = np.ones(len(Y)) if w is None else w
        return float(w @ values), w[:, None] * G


class OwnSquared(Own):
    target = "real"

    def rows(self, Y, O):
        return ((O - Y) ** 2).sum(axis=1) / 2, O - Y

    def smoothness(self, m):
        return 1.0


class OwnBinary(Own):
    target = "sign"

    def rows(self, Y, O):
        return np.logaddexp(0, -Y * O).sum(axis=1), -Y / (1 + np.exp(Y * O))

    def smoothness(self, m):
        return 0.25


class OwnMulticlass(Own):
    target = "label"

    def rows(self, Y, O):
        rows, codes = np.arange(len(Y)), Y[:, 0].astype(int)
        E = np.exp(O - O.max(axis=1, keepdims=True))
        P = E / E.sum(axis=1, keepdims=True)
        values = -np.log(P[rows, codes])
        P[rows, codes] -= 1
        return values, P

    def smoothness(self, m):
        return 0.5


class OwnDouble:  # twice l1/l2
    def value(self, V, weights=None):
        return float(np.sum(2 * np.linalg.norm(V, axis=1) * (1 if weights is None else weights)))

    def dual_norm(self, G, weights=None):
        norms = np.linalg.norm(G, axis=1) / (2 if weights is None else 2 * weights)
        return float(norms.max(initial=0.0))

    def prox(self, V, t, weights=None, out=None):
        norms = np.linalg.norm(V, axis=1)
        thresholds = 2 * t * (np.ones(len(V)) if weights is None else weights)
        shrunk = np.maximum(norms - thresholds, 0)
        return V * (shrunk / np.where(norms > 0, norms, 1))[:, None]

    def project(self, V, tau, weights=None, metric=None, out=None):
        raise NotImplementedError("only the penalized form")

    def criterion(self, q):
        return float(q @ q), 2 * q


LOSSES = {"own_squared": OwnSquared, "own_binary": OwnBinary, "own_multiclass": OwnMulticlass}
PENALTIES = {"own_double": OwnDouble}
"""


@pytest.mark.parametrize("alpha", [None, 5.0])
@pytest.mark.parametrize("cls", ALL)
def test_a_registered_loss_and_penalty_are_known_by_name(cls, alpha, data, tmp_path, monkeypatch):
    """One class and one line in the registry, as CONTRIBUTING says: then every estimator fits."""
    (tmp_path / "own_classes.py").write_text(OWN_CLASSES)
    own = runpy.run_path(str(tmp_path / "own_classes.py"))
    for registry, added in ((LOSSES, own["LOSSES"]), (PENALTIES, own["PENALTIES"])):
        for name, each in added.items():
            monkeypatch.setitem(registry, name, each)
    X, score = data
    y = targets(cls, score)
    cases = (
        [("own_squared", "squared", y)] if cls in REGRESSORS else [("own_binary", "logistic", y)]
    )
    if cls in CLASSIFIERS:
        indicator = np.column_stack([y > 0, y > 1]).astype(int)
        cases = [("own_multiclass", "logistic", y), ("own_binary", "logistic", indicator)]
    options = {"n_components": 10, "random_state": 0, "tol": 1e-3, "standardize": False}
    for own_name, name, target in cases:
        # Without a smooth form, "auto" fits the output layer alone.
        for penalty, scale, refit in (("l1/l2", 1, "auto"), ("own_double", 2, "output")):
            if alpha is None:  # two paths may choose neighbors on the grid, so nothing to compare
                options |= {"n_components": 2}
                model = cls(loss=own_name, penalty="own_double", **options).fit(X, target)
                assert np.isfinite(model.predict(X).astype(float)).all()
                break
            known = cls(alpha=alpha, loss=name, refit=refit, **options).fit(X, target)
            model = cls(alpha=alpha / scale, loss=own_name, penalty=penalty, **options)
            model.fit(X, target)
            assert scale * model.alpha_ == pytest.approx(known.alpha_)
            assert model.objective_ == pytest.approx(known.objective_, rel=0.02)
    for other in {*own["LOSSES"]} - {name for name, _, _ in cases}:
        with pytest.raises(ValueError, match=f"unknown loss '{other}'; known: "):
            cls(loss=other).fit(X, y)


@pytest.mark.parametrize("cls", ORDINAL)
def test_levels_need_a_binary_loss(cls, data):
    X, score = data
    with pytest.raises(ValueError, match=r"MulticlassLogistic .* levels.*loss='logistic'"):
        cls(loss=get_loss("multiclass_logistic")).fit(X, np.digitize(score, [-1, 1]))


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


@pytest.mark.parametrize(
    ("cls", "library"), [(cls, "pandas") for cls in ALL] + [(cls, "polars") for cls in ALL[1:3]]
)
def test_frames_and_names(cls, data, library):
    frames = pytest.importorskip(library)
    X, score = data
    names = ["age", "income", "c", "d", "e"]
    frame = frames.DataFrame({name: X[:, j] for j, name in enumerate(names)})
    if not hasattr(StandardScaler().fit(frame), "feature_names_in_"):
        pytest.skip(f"this scikit-learn is older than this {library} and sees no names")
    y = targets(cls, score)
    model = cls(n_components=3, alpha=1.0, random_state=0).fit(frame, frames.Series(y))
    assert list(model.feature_names_in_) == names
    output = None if cls in REGRESSORS else 0
    assert set(model.top_interactions(output, k=1)[0][:2]) == {"age", "income"}
    np.testing.assert_array_equal(model.predict(frame), model.predict(frame))
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame[names[::-1]])
    early = clone(model).set_params(early_stopping=True, n_components=30)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        early.fit(frame, y)


@pytest.mark.parametrize("cls", ALL)
def test_kinds_of_X(cls, data):
    """Formats, precisions and index types of the same numbers give the same model."""
    X, score = data
    X = np.where(np.abs(X) < 0.3, 0, X).astype(np.float32)
    y = targets(cls, score)
    long = sp.csr_array(X)
    long.indices, long.indptr = long.indices.astype(np.int64), long.indptr.astype(np.int64)
    dense, sparse = (X, X.tolist()), (sp.csr_matrix(X), sp.csc_array(X), sp.coo_array(X), long)
    model = cls(alpha=1.0, n_components=3, random_state=0, **CORE, **PAPER)
    expected = clone(model).fit(X.astype(float), y).predict(X)
    for kind in (*dense, *sparse):
        got = clone(model).fit(kind, y).predict(kind)
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)
    # The joint descent has another preconditioner for sparse rows, and ends within the tolerance.
    model = cls(alpha=1.0, n_components=12, random_state=0, **CORE)
    objective = clone(model).fit(X.astype(float), y).objective_
    for kinds in ((X.astype(float), *dense), sparse):
        expected = clone(model).fit(kinds[0], y).predict(X)
        for kind in kinds:
            fitted = clone(model).fit(kind, y)
            np.testing.assert_allclose(fitted.predict(kind), expected, rtol=1e-4, atol=1e-4)
            assert fitted.objective_ == pytest.approx(objective, rel=1e-3)


@pytest.mark.parametrize("cls", ALL)
@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"alpha": -1.0}, "alpha"),
        ({"tau": 0.0}, "tau"),
        ({"penalty": "l3"}, "l1/l2"),
        ({"loss": "cubic"}, "known"),
        ({"n_components": 0}, "n_components"),
        ({"n_components": 10**400}, "n_components must be below"),
        ({"refit": "half"}, "'auto', 'full', 'output', None"),
        ({"refit": "full", "tau": 1.0}, "constrained form .tau. .* use refit=.output. or alpha"),
        ({"block": 0}, "block"),
        ({"block": "many"}, "block"),
        ({"fit_lower": "some"}, "fit_lower"),
        ({"solver": "sgd"}, "solver"),
        ({"max_iter": 0}, "max_iter"),
        ({"max_iter": 10**400}, "max_iter must be below"),
        ({"tol": 0.0}, "tol"),
        ({"selection": "best"}, "selection"),
        ({"early_stopping": 1}, "early_stopping"),
        ({"validation_fraction": 1.0}, "validation_fraction"),
        ({"n_iter_no_change": 0}, "n_iter_no_change"),
        ({"verbose": np.int64(-1)}, "verbose must be at least 0, got -1$"),
        ({"verbose": 0.5}, "verbose"),
        ({"standardize": 1}, "standardize"),
        ({"standardize": None}, "standardize"),
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
    X_bad = X.copy()
    X_bad[3, 2] = np.inf
    with pytest.raises(ValueError, match="infinity"):
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


@pytest.mark.parametrize("cls", ORDINAL)
def test_a_declared_level_that_does_not_occur(cls, data, tmp_path):
    """Ranks are those among the declared levels, whichever of them the training rows have."""
    X, score = data
    names, ranks = np.array(["low", "high", "top"]), np.array([1, 3, 4])
    codes = np.digitize(score, [-0.5, 0.5])
    options = {"alpha": 1.0, "n_components": 3, "random_state": 0}
    model = cls(levels=["low", "mid", "high", "top"], **options).fit(X, names[codes])
    assert model.classes_.tolist() == names.tolist()
    np.testing.assert_allclose(model.predict(X), model.predict_proba(X) @ ranks)
    numbers = cls(**options).fit(X, ranks[codes])
    np.testing.assert_array_equal(model.predict(X), numbers.predict(X))
    assert model.score(X, names[codes]) == numbers.score(X, ranks[codes])
    # A test part may hold the level that training lacks.
    test, as_numbers = np.where(codes == 0, "mid", names[codes]), np.where(codes == 0, 2, 4)
    as_numbers[codes == 1] = 3
    assert model.score(X, test) == numbers.score(X, as_numbers)
    model.model_.save(tmp_path / "model.npz")
    np.testing.assert_array_equal(
        PolyModel.load(tmp_path / "model.npz").predict(X), model.predict(X)
    )
    folds = KFold(3)  # of sorted rows: each training part lacks a level
    order = np.argsort(codes, kind="stable")
    scores = [
        cross_val_score(each, X[order], y[order], cv=folds)
        for each, y in ((model, names[codes]), (numbers, ranks[codes]))
    ]
    np.testing.assert_array_equal(*scores)


@pytest.mark.parametrize("cls", ORDINAL)
def test_levels_that_are_false_and_true(cls, data):
    """They are the numbers 0 and 1."""
    X, score = data
    model = cls(alpha=1.0, n_components=3, random_state=0).fit(X, score > 0)
    numbers = clone(model).fit(X, (score > 0).astype(int))
    assert model.classes_.tolist() == [False, True]
    np.testing.assert_array_equal(model.predict(X), numbers.predict(X))
    np.testing.assert_array_equal(model.model_.predict(X), numbers.predict(X))
    assert model.score(X, score > 0) == numbers.score(X, (score > 0).astype(int))


@pytest.mark.parametrize("cls", ORDINAL)
def test_too_many_levels_warn_before_the_fit(cls, data):
    X, score = data
    y = score.copy()
    y[0] = y[1]
    with pytest.warns(UserWarning, match=rf"{len(X) - 1} levels in {len(X)} rows.* use a regress"):
        cls(alpha=1e3, n_components=1).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cls(alpha=1.0, random_state=0).fit(X, np.digitize(score, [-0.5, 0.5]))


@pytest.mark.parametrize("cls", ALL)
def test_text_in_predict_names_the_cure(cls, data):
    pandas = pytest.importorskip("pandas")
    X, score = data
    frame = pandas.DataFrame(X, columns=list("abcde"))
    model = cls(alpha=1.0, n_components=2, random_state=0).fit(frame, targets(cls, score))
    with pytest.raises(ValueError, match="column 'b' must hold numbers, got 'x'; convert it"):
        model.predict(frame.assign(b="x"))


@pytest.mark.parametrize("cls", ALL)
def test_alpha_and_tau_exclude_each_other(cls, data):
    X, score = data
    with pytest.raises(ValueError, match="alpha .* or tau .* not both"):
        cls(alpha=1.0, tau=1.0).fit(X, targets(cls, score))


def test_a_wrong_fit_lower_is_refused_before_anything_else(data):
    X, score = data
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match="fit_lower 'x'"):
            REGRESSORS[0](fit_lower="x").fit(X + 1e3, score)


def test_messages_name_the_class_of_the_user_and_plain_numbers(data):
    cls, (X, score) = CLASSIFIERS[0], data
    with pytest.raises(TypeError, match=rf"^name the parameters of {cls.__name__}: .*alpha=3"):
        cls(3)
    with pytest.raises(TypeError, match=f"^{cls.__name__} has no parameter 'alhpa'; known: alpha"):
        cls(alhpa=3)
    with pytest.raises(ValueError, match=r"got \[9\]$"):
        cls(fields=[np.int64(9)]).fit(X, score > 0)
    with pytest.raises(ValueError, match="there is no class 7; known"):
        cls(alpha=1.0).fit(X, score > 0).top_interactions(np.int64(7), 1)
    with pytest.raises(ValueError, match="^unknown loss 'l3'; known"):
        cls(loss=np.str_("l3")).fit(X, score > 0)
    with pytest.raises(ValueError, match="could not convert string to float: 'a'; y holds text"):
        REGRESSORS[0]().fit(X, ["a"] * len(X))


@pytest.mark.parametrize("cls", ALL)
def test_masked_entries_are_refused(cls, data):
    X, score = data
    y, mask = targets(cls, score), np.zeros(X.shape, dtype=bool)
    mask[3, 1] = True
    masked = np.ma.masked_array(np.where(mask, -999.0, X), mask=mask)
    model = cls(alpha=1.0, random_state=0)
    weights = np.ma.masked_array(np.ones(len(X)), mask=mask[:, 1])
    for bad in ((masked, y), (X, np.ma.masked_array(y, mask=mask[:, 1])), (X, y, weights)):
        with pytest.raises(ValueError, match="has masked entries; fill or remove them"):
            model.fit(*bad)
    model.fit(np.ma.masked_array(X, mask=False), y)
    for read in (model.predict, lambda rows: model.score(rows, y)):
        with pytest.raises(ValueError, match="has masked entries"):
            read(masked)
    with pytest.raises(ValueError, match="has masked entries"):
        model.score(X, np.ma.masked_array(y, mask=mask[:, 1]))


def test_more_columns_than_an_index_can_count():
    X = sp.csr_array((np.ones(3), ([0, 1, 2], [0, 5, 2**31 + 4])), shape=(3, 2**31 + 5))
    with pytest.raises(ValueError, match="fewer than 2\\*\\*31"):
        REGRESSORS[0](alpha=1.0).fit(X, np.arange(3.0))
