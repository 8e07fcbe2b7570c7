"""The alpha of the noise level, against its definition and against random signs."""

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from estimator_cases import ALL, targets
from scipy.special import softmax
from sklearn.base import clone

from fastpoly import Design, alpha_max, conditional_gradient
from fastpoly.noise import LOWER, fit_above_noise, noise_alpha
from fastpoly.problem import PERFECT, Problem
from fastpoly.rows.sums import RowSums


@pytest.mark.parametrize("activation", ["squared", "anova"])
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("weighted", [False, True])
def test_noise_level_by_its_definition(activation, kind, weighted):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 6)) * (rng.uniform(size=(40, 6)) < 0.7)
    y = rng.integers(0, 3, 40)
    w = rng.integers(0, 3, 40).astype(float) if weighted else None
    problem = Problem.of(40, y, loss="logistic", alpha=1.0, sample_weight=w)
    sums = RowSums(Design(kind(X), activation, fit_lower="explicit"), problem)
    model = sums.empty_model()
    model = model._replace(intercept=rng.standard_normal(3), linear=rng.standard_normal((6, 3)))
    P = softmax(model.intercept + X @ model.linear, axis=1)
    errors = ((P - np.eye(3)[y]) ** 2).sum(axis=1)
    weights = (np.ones(40) if w is None else w) * errors * (X**2).sum(axis=1)
    largest = np.linalg.eigvalsh(X.T @ (weights[:, None] * X))[-1]
    expected = np.sqrt(largest) * (1 if activation == "squared" else 0.5)
    assert sums.noise_level(model) == pytest.approx(expected, rel=5e-3)


@pytest.mark.parametrize("weight", [1.0, 5.0])
@pytest.mark.parametrize(
    ("penalty", "size"),
    # Means over the unit circle: of the Euclidean norm, of |cos| + |sin|, of the larger of the two.
    [("l1/l2", 1.0), ("l1/linf", 4 / np.pi), ("l1", np.sqrt(8) / np.pi)],
)
def test_alpha_is_a_share_of_the_noise_level(penalty, size, weight):
    """A third of it; for classes, one share per class."""
    rng = np.random.default_rng(0)
    design, w = Design(rng.standard_normal((40, 6))), np.full(40, weight)
    for loss, y, divisor in (
        ("squared", rng.standard_normal((40, 2)), 3),
        ("logistic", rng.integers(0, 2, 40), 2),
    ):
        problem = Problem.of(40, y, loss=loss, penalty=penalty, alpha=1.0, sample_weight=w)
        sums = RowSums(design, problem)
        model = sums.empty_model()
        expected = size * sums.noise_level(model) / divisor
        assert noise_alpha(sums, model, divisor) == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("m", [1, 4])
