"""ONNX graphs, run by onnxruntime, against `predict` and `predict_proba`."""

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import fastpoly
from fastpoly import PolyModel
from fastpoly.tables import Encoding

fastpoly_onnx = pytest.importorskip("fastpoly.onnx")
onnxruntime = pytest.importorskip("onnxruntime")
skl2onnx = pytest.importorskip("skl2onnx")

CLOSE = {np.float32: 1e-5, np.float64: 1e-10}


def run(graph, X):
    """The outputs by name; X is a matrix, or a dictionary of columns."""
    session = onnxruntime.InferenceSession(
        graph.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    inputs = X if isinstance(X, dict) else {session.get_inputs()[0].name: X}
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, inputs), strict=True))


def assert_close(found, wanted, dtype):
    size = max(1.0, np.abs(wanted).max(initial=0.0))
    np.testing.assert_allclose(found, wanted, rtol=CLOSE[dtype], atol=CLOSE[dtype] * size)


def agree(outputs, model, X, dtype):
    """Compare the outputs of a graph with those of a PolyModel or an estimator."""
    wanted = model.predict(X)
    if "label" in outputs:
        np.testing.assert_array_equal(outputs["label"], wanted)
    else:
        assert_close(outputs["variable"].reshape(wanted.shape), wanted, dtype)
    if "probabilities" in outputs:
        assert outputs["probabilities"].dtype == dtype
        assert_close(outputs["probabilities"], model.predict_proba(X), dtype)
    else:
        assert not getattr(model, "log_odds", False) or "label" not in outputs


TASKS = [
    ("regression", 1, None),
    ("regression", 3, None),
    ("rates", 2, None),
    ("classification", 1, None),
    ("classification", 1, np.array(["no", "yes"])),
    ("classification", 4, np.array([7, 3, 5, -1])),
    ("classification", 3, np.array(["a", "ß", ""], dtype=object)),
    ("classification", 3, np.array([0.5, 1.5, 2.0])),
    ("classification", 2, np.array([False, True])),
    ("multilabel", 3, None),
    ("ordinal", 1, np.array([2.0, 5.0])),
    ("ordinal", 4, np.array([1, 2, 4, 8, 16], dtype=np.uint8)),
    ("ordinal", 3, np.array(["low", "mid", "high", "top"])),
]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("activation", ["squared", "anova"])
@pytest.mark.parametrize(("task", "m", "classes"), TASKS)
def test_random_models(task, m, classes, activation, dtype):
    """With and without a constant feature, linear weights, basis vectors and log odds."""
    rng = np.random.default_rng(m)
    d = 6
    X = rng.standard_normal((50, d)).astype(dtype)
    for case in range(16) if dtype is np.float64 else (0, 7, 10, 13):
        augment, linear, k, log_odds = case & 1, case & 2, 5 * (case & 4 > 0), bool(case & 8)
        model = PolyModel(
            rng.standard_normal((k, d + augment)),
            rng.standard_normal((k, m)) / 3,
            rng.standard_normal(m),
            rng.standard_normal((m, d)) if linear else None,
            activation=activation, augment=bool(augment), task=task, classes=classes,
            log_odds=log_odds or task in ("regression", "rates"),
        )  # fmt: skip
        outputs = run(fastpoly_onnx.to_onnx(model, dtype), X)
        agree(outputs, model, X, dtype)
        if "scores" in outputs:
            assert_close(outputs["scores"], model.decision(X), dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("far", [1e4, -1e4])
def test_outputs_far_from_zero(far, dtype):
    X = np.array([[1.0], [0.0]], dtype)
    for task, m in [("classification", 3), ("multilabel", 3), ("ordinal", 3)]:
        model = PolyModel([[1.0]], [[far, 0, -far]], np.zeros(m), task=task)
        agree(run(fastpoly_onnx.to_onnx(model, dtype), X), model, X, dtype)


def test_level_values_and_expected_levels():
    model = PolyModel(
        [[1.0, 0.0]], [[1.0, -1.0]], [0.0, 0.0], task="ordinal", level_values=[1.0, 10.0, 100.0]
    )
    X = np.array([[2.0, 0.0]])  # p(y <= 1) > p(y <= 2): they cross, and are sorted
    outputs = run(fastpoly_onnx.to_onnx(model, np.float64), X)
    p = 1 / (1 + np.exp(4.0))
    assert_close(outputs["probabilities"], np.array([[p, 1 - 2 * p, p]]), np.float64)
    assert_close(outputs["variable"], np.array([[p + 10 * (1 - 2 * p) + 100 * p]]), np.float64)


def table(n=120):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 4)) * [1, 10, 0.1, 3] + [0, 100, 5, -2]
    z = (X - X.mean(axis=0)) / X.std(axis=0)
    return X, z[:, 0] * z[:, 1] + z[:, 2]


