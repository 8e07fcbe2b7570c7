"""PolyModel: against its formula, its own values at chosen points, and files of all kinds."""

import copy
import dataclasses
import doctest
import itertools
import json
import os
import pickle
import textwrap
import tracemalloc
import zipfile
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from estimator_cases import ALL
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal
from subprocesses import run_python

import fastpoly.model
from fastpoly import (
    PolyModel,
    PolynomialNetworkClassifier,
    PolynomialNetworkOrdinalRegressor,
)
from fastpoly.kernels.features import ACTIVATIONS
from fastpoly.kernels.matrix import as_matrix
from fastpoly.storage.npz import MODEL_VERSION
from fastpoly.tables import Encoding

check = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
numbers = st.one_of(st.integers(-3, 3).map(float), st.floats(-10, 10, allow_subnormal=False))
text = st.text(st.characters(exclude_characters="\0"), max_size=6)


@st.composite
def models(draw):
    k, d, m = draw(st.integers(0, 4)), draw(st.integers(1, 5)), draw(st.integers(1, 3))
    augment = draw(st.booleans())
    names = lambda n, **how: st.none() | st.lists(text, min_size=n, max_size=n, **how)  # noqa: E731
    return PolyModel(
        H=draw(arrays(float, (k, d + augment), elements=numbers)),
        V=draw(arrays(float, (k, m), elements=numbers)),
        intercept=draw(arrays(float, m, elements=numbers)),
        linear=draw(st.none() | arrays(float, (m, d), elements=numbers)),
        activation=draw(st.sampled_from(ACTIVATIONS)),
        augment=augment,
        feature_names=draw(names(d)),
        output_names=draw(names(m, unique=True)),
    )


def example(activation="squared", augment=True, linear=True, k=4, d=6, m=3, seed=0, **names):
    rng = np.random.default_rng(seed)
    H, V = rng.standard_normal((k, d + augment)), rng.standard_normal((k, m))
    W = rng.standard_normal((m, d)) if linear else None
    return PolyModel(H, V, rng.standard_normal(m), W, activation, augment, **names)


def polynomial(model, x):
    """o(x), term by term."""
    x = np.asarray(x, dtype=float)
    a = np.append(1.0, x) if model.augment else x
    o = model.intercept.copy()
    for h, v in zip(model.H, model.V, strict=True):
        z = h * a
        if model.activation == "squared":
            o += v * z.sum() ** 2
        else:
            o += v * sum(p * q for p, q in itertools.combinations(z, 2))
    return o if model.linear is None else o + model.linear @ x


each_form = pytest.mark.parametrize("linear", [False, True])
each_activation = pytest.mark.parametrize("activation", ACTIVATIONS)
with_or_without_constant = pytest.mark.parametrize("augment", [False, True])


@each_form
@each_activation
@with_or_without_constant
@pytest.mark.parametrize("k", [0, 1, 9])
def test_decision_is_the_formula_for_every_kind_of_X(activation, augment, linear, k):
    model = example(activation, augment, linear, k=k)
    rng = np.random.default_rng(1)
    X = rng.standard_normal((20, 6)) * (rng.random((20, 6)) < 0.6)
    want = [polynomial(model, x) for x in X]
    X.setflags(write=False)
    frame = pd.DataFrame(X, columns=list("abcdef"))
    for form in (X, X.tolist(), np.asfortranarray(X), frame, sp.csr_array(X), sp.coo_matrix(X)):
        for n_threads in (None, 1, 2):
            decision = model.decision(form, n_threads=n_threads)
            assert decision.shape == (20, 3)
            assert_allclose(decision, want, rtol=1e-11, atol=1e-11)
    for form in (X.astype(np.float32), sp.csr_array(X.astype(np.float32))):
        assert_allclose(model.decision(form), want, rtol=1e-4, atol=1e-4)
    assert model.decision(X[:0]).shape == (0, 3)


def test_decision_refuses_another_width():
    for augment in (False, True):
        model = example(augment=augment)
        for X in (np.ones((2, 5)), sp.csr_array(np.ones((2, 7)))):
            message = f"X has {X.shape[1]} features, but PolyModel is expecting 6 features"
            with pytest.raises(ValueError, match=message):
                model.decision(X)
    with pytest.raises(ValueError, match="NaN"):
        model.decision(np.full((2, 6), np.nan))


