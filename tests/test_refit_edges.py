"""The output-layer refit on degenerate data, and on input it must refuse."""

import doctest

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fastpoly import Design
from fastpoly.kernels.losses import LOSSES
from fastpoly.kernels.penalties import PENALTIES
from fastpoly.objective import Objective
from fastpoly.problem import Problem, resolve_loss
from fastpoly.refit import output as module
from fastpoly.refit.convex import fista, newton
from fastpoly.refit.output import OutputRefit, choose_solver, refit_output
from fastpoly.rows import as_rows

EVERY_LOSS = pytest.mark.parametrize("loss", sorted(LOSSES))
EVERY_SOLVER = pytest.mark.parametrize("solver", ["fista", "newton"])
# Newton's method is for the penalized form.
EVERY_SOLVER_AND_FORM = pytest.mark.parametrize(
    ("solver", "form"),
    [("fista", {"tau": 2.0})]
    + [(solver, {"alpha": alpha}) for solver in ("fista", "newton") for alpha in (1e-9, 0.5)],
    ids=str,
)


def targets(loss, rng, n, m):
    kind = LOSSES[loss].target
    if kind == "label":
        return rng.integers(0, m, n)
    if loss == "poisson":
        return rng.poisson(2.0, (n, m))
    return rng.choice([-1.0, 1.0], (n, m)) if kind == "sign" else rng.normal(size=(n, m))


def degenerate(rng):
    """name: activations on which something is singular."""
    A = rng.normal(size=(30, 4))
    return {
        "duplicate columns": np.hstack([A, A]),
        "zero columns": A * [1, 0, 1, 0],
        "all zero": 0 * A,
        "constant columns": np.ones((30, 4)),
        "nearly dependent": np.hstack([A, A + 1e-9 * rng.normal(size=A.shape)]),
        "ill-conditioned": np.vander(np.linspace(0.5, 1.5, 30), 8),
        "duplicate rows": np.repeat(A[:3], 10, axis=0),
        "more columns than rows": rng.normal(size=(3, 12)),
        "one row": A[:1],
        "one entry": A[:1, :1],
        "no columns": A[:, :0],
        "huge": 1e100 * A,
        "tiny": 1e-100 * A,
    }


@EVERY_LOSS
@EVERY_SOLVER_AND_FORM
def test_degenerate_activations(loss, solver, form):
    rng = np.random.default_rng(0)
    for name, A in degenerate(rng).items():
        n, m = len(A), 3
        y = targets(loss, rng, n, m)
        max_iter = 30 if solver == "fista" else 3
        fit = refit_output(
            A, y, loss=loss, solver=solver, n_outputs=m, max_iter=max_iter, tol=1e-3, **form
        )
        assert np.isfinite(fit.V).all(), name
        assert np.isfinite([fit.objective, fit.gap]).all(), name
        assert fit.V.shape == (A.shape[1], m)
        nothing = refit_output(A[:, :0], y, loss=loss, n_outputs=m, tol=1e-3)
        assert fit.objective <= nothing.objective * (1 + 1e-12), name
        zero = ~A.any(axis=0)
        if "alpha" in form:
            assert_array_equal(fit.V[zero], 0.0)


@EVERY_SOLVER
def test_duplicate_columns_do_no_harm(solver):
    rng = np.random.default_rng(0)
    A, y = rng.normal(size=(50, 4)), rng.integers(0, 3, 50)
    one = refit_output(A, y, alpha=0.5, solver=solver, tol=1e-8)
    two = refit_output(np.hstack([A, A]), y, alpha=0.5, solver=solver, tol=1e-8)
    assert_allclose(two.objective, one.objective, rtol=1e-6)
    assert_allclose(two.V[:4] + two.V[4:], one.V, atol=1e-3)


@EVERY_SOLVER
@pytest.mark.parametrize("loss", ["multiclass_logistic", "binary_logistic"])
@pytest.mark.parametrize("alpha", [0.0, 1e-12])
def test_separable_data(loss, solver, alpha):
    """Without a penalty there is no minimum: the loss falls towards 0 and the search ends."""
    A = np.repeat(np.eye(2), 20, axis=0)
    y = np.repeat([0, 1], 20) if loss.startswith("multi") else np.where(A, 1, -1)
    fit = refit_output(A, y, loss=loss, alpha=alpha, solver=solver, max_iter=200)
    assert np.isfinite(fit.V).all()
    assert 0 <= fit.objective < 1
    assert np.isfinite(fit.gap)


