"""The public functions, called with random input, and what must be true of their results."""

import tempfile
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from fuzz_inputs import (
    PARAMETERS,
    junk,
    matrix,
    rarely,
    some_parameters,
    some_weights,
    some_X,
    some_y,
    sparse,
)
from hypothesis import strategies as st

import fastpoly
from fastpoly import Design, PolyModel, alpha_max, conditional_gradient, select_basis
from fastpoly.kernels.losses import LOSSES, get_loss
from fastpoly.kernels.penalties import PENALTIES, get_penalty
from fastpoly.metrics import ndcg, rmse
from fastpoly.path import regularization_path
from fastpoly.refit import refit_output


def assert_finite(**arrays):
    for name, a in arrays.items():
        assert np.isfinite(a).all(), name


def assert_sound(state):
    assert_finite(H=state.H, V=state.V, b=state.intercept, F=state.objective, loss=state.loss)
    assert (np.linalg.norm(state.H, axis=1) <= 1 + 1e-6).all()
    assert 0 <= state.violation < np.inf
    assert state.loss >= -1e-9 * abs(state.objective)


def unchanged(*values):
    """A function that tells whether the arrays are unchanged since this call."""
    before = [v.copy() if isinstance(v, np.ndarray) else v for v in values]

    def check():
        return all(
            a.tobytes() == b.tobytes()
            for a, b in zip(before, values, strict=True)
            if isinstance(a, np.ndarray) and a.dtype != object
        )

    return check


# ---- entries -------------------------------------------------------------------------------------

ESTIMATORS = tuple(
    getattr(fastpoly, f"{model}{task}")
    for model in ("PolynomialNetwork", "FactorizationMachine")
    for task in ("Classifier", "Regressor", "OrdinalRegressor")
)


def fit(draw):
    """fit, predict and the rest of an estimator."""
    cls = draw(st.sampled_from(ESTIMATORS))
    X = some_X(draw)
    n, d = np.shape(X) if np.ndim(X) == 2 or sp.issparse(X) else (len(X), 1)
    y = some_y(draw, n, "real" if "Regressor" in cls.__name__ and rarely(draw, 2) else "class")
    w = some_weights(draw, n)
    parameters = some_parameters(draw, set(cls().get_params()))
    if parameters.get("tau") is not None and not rarely(draw):
        parameters.pop("alpha", None)
    model = cls(**{"n_components": 2, "max_iter": 20, "random_state": 0, **parameters})
    other = some_X(draw, None, None if rarely(draw) else d)
    same = unchanged(X, y, other)
    try:
        model.fit(X, y, sample_weight=w)
    except BaseException:
        assert not hasattr(model, "model_")
        raise
    assert same()
    assert_finite(H=model.components_, V=model.output_weights_, F=model.objective_)
    assert model.n_components_ <= model.n_components
    assert model.n_features_in_ == d
    assert np.asarray(model.predict(X)).shape[0] == n
    prediction = np.asarray(model.predict(other))
    assert same()
    if prediction.dtype.kind == "f":
        assert_finite(prediction=prediction)
    else:
        assert np.isin(prediction, model.classes_ if prediction.ndim == 1 else (0, 1)).all()
    if hasattr(model, "predict_proba"):
        P = model.predict_proba(other)
        assert ((P >= 0) & (P <= 1)).all()
        if model.model_.task != "multilabel":
            np.testing.assert_allclose(P.sum(axis=1), 1)
    np.testing.assert_array_equal(list(model.staged_predict(other))[-1], prediction)
    model.top_interactions(0, 3)


