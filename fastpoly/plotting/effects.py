"""What columns do: the shape of one or two of them, and the contributions to one row."""

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastpoly.contributions import Contributions
from fastpoly.kernels.checks import as_count
from fastpoly.model import PolyModel
from fastpoly.plotting.training import get_axes
from fastpoly.tables.fields import Number
from fastpoly.tables.frames import Column

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]
DEVIATIONS = 2.5  # around the mean, over which a plain feature is drawn


class ContributionDisplay:
    """Waterfall of one row: how its columns lead from the base value to the output.

    Parameters
    ----------
    contributions : Contributions
        Of one row and one output: `values` is (d,).
    max_columns : int
        Columns with smaller contributions are one bar.

    Attributes
    ----------
    ax_, figure_
        Axes and figure of the last plot.
    bars_ : matplotlib BarContainer

    Examples
    --------
    >>> from fastpoly import PolyModel
    >>> from fastpoly.plotting import ContributionDisplay
    >>> model = PolyModel([[1.0, 1.0]], [[1.0]], [0.0], activation="anova")
    >>> found = model.contributions([[2.0, 3.0]], background=[[0.0, 0.0], [2.0, 2.0]])
    >>> ContributionDisplay(found[0]).plot().ax_.get_title()
    'from 2 to 6'
    """

    def __init__(self, contributions: Contributions, *, max_columns: int = 10) -> None:
        if np.ndim(contributions.values) != 1:
            raise ValueError(
                "contributions must be those of one row to one output, such as "
                "model.contributions(X, output)[0]"
            )
        self.contributions = contributions
        self.max_columns = as_count(max_columns, "max_columns")

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, output: Any = None, *, max_columns: int = 10,
        background: Any = None, ax: "Axes | None" = None, **options: Any,
    ) -> Self:  # fmt: skip
        """Plot the contributions to one row.

        Parameters
        ----------
        estimator : estimator or PolyModel
            One of the six estimators, a search or a Pipeline that ends with one, fitted.
        X : array-like, DataFrame or sparse, (1, d)
        output : class, level, name or position
            As in `contributions`; needed where there are several.
        max_columns : int
        background : array-like, DataFrame or sparse, optional
            The rows to compare with; by default those of the training.
        ax : matplotlib Axes, optional
        **options
            Passed on to matplotlib's `barh`.

        Returns
        -------
        ContributionDisplay
        """
        if isinstance(estimator, PolyModel):
            found = estimator.contributions(X, output, background=background)
        else:
            from fastpoly.estimators.search import contributions_of

            found = contributions_of(estimator, X, output, background=background)
        if len(found) != 1:
            raise ValueError(f"X must have one row, got {len(found)}")
        if found.values.ndim > 2:
            raise ValueError("say for which output: there are several")
        return cls(found[0], max_columns=max_columns).plot(ax, **options)

    def plot(self, ax: "Axes | None" = None, **options: Any) -> Self:
        """Draw; the arguments are those of `from_estimator`."""
        found, base = self.contributions, float(self.contributions.base_values)
        order = np.argsort(-np.abs(found.values), kind="stable")
        first = order[: self.max_columns]
        values, rest = found.values[first], found.values[order[self.max_columns :]]
        labels = [f"{found.feature_names[j]} = {_short(found.data[j])}" for j in first]
        if len(rest):
            values, labels = np.append(values, rest.sum()), [*labels, f"{len(rest)} others"]
        ends = base + np.cumsum(values)
        ax = get_axes(ax, figsize=(7, 1 + 0.4 * len(labels)))
        colors = np.where(values >= 0, "tab:red", "tab:blue")
        style = {"color": colors, **options}
        self.bars_ = ax.barh(labels, values, left=ends - values, **style)
        for y, (value, end) in enumerate(zip(values, ends, strict=True)):
            ax.annotate(
                f"{value:+.3g}", (max(end, end - value), y), (3, 0), textcoords="offset points",
                va="center", fontsize="small",
            )  # fmt: skip
        ax.axvline(base, color="0.6", linewidth=1, linestyle=":")
        ax.margins(x=0.15)
        ax.invert_yaxis()  # the largest one comes first
        ax.set_xlabel("output")
        ax.set_title(f"from {base:.3g} to {base + found.values.sum():.3g}", fontsize="medium")
        self.ax_, self.figure_ = ax, ax.figure
        return self


