"""The displays show what they were given, in scikit-learn's manner, and import lazily."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from fastpoly import (
    FactorizationMachineClassifier,
    PathSearchCV,
    PolyModel,
    PolynomialNetworkRegressor,
)

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402

from fastpoly.demo import draw, main  # noqa: E402
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


def test_best_estimator_of_a_search_is_shown(search, data):
    best = search.best_estimator_
    display = ConvergenceDisplay.from_estimator(search)
    np.testing.assert_array_equal(display.ax_[0].lines[0].get_ydata(), best.history_["objective"])
    display = InteractionDisplay.from_estimator(search)
    np.testing.assert_array_equal(display.matrix, best.interaction_matrix())
    without = PathSearchCV(search.estimator, alphas=[1.0], cv=2, refit=False).fit(*data)
    assert len(PathDisplay.from_estimator(without).lines_) == 1
    for display in (ConvergenceDisplay, InteractionDisplay):
        with pytest.raises(ValueError, match="refit=False"):
            display.from_estimator(without)


@pytest.mark.parametrize("activation", ["squared", "anova"])
@pytest.mark.parametrize("augment", [True, False])
def test_interaction_display_chooses_the_strongest_features(activation, augment):
    """As from the whole matrix, which is not formed."""
    rng = np.random.default_rng(0)
    scale = np.exp(rng.standard_normal(40 + augment))
    model = PolyModel(
        rng.standard_normal((3, 40 + augment)) * scale, rng.standard_normal((3, 2)), [0.0, 0.0],
        linear=rng.standard_normal((2, 40)), activation=activation, augment=augment,
        output_names=["no", "yes"],
    )  # fmt: skip
    C = model.interaction_matrix("yes")
    for count in (1, 2, 5, 39, 40, 100):
        display = InteractionDisplay.from_estimator(model, "yes", max_features=count)
        strongest = np.sort(np.argsort(-np.abs(C).max(axis=1), kind="stable")[:count])
        if count > 1 or activation == "squared":  # the strongest pair has two features
            assert display.feature_names == list(map(str, strongest))
        shown = np.array(list(map(int, display.feature_names)))
        np.testing.assert_allclose(display.matrix, C[np.ix_(shown, shown)], rtol=1e-12)


def test_interaction_display_of_many_features():
    """A dense matrix would take 80 GB."""
    H = np.zeros((2, 100_000))
    H[0, [7, 99_000]], H[1, [50, 60]] = [1.0, 2.0], [0.5, 0.5]
    model = PolyModel(H, [[1.0], [-1.0]], [0.0], activation="anova")
    display = InteractionDisplay.from_estimator(model, max_features=4)
    assert display.feature_names == ["7", "50", "60", "99000"]
    assert display.matrix[0, 3] == 1.0
    assert display.matrix[1, 2] == -0.125


def test_options_override_the_defaults(search):
    for options in ({"c": "red"}, {"color": "red"}):
        display = PathDisplay.from_estimator(search, lw=3, **options)
        assert {line.get_color() for line in display.lines_} == {"red"}
        assert display.lines_[0].get_linewidth() == 3
        band = display.ax_.collections[0].get_facecolor()[0]
        np.testing.assert_array_equal(band[:3], [1, 0, 0])
    norm = matplotlib.colors.TwoSlopeNorm(0.0, -3.0, 5.0)
    assert InteractionDisplay([[1.0]]).plot(norm=norm).image_.norm is norm
    assert InteractionDisplay([[1.0]]).plot(vmin=-7).image_.get_clim() == (-7, 1)


def test_legend_stays_inside_given_axes(search):
    figure, ax = plt.subplots()
    PathDisplay.from_estimator(search, ax=ax)
    figure.canvas.draw()
    legend, inside = ax.get_legend().get_window_extent(), ax.get_window_extent()
    assert inside.x0 <= legend.x0 <= legend.x1 <= inside.x1
    alone = PathDisplay.from_estimator(search)
    alone.figure_.canvas.draw()
    assert alone.ax_.get_legend().get_window_extent().x0 >= alone.ax_.get_window_extent().x1


def test_unfitted_and_inconsistent_input():
    model = PolynomialNetworkRegressor()
    for display in (ConvergenceDisplay, InteractionDisplay):
        for unfitted in (model, PathSearchCV(model)):
            with pytest.raises(NotFittedError, match="not fitted"):
                display.from_estimator(unfitted)
        with pytest.raises(TypeError, match="fastpoly's estimators"):
            display.from_estimator(object())
    with pytest.raises(NotFittedError, match="not fitted"):
        PathDisplay.from_estimator(PathSearchCV(model))
    with pytest.raises(TypeError, match="PathSearchCV is needed"):
        PathDisplay.from_estimator(model)
    small = PolyModel([[1.0, 2.0]], [[1.0]], [0.0])
    for count in (0, -1):
        with pytest.raises(ValueError, match="max_features"):
            InteractionDisplay.from_estimator(small, max_features=count)
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


def test_demo_looks_at_the_path_before_it_trains(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("fastpoly.demo.digits", lambda: pytest.fail("training began"))
    (tmp_path / "file").touch()
    for path, message in (
        (tmp_path, "is a folder"),
        (tmp_path / "missing" / "picture.png", "its folder does not exist"),
        (tmp_path / "file" / "picture.png", "its folder does not exist"),
        (tmp_path / "picture.docx", "unknown format; known: .*png"),
    ):
        with pytest.raises(SystemExit):
            main(["--picture", str(path)])
        assert re.search(message, capsys.readouterr().err)


def test_imports_are_lazy():
    code = (
        "import sys, fastpoly, fastpoly.plotting\n"
        "assert not {'sklearn', 'matplotlib', 'tqdm'} & sys.modules.keys()\n"
        "fastpoly.PathSearchCV\n"
        "assert 'sklearn' in sys.modules and 'matplotlib' not in sys.modules\n"
        "assert all(hasattr(fastpoly, name) for name in fastpoly.__all__)\n"
    )
    subprocess.run([sys.executable, "-P", "-c", code], check=True)