def wide_row(d, entries=30, seed=0):
    """One sparse row, and the positions of its entries."""
    rng = np.random.default_rng(seed)
    at = np.sort(rng.choice(d, entries, replace=False))
    return sp.csr_array((rng.standard_normal(entries), at, [0, entries]), shape=(1, d)), at


@each_form
@each_activation
@with_or_without_constant
def test_few_sparse_rows_of_many_features(activation, augment, linear):
    """The features that do not occur are left out, and the outputs stay the formula."""
    model = example(activation, augment, linear, d=50)
    rng = np.random.default_rng(1)
    X = rng.standard_normal((4, 50)) * (rng.random((4, 50)) < 0.1)
    X[1] = 0
    want = [polynomial(model, x) for x in X]
    single = sp.csr_array(X.astype(np.float32))
    for form in (sp.csr_array(X), sp.csc_matrix(X), sp.coo_array(X)):
        assert_allclose(model.decision(form), want, rtol=1e-11, atol=1e-11)
        assert_allclose(model.activations(form), model.activations(X), rtol=1e-11, atol=1e-11)
    assert_allclose(model.decision(single), want, rtol=1e-4, atol=1e-4)
    assert_allclose(model.decision(sp.csr_array(X[1:2])), want[1:2], atol=1e-12)  # no entry at all
    matrix = as_matrix(sp.csr_array(X), augment)
    assert_array_equal(model.decision(matrix), model.decision(sp.csr_array(X)))


def test_one_sparse_row_costs_by_its_entries():
    """At 5de635d every call copied and checked all of H, 24 MB here."""
    d = 10**6
    rng = np.random.default_rng(0)
    H, linear = rng.standard_normal((3, d)), rng.standard_normal((2, d))
    model = PolyModel(H, [[1.0, 2.0]] * 3, [0.0, 1.0], linear, task="classification")
    row, at = wide_row(d)
    z = H[:, at] @ row.data
    want = (z**2).sum() * np.array([1.0, 2.0]) + [0.0, 1.0] + linear[:, at] @ row.data
    tracemalloc.start()
    try:
        assert_allclose(model.decision(row), [want], rtol=1e-10)
        assert model.predict(row) == [want.argmax()]
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()


@each_activation
@with_or_without_constant
def test_activations_are_the_outputs_of_an_identity(activation, augment):
    model = example(activation, augment)
    identity = dataclasses.replace(
        model, V=np.eye(4), intercept=np.zeros(4), linear=None, output_names=None
    )
    X = np.random.default_rng(1).standard_normal((5, 6))
    assert_allclose(model.activations(X), [polynomial(identity, x) for x in X], atol=1e-12)
    assert dataclasses.replace(model, H=model.H[:0], V=model.V[:0]).activations(X).shape == (5, 0)
    with pytest.raises(ValueError, match="activations overflow"):
        model.activations(np.full((1, 6), 1e200))


# What the outputs mean


def logistic(t):
    return 1 / (1 + np.exp(-t))


def outputs_of(m, **fields):
    """A model whose outputs are the first m features."""
    return PolyModel(np.empty((0, m)), np.empty((0, m)), np.zeros(m), np.eye(m), **fields)


def test_classes():
    X = np.array([[0.0, 1.0, 3.0], [2.0, 2.0, -1.0], [-800.0, 0.0, 800.0]])
    model = outputs_of(3, task="classification", classes=["a", "b", "c"])
    assert model.predict(X).tolist() == ["c", "a", "c"]  # the first of equal ones
    odds = np.exp(X[:2])
    assert_allclose(model.predict_proba(X[:2]), odds / odds.sum(axis=1, keepdims=True))
    assert_array_equal(model.predict_proba(X[2:]), [[0, 0, 1]])
    assert_array_equal(model.predict_log_proba(X[2:]), [[-1600, -800, 0]])  # no underflow
    assert_array_equal(model.decision_function(X), X)
    assert outputs_of(3, task="classification").predict(X).tolist() == [2, 0, 2]


