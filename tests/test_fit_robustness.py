"""Bad input, degenerate data, interruption: a clear error or a sane model, never an endless run."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
import scipy.sparse as sp
from reference_fits import made_up, run

from fastpoly import Design, alpha_max, conditional_gradient
from fastpoly.kernels.features import ACTIVATIONS
from fastpoly.kernels.losses import LOSSES
from fastpoly.kernels.penalties import PENALTIES

# ---- bad input: raised by the call itself, before the first state is asked for -------------------

BAD = {
    "alpha below 0": ({"alpha": -1.0}, "alpha must be finite and >= 0"),
    "alpha NaN": ({"alpha": np.nan}, "alpha"),
    "tau 0": ({"tau": 0.0}, "tau must be finite and > 0"),
    "tau below 0": ({"tau": -1.0}, "tau"),
    "both": ({"alpha": 1.0, "tau": 1.0}, "not both"),
    "no components": ({"n_components": 0}, "n_components must be at least 1"),
    "tol": ({"tol": 0.0}, "tol"),
    "max_iter": ({"max_iter": 0}, "max_iter"),
    "alpha_linear": ({"alpha_linear": -1.0}, "alpha_linear"),
    "loss": ({"loss": "logit"}, "multiclass_logistic"),
    "penalty": ({"penalty": "l2"}, "l1/linf"),
    "refit": ({"refit": "both"}, "'output', 'full', None"),
    "solver": ({"solver": "sgd"}, "'auto', 'fista', 'newton'"),
    "selection": ({"selection": "best"}, "'refine', 'l1', 'random.refine'"),
    "weights below 0": ({"sample_weight": np.full(80, -1.0)}, "sample_weight must be non-negative"),
    "weights 0": ({"sample_weight": np.zeros(80)}, "sample_weight must not be all zero"),
    "weights NaN": ({"sample_weight": np.full(80, np.nan)}, "sample_weight"),
    "too few weights": ({"sample_weight": np.ones(79)}, "sample_weight"),
    "label out of range": ({"n_outputs": 2}, "2"),
    "memory": ({"memory": -1.0}, "memory"),
    "random_state": ({"random_state": -1}, "random_state"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments(name):
    X, y = made_up(40)
    options, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        conditional_gradient(Design(X), y, **options)


@pytest.mark.parametrize("name", ["n_components", "max_iter"])
def test_counts_are_integers(name):
    X, y = made_up(40)
    with pytest.raises(TypeError, match=name):
        conditional_gradient(Design(X), y, **{name: 2.5})


@pytest.mark.parametrize(
    "y",
    [np.zeros(79, int), np.full(80, -2), np.full(80, 0.5), np.full(80, np.nan), np.zeros((80, 2))],
    ids=["short", "negative", "fraction", "NaN", "not signs"],
)
def test_bad_targets(y):
    X, _ = made_up(40)
    for function in (conditional_gradient, alpha_max):
        with pytest.raises(ValueError):
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
    "one nonzero a row": (np.eye(4)[rng.integers(0, 4, 30)], LABELS),
}


def assert_sane(design, state):
    for name in ("H", "V", "intercept", "objective", "loss", "penalty"):
        assert np.isfinite(getattr(state, name)).all(), name
    assert state.stop in ("optimal", "n_components", "no progress", "max_iter")
    assert state.violation <= state.violation_bound
    assert np.isfinite(design.outputs(state.H, state.V)).all()


@pytest.mark.parametrize("lower", [None, "augment", "explicit"])
@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_data(name, lower):
    X, y = DEGENERATE[name]
    for activation in ACTIVATIONS:
        for sparse in (False, True):
            design = Design(sp.csr_array(X) if sparse else X, activation, fit_lower=lower)
            for options in ({"alpha": 1.0}, {"tau": 2.0}, {"refit": "full"}, {"refit": None}):
                states = run(design, y, n_components=4, max_iter=100, **options)
                assert_sane(design, states[-1])
                assert (np.diff([state.objective for state in states]) <= 0).all()


@pytest.mark.parametrize("name", ["separable", "duplicate rows", "one class", "all zero", "huge"])
@pytest.mark.parametrize("alpha", [0.0, 1e-12])
def test_degenerate_data_without_regularisation(name, alpha):
    X, y = DEGENERATE[name]
    design = Design(X, fit_lower="augment")
    for refit in ("output", "full", None):
        state = run(design, y, alpha=alpha, n_components=5, refit=refit, max_iter=100)[-1]
        assert_sane(design, state)
    assert alpha_max(design, y) >= 0


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("penalty", PENALTIES)
def test_scaling_the_features_scales_the_vectors_away(loss, penalty):
    """V scales by 1 / s^2, so alpha by s^2: the same problem at any scale."""
    labelled = LOSSES[loss].target == "label"
    kind = "squared" if loss == "squared" else "binary_logistic"
    X, y = made_up(41, n=40, d=3, loss="" if labelled else kind)
    options = {"loss": loss, "penalty": penalty, "n_components": 100, "tol": 1e-4, "n_outputs": 3}
    objectives = [
        run(Design(X * s), y, alpha=1.0 * s**2, **options)[-1].objective for s in (1e-8, 1.0, 1e8)
    ]
    np.testing.assert_allclose(objectives, objectives[1], rtol=1e-3)


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
    X = rng.standard_normal((20_000, 60))
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
@pytest.mark.parametrize("more", ["", 'refit="full",'])
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