@EVERY_SOLVER
@pytest.mark.parametrize("loss", sorted(name for name in LOSSES if LOSSES[name].target == "label"))
def test_one_class(loss, solver):
    """m = 1: the loss is 0 whatever the outputs, and the penalty wants zero."""
    A = np.random.default_rng(0).normal(size=(10, 3))
    fit = refit_output(A, np.zeros(10, int), loss=loss, solver=solver, start=np.zeros((3, 1)))
    assert (fit.objective, fit.gap) == (0, 0)
    assert_array_equal(fit.V, np.zeros((3, 1)))


def test_a_class_without_rows():
    A = np.random.default_rng(0).normal(size=(30, 3))
    y = np.arange(30) % 2
    fit = refit_output(A, y, n_outputs=4, alpha=0.1, tol=1e-6)
    assert fit.V.shape == (3, 4)
    assert fit.converged


def test_m_1_makes_all_penalties_equal():
    rng = np.random.default_rng(0)
    A, y = rng.normal(size=(40, 5)), rng.normal(size=40)
    fits = [refit_output(A, y, loss="squared", penalty=name, tol=1e-10) for name in PENALTIES]
    for fit in fits[1:]:
        assert_allclose(fit.objective, fits[0].objective, rtol=1e-9)
        assert_allclose(fit.V, fits[0].V, atol=1e-6)


def test_short_names_of_losses():
    for short, y, name in [
        ("logistic", [0, 1, 2], "multiclass_logistic"),
        ("logistic", [[0], [1]], "multiclass_logistic"),
        ("logistic", [-1, 1], "binary_logistic"),
        ("logistic", [[-1], [1]], "binary_logistic"),
        ("logistic", [[1, 1], [1, -1]], "binary_logistic"),
        ("smoothed_hinge", [0, 1], "smoothed_multiclass_hinge"),
        ("smoothed_hinge", [-1, 1], "smoothed_binary_hinge"),
        ("squared_hinge", [0, 1], "multiclass_squared_hinge"),
        ("squared_hinge", [-1, 1], "binary_squared_hinge"),
        ("squared", [1.5], "squared"),
    ]:
        assert resolve_loss(short, y).name == name
    with pytest.raises(ValueError, match="^y has masked entries"):
        resolve_loss("logistic", np.ma.masked_less([0, 1], 1))


def test_a_minus_one_among_class_codes_is_named():
    A = np.eye(4)
    for y in ([0, 1, 2, -1], [0, 1, -1, 1], [-1.0, 0.5, 1.0, 1.0]):
        with pytest.raises(ValueError, match=r"y holds -1, which is not a class code 0 \.\. 2"):
            refit_output(A, y, n_outputs=3)
    assert refit_output(A, [-1, 1, 1, -1]).V.shape == (4, 1)


def test_unnumbered_classes_are_refused():
    A = np.eye(4)
    with pytest.raises(
        ValueError, match=r"class code 2000000000.*4 samples.*0 \.\. m - 1.*n_outputs"
    ):
        refit_output(A, [0, 1, 2, 2_000_000_000])
    with pytest.raises(ValueError, match="class code 40,"):
        refit_output(A, [0, 1, 2, 40])
    assert refit_output(A, [0, 1, 2, 39], max_iter=1).V.shape == (4, 40)
    assert refit_output(A, [0, 1, 2, 1000], n_outputs=1001, max_iter=1).V.shape == (4, 1001)


A4, Y4 = np.arange(8.0).reshape(4, 2), np.array([0, 1, 0, 2])
NAN = np.where(np.arange(8).reshape(4, 2) == 3, np.nan, A4)

