"""Bad input, degenerate data, interruption: a clear error or a usable model in finite time."""

import dataclasses
import os
import signal
import subprocess
import sys
import textwrap
import time
import warnings
from itertools import islice

import numpy as np
import pytest
import scipy.sparse as sp
from reference_fits import made_up, run
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV

from fastpoly import (
    Design,
    PolynomialNetworkClassifier,
    PolynomialNetworkRegressor,
    alpha_max,
    conditional_gradient,
)
from fastpoly.kernels.features import ACTIVATIONS
from fastpoly.kernels.losses import LOSSES
from fastpoly.kernels.penalties import PENALTIES
from fastpoly.state import RunMemory

# ---- bad input: raised by the call itself, before the first state is asked for -------------------

BAD = {
    "alpha below 0": ({"alpha": -1.0}, "alpha must be finite and >= 0"),
    "alpha NaN": ({"alpha": np.nan}, "alpha must be finite and >= 0"),
    "tau 0": ({"tau": 0.0}, "tau must be finite and > 0"),
    "tau below 0": ({"tau": -1.0}, "tau must be finite and > 0"),
    "both": ({"alpha": 1.0, "tau": 1.0}, "not both"),
    "no components": ({"n_components": 0}, "n_components must be at least 1"),
    "tol": ({"tol": 0.0}, "tol must be finite and > 0"),
    "max_iter": ({"max_iter": 0}, "max_iter must be at least 1"),
    "block": ({"block": 0}, "block must be at least 1"),
    "alpha_linear": ({"alpha_linear": -1.0}, "alpha_linear must be finite and >= 0"),
    "loss": ({"loss": "logit"}, "multiclass_logistic"),
    "penalty": ({"penalty": "l2"}, "l1/linf"),
    "refit": ({"refit": "both"}, "'auto', 'full', 'output', None"),
    "joint descent with tau": ({"refit": "full", "tau": 1.0}, "constrained form .tau. does not"),
    "solver": ({"solver": "sgd"}, "'auto', 'fista', 'newton'"),
    "selection": ({"selection": "best"}, "'refine', 'l1', 'random.refine'"),
    "weights below 0": ({"sample_weight": np.full(80, -1.0)}, "sample_weight must be non-negative"),
    "weights 0": ({"sample_weight": np.zeros(80)}, "sample_weight must not be all zero"),
    "weights NaN": ({"sample_weight": np.full(80, np.nan)}, "sample_weight contains NaN"),
    "too few weights": ({"sample_weight": np.ones(79)}, "sample_weight must have shape"),
    "label out of range": ({"n_outputs": 2}, "y holds 2, which is not a class code 0 .. 1;"),
    "memory": ({"memory": -1.0}, "memory must be finite and >= 0"),
    "random_state": ({"random_state": -1}, "random_state must be >= 0"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments(name):
    X, y = made_up(40)
    options, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        conditional_gradient(Design(X), y, **options)


@pytest.mark.parametrize("name", ["n_components", "max_iter", "block"])
def test_counts_are_integers(name):
    X, y = made_up(40)
    with pytest.raises(TypeError, match=name):
        conditional_gradient(Design(X), y, **{name: 2.5})


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.zeros(79, int), "y has 79 samples, X has 80"),
        (np.full(80, -2), "y holds -2, which is not a class code"),
        (np.full(80, 0.5), "y holds 0.5, which is not a class code"),
        (np.full(80, np.nan), "y contains NaN"),
        (np.zeros((80, 2)), "y holds 0, which is not -1 or .1"),
    ],
    ids=["short", "negative", "fraction", "NaN", "not signs"],
)
def test_bad_targets(y, message):
    X, _ = made_up(40)
    for function in (conditional_gradient, alpha_max):
        with pytest.raises(ValueError, match=message):
            function(Design(X), y)


def test_no_samples():
    with pytest.raises(ValueError, match="no samples"):
        conditional_gradient(Design(np.zeros((0, 3))), np.zeros(0, int), n_outputs=2)


def test_a_start_of_another_shape():
    X, y = made_up(40)
    start = run(Design(X), y, n_components=2)[-1]
    with pytest.raises(ValueError, match="start has 5 features and 3 outputs, the data 6 and 3"):
        conditional_gradient(Design(X, fit_lower="augment"), y, start=start)
    with pytest.raises(ValueError, match="3 outputs"):
        conditional_gradient(Design(X), y % 2, start=start)
    with pytest.raises(ValueError, match="fit_lower"):
        conditional_gradient(Design(X, fit_lower="explicit"), y, start=start)
    with pytest.raises(TypeError, match="State"):
        conditional_gradient(Design(X), y, start=start.V)


