"""Plots of searches, of training and of models. They need the extra `plot` (matplotlib).

The displays follow scikit-learn: `from_estimator` plots a fitted object, `plot` draws the same
again on other axes, and the display keeps `ax_` and `figure_`. For fitted searches and Pipelines,
the model inside them is shown. Legends stand outside the axes, so that they hide nothing.
"""

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from fastpoly.contributions import Contributions
from fastpoly.interactions import same_field, strongest_features
from fastpoly.kernels.checks import as_count
from fastpoly.model import PolyModel
from fastpoly.plotting.training import ConvergenceDisplay, Display, PathDisplay, plain_text
from fastpoly.state import Floats
from fastpoly.tables.fields import Number
from fastpoly.tables.frames import Column

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "ContributionDisplay",
    "ConvergenceDisplay",
    "InteractionDisplay",
    "PathDisplay",
    "ShapeDisplay",
]


def model_of(estimator: Any, output: Any, default: bool) -> tuple[PolyModel, Any]:
    """The model inside a fitted object, and the output that a user named; or a default one."""
    if not isinstance(estimator, PolyModel):
        from fastpoly.estimators.prediction import fitted_estimator

        fitted, _ = fitted_estimator(estimator)
        named = default or output is not None
        return fitted.model_, fitted._output_position(output) if named else None
    if default and output is None and estimator.n_outputs > 1:
        raise ValueError(f"say which output: a position below {estimator.n_outputs} or a name")
    return estimator, 0 if default and output is None else output


class InteractionDisplay(Display):
    """Heat map of the interactions of features in one output.

    Parameters
    ----------
    matrix : array-like, (d, d)
        The symmetric C of the output x'Cx, as returned by `interaction_matrix`.
    feature_names : sequence of d str, optional
    title : str, optional
    label : str
        What the colors mean.

    Attributes
    ----------
    ax_, figure_
        Axes and figure of the last plot.
    image_ : matplotlib AxesImage

    Examples
    --------
    >>> from fastpoly.plotting import InteractionDisplay
    >>> display = InteractionDisplay([[0.0, 2.0], [2.0, -1.0]], ["age", "income"])
    >>> display.plot().image_.get_clim()
    (-2.0, 2.0)
    """

    def __init__(
        self, matrix: ArrayLike, feature_names: Any = None, *, title: str | None = None,
        label: str = "C in x'Cx",
    ) -> None:  # fmt: skip
        self.matrix, self.title, self.label = np.asarray(matrix, dtype=float), title, label
        d = len(self.matrix)
        if self.matrix.shape != (d, d) or d == 0:
            raise ValueError(f"matrix must be square, got shape {self.matrix.shape}")
        self.feature_names = list(map(str, range(d) if feature_names is None else feature_names))
        if len(self.feature_names) != d:
            raise ValueError(f"feature_names must have {d} entries, got {len(self.feature_names)}")

    @classmethod
    def from_estimator(
        cls, estimator: Any, output: Any = None, *, max_features: int = 30,
        standardized: bool = True, ax: "Axes | None" = None, **options: Any,
    ) -> Self:  # fmt: skip
        """Plot the interactions in one output of a fitted estimator, or of a PolyModel.

        Parameters
        ----------
        estimator : estimator or PolyModel
            One of the six estimators, a search or a Pipeline that ends with one, fitted. For a
            search, the best estimator is shown.
        output : class, level, name or position
            As in `interaction_matrix` of the estimator; for a PolyModel, the name or the position.
        max_features : int
            If there are more features, only those with the largest interactions are shown.
        standardized : bool
            Whether coefficients refer to features in units of their deviation, so that they can be
            compared, or to the features as they are, as where a PolyModel has no background.
        ax : matplotlib Axes, optional
        **options
            Passed on to matplotlib's `imshow`.

        Returns
        -------
        InteractionDisplay
        """
        max_features = as_count(max_features, "max_features")
        model, output = model_of(estimator, output, default=True)
        standardized = standardized and model.background is not None
        terms, c, fields = model.terms(standardized), model._output(output), model.fields
        shown = strongest_features(
            terms.F, terms.V[:, c], max_features, squares=not terms.anova, fields=fields
        )
        matrix = terms._replace(F=terms.F[:, shown]).matrix(c)
        if fields is not None:
            own = same_field(fields[shown], fields[shown])
            matrix[own & ~np.eye(len(shown), dtype=bool)] = 0
        names = model.feature_names or range(model.n_features)
        kinds = {"classification": "class", "multilabel": "label", "ordinal": "level"}
        title = f"{kinds.get(model.task, 'output')} {(model.output_names or range(c + 1))[c]}"
        if not model.output_names and model.n_outputs == 1:
            title = "interactions"
        label = "C in x'Cx" + ", standardized" * standardized
        return cls(matrix, [names[i] for i in shown], title=title, label=label).plot(ax, **options)

    def plot(self, ax: "Axes | None" = None, **options: Any) -> Self:
        """Draw; the arguments are those of `from_estimator`."""
        ax = self._axes(ax, figsize=(7, 6))
        largest = np.abs(self.matrix).max() or 1.0
        limits = {} if "norm" in options else {"vmin": -largest, "vmax": largest}
        self.image_ = ax.imshow(self.matrix, **{"cmap": "RdBu_r", **limits, **options})
        if not self.matrix.any():
            sentence = "there are no interactions:\nthis output is linear"
            ax.text(0.5, 0.5, sentence, transform=ax.transAxes, ha="center", va="center")
        ax.figure.colorbar(self.image_, ax=ax, label=self.label)
        ticks = np.arange(len(self.feature_names))
        size = "small" if len(ticks) <= 15 else "x-small"
        names = list(map(plain_text, self.feature_names))
        ax.set_xticks(ticks, names, rotation=90, fontsize=size)
        ax.set_yticks(ticks, names, fontsize=size)
        ax.set_title(plain_text(self.title or ""))
        return self