def core(draw):
    """Design and conditional_gradient."""
    X = some_X(draw)
    design = Design(
        X, draw(st.sampled_from(("squared", "anova"))), n_threads=draw(st.sampled_from((1, 2))),
        fit_lower=draw(PARAMETERS["fit_lower"]),
    )  # fmt: skip
    loss = draw(st.sampled_from(sorted(LOSSES)))
    target = LOSSES[loss].target
    y = some_y(draw, design.n_samples, "class" if target == "label" else "real")
    if target == "sign":
        y = np.where(np.asarray(y, dtype=float).reshape(len(y), -1) > 0, 1.0, -1.0)
    elif target == "real" and y.ndim == 1:
        y = y[:, None]
    known = {
        "alpha", "tau", "penalty", "block", "refit", "alpha_linear", "solver", "max_iter", "tol",
        "selection", "random_state",
    }  # fmt: skip
    options = some_parameters(draw, known)
    if "tau" in options and options["tau"] is not None:
        options.pop("alpha", None)
    options = {"n_components": 2, "max_iter": 20, "random_state": 0, **options}
    w = some_weights(draw, design.n_samples)
    memory = draw(st.sampled_from((1e9, 0.0)))
    states = conditional_gradient(design, y, loss=loss, sample_weight=w, memory=memory, **options)
    last, largest = None, 0.0
    for state in states:
        assert_sound(state)
        # The model's own vectors are among those that the bound is for, up to rounding.
        largest = max(largest, state.violation_bound)
        assert state.own_dual_norm <= state.violation_bound * (1 + 1e-6) + 1e-9 * largest
        if last is not None:
            assert state.objective <= last.objective
        last = state
    assert_finite(outputs=design.outputs(last.H, last.V))
    if draw(st.booleans()):
        assert alpha_max(design, y, loss=loss, sample_weight=w) >= 0
    else:
        for on_path in regularization_path(design, y, loss=loss, alphas=[2.0, 1.0], n_components=2):
            assert_sound(on_path[-1] if isinstance(on_path, (list, tuple)) else on_path)


def operators(draw):
    """The verbs of a Design and its Gamma against NumPy."""
    X = matrix(draw, bad=False) if not rarely(draw, 3) else some_X(draw)
    given_X = sparse(draw, X) if rarely(draw, 2) and isinstance(X, np.ndarray) else X
    forged = sp.issparse(given_X) and given_X.format == "csr"
    activation = draw(st.sampled_from(("squared", "anova")))
    design = Design(given_X, activation, n_threads=draw(st.sampled_from((1, 2, 3))))
    n, d = design.n_samples, design.n_features
    H = matrix(draw, None, d if not rarely(draw) else None)
    A = design.activations(H)
    assert A.shape == (n, len(H))
    if not forged and isinstance(X, np.ndarray) and np.abs(X.astype(float)).max(initial=0) < 1e6:
        X, H = np.asarray(X, dtype=np.float64), np.asarray(H, dtype=np.float64)
        if not sp.issparse(given_X) and np.abs(H).max(initial=0) < 1e6:
            Z = X @ H.T
            want = Z**2 if activation == "squared" else (Z**2 - X**2 @ (H**2).T) / 2
            size = (np.abs(X) @ np.abs(H).T) ** 2
            assert (np.abs(A - want) <= 1e-5 * size + 1e-300).all()
    D = matrix(draw, n if not rarely(draw) else None, draw(st.integers(1, 3)))
    gamma = design.gamma(D)
    design.features(H).pullback(D)
    penalty = draw(PARAMETERS["penalty"])
    result = select_basis(gamma, penalty, draw(PARAMETERS["selection"]), random_state=0)
    assert np.isfinite(result.h).all()
    assert 0 <= result.value < np.inf
    h = np.linspace(1, 2, d) / np.linalg.norm(np.linspace(1, 2, d))  # any vector
    assert get_penalty(penalty).dual_norm(gamma.forms(h)[None]) <= result.bound * (1 + 1e-6)