def test_noise_level_is_the_violation_of_random_signs(m):
    """Up to a factor, as in the inequality."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((500, 10))
    ratios = []
    for _ in range(5):
        Y = rng.standard_normal((500, m))
        design = Design(X)
        sums = RowSums(design, Problem.of(500, Y, loss="squared", alpha=1.0))
        violation = alpha_max(design, Y, loss="squared")
        ratios.append(violation / sums.noise_level(sums.empty_model()))
    assert 0.3 < np.mean(ratios) < 2


def test_alpha_falls_as_the_model_learns():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 6))
    y = 5 * X[:, :1] * X[:, 1:2] + rng.standard_normal((300, 1))
    design = Design(X, "anova", fit_lower="explicit")
    options = {"loss": "squared", "n_components": 8, "random_state": 0}
    states = list(fit_above_noise(design, y, **options))
    alphas = [state.alpha for state in states]
    assert len(set(alphas)) == 2
    assert alphas[-1] < LOWER * alphas[0]
    assert all(a >= b for a, b in pairwise(alphas))
    objectives = [state.objective for state in states]
    assert all(a >= b for a, b in pairwise(objectives))
    assert [state.stop is None for state in states] == [True] * (len(states) - 1) + [False]
    # The last state is the optimum of its alpha, however it was found.
    *_, straight = conditional_gradient(design, y, alpha=alphas[-1], **options)
    assert states[-1].objective == pytest.approx(straight.objective, rel=1e-3)
    # Interrupted anywhere, the run continues to the same result.
    for i, state in enumerate(states[:-1]):
        rest = list(fit_above_noise(design, y, start=state, **options))
        assert len(rest) == len(states) - i - 1
        for a, b in zip(rest, states[i + 1 :], strict=True):
            np.testing.assert_array_equal(a.H, b.H)
            np.testing.assert_array_equal(a.V, b.V)
            assert (a.objective, a.alpha, a.stop) == (b.objective, b.alpha, b.stop)


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_many_classes_that_overlap(kind):
    """Rows held out choose the divisor: 1 where labels are mostly noise, m where they are not."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, 6))
    P = softmax(0.5 * X @ rng.standard_normal((6, 12)), axis=1)
    noisy = np.array([rng.choice(12, p=p) for p in P])
    clear = (X[:, :3] > 0) @ [1, 2, 4] + 8 * (X[:, 3] * X[:, 4] > 0)
    options = {"loss": "logistic", "n_components": 30, "random_state": 0, "tol": 0.1}
    for y, share in ((noisy, 1.0), (clear, 1 / 16)):
        design = Design(kind(X), fit_lower="explicit")
        states = list(fit_above_noise(design, y, **options))
        assert states[0].n_components == 0
        sums = RowSums(design, Problem.of(600, y, loss="logistic", alpha=1.0))
        level = states[0].alpha / share
        assert 0.9 < level / sums.noise_level(linear_model(design, y)) < 1.1
        # Interrupted anywhere, the run continues to the same result.
        for _i, state in enumerate(states[:-1]):
            *_, last = fit_above_noise(design, y, start=state, **options)
            np.testing.assert_array_equal(last.H, states[-1].H)
            assert last.alpha == states[-1].alpha


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("cls", ALL)
def test_a_linear_truth_is_not_overfitted(cls, kind):
    """The default is about as good as a linear model on other rows, and finds interactions."""
    gains = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((1200, 15))
        linear, pairs = X @ rng.standard_normal(15) / 4, 2 * X[:, 0] * X[:, 1] + X[:, 2] * X[:, 3]
        noise, X_train, X_test = rng.standard_normal(1200), kind(X[:400]), kind(X[400:])
        for truth in (linear, pairs):
            y = targets(cls, truth + noise)
            fitted = cls(random_state=0).fit(X_train, y[:400])
            without = cls(alpha=1e6, random_state=0).fit(X_train, y[:400])
            gains.append(fitted.score(X_test, y[400:]) - without.score(X_test, y[400:]))
    of_linear, of_pairs = np.reshape(gains, (3, 2)).mean(axis=0)
    assert of_linear > -0.02
    assert of_pairs > 0.1


def linear_model(design, y):
    """The model without basis vectors."""
    *_, state = conditional_gradient(design, y, alpha=1e6)
    return state.model


@pytest.mark.parametrize("cls", ALL)
def test_noise_alone_gives_no_interactions(cls, data):
    """Few vectors, if any, where the targets are random."""
    X, _ = data
    rng = np.random.default_rng(1)
    sizes = []
    for _ in range(3):
        y = targets(cls, rng.standard_normal(len(X)))
        model = cls(random_state=0)
        sizes.append(clone(model).fit(X, y).n_components_)
    assert np.mean(sizes) <= 8


def test_a_perfect_fit_has_an_alpha():
    X = np.random.default_rng(0).standard_normal((50, 3))
    y = X @ np.array([[1.0], [2.0], [3.0]])
    design = Design(X, fit_lower="explicit")
    *_, state = fit_above_noise(design, y, loss="squared", alpha_linear=0.0)
    assert state.alpha == pytest.approx(PERFECT * 50)