def test_two_classes_have_one_or_two_outputs():
    """They are the same model: the second output minus the first is the log odds."""
    names = {"task": "classification", "classes": np.array([5, 7], dtype=np.int8)}
    two, one = outputs_of(2, **names), outputs_of(1, **names)
    X = np.array([[1.0, 3.0], [1.0, 1.0], [2.0, -1.0]])
    difference = X[:, 1] - X[:, 0]
    for model, inputs in ((two, X), (one, difference[:, None])):
        assert_array_equal(model.predict(inputs), np.array([7, 5, 5], dtype=np.int8), strict=True)
        assert_array_equal(model.decision_function(inputs), difference)
        p = logistic(difference)
        assert_allclose(model.predict_proba(inputs), np.column_stack([1 - p, p]))
        assert_allclose(np.exp(model.predict_log_proba(inputs)), np.column_stack([1 - p, p]))
    with pytest.raises(ValueError, match="classes must be 2 distinct values"):
        outputs_of(1, task="classification", classes=["a"])


def test_labels():
    model, X = outputs_of(2, task="multilabel"), np.array([[0.5, -2.0], [0.0, 900.0]])
    assert_array_equal(model.predict(X), [[1, 0], [0, 1]])
    assert_allclose(model.predict_proba(X), logistic(X))
    assert_allclose(model.predict_log_proba(-X)[1], [np.log(0.5), -900])
    assert_array_equal(model.decision_function(X), X)


def test_ordered_levels():
    """p(y = level) by the definition; where cumulative probabilities cross they are sorted."""
    X = np.array([[-1.0, 0.5, 2.0], [2.0, 0.5, -1.0]])
    model = outputs_of(3, task="ordinal", classes=[1.0, 2.0, 4.0, 8.0])
    a, b, c = logistic(X[0])
    want = np.array([a, b - a, c - b, 1 - c])
    assert_allclose(model.predict_proba(X), [want, want])
    assert_allclose(model.predict_log_proba(X), np.log([want, want]))
    assert_allclose(model.predict(X), want @ [1, 2, 4, 8])
    assert_array_equal(model.decision_function(X), X)
    named = outputs_of(3, task="ordinal", classes=["d", "c", "b", "a"])
    assert_allclose(named.predict(X), want @ [1, 2, 3, 4])
    valued = dataclasses.replace(named, level_values=[0.0, 1.0, 5.0, 6.0])
    assert_allclose(valued.predict(X), want @ [0, 1, 5, 6])
    assert model.predict_log_proba([[0.0, 0.0, 40.0]])[0, 1] == -np.inf


def test_numbers():
    X = np.array([[1.0, -2.0]])
    for verb in (outputs_of(2).predict, outputs_of(2).decision_function):
        assert_array_equal(verb(X), X)
    for verb in (outputs_of(1).predict, outputs_of(1).decision_function):
        assert_array_equal(verb(X[:, :1]), [1.0])


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (outputs_of(2), "the outputs are numbers"),
        (outputs_of(2, task="classification", log_odds=False), "the outputs are scores"),
    ],
)
def test_there_are_no_probabilities_without_log_odds(tmp_path, model, why):
    model.save(tmp_path / "model")
    for each in (model, PolyModel.load(tmp_path / "model")):
        for verb in (each.predict_proba, each.predict_log_proba):
            with pytest.raises(ValueError, match=why):
                verb(np.ones((1, 2)))