BAD = [
    ({"alpha": -1}, ValueError, "alpha must be finite and >= 0"),
    ({"alpha": np.inf}, ValueError, "alpha must be finite"),
    ({"alpha": "1"}, TypeError, "alpha must be a real number"),
    ({"alpha": 1, "tau": 1}, ValueError, "alpha .* or tau .*not both"),
    ({"tau": 0}, ValueError, "tau must be finite and > 0"),
    ({"tau": -1}, ValueError, "tau must be finite and > 0"),
    ({"tau": np.nan}, ValueError, "tau must be finite"),
    ({"tol": 0}, ValueError, "tol must be finite and > 0"),
    ({"alpha_linear": -1}, ValueError, "alpha_linear must be"),
    ({"solver": "sgd"}, ValueError, "unknown solver 'sgd'.*'auto', 'fista', 'newton'"),
    ({"solver": None}, ValueError, "unknown solver None"),
    ({"solver": ["fista"]}, ValueError, "unknown solver"),
    ({"loss": "tukey"}, ValueError, "unknown loss 'tukey'.*multiclass_logistic.*squared"),
    ({"loss": LOSSES["squared"]}, TypeError, "must be an instance"),
    ({"loss": 3}, TypeError, "loss must be a name"),
    ({"penalty": "l2"}, ValueError, "unknown penalty 'l2'.*l1/l2"),
    ({"penalty": 3}, TypeError, "penalty must be one of"),
    ({"y": [0, 1, 2, 5], "n_outputs": 3}, ValueError, "holds 5.*0 .. 2"),
    ({"y": [0, 1, 2, -3], "n_outputs": 3}, ValueError, "holds -3"),
    ({"y": [0, 1, 2, 0.5]}, ValueError, "holds 0.5"),
    ({"y": list("abca")}, TypeError, "y must hold numbers"),
    ({"y": [0, 1, np.nan, 0]}, ValueError, "y contains NaN"),
    ({"y": [-1, 1, 1, 0], "loss": "binary_logistic"}, ValueError, "holds 0.*-1 or .1"),
    ({"y": [0, 1, 2]}, ValueError, "y has 3 samples, A has 4"),
    ({"y": Y4, "n_outputs": 0}, ValueError, "n_outputs"),
    ({"sample_weight": [1, 1, 1, -1]}, ValueError, "sample_weight must be non-negative"),
    ({"sample_weight": np.zeros(4)}, ValueError, "sample_weight must not be all zero"),
    ({"sample_weight": np.ones(3)}, ValueError, "sample_weight must have shape"),
    ({"sample_weight": [1, 1, 1, np.nan]}, ValueError, "sample_weight contains NaN"),
    ({"A": NAN}, ValueError, "A contains NaN"),
    ({"A": A4[0]}, ValueError, "A must have 2 dimension"),
    ({"A": A4.astype(complex)}, TypeError, "A must hold real numbers"),
    ({"A": A4[:0], "y": []}, ValueError, "no samples"),
    ({"start": np.zeros((3, 3))}, ValueError, "start must have shape"),
    ({"start": np.zeros((2, 2))}, ValueError, "start must have shape"),
    ({"start": np.full((2, 3), np.nan)}, ValueError, "start contains NaN"),
    ({"max_iter": 0}, ValueError, "max_iter must be at least 1"),
    ({"max_iter": 2.5}, TypeError, "max_iter must be an integer"),
    ({"n_threads": 0}, ValueError, "n_threads"),
    ({"linear": np.ones((3, 1))}, ValueError, "linear has 3 rows.*4"),
    ({"linear": np.full((4, 1), np.nan)}, ValueError, "NaN"),
]


@pytest.mark.parametrize(("changes", "error", "says"), BAD, ids=lambda x: str(x)[:40])
def test_bad_input(changes, error, says):
    arguments = {"A": A4, "y": Y4} | changes
    with pytest.raises(error, match=says):
        refit_output(**arguments)


def test_inputs_are_not_written_to():
    originals = [A4, Y4, np.ones(4), np.ones((2, 3))]
    for solver in ("fista", "newton"):
        A, y, w, start = arrays = [a.copy() for a in originals]
        for max_iter in (1, 100):
            fit = refit_output(
                A, y, sample_weight=w, start=start, solver=solver, max_iter=max_iter, tol=1e-8
            )
            fit.V[0] = 7  # what is returned is the caller's
            for a, original in zip(arrays, originals, strict=True):
                assert_array_equal(a, original)
        # No step at all: the start is the answer, and still not the same array.
        best = refit_output(A, y, alpha=1e9, start=np.zeros((2, 3)), solver=solver)
        zero = np.zeros((2, 3))
        refit_output(A, y, alpha=1e9, start=zero, solver=solver).V[0] = 7
        assert_array_equal(zero, best.V)


def test_auto_falls_back_where_newton_cannot():
    y = np.ones((4, 1))
    for d, lower, memory, want in [
        (2, None, 1e9, newton),
        (5, "explicit", 1e9, newton),
        (100, "explicit", 1e9, fista),
        (5, "explicit", 100.0, fista),
    ]:
        rows = as_rows(Design(np.ones((4, d)), fit_lower=lower), y, loss="squared")
        problem = Problem.of(rows.loss, "l1", 1, alpha=1.0)
        refit = OutputRefit(Objective(problem, rows), 1e-3, 10, "auto", memory)
        assert choose_solver(refit.convex(np.ones((3, d))), "auto") is want


def test_examples_in_docstrings():
    assert doctest.testmod(module).failed == 0
