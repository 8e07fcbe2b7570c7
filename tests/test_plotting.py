"""The displays show what they were given, in scikit-learn's manner, and import lazily."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fastpoly import FactorizationMachineClassifier, PathSearchCV, PolynomialNetworkRegressor

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402

from fastpoly.demo import draw  # noqa: E402
from fastpoly.plotting import (  # noqa: E402
    ConvergenceDisplay,
    InteractionDisplay,
    PathDisplay,
)


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 4))
    return X, X[:, 0] * X[:, 1] + 0.1 * rng.standard_normal(80)


@pytest.fixture(scope="module")
def search(data):
    model = PolynomialNetworkRegressor(n_components=4, random_state=0)
    return PathSearchCV(model, alphas=[10.0, 1.0, 0.1], cv=2).fit(*data)


def test_path_display_draws_the_table(search):
    display = PathDisplay.from_estimator(search)
    assert len(display.lines_) == 3
    table = search.cv_results_
    for line, alpha in zip(display.lines_, search.alphas_, strict=True):
        here = np.asarray(table["param_alpha"]) == alpha
        np.testing.assert_array_equal(line.get_xdata(), [1, 2, 3, 4])
        np.testing.assert_array_equal(line.get_ydata(), table["mean_test_score"][here])
        assert line.get_label() == f"{alpha:.3g}"
    marked = [line for line in display.ax_.lines if line.get_label() == "best"]
    assert marked[0].get_ydata() == [search.best_score_]
    assert display.figure_ is display.ax_.figure


def test_path_display_on_given_axes(search):
    _, ax = plt.subplots()
    assert PathDisplay.from_estimator(search, ax=ax, linewidth=3).ax_ is ax
    assert ax.lines[0].get_linewidth() == 3


def test_convergence_display(data):
    model = PolynomialNetworkRegressor(alpha=0.5, n_components=4, random_state=0).fit(*data)
    display = ConvergenceDisplay.from_estimator(model)
    for ax, name in zip(display.ax_, ("objective", "violation"), strict=True):
        np.testing.assert_array_equal(ax.lines[0].get_ydata(), model.history_[name])
    assert display.ax_[1].lines[1].get_ydata()[0] == 0.5
    model = PolynomialNetworkRegressor(tau=1.0, n_components=4, random_state=0).fit(*data)
    display = ConvergenceDisplay.from_estimator(model)
    np.testing.assert_array_equal(display.ax_[1].lines[0].get_ydata(), model.history_["gap"])


def test_interaction_display_names_and_signs(data):
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame(data[0], columns=list("abcd"))
    y = np.where(data[1] > 0, "yes", "no")
    model = FactorizationMachineClassifier(n_components=3, random_state=0).fit(X, y)
    display = InteractionDisplay.from_estimator(model, "yes")
    shown = np.asarray(display.image_.get_array())
    np.testing.assert_array_equal(shown, model.interaction_matrix("yes"))
    assert shown[0, 1] > 0  # y grows with a b
    assert [label.get_text() for label in display.ax_.get_xticklabels()] == list("abcd")
    assert display.ax_.get_title() == "output yes"
    few = InteractionDisplay.from_estimator(model.model_, 1, max_features=2)
    assert few.feature_names == ["a", "b"]


def test_unfitted_and_inconsistent_input():
    model = PolynomialNetworkRegressor()
    for display in (PathDisplay, ConvergenceDisplay, InteractionDisplay):
        with pytest.raises(ValueError, match="fit"):
            display.from_estimator(model)
    with pytest.raises(ValueError, match="shape"):
        PathDisplay([1.0], [1, 2], [[1.0]])
    with pytest.raises(ValueError, match="square"):
        InteractionDisplay(np.ones((2, 3)))
    with pytest.raises(ValueError, match="2 entries"):
        InteractionDisplay(np.ones((2, 2)), ["a"])
    with pytest.raises(ValueError, match="2 axes"):
        ConvergenceDisplay({"objective": [1.0], "violation": [1.0]}).plot(plt.subplots()[1])


def test_without_matplotlib(monkeypatch):
    for name in ("matplotlib", "matplotlib.pyplot", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"pip install .*\[plot\]"):
        InteractionDisplay([[1.0]]).plot()
    assert "needs matplotlib" in draw(None, None, None, None, Path("none.png"))


def test_imports_are_lazy():
    code = (
        "import sys, fastpoly, fastpoly.plotting\n"
        "assert not {'sklearn', 'matplotlib', 'tqdm'} & sys.modules.keys()\n"
        "fastpoly.PathSearchCV\n"
        "assert 'sklearn' in sys.modules and 'matplotlib' not in sys.modules\n"
        "assert all(hasattr(fastpoly, name) for name in fastpoly.__all__)\n"
    )
    subprocess.run([sys.executable, "-P", "-c", code], check=True)