def targets(name, kind):
    """y of an estimator."""
    _, o = table()
    if name.endswith("Classifier"):
        return {
            "text": np.array(["x", "yy", "z"])[np.digitize(o, [-0.5, 0.5])],
            "int": np.where(o > 0, 5, 2),
            "labels": np.column_stack([o > 0, o > 1, o < 0.3]).astype(int),
        }[kind]
    if name.endswith("OrdinalRegressor"):
        return np.digitize(o, [-1, 0, 1]) * 0.5
    return {"one": o, "two": np.column_stack([o, -(o**2)]), "counts": np.floor(np.exp(o / 2))}[kind]


CASES = [
    (f"{family}{kind}", y, loss)
    for family in ("PolynomialNetwork", "FactorizationMachine")
    for kind, ys, losses in [
        ("Classifier", ("text", "int", "labels"), ("logistic", "smoothed_hinge", "squared_hinge")),
        ("Regressor", ("one", "two"), ("squared", "huber")),
        ("Regressor", ("counts",), ("poisson",)),
        ("OrdinalRegressor", ("levels",), ("logistic", "squared_hinge")),
    ]
    for y in ys
    for loss in losses
]


# A model of few basis vectors will do.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(("name", "kind", "loss"), CASES)
def test_estimators(name, kind, loss):
    """All of them, by `to_onnx` and in a Pipeline by skl2onnx."""
    X, _ = table()
    y = targets(name, kind)
    for lower, dtype in [("explicit", np.float32), ("augment", np.float64), (None, np.float64)]:
        estimator = getattr(fastpoly, name)(
            alpha=0.1, loss=loss, fit_lower=lower, n_components=4, block=2, tol=1.0, random_state=0
        )
        rows = X.astype(dtype)
        model = make_pipeline(StandardScaler(), estimator).fit(rows, y)
        assert model[-1].n_components_
        scaled = model[0].transform(rows)
        agree(run(fastpoly_onnx.to_onnx(model[-1], dtype), scaled), model[-1], scaled, dtype)
        zipmap = {"zipmap": False} if name.endswith("Classifier") else None
        options = {id(model[-1]): zipmap} if zipmap else None
        outputs = run(skl2onnx.to_onnx(model, rows[:1], options=options), rows)
        if not hasattr(model, "predict_proba") and "probabilities" in outputs:
            scores = outputs.pop("probabilities")
            assert_close(scores, model[-1].model_.decision(scaled), dtype)
        agree(outputs, model, rows, dtype)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("columns", [False, True])
def test_zipmap(columns):
    """The dictionaries that skl2onnx makes of probabilities unless told otherwise."""
    X = table()[0].astype(np.float32)  # the operator ZipMap has no double precision
    y = targets("PolynomialNetworkClassifier", "text")
    model = fastpoly.PolynomialNetworkClassifier(alpha=1.0, n_components=2, random_state=0)
    model = make_pipeline(StandardScaler(), model).fit(X, y)
    options = {id(model[-1]): {"zipmap": "columns"}} if columns else None
    outputs = list(run(skl2onnx.to_onnx(model, X[:1], options=options), X).values())
    found = outputs[1:] if columns else [[row[c] for row in outputs[1]] for c in ("x", "yy", "z")]
    np.testing.assert_array_equal(outputs[0], model.predict(X))
    assert_close(np.column_stack(found), model.predict_proba(X), np.float32)