class ContributionDisplay(Display):
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
            from fastpoly.estimators.prediction import contributions_of

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
        first, rest = order[: self.max_columns], order[self.max_columns :]
        values, labels = found.values[first], []
        for j in first:
            value = found.data[j]
            number = isinstance(value, (float, np.floating))
            shown = f"{value:.4g}" if number else str(value)[:20]
            labels.append(plain_text(f"{found.feature_names[j]} = {shown}"))
        if len(rest):
            values = np.append(values, found.values[rest].sum())
            labels.append(f"{len(rest)} others")
        ends = base + np.cumsum(values)
        ax = self._axes(ax, figsize=(7, 1 + 0.4 * len(labels)))
        style = {"color": np.where(values >= 0, "tab:red", "tab:blue"), **options}
        self.bars_ = ax.barh(labels, values, left=ends - values, **style)
        text = {"textcoords": "offset points", "va": "center", "fontsize": "small"}
        for y, (value, end) in enumerate(zip(values, ends, strict=True)):
            ax.annotate(f"{value:+.3g}", (max(end, end - value), y), (3, 0), **text)
        ax.axvline(base, color="0.6", linewidth=1, linestyle=":")
        ax.use_sticky_edges = False  # a margin beside bars, for their numbers
        ax.margins(x=0.15)
        ax.invert_yaxis()  # the largest one comes first
        ax.set_xlabel("output")
        ax.set_title(f"from {base:.3g} to {base + found.values.sum():.3g}", fontsize="medium")
        return self