class ShapeDisplay:
    """The effect of one column on the outputs, or of two on one output, as a surface.

    The effect is the output minus that at the means of all features, with the other columns at
    their means.

    Parameters
    ----------
    names : sequence of one or two str
        Of the columns.
    grids : sequence of arrays, (g,) each
        Their values: numbers, or levels.
    effect : array-like, (g, m), or (g, h) of two columns
    output_names : sequence of m str, optional
    title : str, optional

    Attributes
    ----------
    ax_, figure_
        Axes and figure of the last plot.

    Examples
    --------
    >>> import numpy as np
    >>> from fastpoly import PolyModel
    >>> from fastpoly.plotting import ShapeDisplay
    >>> model = PolyModel([[1.0, 1.0]], [[1.0]], [0.0], feature_names=["age", "height"])
    >>> model = model.with_background(np.eye(2))
    >>> ShapeDisplay.from_estimator(model, "age").ax_.get_xlabel()
    'age'
    """

    def __init__(
        self, names: Any, grids: Any, effect: ArrayLike, *, output_names: Any = None,
        title: str | None = None,
    ) -> None:  # fmt: skip
        self.names, self.grids = list(map(str, names)), list(map(np.asarray, grids))
        self.effect, self.title = np.asarray(effect, float), title
        self.output_names = None if output_names is None else list(map(str, output_names))
        sizes = [len(grid) for grid in self.grids]
        fits = self.effect.ndim == 2 and list(self.effect.shape[: len(sizes)]) == sizes
        if len(self.names) != len(sizes) or not 1 <= len(sizes) <= 2 or not fits:
            raise ValueError("names, grids and effect must be those of one or two columns")

    @classmethod
    def from_estimator(
        cls, estimator: Any, column: Any, output: Any = None, *, resolution: int = 200,
        max_levels: int = 30, ax: "Axes | None" = None, **options: Any,
    ) -> Self:  # fmt: skip
        """Plot the shape of a column, or of a pair of columns.

        Parameters
        ----------
        estimator : estimator or PolyModel
            One of the six estimators, a search or a Pipeline that ends with one, fitted.
        column : str, int, or a tuple of two
            A column of the frame, or a feature, by name or position.
        output : class, level, name or position
            As in `contributions`: by default all outputs of `decision_function`. A surface needs
            one.
        resolution : int
            Number of values of a number.
        max_levels : int
            If there are more levels, the most frequent ones are shown.
        ax : matplotlib Axes, optional
        **options
            Passed on to matplotlib's `plot` or `pcolormesh`.

        Returns
        -------
        ShapeDisplay
        """
        model = estimator
        if not isinstance(model, PolyModel):
            from fastpoly.estimators.search import fitted_estimator

            fitted, _ = fitted_estimator(estimator)
            model = fitted.model_
            output = None if output is None else fitted._output_position(output)
        columns = column if isinstance(column, tuple) else (column,)
        if not 1 <= len(columns) <= 2:
            raise ValueError("column must be one column, or a tuple of two")
        if model.background is None:
            raise ValueError("the model does not know its training rows: model.with_background")
        mix, labels = model._mix(output)
        if len(columns) == 2 and mix.shape[1] > 1:
            raise ValueError("say for which output: there are several")
        parts = [_grid(model, each, resolution, max_levels) for each in columns]
        names, grids, places, rows = zip(*parts, strict=True)
        if len(parts) == 2:  # all pairs of values
            if names[0] == names[1]:
                raise ValueError(f"column must be two different ones, got {names[0]!r} twice")
            first, second = map(len, rows)
            rows = np.repeat(rows[0], second, axis=0), np.tile(rows[1], (first, 1))
        effect = model.terms().effect(np.hstack(rows), np.concatenate(places), model.background[0])
        effect = effect @ mix
        if len(parts) == 2:
            effect = effect.reshape(first, second)
        title = None
        if output is not None and model.output_names:
            title = model.output_names[model._output(output)]
        return cls(names, grids, effect, output_names=labels, title=title).plot(ax, **options)

    def plot(self, ax: "Axes | None" = None, **options: Any) -> Self:
        """Draw; the arguments are those of `from_estimator`."""
        ax = get_axes(ax, figsize=(6.5, 4.5))
        at = [np.arange(len(g)) if _is_levels(g) else g for g in self.grids]
        if len(at) == 2:
            limit = np.abs(self.effect).max() or 1.0
            style = {"cmap": "RdBu_r", "vmin": -limit, "vmax": limit, "shading": "nearest"}
            image = ax.pcolormesh(*at, self.effect.T, **style | options)
            ax.figure.colorbar(image, ax=ax, label="effect")
            ax.set_ylabel(self.names[1])
            if _is_levels(self.grids[1]):
                ax.set_yticks(at[1], self.grids[1])
        else:
            style = {"marker": "o", "linestyle": "none"} if _is_levels(self.grids[0]) else {}
            lines = ax.plot(at[0], self.effect, **style | options)
            ax.axhline(0, color="0.6", linewidth=1, linestyle=":")
            ax.set_ylabel("effect on the output")
            if self.output_names:
                ax.legend(lines, self.output_names, loc="upper left", bbox_to_anchor=(1, 1))
        if _is_levels(self.grids[0]):
            ax.set_xticks(at[0], self.grids[0], rotation=90)
        ax.set_xlabel(self.names[0])
        if self.title:
            ax.set_title(self.title)
        self.ax_, self.figure_ = ax, ax.figure
        return self


