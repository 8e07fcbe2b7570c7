"""A client package (tests/embedding) that cimports fastpoly is built, and its classes work."""

import copy
import importlib
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from subprocesses import run_python

from fastpoly import Design, conditional_gradient, select_basis
from fastpoly.kernels.eigen import dominant_eigenvectors
from fastpoly.kernels.penalties import L1L2
from fastpoly.refit import refit_output

CLIENT = Path(__file__).parent / "embedding"
PAGE = CLIENT.parent.parent / "docs" / "core.md"
MODULES = ("half", "expectile", "scaled", "diagonal")
pytestmark = pytest.mark.slow  # a build


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    """The modules of the client, built from a copy and installed outside of this environment."""
    if not any(map(shutil.which, [os.environ.get("CC", "cc"), "gcc", "clang"])):
        pytest.skip("needs a C compiler")
    place = tmp_path_factory.mktemp("client")
    shutil.copytree(CLIENT, place / "source")
    target = place / "installed"
    command = [sys.executable, "-P", "-m", "pip", "install", "--no-build-isolation", "--no-deps"]
    command += [
        "--no-index",
        "--disable-pip-version-check",
        "--config-settings=setup-args=-Doptimization=0",
    ]
    command += ["--target", target, place / "source"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # meson, ninja, cython
    env = os.environ | {"PATH": path}
    done = subprocess.run(command, capture_output=True, text=True, cwd=place, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    sys.path.insert(0, str(target))
    try:
        modules = {name: importlib.import_module(f"fastpoly_client.{name}") for name in MODULES}
    finally:
        sys.path.remove(str(target))
    return SimpleNamespace(path=target, **modules)


def test_loss_value_and_gradient(client):
    rng = np.random.default_rng(0)
    loss = client.expectile.Expectile(0.7)
    Y, O, w = rng.normal(size=(40, 3)), 2 * rng.normal(size=(40, 3)), rng.random(40)
    terms = np.where(O < Y, 0.7, 0.3) * (O - Y) ** 2
    value, G = loss.value_grad(Y, O, w)
    assert_allclose(value, w @ terms.sum(axis=1), rtol=1e-12)
    assert loss.smoothness(3) == 1.4
    # The loop of the base class ignores rows of weight 0, whatever they contain.
    O[7], w[7] = np.nan, 0
    value, G = loss.value_grad(Y, O, w)
    assert_allclose(value, w @ np.where(w[:, None] > 0, terms, 0).sum(axis=1), rtol=1e-12)
    assert_array_equal(G[7], 0)
    assert_allclose(loss.curvature(Y, O, w), np.repeat(1.4 * w[:, None], 3, axis=1))
    O[7] = 0
    direction, eps = rng.normal(size=O.shape), 1e-6
    slope = (loss.value(Y, O + eps * direction, w) - loss.value(Y, O - eps * direction, w)) / 2
    assert_allclose((G * direction).sum(), slope / eps, rtol=1e-6)


def test_copies_keep_c_attributes_or_fail(client):
    loss = client.expectile.Expectile(0.7)
    for again in (copy.copy(loss), copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))):
        assert type(again) is client.expectile.Expectile
        assert again.level == 0.7
    for change in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="ScaledL1L2 has C attributes.*define __reduce__"):
            change(client.scaled.ScaledL1L2(2.0))


def test_pickles_are_read_in_another_process(client):
    """Its name in a pickle is that of the package, not of a module on its own."""
    pickled = pickle.dumps((client.expectile.Expectile(0.7), client.half.Half()))
    code = f"import pickle; loss, _ = pickle.loads({pickled!r}); print(loss.level)"
    env = {"PYTHONPATH": str(client.path)}
    assert run_python(code, env) == "0.7"


def test_penalty_prox_and_projection(client):
    rng = np.random.default_rng(1)
    V, t, tau = rng.normal(size=(6, 4)), 0.4, 3.0
    penalty, plain = client.scaled.ScaledL1L2(2.5), L1L2()
    assert_allclose(penalty.value(V), 2.5 * plain.value(V), rtol=1e-12)
    assert_allclose(penalty.dual_norm(V), plain.dual_norm(V) / 2.5, rtol=1e-12)
    assert_allclose(penalty.prox(V, t), plain.prox(V, 2.5 * t), rtol=1e-12, atol=1e-15)
    # The loop of the base class finds the ball's multiplier from `row_shrunk` alone.
    assert_allclose(penalty.project(V, tau), plain.project(V, tau / 2.5), rtol=1e-10, atol=1e-14)
    assert_allclose(penalty.value(penalty.project(V, tau)), tau, rtol=1e-12)


@pytest.mark.parametrize("m", [1, 3, 5])
def test_operators(client, m):
    rng = np.random.default_rng(2)
    diagonals = rng.normal(size=(30, m))
    diagonals.setflags(write=False)
    gamma = client.diagonal.DiagonalGamma(diagonals)
    B, h, w = rng.normal(size=(30, m)), rng.normal(size=30), rng.normal(size=m)
    assert_allclose(gamma.matvecs(B), diagonals * B)
    assert_allclose(gamma.forms(h), (h * h) @ diagonals)
    assert_allclose(gamma.combine(w, h), (diagonals @ w) * h)
    top = dominant_eigenvectors(gamma, tol=1e-6, each=True, random_state=0)
    assert_allclose(np.abs(top.values), np.abs(diagonals).max(axis=0), rtol=1e-5)
    best = select_basis(gamma, "l1", random_state=0)
    assert_allclose(best.value, np.abs(diagonals).max(), rtol=5e-3)