BROKEN = {
    "NaN in V": ({"V": np.full((2, 3), np.nan)}, "start.V contains NaN"),
    "infinite H": ({"H": np.full((2, 5), np.inf)}, "start.H contains NaN or infinity"),
    "rows of V": ({"V": np.zeros((3, 3))}, "start.V must have shape"),
    "long vectors": ({"H": np.ones((2, 5))}, "norm at most 1"),
    "intercept": ({"intercept": np.zeros(2)}, "start.intercept must have shape"),
    "vectors": (
        {"memory": RunMemory(vectors=np.zeros((2, 5)))},
        "start.memory.vectors must have shape",
    ),
    "objective": ({"objective": np.nan}, "start.objective must be finite"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_start_that_is_broken(name):
    X, y = made_up(40)
    start = run(Design(X), y, n_components=2)[-1]
    assert start.H.shape == (2, 5)
    changes, message = BROKEN[name]
    with pytest.raises(ValueError, match=message):
        conditional_gradient(Design(X), y, start=dataclasses.replace(start, **changes))


# ---- degenerate data -----------------------------------------------------------------------------

rng = np.random.default_rng(0)
NORMAL = rng.standard_normal((30, 4))
LABELS = rng.integers(0, 3, 30)
DEGENERATE = {
    "separable": (np.repeat(np.eye(3), 10, axis=0) * 5, np.repeat([0, 1, 2], 10)),
    "constant features": (np.ones((30, 4)), LABELS),
    "one constant feature": (np.column_stack([NORMAL, np.full(30, 7.0)]), LABELS),
    "duplicate rows": (np.repeat(NORMAL[:3], 10, axis=0), LABELS),
    "one sample": (NORMAL[:1], LABELS[:1] * 0),
    "one class": (NORMAL, LABELS * 0),
    "one feature": (NORMAL[:, :1], LABELS),
    "all zero": (np.zeros((30, 4)), LABELS),
    "tiny": (NORMAL * 1e-8, LABELS),
    "huge": (NORMAL * 1e8, LABELS),
    "mixed scales": (NORMAL * [1e-8, 1.0, 1e4, 1e8], LABELS),
    "one nonzero per row": (np.eye(4)[rng.integers(0, 4, 30)], LABELS),
}


def assert_sane(design, state):
    for name in ("H", "V", "intercept", "objective", "loss", "penalty"):
        assert np.isfinite(getattr(state, name)).all(), name
    assert state.stop in ("optimal", "n_components", "no progress", "max_iter")
    # The model's own vectors are among those that the bound is for. (A perfect fit: both are
    # rounding errors.)
    assert state.own_dual_norm <= state.violation_bound * (1 + 1e-6) + 1e-14 * design.n_samples
    assert 0 <= state.violation < np.inf
    assert np.isfinite(design.outputs(state.H, state.V)).all()


@pytest.mark.parametrize("lower", [None, "augment", "explicit"])
@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_data(name, lower):
    X, y = DEGENERATE[name]
    for activation in ACTIVATIONS:
        for sparse in (False, True):
            design = Design(sp.csr_array(X) if sparse else X, activation, fit_lower=lower)
            for options in ({"alpha": 1.0}, {"tau": 2.0}, {"refit": "output"}, {"refit": None}):
                states = run(design, y, n_components=4, max_iter=100, **options)
                assert_sane(design, states[-1])
                assert (np.diff([state.objective for state in states]) <= 0).all()


@pytest.mark.parametrize("name", ["separable", "duplicate rows", "one class", "all zero", "huge"])
@pytest.mark.parametrize("alpha", [0.0, 1e-12])
def test_degenerate_data_without_regularization(name, alpha):
    X, y = DEGENERATE[name]
    design = Design(X, fit_lower="augment")
    for refit in ("output", "full", None):
        state = run(design, y, alpha=alpha, n_components=8, refit=refit)[-1]
        assert_sane(design, state)
    assert alpha_max(design, y) >= 0


@pytest.mark.parametrize("refit", ["output", "full"])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("penalty", PENALTIES)
def test_scaling_the_features_scales_the_vectors_away(loss, penalty, refit):
    """V scales by 1 / s^2, so alpha by s^2: the same problem at any scale.

    A power of two scales without rounding: the runs must not drift apart either.
    """
    labeled = LOSSES[loss].target == "label"
    kind = loss if LOSSES[loss].target == "real" else "binary_logistic"
    X, y = made_up(41, n=40, d=3, loss="" if labeled else kind)
    options = {"loss": loss, "penalty": penalty, "n_components": 5, "n_outputs": 3}
    options |= {"refit": refit, "block": 2 if refit == "full" else 1}
    objectives = [
        [state.objective for state in run(Design(X * s), y, alpha=s**2, **options)]
        for s in (1.0, 2.0**-26, 2.0**26, 2.0**150, 2.0**-150)
    ]
    for other in objectives[1:]:
        np.testing.assert_allclose(other, objectives[0], rtol=1e-9)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("scale", [1e-150, 1e-61, 1e61, 1e150])
def test_features_beyond_the_range_of_numbers(scale, sparse):
    X = NORMAL * scale
    design = Design(sp.csr_array(X) if sparse else X)
    for function in (conditional_gradient, alpha_max):
        with pytest.raises(ValueError, match="rescale the columns of X"):
            function(design, LABELS)


@pytest.mark.parametrize("lower", [None, "augment", "explicit"])
def test_a_column_too_small_to_matter(lower):
    X = np.column_stack([NORMAL, NORMAL[:, 0] * 1e-150])
    for activation in ACTIVATIONS:
        for options in ({"alpha": 1.0}, {"tau": 2.0}, {"refit": "output"}):
            design = Design(X, activation, fit_lower=lower)
            state = run(design, LABELS, n_components=3, max_iter=100, **options)[-1]
            assert_sane(design, state)


@pytest.mark.parametrize("refit", ["output", "full"])
@pytest.mark.parametrize("scale", [1e-150, 1e-40, 1e40, 1e150])
def test_targets_of_any_size(scale, refit):
    y = NORMAL[:, :1] * NORMAL[:, 1:2] * scale
    design = Design(NORMAL)
    if scale in (1e-150, 1e150):
        with pytest.raises(ValueError, match="rescale y"):
            conditional_gradient(design, y, loss="squared")
        return
    options = {"loss": "squared", "n_components": 3, "refit": refit}
    one = run(design, y / scale, alpha=0.1, **options)[-1]
    state = run(design, y, alpha=0.1 * scale, **options)[-1]
    assert_sane(design, state)
    assert state.objective == pytest.approx(one.objective * scale**2, rel=1e-6)


@pytest.mark.parametrize("lower", [None, "explicit"])
def test_weights_of_very_different_size(lower):
    w = np.logspace(-12, 12, 30)
    for options in ({"alpha": 1.0}, {"tau": 2.0}, {"refit": "output"}, {"refit": None}):
        design = Design(NORMAL, fit_lower=lower)
        state = run(design, LABELS, sample_weight=w, n_components=3, max_iter=100, **options)[-1]
        assert_sane(design, state)


def test_a_loss_that_is_all_but_linear():
    """For rows with large margins Newton's model has no curvature, but the penalty has."""
    rng = np.random.default_rng(0)
    X, y = 20 * rng.normal(size=(50, 2)), np.arange(50) % 3
    w = np.array([1000, 1e-4, 1e-4])[y]
    state = run(Design(X, fit_lower="augment"), y, alpha=1.0, sample_weight=w, n_components=50)[-1]
    assert (state.stop, state.n_iter < 30) == ("optimal", True)


def test_scaling_all_weights_scales_the_objective():
    design = Design(NORMAL)
    one = run(design, LABELS, alpha=1.0, n_components=3)[-1]
    for scale in (2.0**-40, 2.0**40):
        w = np.full(30, scale)
        state = run(design, LABELS, alpha=scale, sample_weight=w, n_components=3)[-1]
        assert state.objective == pytest.approx(one.objective * scale, rel=1e-9)


def test_duplicated_columns_and_classes_of_one_sample():
    X = np.column_stack([NORMAL, NORMAL, np.ones(30)])
    y = np.arange(30)
    for activation in ACTIVATIONS:
        for options in ({"alpha": 0.1}, {"tau": 2.0}, {"refit": "output"}):
            design = Design(X, activation)
            state = run(design, y, n_components=3, max_iter=100, **options)[-1]
            assert_sane(design, state)


def test_many_features_take_no_square_of_them():
    X = sp.random_array((50, 100_000), density=1e-4, rng=np.random.default_rng(0), format="csr")
    y = np.arange(50) % 3
    design = Design(X, "anova", fit_lower="augment")
    assert_sane(design, run(design, y, n_components=2, alpha=0.1, max_iter=20)[-1])


def test_thousands_of_classes_take_no_square_of_them():
    y = np.arange(30) * 150
    design = Design(NORMAL[:, :3])
    assert_sane(design, run(design, y, n_components=1, alpha=0.1, max_iter=5, n_outputs=4351)[-1])


def test_a_tiny_gain_per_iteration_is_no_progress():
    """One vector is replaced by a slightly better one, endlessly; tol alone would not stop it."""
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(8, 2)), np.where(rng.normal(size=(8, 1)) > 0, 1.0, -1.0)
    options = {"solver": "fista", "max_iter": 1000, "tol": 1e-12, "n_components": 2}
    options |= {"refit": "output"}
    states = conditional_gradient(
        Design(X), y, loss="smoothed_binary_hinge", alpha=1.0, random_state=0, **options
    )
    *_, last = islice(states, 2000)
    assert last.stop == "no progress"
    assert last.violation < 1 + 1e-4


def test_no_progress_is_an_end():
    """Where rounding is all that is left, the run ends instead of adding vectors for nothing."""
    X = np.ones((10, 2))
    y = np.arange(10.0)[:, None]
    states = run(Design(X), y, loss="squared", alpha=1e-9, tol=1e-14, n_components=1000)
    assert states[-1].stop in ("no progress", "optimal")
    assert len(states) < 50
    assert states[-1].objective == pytest.approx(0.5 * ((y - y.mean()) ** 2).sum())
    # Trying again from there ends at once.
    again = run(Design(X), y, loss="squared", alpha=1e-9, tol=1e-14, start=states[-1])
    assert len(again) <= 2
    assert again[-1].stop == states[-1].stop


# ---- interruption --------------------------------------------------------------------------------

LONG_FIT = """
    import time
    import numpy as np
    from fastpoly import Design, conditional_gradient

    rng = np.random.default_rng(0)
    X = rng.standard_normal((8_000, 60))
    y = ((X @ rng.standard_normal((60, 20))) ** 2).argmax(axis=1)
    design = Design(X, fit_lower="augment", n_threads=1)
    options = dict(alpha=0.01, n_components=500, n_outputs=20, random_state=0)
    state = None
    try:
        for state in conditional_gradient(design, y, {more} **options):
            print(state.n_iter, flush=True)
    except KeyboardInterrupt:
        print("stopped", time.time(), flush=True)
    assert np.isfinite(design.outputs(state.H, state.V)).all()
    following = next(conditional_gradient(design, y, start=state, {more} **options))
    assert following.n_iter == state.n_iter + 1 and following.objective < state.objective
    print("resumed", flush=True)
"""


@pytest.mark.skipif(os.name == "nt", reason="no SIGINT to send to a process")
@pytest.mark.parametrize("more", ['refit="output",', 'refit="full", block=20,'])
def test_interruption_leaves_the_last_state(more):
    code = textwrap.dedent(LONG_FIT).replace("{more}", more)
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", code], stdout=subprocess.PIPE, text=True
    )
    try:
        while process.stdout.readline() != "2\n":
            assert process.poll() is None
        time.sleep(0.3)
        sent = time.time()
        process.send_signal(signal.SIGINT)
        rest = process.communicate(timeout=60)[0].splitlines()
    finally:
        process.kill()
    stopped = next(line for line in rest if line.startswith("stopped"))
    assert float(stopped.split()[1]) - sent < 1.0
    assert rest[-1] == "resumed"
    assert process.returncode == 0