def test_pipeline_of_text_and_numbers():
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {
            "city": rng.choice(["Oslo", "Rome", "Paris"], 200),
            "day": rng.choice(["sat", "sun"], 200),
            "price": rng.gamma(2, 10, 200).astype(np.float32),
        }
    )
    y = np.where((frame["city"] == "Oslo") == (frame["day"] == "sat"), "yes", "no")
    encoder = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["city", "day"]), (StandardScaler(), ["price"])
    )
    machine = fastpoly.FactorizationMachineClassifier(alpha=1.0, n_components=4, random_state=0)
    model = make_pipeline(encoder, machine).fit(frame, y)
    assert model.score(frame, y) == 1.0
    graph = skl2onnx.to_onnx(model, frame[:1], options={id(model[-1]): {"zipmap": False}})
    columns = {name: frame[[name]].to_numpy() for name in frame}
    agree(run(graph, columns), model, frame, np.float32)


def test_columns_as_separate_inputs():
    X, y = table()
    frame = pd.DataFrame(X, columns=list("abcd"))
    model = fastpoly.PolynomialNetworkRegressor(alpha=1.0, n_components=2, random_state=0)
    model.fit(frame, y)
    kinds = [(name, skl2onnx.common.data_types.DoubleTensorType([None, 1])) for name in "abcd"]
    graph = skl2onnx.convert_sklearn(model, initial_types=kinds)
    agree(run(graph, {name: frame[[name]].to_numpy() for name in frame}), model, frame, np.float64)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", ["Classifier", "Regressor", "OrdinalRegressor"])
@pytest.mark.parametrize("form", ["search", "average"])
def test_a_search_and_an_average(form, kind):
    """By `to_onnx`, and as the last step of a Pipeline."""
    X, score = table()
    y = score if kind == "Regressor" else np.digitize(score, [-0.5, 0.5])
    model = getattr(fastpoly, f"FactorizationMachine{kind}")(n_components=4, random_state=0)
    if form == "search":
        model = fastpoly.PathSearchCV(model, n_alphas=3, cv=2)
    else:
        model = fastpoly.PosteriorAverage(model.set_params(alpha=1.0), n_samples=20)
    pipeline = make_pipeline(StandardScaler(), model).fit(X, y)
    scaled = pipeline[0].transform(X)
    agree(run(fastpoly_onnx.to_onnx(model, np.float64), scaled), model, scaled, np.float64)
    agree(run(skl2onnx.to_onnx(pipeline, X[:1]), X), pipeline, X, np.float64)


def test_what_cannot_be_converted_is_named():
    with pytest.raises(TypeError, match="fit it first"):
        fastpoly_onnx.to_onnx(fastpoly.PolynomialNetworkRegressor())
    with pytest.raises(TypeError, match=r"skl2onnx\.to_onnx"):
        fastpoly_onnx.to_onnx(make_pipeline(StandardScaler()))
    model = PolyModel([[1.0]], [[1.0, 2.0]], [0.0, 0.0], task="classification")
    with pytest.raises(ValueError, match="dtype must be float32 or float64, got int64"):
        fastpoly_onnx.to_onnx(model, int)
    for classes, error in [([0, 2**63 + 1], ValueError), ([(1,), "a"], TypeError)]:
        array = np.empty(2, object) if error is TypeError else np.empty(2, np.uint64)
        array[:] = classes
        with pytest.raises(error, match="classes"):
            fastpoly_onnx.to_onnx(
                PolyModel([[1.0]], [[1, 2]], [0, 0], task="classification", classes=array)
            )