def smooth_optimum(A, Y, level, strength):
    """The refit by a generic solver, for alpha > 0 and rows that do not vanish at the optimum."""
    k, m = A.shape[1], Y.shape[1]

    def objective(v):
        V = v.reshape(k, m)
        R = A @ V - Y
        G = 2 * np.where(R < 0, level, 1 - level) * R
        norms = np.linalg.norm(V, axis=1)
        value = (G * R).sum() / 2 + strength * norms.sum()
        return value, (A.T @ G + strength * V / norms[:, None]).ravel()

    start = np.full(k * m, 0.1)
    options = {"maxiter": 5000, "ftol": 1e-15, "gtol": 1e-10}
    return minimize(objective, start, jac=True, method="L-BFGS-B", options=options).fun


@pytest.mark.parametrize("solver", ["fista", "newton"])
def test_refit_with_both(client, solver):
    rng = np.random.default_rng(3)
    A = rng.normal(size=(80, 4))
    Y = A @ rng.normal(size=(4, 3)) + rng.normal(size=(80, 3))
    loss, penalty = client.expectile.Expectile(0.8), client.scaled.ScaledL1L2(3.0)
    fit = refit_output(
        A, Y, loss=loss, penalty=penalty, alpha=0.5, tol=1e-8, solver=solver, max_iter=5000
    )
    assert_allclose(fit.objective, smooth_optimum(A, Y, 0.8, 1.5), rtol=1e-6)
    ball = refit_output(A, Y, loss=loss, penalty=penalty, tau=penalty.value(fit.V), tol=1e-8)
    assert_allclose(ball.V, fit.V, rtol=1e-3, atol=1e-3)


def test_whole_algorithm_with_both(client):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(200, 4))
    y = X[:, :1] * X[:, 1:2] + 0.1 * rng.normal(size=(200, 1))
    design, loss = Design(X, "anova"), client.expectile.Expectile(0.6)
    options = {"loss": loss, "alpha": 0.5, "n_components": 5, "refit": "output"}
    *_, state = conditional_gradient(
        design, y, penalty=client.scaled.ScaledL1L2(2.0), random_state=0, **options
    )
    options["alpha"] = 1.0
    *_, plain = conditional_gradient(design, y, penalty="l1", random_state=0, **options)
    # One output: twice the norm at half the strength is the plain penalty.
    assert_allclose(state.objective, plain.objective, rtol=1e-3)
    residuals = np.abs(design.outputs(state.H, state.V) - y)
    assert np.median(residuals) < 0.2 < np.median(np.abs(y))


def test_a_penalty_without_a_smooth_form(client):
    """The joint descent needs one: "auto" fits the output layer alone, "full" says why it can't."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(60, 4))
    design, y = Design(X), X[:, :1] * X[:, 1:2]
    options = {"loss": "squared", "penalty": client.scaled.ScaledL1L2(2.0), "random_state": 0}
    *_, auto = conditional_gradient(design, y, n_components=3, **options)
    *_, output = conditional_gradient(design, y, n_components=3, refit="output", **options)
    assert_array_equal(auto.V, output.V)
    with pytest.raises(ValueError, match='smooth form .*ScaledL1L2.* use refit="output"'):
        conditional_gradient(design, y, refit="full", **options)


def test_the_joint_descent_with_a_loss_of_the_client(client):
    """With a bound on the second derivatives (expectile) and without (half)."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(100, 4))
    y = X[:, :1] * X[:, 1:2] + X[:, 2:3] ** 2 + 0.1 * rng.normal(size=(100, 1))
    for loss in (client.expectile.Expectile(0.7), client.half.Half()):
        options = {"loss": loss, "alpha": 1.0, "random_state": 0}
        *_, joint = conditional_gradient(Design(X), y, refit="full", **options)
        *_, paper = conditional_gradient(Design(X), y, block=1, refit="output", **options)
        assert joint.stop == paper.stop == "optimal"
        assert_allclose(joint.objective, paper.objective, rtol=1e-3)


def test_a_loss_with_nothing_but_rows(client):
    """The shortest one of docs/core.md: "auto" takes a solver without second derivatives."""
    rng = np.random.default_rng(0)
    A, y = rng.normal(size=(60, 5)), rng.normal(size=(60, 2))
    fit = refit_output(A, y, loss=client.half.Half(), alpha=0.5, tol=1e-8)
    twin = refit_output(A, y, loss="squared", alpha=1.0, tol=1e-8)
    assert_allclose(fit.V, twin.V, atol=1e-5)
    assert_allclose(2 * fit.objective, twin.objective, rtol=1e-7)
    with pytest.raises(ValueError, match='needs a loss with a method `curvature`.*"fista"'):
        refit_output(A, y, loss=client.half.Half(), solver="newton")


@pytest.mark.skipif(not PAGE.exists(), reason="needs the documentation")
def test_documentation_shows_this_client():
    """docs/core.md prints every file of this package, to the letter."""
    text = PAGE.read_text()
    files = {p for p in CLIENT.rglob("*") if p.suffix in (".toml", ".build", ".py", ".pyx")}
    assert len(files) == 3 + len(MODULES)
    for path in files:
        assert f"`{path.relative_to(CLIENT)}`\n\n```" in text, path
        assert f"\n{path.read_text()}```" in text, path