def kernels(draw):
    """Losses and penalties on arrays of any kind."""
    n, m = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    O = matrix(draw, n if not rarely(draw) else None, m)
    if rarely(draw, 2):
        loss = get_loss(draw(st.sampled_from(sorted(LOSSES))))
        Y = loss.encode(some_y(draw, n, "class" if loss.target == "label" else "real"), m)
        value, D = loss.value_grad(Y, O, some_weights(draw, n))
        assert np.shape(D) == np.shape(O)
        # A loss does not check the outputs of a model for NaN; the caller does.
        assert not np.isnan(value) or not np.isfinite(np.asarray(O, dtype=float)).all()
        return
    penalty = get_penalty(draw(st.sampled_from(sorted(PENALTIES))))
    t = draw(st.one_of(st.sampled_from((0.0, 0.1, 1.0, 1e300, -1.0, np.nan)), junk))
    if draw(st.booleans()):
        V = penalty.prox(O, t)
        assert penalty.value(V) <= penalty.value(O) * (1 + 1e-9)
    else:
        V = penalty.project(O, t)
        assert penalty.value(V) <= t * (1 + 1e-9) + 1e-300
    assert_finite(V=V)


def refit(draw):
    """refit_output on any matrix."""
    A = matrix(draw)
    loss = draw(st.sampled_from(("logistic", "squared", "squared_hinge", "smoothed_hinge")))
    y = some_y(draw, np.shape(A)[0], "real" if loss == "squared" else "class")
    options = some_parameters(draw, {"penalty", "solver", "tol", "max_iter"})
    result = refit_output(A, y, loss=loss, **{"alpha": 1.0, "max_iter": 20, **options})
    assert_finite(V=result.V, F=result.objective)
    assert result.gap >= 0


def model(draw):
    """A PolyModel of any arrays: its decisions, interactions, and its file."""
    H = matrix(draw)
    V = matrix(draw, len(H) if not rarely(draw) else None)
    m = V.shape[1]
    augment = draw(st.sampled_from((True, False)))
    d = H.shape[1] - augment
    names = draw(st.sampled_from((None, [f"{i}" for i in range(d)])))
    if rarely(draw):
        names = draw(st.sampled_from(("abc", [1] * d, ["x"])))
    activation = draw(st.sampled_from(("squared", "anova"))) if not rarely(draw) else "cubic"
    b = np.zeros(m if not rarely(draw) else 2)
    made = PolyModel(H, V, b, activation=activation, augment=augment, feature_names=names)
    with tempfile.TemporaryDirectory() as folder:
        made.save(Path(folder) / "m")
        assert PolyModel.load(Path(folder) / "m") == made
    X = some_X(draw, None, d if not rarely(draw) else None)
    outputs = made.decision(X, n_threads=1)
    assert outputs.shape == (np.shape(X)[0] if not isinstance(X, list) else len(X), m)
    c = 0 if not rarely(draw, 4) else draw(st.sampled_from((m - 1, m, -1, "0", 10**30)))
    if (
        np.abs(H.astype(float)).max(initial=0) < 1e70
        and np.abs(V.astype(float)).max(initial=0) < 1e70
    ):
        C = made.interaction_matrix(c)
        assert (C == C.T).all()
        made.top_interactions(c, draw(st.sampled_from((1, 3, 10**6, 0))))


def metrics(draw):
    """rmse and ndcg."""
    n = draw(st.integers(0, 6))
    y = some_y(draw, n, "real" if rarely(draw, 2) else "class")
    p = some_y(draw, n, "real")
    if draw(st.booleans()):
        assert rmse(y, p) >= 0
    else:
        groups = some_y(draw, n, "class")
        k = draw(st.sampled_from((None, 1, 3, 0, 2.5)))
        assert 0 <= ndcg(y, p, groups, k, gain=draw(st.sampled_from(("exp", "linear")))) <= 1 + 1e-9


def search(draw):
    """PathSearchCV."""
    cls = draw(st.sampled_from(ESTIMATORS))
    X = matrix(draw, draw(st.integers(4, 8)))
    y = some_y(draw, len(X), "real" if cls.__name__.endswith("kRegressor") else "class")
    inner = cls(n_components=2, max_iter=10, random_state=0)
    found = fastpoly.PathSearchCV(
        inner, n_alphas=draw(st.sampled_from((1, 2, 0, 2.5))), cv=draw(
            st.sampled_from((2, 0.5, None, 0.0, 1.5, "x"))),
    ).fit(X, y)  # fmt: skip
    assert found.best_params_["n_components"] in (1, 2)