def test_a_tolerance_that_is_out_of_reach_ends_with_a_warning():
    """Refits take at most 100 max_iter iterations in all at a fine tol; the estimator says so."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40, 6)), rng.standard_normal((40, 3))
    model = PolynomialNetworkRegressor(
        alpha=0.1, penalty="l1/linf", tol=1e-9, max_iter=10, n_components=500, random_state=0
    )
    with pytest.warns(ConvergenceWarning, match="raise max_iter, which is 10"):
        model.fit(X, y)
    assert model._state.stop == "max_iter"
    assert 1000 <= model._state.memory.spent < 1100
    whole = clone(model).set_params(max_iter=100).fit(X, y)
    assert whole._state.memory.spent > 1100
    assert whole.objective_ < model.objective_


@pytest.mark.parametrize("n_jobs", [None, 2])
def test_no_advice_to_raise_what_is_searched(n_jobs):
    """A search over n_components is not told to raise it."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 6))
    y = (X[:, 0] * X[:, 1] + X[:, 2] * X[:, 3] > 0).astype(int)
    model = PolynomialNetworkClassifier(alpha=1e-3, block=1, refit="output", random_state=0)
    with pytest.warns(UserWarning, match="stopped at n_components"):
        clone(model).set_params(n_components=1).fit(X, y)
    search = GridSearchCV(model, {"n_components": [1, 2]}, cv=2, n_jobs=n_jobs)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "training stopped at n_components")
        search.fit(X, y)


def test_all_weight_on_a_row_that_is_held_out():
    """A fold trains on nothing."""
    X, w = np.zeros((2, 2)), [1e12, 0.0]
    model = PolynomialNetworkClassifier(random_state=0).fit(X, [0, 1], sample_weight=w)
    assert np.isfinite(model.alpha_)
    assert np.isfinite(model.predict(X)).all()