@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
def test_an_estimator_and_its_model_agree(cls, tmp_path):
    """The saved model alone decodes as the estimator does, without scikit-learn."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    score = X[:, 0] * X[:, 1] + X[:, 2]
    ys = {"Regressor": (score, np.column_stack([score, -score]))}
    ys["OrdinalRegressor"] = (np.digitize(score, [-1, 0, 1]) * 0.5,)
    labels = np.column_stack([score > 0, score > 1]).astype(int)
    codes = np.digitize(score, [-1, 1])
    names = np.array(["low", "mid", "high"], dtype=object)
    ys["Classifier"] = (score > 0, codes.astype(np.int32), names[codes], labels)
    kind = max((name for name in ys if cls.__name__.endswith(name)), key=len)
    for y in ys[kind]:
        fitted = cls(alpha=0.5, n_components=3, random_state=0).fit(X, y)
        fitted.model_.save(tmp_path / "model")
        for model in (fitted.model_, PolyModel.load(tmp_path / "model")):
            verbs = ("predict", "predict_proba", "predict_log_proba", "decision_function")
            for verb in verbs:
                if hasattr(fitted, verb):
                    assert_array_equal(getattr(model, verb)(X), getattr(fitted, verb)(X))


def test_classes_that_are_objects(tmp_path):
    """They stay what they are in memory; a file holds those that are text."""
    words = outputs_of(2, task="classification", classes=np.array(["no", "yes"], dtype=object))
    assert words.predict([[0.0, 1.0]]).dtype == object
    words.save(tmp_path / "model")
    assert PolyModel.load(tmp_path / "model") == words
    for pair in ([None, "a"], ["a", "a\0"], [Fraction(1, 3), Fraction(1, 2)]):
        classes = np.array(pair, dtype=object)
        model = outputs_of(2, task="classification", classes=classes)
        assert model.predict([[0.0, 1.0]])[0] == pair[1]
        with pytest.raises(TypeError, match=r"dataclasses\.replace\(model, classes=None\)"):
            model.save(tmp_path / "other")
    assert not (tmp_path / "other").exists()


@check
@given(model=models(), data=st.data())
def test_the_terms_add_up_to_the_polynomial(model, data):
    x = data.draw(arrays(float, model.n_features, elements=numbers))
    want = polynomial(model, x)
    intercept = model.intercept_terms()
    for c in range(model.n_outputs):
        C = model.interaction_matrix(c)
        assert_array_equal(C, C.T)
        value = x @ C @ x + model.linear_terms(c) @ x + intercept[c]
        assert_allclose(value, want[c], rtol=1e-9, atol=1e-7)


@each_form
@each_activation
@with_or_without_constant
def test_each_coefficient_from_values_of_the_polynomial(activation, augment, linear):
    """Second differences are exact for a polynomial of degree 2."""
    model = example(activation, augment, linear)
    o = lambda *x: model.decision([np.sum(x, axis=0)])[0]  # noqa: E731
    e, zero = np.eye(6), np.zeros(6)
    assert_allclose(model.intercept_terms(), o(zero), atol=1e-12)
    terms = np.transpose([model.linear_terms(c) for c in range(3)])
    assert_allclose(terms, [(o(x) - o(-x)) / 2 for x in e], atol=1e-12)
    C = np.transpose([model.interaction_matrix(c) for c in range(3)])
    for i, j in itertools.combinations(range(6), 2):
        pair = o(e[i], e[j]) - o(e[i]) - o(e[j]) + o(zero)
        assert_allclose(C[i, j] + C[j, i], pair, atol=1e-11)
    squares = [(o(x) + o(-x)) / 2 - o(zero) for x in e]
    assert_allclose(np.diagonal(C).T, squares, atol=1e-11)
    if activation == "anova":
        assert not np.diagonal(C).any()
    intercept = model.intercept_terms()
    intercept += 1  # the caller's own array
    assert_allclose(model.intercept_terms(), intercept - 1)


@check
@given(model=models(), k=st.integers(1, 12))
def test_top_interactions_are_the_largest_entries_of_the_matrix(model, k):
    i, j = np.triu_indices(model.n_features, 1)
    for c in range(model.n_outputs):
        top = dataclasses.replace(model, feature_names=None).top_interactions(c, k)
        coefficients = 2 * model.interaction_matrix(c)[i, j]
        largest = np.sort(np.abs(coefficients))[::-1][:k]
        found = np.array([value for _, _, value in top])
        assert_allclose(np.abs(found), largest[: len(found)], rtol=1e-10, atol=1e-10)
        assert_allclose(largest[len(found) :], 0, atol=1e-10)
        assert len({pair[:2] for pair in top}) == len(top)
        for a, b, value in top:
            assert a < b
            assert_allclose(2 * model.interaction_matrix(c)[a, b], value, rtol=1e-9, atol=1e-10)


def test_names_of_features_and_outputs():
    model = example(feature_names=iter("abcdef"), output_names=np.array(["x", "y", "z"]))
    assert model.feature_names == tuple("abcdef")
    plain = example()
    for c, name in enumerate("xyz"):
        named = [(*map("abcdef".index, pair[:2]), pair[2]) for pair in model.top_interactions(name)]
        assert named == plain.top_interactions(c)
        assert all(type(i) is int and type(value) is float for i, _, value in named)
        assert_array_equal(model.interaction_matrix(name), plain.interaction_matrix(np.int64(c)))
        assert_array_equal(model.linear_terms(name), plain.linear_terms(c))
    with pytest.raises(ValueError, match=r"no output 'w'; their names are \('x', 'y', 'z'\)"):
        model.interaction_matrix("w")
    with pytest.raises(ValueError, match="no output 'x'; their names are None"):
        plain.top_interactions("x")
    for c in (-1, 3):
        with pytest.raises(ValueError, match="valid outputs are 0 to 2"):
            plain.linear_terms(c)
    for k in (0, -1):
        with pytest.raises(ValueError, match="k must be at least 1"):
            plain.top_interactions(0, k)
    for k in (1.5, True, "1"):
        with pytest.raises(TypeError, match="k must be an integer"):
            plain.top_interactions(0, k)
    for c in (0.0, True, np.True_, None):
        for verb in (plain.top_interactions, plain.interaction_matrix, plain.linear_terms):
            with pytest.raises(TypeError, match="c must be the position of an output or its name"):
                verb(c)


def test_messages_show_numbers_of_numpy_as_numbers():
    calls = (
        lambda: example().top_interactions(np.float64(0)),
        lambda: example().top_interactions(0, np.float64(2.5)),
        lambda: PolynomialNetworkClassifier().fit(np.ones((3, 2)), np.ones(3, dtype=int)),
        lambda: PolynomialNetworkOrdinalRegressor().fit(np.ones((3, 2)), np.ones(3, dtype=int)),
        lambda: PolynomialNetworkClassifier(alpha=np.bool_(1)).fit(np.eye(2), [0, 1]),
    )
    for call in calls:
        with pytest.raises((TypeError, ValueError)) as caught:
            call()
        assert "np." not in str(caught.value)


def test_errors_name_the_path_asked_for(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    for error, path in (
        (FileNotFoundError, tmp_path / "nope" / "x.npz"),
        (NotADirectoryError, tmp_path / "file" / "x.npz"),
        (IsADirectoryError, tmp_path / "folder"),
    ):
        for verb in (example().save, PolyModel.load):
            with pytest.raises(error) as caught:
                verb(path)
            assert caught.value.filename == str(path)
            assert str(caught.value).endswith(f": {str(path)!r}")
    assert {each.name for each in tmp_path.iterdir()} == {"file", "folder"}
    for path in (7, True, None, b"x.npz"):
        for verb in (example().save, PolyModel.load):
            with pytest.raises(TypeError, match="path must be a str or path-like"):
                verb(path)


def test_a_model_does_not_change():
    H = np.ones((2, 3))
    model = PolyModel(H, np.ones((2, 1)), np.zeros(1))
    before = copy.deepcopy(model)
    H[:] = 7
    assert model == before
    for array in (model.H, model.V, model.intercept, before.H, pickle.loads(pickle.dumps(model)).V):
        with pytest.raises(ValueError, match="read-only"):
            array[:] = 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        model.augment = True
    assert repr(model) == "PolyModel(squared, n_features=3, n_components=2, n_outputs=1)"


def test_equality_is_by_content():
    names = {"feature_names": "abcdef", "output_names": "xyz"}
    names = {key: tuple(value) for key, value in names.items()}
    model = example(**names)
    assert model == example(**names)
    assert pickle.loads(pickle.dumps(model)) == model
    others = [
        dataclasses.replace(model, H=model.H + 1e-15),
        dataclasses.replace(model, V=-model.V),
        dataclasses.replace(model, intercept=model.intercept + 1),
        dataclasses.replace(model, linear=None),
        dataclasses.replace(model, activation="anova"),
        dataclasses.replace(model, H=model.H[:, 1:], augment=False),
        dataclasses.replace(model, feature_names=None),
        dataclasses.replace(model, output_names=tuple("xyw")),
        example(k=3, **names),
        "model",
    ]
    for other in others:
        assert model != other


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"H": np.ones(3)}, ValueError, "H must have 2 dimension"),
        ({"H": np.ones((1, 3))}, ValueError, r"V must have shape \(1, any\), got \(2, 2\)"),
        ({"H": np.ones((2, 0))}, ValueError, "H must have columns for the features, got"),
        ({"H": np.ones((2, 1)), "augment": True}, ValueError, "after that of the constant"),
        ({"H": [[1, 2, np.nan]] * 2}, ValueError, "H contains NaN or infinity"),
        ({"H": np.ones((2, 3), dtype=complex)}, TypeError, "H must hold real numbers"),
        ({"V": np.ones((2, 0)), "intercept": []}, ValueError, "V must have a column"),
        ({"V": [["a", "b"]] * 2}, TypeError, "V must hold real numbers"),
        ({"intercept": np.ones(3)}, ValueError, r"intercept must have shape \(2\)"),
        ({"intercept": None}, TypeError, "intercept must hold real numbers"),
        ({"linear": np.ones((3, 2))}, ValueError, r"linear must have shape \(2, 3\)"),
        ({"activation": "cubed"}, ValueError, "'squared', 'anova'"),
        ({"activation": ["squared"]}, ValueError, "'squared', 'anova'"),
        ({"augment": 1}, TypeError, "augment must be True or False"),
        ({"feature_names": ["a"]}, ValueError, "feature_names must have 3 entries, got 1"),
        ({"feature_names": "abc"}, TypeError, "feature_names must be a sequence of str"),
        ({"feature_names": [1, 2, 3]}, TypeError, "feature_names must be a sequence of str"),
        ({"feature_names": ["a", "b", "c\0"]}, ValueError, "NUL"),
        ({"output_names": ["a", "a"]}, ValueError, "output_names must be distinct"),
    ],
)
def test_bad_arguments(change, error, message):
    good = {"H": np.ones((2, 3)), "V": np.ones((2, 2)), "intercept": np.ones(2)}
    PolyModel(**good)
    with pytest.raises(error, match=message):
        PolyModel(**good | change)


# Files


@check
@given(model=models())
def test_a_file_gives_the_model_back_bit_for_bit(tmp_path, model):
    path = tmp_path / "model"
    model.save(path)
    assert os.listdir(tmp_path) == ["model"]
    loaded = PolyModel.load(str(path))
    assert loaded == model
    for field in dataclasses.fields(model):
        mine, theirs = getattr(model, field.name), getattr(loaded, field.name)
        assert type(mine) is type(theirs)
        if isinstance(mine, np.ndarray):
            assert mine.tobytes() == theirs.tobytes()
        else:
            assert mine == theirs
    assert loaded.H.dtype == loaded.V.dtype == np.float64


@pytest.mark.parametrize(
    "dtype", ["i1", "i2", "i4", "i8", "u1", "u4", "f2", "f4", "f8", "?", "<U3"]
)
def test_classes_of_any_type_are_saved_with_their_type(tmp_path, dtype):
    """At 5de635d only int64, float64, bool and text: `save` of int32 labels was a TypeError."""
    model = example(m=2, linear=False, task="classification", classes=np.array([0, 1], dtype=dtype))
    model.save(tmp_path / "model")
    loaded = PolyModel.load(tmp_path / "model")
    assert loaded == model
    assert loaded.classes.dtype == loaded.predict(np.ones((1, 6))).dtype == np.dtype(dtype)


@each_form
@each_activation
@with_or_without_constant
def test_numpy_alone_scores_a_file(tmp_path, activation, augment, linear):
    model = example(activation, augment, linear)
    X = np.random.default_rng(2).standard_normal((5, 6))
    model.save(tmp_path / "model.npz")
    with np.load(tmp_path / "model.npz", allow_pickle=False) as f:
        H, A = f["H"], np.column_stack([np.ones(5), X])[:, 1 - int(f["augment"]) :]
        S = (A @ H.T) ** 2
        if f["activation"] == "anova":
            S = (S - A**2 @ (H**2).T) / 2
        outputs = S @ f["V"] + f["intercept"] + (X @ f["linear"].T if "linear" in f else 0)
        assert f["format_version"] == MODEL_VERSION == 2
    assert_allclose(outputs, model.decision(X), atol=1e-12)


def test_files_of_version_1_are_read(tmp_path):
    """They had no background."""
    model, path = example(), tmp_path / "model.npz"
    np.savez(path, **contents(model, path) | {"format_version": np.array(1)})
    assert PolyModel.load(path) == model


def contents(model, path):
    model.save(path)
    with np.load(path) as archive:
        return dict(archive)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format_version": np.array(3)}, "format version 3, this fastpoly reads 1 to 2"),
        ({"format_version": np.array(0)}, "format version 0, this fastpoly reads 1"),
        ({"format_version": np.array(3), "new": np.ones(1)}, "format version 3"),
        ({"format_version": np.array(1.0)}, "no integer format_version"),
        ({"format_version": np.array([1])}, "no integer format_version"),
        ({"format_version": None}, "no integer format_version"),
        ({"H": None, "V": None}, r"missing arrays: \['H', 'V'\]"),
        ({"new": np.ones(1)}, r"unknown: \['new'\]"),
        ({"H": np.ones((4, 7), dtype=np.float32)}, "H must not have dtype float32"),
        ({"H": np.ones((4, 7), dtype=">f8")}, "must hold booleans, numbers or text"),
        ({"H": np.ones((4, 7), dtype=np.int64)}, "H must not have dtype int64"),
        ({"H": np.ones((4, 7), dtype=object)}, "must hold booleans, numbers or text"),
        ({"H": np.ones((4, 6))}, "linear must have shape"),
        ({"H": np.ones((3, 7))}, "V must have shape"),
        ({"H": np.ones(28)}, "H must have 2 dimension"),
        ({"H": np.full((4, 7), np.inf)}, "H contains NaN or infinity"),
        ({"H": np.ones((4, 1)), "linear": None}, "H must have columns"),
        ({"V": np.ones((4, 2))}, "intercept must have shape"),
        ({"V": np.ones((4, 0)), "intercept": np.ones(0)}, "V must have a column"),
        ({"intercept": np.full(3, np.nan)}, "intercept contains NaN"),
        ({"intercept": np.array(1.0)}, "intercept must have 1 dimension"),
        ({"linear": np.ones((6, 3))}, "linear must have shape"),
        ({"activation": np.array("cubed")}, "activation must be one of"),
        ({"activation": np.array(["squared"])}, "activation must be one of"),
        ({"activation": np.array(1)}, "activation must not have dtype"),
        ({"augment": np.array([True])}, "augment must be True or False"),
        ({"augment": np.array(1)}, "augment must not have dtype int64"),
        ({"augment": np.array(False)}, "linear must have shape"),
        ({"feature_names": np.array("abcdef")}, "feature_names must be a sequence"),
        ({"feature_names": np.array(["a"])}, "feature_names must have 6 entries"),
        ({"feature_names": np.array([["a"] * 6])}, "feature_names must be a sequence"),
        ({"output_names": np.array(["a", "b", "a"])}, "output_names must be distinct"),
        ({"output_names": np.frombuffer(b"\xff" * 12, "<U1")}, "not Unicode"),
    ],
)
def test_files_that_are_not_a_consistent_model(tmp_path, change, message):
    path = tmp_path / "model.npz"
    arrays = contents(example(), path) | change
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
    with pytest.raises(ValueError, match=message) as caught:
        PolyModel.load(path)
    assert "model.npz" in str(caught.value)


def test_an_absurd_number_of_features_is_refused(tmp_path):
    path = tmp_path / "model.npz"
    arrays = contents(example(k=0, linear=False), path)
    np.savez(path, **arrays | {"H": np.empty((0, 2**40))})
    with pytest.raises(ValueError, match="H must have columns"):
        PolyModel.load(path)


def test_missing_files_and_folders(tmp_path):
    with pytest.raises(FileNotFoundError):
        PolyModel.load(tmp_path / "none.npz")
    with pytest.raises(FileNotFoundError):
        example().save(tmp_path / "none" / "model.npz")


def load_or_refuse(path, data):
    """The model in a file of these bytes, None if it is refused; any other outcome raises."""
    path.write_bytes(data)
    try:
        return PolyModel.load(path)
    except ValueError:
        return None


def full_example():
    return example("anova", k=2, d=3, m=2, feature_names=["a", "é", "c"], output_names=["u", "v"])


def test_truncated_files_are_refused(tmp_path):
    path = tmp_path / "model.npz"
    full_example().save(path)
    data = path.read_bytes()
    for stop in range(0, len(data), 37):
        assert load_or_refuse(path, data[:stop]) is None
    assert load_or_refuse(path, data) == full_example()


def test_a_flipped_bit_is_harmless_or_refused(tmp_path):
    """With one changed bit in any byte, no other model is loaded, because of the checksums."""
    path = tmp_path / "model.npz"
    model = full_example()
    model.save(path)
    data = path.read_bytes()
    bits = np.random.default_rng(0).integers(0, 8, len(data))
    refused = 0
    for position, bit in enumerate(bits.tolist()):
        flipped = bytearray(data)
        flipped[position] ^= 1 << bit
        loaded = load_or_refuse(path, flipped)
        refused += loaded is None
        assert loaded is None or loaded == model
    assert refused > len(data) / 2


@settings(check, max_examples=400)
@given(st.data())
def test_forged_bytes_with_good_checksums_give_a_valid_model_or_are_refused(tmp_path, data):
    path = tmp_path / "model.npz"
    full_example().save(path)
    with zipfile.ZipFile(path) as archive:
        members = {name: bytearray(archive.read(name)) for name in archive.namelist()}
    name = data.draw(st.sampled_from(sorted(members)))
    member = members[name]
    for _ in range(data.draw(st.integers(1, 3))):
        if not member:
            break
        position = data.draw(st.integers(0, len(member) - 1))
        edit = data.draw(st.sampled_from(["set", "cut", "insert", "swap"]))
        if edit == "set":
            member[position] = data.draw(st.integers(0, 255))
        elif edit == "cut":
            del member[position:]
        elif edit == "insert":
            member[position:position] = data.draw(st.binary(min_size=1, max_size=9))
        else:
            members[name] = member = bytearray(members[data.draw(st.sampled_from(sorted(members)))])
    with zipfile.ZipFile(path, "w") as archive:
        for key, value in members.items():
            archive.writestr(key, bytes(value))
    loaded = load_or_refuse(path, path.read_bytes())
    if loaded is not None:
        assert np.isfinite(loaded.H).all()
        with np.errstate(all="ignore"):
            assert loaded.decision(np.zeros((1, loaded.n_features))).shape == (1, loaded.n_outputs)
        loaded.save(path)
        assert PolyModel.load(path) == loaded


def test_examples():
    results = doctest.testmod(fastpoly.model)
    assert results.attempted
    assert not results.failed


def test_outputs_that_overflow_are_an_error_not_a_prediction():
    model = PolyModel([[1.0, -1.0]], [[1.0, -1.0]], [0.0, 0.0])
    with pytest.raises(ValueError, match="outputs overflow.* scale it down"):
        model.decision([[1e200, 0.0]])


def test_a_loaded_model_predicts_frames_without_scikit_learn(tmp_path):
    """Nor pandas, polars or narwhals, where columns are lists and arrays."""
    frame = {"city": ["Oslo", "Bergen", "Oslo", "Bergen"] * 5, "age": np.arange(20.0)}
    encoding = Encoding.learn(frame)[0]
    rng, d = np.random.default_rng(0), len(encoding.column_names)
    H, V = rng.standard_normal((2, d)), rng.standard_normal((2, 3))
    model = PolyModel(
        H, V, np.zeros(3), activation="anova", task="classification", classes=["a", "b", "c"],
        encoding=encoding,
    ).with_background(frame)  # fmt: skip
    model.save(tmp_path / "model.npz")
    code = f"""
        import sys
        for name in ("sklearn", "pandas", "polars", "narwhals", "pyarrow"):
            sys.modules[name] = None
        import numpy as np
        from fastpoly import PolyModel
        model = PolyModel.load({str(tmp_path / "model.npz")!r})
        frame = {{"city": ["Oslo", "Paris"], "age": np.array([3.0, np.nan])}}
        print(model.predict(frame).tolist())
        print(model.predict_proba(frame).tolist())
        print(model.contributions(frame).values.shape)
        """
    lines = run_python(textwrap.dedent(code)).splitlines()
    frame = {"city": ["Oslo", "Paris"], "age": np.array([3.0, np.nan])}
    assert lines[0] == str(model.predict(frame).tolist())
    assert_allclose(json.loads(lines[1]), model.predict_proba(frame))
    assert lines[2] == "(2, 2, 3)"
