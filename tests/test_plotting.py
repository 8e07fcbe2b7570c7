"""The displays show their data, follow scikit-learn's conventions, and import lazily."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import SelectKBest
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from fastpoly import (
    FactorizationMachineClassifier,
    FactorizationMachineRegressor,
    PathSearchCV,
    PolyModel,
    PolynomialNetworkClassifier,
    PolynomialNetworkOrdinalRegressor,
    PolynomialNetworkRegressor,
)

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402

from fastpoly.demo import draw, main  # noqa: E402
from fastpoly.plotting import (  # noqa: E402
    ContributionDisplay,
    ConvergenceDisplay,
    InteractionDisplay,
    PathDisplay,
    ShapeDisplay,
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


@pytest.mark.parametrize("options", [{}, {"drawstyle": "default"}], ids=str)
def test_band_of_a_path_follows_its_line(options):
    """One standard deviation around the best line, in steps if the line has steps."""
    mean, std = [[1.0, 3.0], [2.0, 6.0]], [[0.5, 0.5], [0.25, 1.0]]
    display = PathDisplay([1.0, 0.1], [1, 2], mean, std, best=(0.1, 2)).plot(**options)
    (band,) = display.ax_.collections
    corners = set(map(tuple, band.get_paths()[0].vertices.tolist()))
    assert {(1, 1.75), (1, 2.25), (2, 5.0), (2, 7.0)} <= corners
    assert ((2, 2.25) in corners) == (not options)  # level until the next number of vectors


def test_path_display_on_given_axes(search):
    _, ax = plt.subplots()
    assert PathDisplay.from_estimator(search, ax=ax, linewidth=3).ax_ is ax
    assert ax.lines[0].get_linewidth() == 3


def test_convergence_display(data):
    model = PolynomialNetworkRegressor(alpha=0.5, n_components=4, random_state=0).fit(*data)
    display = ConvergenceDisplay.from_estimator(model)
    for ax, name in zip(display.ax_, ("objective", "violation"), strict=True):
        np.testing.assert_array_equal(ax.lines[0].get_ydata(), model.history_[name])
        values = model.history_[name]
        wide = values.max() > 10 * values.min()
        assert ax.get_yscale() == ("log" if wide else "linear")
    assert display.ax_[1].lines[1].get_ydata()[0] == 0.5
    assert "0.5 (dashed)" in display.ax_[1].get_title()
    model = PolynomialNetworkRegressor(n_components=4, random_state=0).fit(*data)
    display = ConvergenceDisplay.from_estimator(make_pipeline(StandardScaler(), model).fit(*data))
    # alpha is chosen from the data
    assert set(display.ax_[1].lines[1].get_ydata()) == set(model.history_["alpha"])
    assert display.ax_[1].lines[1].get_ydata()[-1] == model.alpha_
    model = PolynomialNetworkRegressor(tau=1.0, n_components=4, random_state=0).fit(*data)
    display = ConvergenceDisplay.from_estimator(model)
    np.testing.assert_array_equal(display.ax_[1].lines[0].get_ydata(), model.history_["gap"])


def test_interaction_display_names_and_signs(data):
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame(data[0], columns=list("abcd"))
    y = np.where(data[1] > 0, "yes", "no")
    model = FactorizationMachineClassifier(n_components=3, shapes=None, random_state=0).fit(X, y)
    display = InteractionDisplay.from_estimator(model, "yes")
    shown = np.asarray(display.image_.get_array())
    deviation = data[0].std(axis=0)
    raw = model.interaction_matrix("yes")
    np.testing.assert_allclose(shown, raw * np.outer(deviation, deviation), rtol=1e-12)
    assert shown[0, 1] > 0  # y grows with a b
    assert [label.get_text() for label in display.ax_.get_xticklabels()] == list("abcd")
    assert display.ax_.get_title() == "class yes"
    plain = InteractionDisplay.from_estimator(model, "yes", standardized=False)
    np.testing.assert_array_equal(plain.matrix, raw)
    assert "standardized" in display.label
    assert "standardized" not in plain.label
    few = InteractionDisplay.from_estimator(model.model_, 1, max_features=2)
    assert few.feature_names == ["a", "b"]
    assert few.title == "class yes"


def test_interaction_display_does_not_depend_on_units(data):
    """A feature in other units has another coefficient; the picture stays."""
    X, y = data
    model = PolynomialNetworkRegressor(alpha=1.0, tol=1e-4, random_state=0)
    here = InteractionDisplay.from_estimator(model.fit(X, y), max_features=3)
    there = InteractionDisplay.from_estimator(model.fit(X * [1e3, 1, 1e-3, 1], y), max_features=3)
    assert here.feature_names == there.feature_names
    np.testing.assert_allclose(there.matrix, here.matrix, rtol=1e-4, atol=1e-6)


def test_interactions_in_standard_units(data):
    """The display and `top_interactions`, of estimators and of models."""
    X, y = data[0] * [1e3, 1, 1e-3, 1], 50 + 300 * data[1]
    model = PolynomialNetworkRegressor(n_components=3, random_state=0).fit(X, y)
    shown = InteractionDisplay.from_estimator(model).matrix
    unit = X.std(axis=0)
    expected = model.interaction_matrix() * np.outer(unit, unit)
    np.testing.assert_allclose(shown, expected, rtol=1e-10)
    pairs = model.top_interactions(k=3)
    assert pairs[0][:2] == (0, 1)  # y is x_0 x_1 and noise
    assert pairs == model.model_.top_interactions(0, k=3)
    for i, j, coefficient in pairs:
        assert coefficient == pytest.approx(2 * shown[i, j])
    first = model.top_interactions(k=1, standardized=False)[0]
    assert first[:2] == (1, 2)  # whose units are smallest
    model.set_params(standardize=False).fit(*data)
    raw = InteractionDisplay.from_estimator(model, standardized=False)
    np.testing.assert_array_equal(raw.matrix, model.interaction_matrix())
    assert raw.label == "C in x'Cx"


def test_outputs_are_called_what_they_are(data):
    X, y = data
    Y = np.column_stack([y, X[:, 2] * X[:, 3]])
    levels = ["low", "medium", "high"]
    grades = np.array(levels)[np.digitize(y, [-0.4, 0.4])]
    ordinal = PolynomialNetworkOrdinalRegressor(levels=levels, n_components=3, random_state=0)
    classifier = PolynomialNetworkClassifier(n_components=3, random_state=0)
    regressor = PolynomialNetworkRegressor(n_components=3, random_state=0)
    cases = (
        (ordinal.fit(X, grades), "medium", "level <= medium", 1),
        (classifier.fit(X, np.digitize(y, [-0.4, 0.4]) + 5), 6, "class 6", 1),  # not a position
        (regressor.fit(X, y), None, "interactions", 0),
        (PolynomialNetworkRegressor(n_components=3).fit(X, Y), 1, "output 1", 1),
        (PolynomialNetworkClassifier(n_components=3).fit(X, (Y > 0) * 1), 1, "label 1", 1),
    )
    for model, output, title, position in cases:
        display = InteractionDisplay.from_estimator(model, output, standardized=False)
        assert display.ax_.get_title() == title
        np.testing.assert_array_equal(display.matrix, model.model_.interaction_matrix(position))
    with pytest.raises(ValueError, match="say for which class"):
        InteractionDisplay.from_estimator(classifier)
    with pytest.raises(ValueError, match="say which output"):
        InteractionDisplay.from_estimator(classifier.model_)


def test_names_that_reach_the_model():
    """Of a Pipeline, a search over one and a Pipeline that ends with a search."""
    pytest.importorskip("pandas")
    iris = load_iris(as_frame=True)
    X, y = iris.data, iris.target_names[iris.target]
    network = PolynomialNetworkClassifier(alpha=1.0, n_components=4, random_state=0)
    pipeline = make_pipeline(StandardScaler(), SelectKBest(k=2), network)
    kept = ["petal length (cm)", "petal width (cm)"]
    name = "polynomialnetworkclassifier__alpha"
    last = make_pipeline(StandardScaler(), PathSearchCV(make_pipeline(SelectKBest(k=2), network)))
    last[-1].set_params(alphas=[3.0, 1.0], cv=2)
    for fitted in (
        pipeline.fit(X, y),
        PathSearchCV(pipeline, alphas=[3.0, 1.0], cv=2).fit(X, y),
        GridSearchCV(pipeline, {name: [3.0, 1.0]}, cv=2).fit(X, y),
        last.fit(X, y),
    ):
        display = InteractionDisplay.from_estimator(fitted, "setosa")
        assert display.feature_names == kept
        assert display.ax_.get_title() == "class setosa"
        ConvergenceDisplay.from_estimator(fitted)
    lines = PathDisplay.from_estimator(last).lines_
    np.testing.assert_array_equal(lines[0].get_xdata(), [1, 2, 3, 4])
    for frames in ("default", "pandas"):  # the names of the transformer, or those of the model
        parts = make_pipeline(PCA(3).set_output(transform=frames), network).fit(X, y)
        display = InteractionDisplay.from_estimator(parts, "setosa")
        assert display.feature_names == ["pca0", "pca1", "pca2"]
    nameless = make_pipeline(FunctionTransformer(lambda X: np.asarray(X)[:, :2]), network)
    display = InteractionDisplay.from_estimator(nameless.fit(X, y), "setosa")
    assert display.feature_names == ["0", "1"]


def test_best_estimator_of_a_search_is_shown(search, data):
    best = search.best_estimator_
    display = ConvergenceDisplay.from_estimator(search)
    np.testing.assert_array_equal(display.ax_[0].lines[0].get_ydata(), best.history_["objective"])
    display = InteractionDisplay.from_estimator(search)
    deviation = data[0].std(axis=0)
    expected = best.interaction_matrix() * np.outer(deviation, deviation)
    np.testing.assert_allclose(display.matrix, expected, rtol=1e-12)
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


def test_an_empty_model_says_that_it_is_linear(data):
    """At 5de635d the picture was a blank square."""
    X, y = data
    with pytest.warns(UserWarning, match="no basis vectors"):
        empty = PolynomialNetworkRegressor(alpha=1e6, random_state=0).fit(X, y)
    display = InteractionDisplay.from_estimator(empty)
    (text,) = display.ax_.texts
    assert "no interactions" in text.get_text()
    assert display.matrix.shape == (4, 4)
    assert not InteractionDisplay([[0.0, 1.0], [1.0, 0.0]]).plot().ax_.texts


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


@pytest.mark.parametrize("own", [True, False])
def test_nothing_hides_the_lines_of_a_path(search, own):
    """The legend is beside the axes and inside the figure, also for given axes."""
    ax = None if own else plt.subplots()[1]
    display = PathDisplay.from_estimator(search, ax=ax)
    figure = display.figure_
    figure.canvas.draw()
    assert display.ax_.get_legend() is None
    (key,) = set(figure.axes) - {display.ax_}
    assert key.get_window_extent().x0 >= display.ax_.get_window_extent().x1
    assert key.get_tightbbox().x1 <= figure.bbox.x1
    texts = [label.get_text() for label in key.get_yticklabels()]
    assert texts == [f"{alpha:.3g}" for alpha in search.alphas_]
    best = search.best_params_
    assert display.ax_.get_title() == (
        f"best (circle): alpha = {best['alpha']:.3g}, n_components = {best['n_components']}"
    )


def test_a_path_of_ten_alphas_and_fifty_sizes():
    """Steps, each alpha in its own color, ending where nothing changes any more."""
    alphas, sizes = np.geomspace(100, 0.1, 10), np.arange(1, 51)
    mean = -1 / np.minimum(sizes, 20) - 0.01 * np.arange(10)[:, None]
    display = PathDisplay(alphas, sizes, mean, np.full_like(mean, 0.1), best=(100.0, 20)).plot()
    assert {line.get_drawstyle() for line in display.lines_} == {"steps-post"}
    assert len({tuple(line.get_color()) for line in display.lines_}) == 10
    assert len(display.ax_.collections) == 1  # the band of the best alpha alone
    assert 20 < display.ax_.get_xlim()[1] < 30
    many = PathDisplay(np.geomspace(100, 0.1, 40), [1, 2], np.ones((40, 2))).plot()
    (key,) = set(many.figure_.axes) - {many.ax_}
    assert len(key.get_yticklabels()) <= 15
    assert many.ax_.get_xlim() == (0.5, 2.5)


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
    with pytest.raises(ImportError, match=r"pip install matplotlib"):
        InteractionDisplay([[1.0]]).plot()
    assert "needs matplotlib" in draw([], [], None, Path("none.png"))


def test_demo_looks_at_the_path_before_it_trains(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("fastpoly.demo.ratings", lambda: pytest.fail("training began"))
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


def frame_and_target():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    city = np.array(["Oslo", "Bergen", "Narvik"])[rng.integers(0, 3, 200)]
    frame = pandas.DataFrame({"city": city, "age": rng.normal(40, 10, 200).round()})
    frame.loc[::9, "age"] = np.nan
    shown = np.where(city == "Oslo", 1.0, -1.0) * (frame["age"].fillna(40) - 40)
    return frame, shown


@pytest.mark.parametrize("cls", [PolynomialNetworkRegressor, FactorizationMachineRegressor])
def test_shapes_of_a_frame(cls):
    """The curve is the difference of predictions along a column; by level, and as a surface."""
    frame, y = frame_and_target()
    model = cls(alpha=0.1, random_state=0).fit(frame, y)
    for name in ("age", "city"):
        display = ShapeDisplay.from_estimator(model, name)
        line = display.ax_.lines[0]
        grid, effect = display.grids[0], line.get_ydata()
        a, b = 0, len(grid) - 1 if name == "age" else list(grid).index("Oslo")
        rows = frame.copy().iloc[:0].reindex(range(2 * len(frame)))
        other = "city" if name == "age" else "age"
        rows[other] = np.tile(frame[other], 2)
        rows[name] = np.repeat([grid[a], grid[b]], len(frame))
        means = model.predict(rows).reshape(2, -1).mean(axis=1)  # by brute force
        assert effect[b] - effect[a] == pytest.approx(means[1] - means[0], rel=1e-6, abs=1e-8)
        assert display.ax_.get_xlabel() == name
        assert not [
            name for name in map(str, grid) if name == "<other>"
        ]  # no row of the fit has it
    if model.model_.encoding.form == "codes":
        edges = model.model_.encoding.fields[1].edges
        assert display.names == ["city"]
        age = ShapeDisplay.from_estimator(model, "age").grids[0]
        assert age[0] < edges[0] < edges[-1] < age[-1]  # so that all bins are seen
    surface = ShapeDisplay.from_estimator(model, ["city", "age"], resolution=20)
    assert surface.effect.shape == (len(surface.grids[0]), 20)
    oslo, bergen = (list(surface.grids[0]).index(each) for each in ("Oslo", "Bergen"))
    assert surface.effect[oslo, -1] > surface.effect[oslo, 0]
    assert surface.effect[bergen, -1] < surface.effect[bergen, 0]


def test_shapes_of_plain_columns(data):
    """Linear and square, per class, in the units of the column."""
    X, score = data
    y = np.digitize(X[:, 2] ** 2 + X[:, 3], [0.5, 1.5])
    model = PolynomialNetworkClassifier(alpha=1.0, random_state=0).fit(X, y)
    display = ShapeDisplay.from_estimator(model, 2)
    poly, mean = model.model_, X.mean(axis=0)
    rows = np.tile(mean, (len(display.grids[0]), 1))
    rows[:, 2] = display.grids[0]
    want = poly.decision(rows) - poly.decision(mean[None])
    np.testing.assert_allclose(display.effect, want, atol=1e-9)
    assert len(display.ax_.lines) == 4  # and the line at 0
    assert len(display.ax_.get_legend().get_texts()) == 3
    for what in (1.5, None, -1):
        with pytest.raises(ValueError, match="there is no column"):
            ShapeDisplay.from_estimator(model, what)
    one = ShapeDisplay.from_estimator(model, 2, output=1)
    np.testing.assert_allclose(one.effect[:, 0], display.effect[:, 1])
    surface = ShapeDisplay.from_estimator(model, (2, 3), output=0, resolution=5)
    rows = np.tile(mean, (25, 1))
    rows[:, 2], rows[:, 3] = np.repeat(surface.grids[0], 5), np.tile(surface.grids[1], 5)
    want = (poly.decision(rows) - poly.decision(mean[None]))[:, 0]
    np.testing.assert_allclose(surface.effect.ravel(), want, atol=1e-9)


def test_what_shapes_need(data):
    model = PolynomialNetworkClassifier(alpha=1.0, random_state=0)
    model.fit(data[0], np.digitize(data[1], [-0.3, 0.3]))
    for column, message in (
        ("age", "no column 'age'"), (9, "no column 9"), ((0, 1, 2), "one column, or two"),
        ((0, 1), "for which output"), ((1, 1), "for which output"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            ShapeDisplay.from_estimator(model, column)
    with pytest.raises(ValueError, match="two different ones"):
        ShapeDisplay.from_estimator(model, (1, 1), output=0)
    with pytest.raises(ValueError, match="does not know its training rows"):
        ShapeDisplay.from_estimator(PolyModel([[1.0]], [[1.0]], [0.0]), 0)


def test_waterfall_of_one_row():
    frame, y = frame_and_target()
    model = FactorizationMachineRegressor(alpha=0.1, random_state=0).fit(frame, y)
    display = ContributionDisplay.from_estimator(model, frame[:1])
    left, right = display.ax_.get_xlim()
    ends = [bar.get_x() + width for bar in display.bars_ for width in (0, bar.get_width())]
    assert left < min(ends) < max(ends) < right  # there is a margin for the numbers
    found = model.contributions(frame[:1])
    labels = [label.get_text() for label in display.ax_.get_yticklabels()]
    order = np.argsort(-np.abs(found.values[0]))
    assert [label.partition(" = ")[0] for label in labels] == [["city", "age"][j] for j in order]
    assert any(label.endswith(str(frame["city"][0])) for label in labels)
    ends = [bar.get_x() + bar.get_width() for bar in display.bars_]
    assert ends[-1] == pytest.approx(model.predict(frame[:1])[0])
    assert display.bars_[0].get_x() == pytest.approx(found.base_values[0])
    few = ContributionDisplay.from_estimator(model, frame[:1], max_columns=1)
    assert few.ax_.get_yticklabels()[-1].get_text() == "1 others"
    with pytest.raises(ValueError, match="one row, got 3"):
        ContributionDisplay.from_estimator(model, frame[:3])
    with pytest.raises(ValueError, match="one row to one output"):
        ContributionDisplay(found)


def test_waterfall_behind_transformers(data):
    X, y = data
    classes = np.digitize(y, [-0.3, 0.3])
    model = PolynomialNetworkClassifier(alpha=1.0, random_state=0)
    pipeline = make_pipeline(StandardScaler(), model).fit(X, classes)
    display = ContributionDisplay.from_estimator(pipeline, X[:1], 1)
    ends = [bar.get_x() + bar.get_width() for bar in display.bars_]
    assert ends[-1] == pytest.approx(pipeline.decision_function(X[:1])[0, 1])
    assert display.ax_.get_yticklabels()[0].get_text().startswith("x")
    with pytest.raises(ValueError, match="for which output"):
        ContributionDisplay.from_estimator(pipeline, X[:1])


def test_names_are_no_formulas():
    """A "$" in the names of columns, levels and classes is drawn as it is."""
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    pay, age = rng.choice(["$5_{-$10", "$<_$", "x\0y"], 200), rng.normal(40, 12, 200)
    frame = pandas.DataFrame({"$_{$pay": pay, "age": age})
    y = np.where((pay == "$<_$") ^ (age > 40), "$1_{$", np.where(age > 50, "b", "c"))
    model = FactorizationMachineClassifier(alpha=1.0, random_state=0).fit(frame, y)
    for display in (
        InteractionDisplay.from_estimator(model, "$1_{$"),
        ContributionDisplay.from_estimator(model, frame[:1], "b"),
        ShapeDisplay.from_estimator(model, "$_{$pay"),
        ShapeDisplay.from_estimator(model, ["$_{$pay", "age"], "$1_{$"),
    ):
        display.figure_.canvas.draw()
        assert r"\$" in display.ax_.get_xlabel() + display.ax_.get_title() + "".join(
            text.get_text() for text in display.ax_.get_yticklabels()
        )