def _grid(
    model: PolyModel, column: Any, resolution: int, max_levels: int
) -> tuple[str, NDArray[Any], NDArray[np.intp], Floats]:
    """The name of a column, values of it, its features, and these at the values, (g, features)."""
    encoding = model.encoding
    names = model.feature_names if encoding is None else encoding.names
    names = [f"x{j}" for j in range(model.n_features)] if names is None else names
    if isinstance(column, str):
        if column not in names:
            raise ValueError(f"there is no column {column!r}; known: {list(names)[:20]}")
        column = list(names).index(column)
    if not 0 <= column < len(names):
        raise ValueError(f"there is no column {column}; there are {len(names)}")
    if encoding is None:
        mean, deviation = model.background[:2, column]
        grid = mean + deviation * np.linspace(-DEVIATIONS, DEVIATIONS, resolution)
        return names[column], grid, np.array([column]), grid[:, None]
    field = encoding.fields[column]
    places = np.flatnonzero(encoding.fields_of_columns == column)
    p = encoding.frequencies[encoding.offsets[column] : encoding.offsets[column + 1]]
    if isinstance(field, Number):
        ends = field.edges[[0, -1]] if len(field.edges) else field.units[0] + np.array([-1.0, 1.0])
        grid = np.linspace(ends[0], ends[1], resolution)
        values = Column(field.name, grid, "number")
        if encoding.form != "codes":
            return field.name, grid, places, field.features(values, encoding.form == "hinges", p)
        codes = field.codes(values)
    else:
        codes = np.sort(np.argsort(-p, kind="stable")[:max_levels])
        grid = np.array([field.code_name(c).removeprefix(f"{field.name}=") for c in codes])
    return field.name, grid, places, np.eye(len(places))[codes]


def _is_levels(grid: NDArray[Any]) -> bool:
    return grid.dtype.kind in "OU"


def _short(value: Any) -> str:
    number = isinstance(value, (float, np.floating))
    return f"{value:.4g}" if number else str(value)[:20]