@pytest.mark.parametrize("form", ["codes", "plain", "matrix", "hinges"])
@pytest.mark.parametrize("activation", ["squared", "anova"])
@pytest.mark.parametrize("augment", [False, True])
def test_a_model_of_a_frame(form, activation, augment):
    """One input for each column; unseen levels and gaps as in `predict`."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({
        "city": np.array(["Oslo", "Bergen", "Narvik"])[rng.integers(0, 3, 60)],
        "age": np.where(rng.random(60) < 0.2, np.nan, rng.normal(40, 10, 60).round(1)),
        "price": rng.exponential(5, 60).round(2),
        "member": rng.random(60) < 0.4,
    })  # fmt: skip
    frame.loc[::7, "city"] = None
    encoding = Encoding.learn(frame)[0].as_form(form)
    d = len(encoding.column_names)
    H, V = rng.standard_normal((3, d + augment)), rng.standard_normal((3, 2))
    linear = rng.standard_normal((2, d))
    model = PolyModel(H, V, [1.0, -1.0], linear, activation, augment, encoding=encoding)
    rows = frame.copy()
    rows.loc[3, "city"], rows.loc[4, "price"] = "Paris", np.nan
    given = {
        "city": rows["city"].fillna("").to_numpy(object)[:, None],
        "age": rows["age"].to_numpy()[:, None],
        "price": rows["price"].to_numpy()[:, None],
        "member": rows["member"].to_numpy().astype(np.int64)[:, None],
    }
    graph = fastpoly_onnx.to_onnx(model, np.float64)
    assert_close(run(graph, given)["variable"], model.predict(rows), np.float64)


def test_an_estimator_of_a_frame():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.choice(["x", "y"], 80), "b": rng.normal(0, 1, 80).round(1)})
    y = (frame["a"] == "x") ^ (frame["b"] > 0)
    model = fastpoly.FactorizationMachineClassifier(alpha=0.1, random_state=0).fit(frame, y)
    given = {"a": frame["a"].to_numpy(object)[:, None], "b": frame["b"].to_numpy()[:, None]}
    found = run(fastpoly_onnx.to_onnx(model, np.float64), given)
    assert_close(found["probabilities"], model.predict_proba(frame), np.float64)


def test_lists_and_fractions_as_levels_are_indicators():
    rng = np.random.default_rng(0)
    table = {"likes": [["a"], ["a", "b"], ["b"], [], None, ["a"]], "x": [1.5, 2.5] * 3}
    frame = pd.DataFrame(table).astype({"x": "category"})
    encoding = Encoding.learn(frame)[0]
    H = rng.standard_normal((2, len(encoding.column_names)))
    model = PolyModel(H, [[1.0], [2.0]], [0.5], activation="anova", encoding=encoding)
    likes = [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1], [1, 0, 0, 0]]
    given = {"likes": np.array(likes, float), "x": np.array([[1.0, 0, 0], [0, 1.0, 0]] * 3)}
    found = run(fastpoly_onnx.to_onnx(model, np.float64), given)["variable"]
    assert_close(found[:, 0], model.predict(frame), np.float64)


@pytest.mark.parametrize("encoder", [False, True])
@pytest.mark.parametrize("name", ["FactorizationMachineClassifier", "PolynomialNetworkRegressor"])
def test_pipelines_of_frames(name, encoder):
    """Columns by name, text and integer levels, bools, gaps; alone and behind `TableEncoder`."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({
        "b": np.where(rng.random(90) < 0.2, np.nan, rng.normal(0, 1, 90).round(1)),
        "a": rng.choice(["x", "y"], 90),
        "flag": rng.random(90) < 0.5,
    })  # fmt: skip
    y = (frame["a"] == "x") ^ (frame["b"] > 0)
    steps = [fastpoly.TableEncoder(shapes="hinges")] if encoder else []
    estimator = getattr(fastpoly, name)(alpha=0.1, n_components=2, random_state=0)
    model = make_pipeline(*steps, estimator).fit(frame, y if "Classifier" in name else y * 2.5)
    options = {id(model[-1]): {"zipmap": False}} if "Classifier" in name else None
    graph = skl2onnx.to_onnx(model, frame[:1], options=options)
    given = {column: frame[[column]].to_numpy() for column in ("flag", "a", "b")}
    agree(run(graph, given), model, frame, np.float64)
    kinds = [("a", skl2onnx.common.data_types.StringTensorType([None, 1]))]
    with pytest.raises(ValueError, match=r"the inputs lack the columns \['b', 'flag'\]"):
        skl2onnx.convert_sklearn(model, initial_types=kinds)


def test_a_pipeline_of_a_matrix_with_gaps():
    rng = np.random.default_rng(0)
    X = np.where(rng.random((90, 3)) < 0.1, np.nan, rng.normal(size=(90, 3)).round(2))
    model = fastpoly.FactorizationMachineRegressor(alpha=0.1, n_components=2, random_state=0)
    model = make_pipeline(StandardScaler(), model).fit(X, np.nan_to_num(X).sum(axis=1))
    agree(run(skl2onnx.to_onnx(model, X[:1]), X), model, X, np.float64)