class ShapeDisplay(Display):
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
        column : str, int, or two of them
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
        model, output = model_of(estimator, output, default=False)
        columns = column if isinstance(column, tuple | list) else (column,)
        if not 1 <= len(columns) <= 2:
            raise ValueError("column must be one column, or two of them")
        if model.background is None:
            raise ValueError("the model does not know its training rows: model.with_background")
        mix, labels = model._mix(output)
        if len(columns) == 2 and mix.shape[1] > 1:
            raise ValueError("say for which output: there are several")
        parts = [column_grid(model, each, resolution, max_levels) for each in columns]
        names, grids, places, rows = zip(*parts, strict=True)
        if len(set(names)) < len(names):
            raise ValueError(f"column must be two different ones, got {names[0]!r} twice")
        if len(parts) == 2:  # all pairs of values
            first, second = map(len, rows)
            rows = np.repeat(rows[0], second, axis=0), np.tile(rows[1], (first, 1))
        effect = model.terms().effect(np.hstack(rows), np.concatenate(places), model.background[0])
        effect = (effect @ mix).reshape(len(grids[0]), -1)
        title = None
        if output is not None and model.output_names:
            title = model.output_names[model._output(output)]
        return cls(names, grids, effect, output_names=labels, title=title).plot(ax, **options)

    def plot(self, ax: "Axes | None" = None, **options: Any) -> Self:
        """Draw; the arguments are those of `from_estimator`."""
        ax = self._axes(ax, figsize=(6.5, 4.5))
        levels = [grid.dtype.kind in "OU" for grid in self.grids]
        names = list(map(plain_text, self.names))
        at = [np.arange(len(g)) if own else g for g, own in zip(self.grids, levels, strict=True)]
        if len(at) == 2:
            limit = np.abs(self.effect).max() or 1.0
            style = {"cmap": "RdBu_r", "vmin": -limit, "vmax": limit, "shading": "nearest"}
            image = ax.pcolormesh(*at, self.effect.T, **style | options)
            ax.figure.colorbar(image, ax=ax, label="effect")
            ax.set_ylabel(names[1])
            if levels[1]:
                ax.set_yticks(at[1], list(map(plain_text, self.grids[1])))
        else:
            style = {"marker": "o", "linestyle": "none"} if levels[0] else {}
            lines = ax.plot(at[0], self.effect, **style | options)
            ax.axhline(0, color="0.6", linewidth=1, linestyle=":")
            ax.set_ylabel("effect on the output")
            if self.output_names:
                outputs = list(map(plain_text, self.output_names))
                ax.legend(lines, outputs, loc="upper left", bbox_to_anchor=(1, 1))
        if levels[0]:
            ax.set_xticks(at[0], list(map(plain_text, self.grids[0])), rotation=90)
        ax.set(xlabel=names[0], title=plain_text(self.title or ""))
        return self


def column_grid(
    model: PolyModel, column: Any, resolution: int, max_levels: int
) -> tuple[str, NDArray[Any], NDArray[np.intp], Floats]:
    """The name of a column, values of it, its features, and these at the values, (g, features)."""
    encoding = model.encoding
    names = model.feature_names if encoding is None else encoding.names
    names = [f"x{j}" for j in range(model.n_features)] if names is None else list(names)
    if isinstance(column, str) and column in names:
        column = names.index(column)
    if column not in range(len(names)):
        raise ValueError(f"there is no column {column!r}; known: {len(names)}, {names[:20]}")
    if encoding is None:
        mean, deviation = model.background[:2, column]
        grid = mean + deviation * np.linspace(-2.5, 2.5, resolution)
        return names[column], grid, np.array([column]), grid[:, None]
    field = encoding.fields[column]
    places = np.flatnonzero(encoding.fields_of_columns == column)
    if isinstance(field, Number):
        low, high = field.edges[[0, -1]] if len(field.edges) else field.units[0] + [-1.0, 1.0]
        beyond = (high - low) / 20  # so that the first and the last bin are seen
        grid = np.linspace(low - beyond, high + beyond, resolution)
        rows = csr_array(field.features(Column(field.name, grid, "number"), encoding.form))
        return field.name, grid, places, rows.toarray()
    known = np.flatnonzero(field.shares)  # those that some row of the training has
    codes = np.sort(known[np.argsort(-field.shares[known], kind="stable")][:max_levels])
    grid = np.array([field.column_name(c).removeprefix(f"{field.name}=") for c in codes])
    return field.name, grid, places, np.eye(len(places))[codes]
