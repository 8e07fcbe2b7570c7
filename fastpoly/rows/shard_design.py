"""Shards with an activation, in place of a `Design`."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastpoly.kernels.checks import as_float_array, as_weights
from fastpoly.kernels.losses import complete_loss
from fastpoly.problem import resolve_loss
from fastpoly.rows.block import Targets
from fastpoly.rows.design import check_kind
from fastpoly.rows.engine import ThreadEngine
from fastpoly.rows.shard import Affine, Shard
from fastpoly.rows.shards import Shards
from fastpoly.rows.statistics import Statistics
from fastpoly.rows.stored import Form

Floats = NDArray[np.float64]


class ShardDesign:
    """`Shards` with an activation, in place of a `Design`.

    Parameters
    ----------
    shards : Shards
    activation : {"squared", "anova"}
    fit_lower : {None, "augment", "explicit"}
    center, factor : array-like, (d,), optional
        The features are (x - center) * factor, with x from the shards. Sparse rows have no center,
        and their scaled values are kept in memory.
    n_threads : int or None
        Threads that compute the sums, unless another engine was given; each takes whole shards.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from fastpoly import conditional_gradient, write_shards
    >>> from fastpoly.rows import ShardDesign
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 5))
    >>> y = (X[:, 0] * X[:, 1] > 0).astype(int)
    >>> shards = write_shards(tempfile.mkdtemp(), [(X, y)], rows_per_shard=50)
    >>> design = ShardDesign(shards, "anova")
    >>> *_, state = conditional_gradient(design, alpha=2.0, random_state=0)
    >>> state.stop
    'optimal'
    """

    def __init__(
        self,
        shards: Shards,
        activation: str = "squared",
        *,
        fit_lower: str | None = None,
        center: ArrayLike | None = None,
        factor: ArrayLike | None = None,
        n_threads: int | None = None,
    ) -> None:
        check_kind(activation, fit_lower)
        self.shards, self.activation, self.fit_lower = shards, activation, fit_lower
        self.scaling = self._scaling(center, factor)
        self.n_threads = n_threads

    def _scaling(self, center: ArrayLike | None, factor: ArrayLike | None) -> Affine | None:
        if center is None and factor is None:
            return None
        d = self.shards.n_features
        center = np.zeros(d) if center is None else as_float_array(center, "center", (d,))
        factor = np.ones(d) if factor is None else as_float_array(factor, "factor", (d,))
        if center.any() and self.shards.manifest.kind != "dense":
            raise ValueError("center must be None or zero, because these rows are sparse")
        return Affine(center, factor)

    def largest(self, found: Statistics) -> float:
        """The largest |x|; of centered rows, the largest root mean square of a feature."""
        if self.scaling is None:
            return found.largest
        center, factor = self.scaling
        if found.features is None:
            return float((found.by_column * factor).max())
        mean, deviation = found.features.mean, found.features.deviation
        return float((np.hypot(deviation, mean - center) * factor).max())

    def form(
        self, y: ArrayLike | None, loss: Any, sample_weight: ArrayLike | None,
        n_outputs: int | None,
    ) -> Form:  # fmt: skip
        """How these shards become rows of a fit.

        Parameters
        ----------
        y : array-like, (n_classes,) or (n_classes, m), optional
            The target of the loss for each class of the shards. By default class codes for a
            multi-class loss, -1 and +1 for a binary loss and two classes, and the classes
            themselves for the squared loss. Where targets t are numbers, y is (2, m) and the loss
            takes (t - y[0]) / y[1].
        loss : str or object
        sample_weight : array-like, (n_classes,), optional
            Weights of the classes; the shards hold the weights of the rows.
        n_outputs : int, optional
        """
        y, loss = self._targets(y, loss)
        loss = complete_loss(loss)
        how = self.activation, self.fit_lower, loss
        if self.shards.classes is None:
            if sample_weight is not None:
                raise ValueError("sample_weight must be None: these targets have no classes")
            m = self.shards.manifest.n_targets
            return Form(*how, m, units=y, scaling=self.scaling)
        targets, m = Targets.of(loss, y, n_outputs)
        w = as_weights(sample_weight, "sample_weight", len(self.shards.classes), some=True)
        return Form(*how, m, targets.expanded(), w, scaling=self.scaling)

    def _targets(self, y: ArrayLike | None, loss: Any) -> tuple[NDArray | None, Any]:
        """The targets of every class, or the units of numbers; and the loss."""
        classes = self.shards.classes
        if classes is None:
            m = self.shards.manifest.n_targets
            loss = resolve_loss(loss, np.ones((1, m)))
            if loss.target == "label":
                raise ValueError(
                    f"{type(loss).__name__} needs classes, but the targets of the shards are "
                    'numbers; use loss="squared"'
                )
            if y is not None:
                y = as_float_array(y, "y", (2, m))
                if not (y[1] > 0).all():
                    raise ValueError("y[1], the units of the targets, must be positive")
            return y, loss
        if y is not None:
            y = as_float_array(y, "y", (len(classes), *(None,) * (np.ndim(y) - 1)))
            return y, resolve_loss(loss, y)
        loss = resolve_loss(loss, np.arange(len(classes)))
        if loss.target == "label":
            return np.arange(len(classes)), loss
        if loss.target == "sign":
            if len(classes) != 2:
                raise ValueError(
                    f"y must be given: {type(loss).__name__} takes signs, and there are "
                    f"{len(classes)} classes"
                )
            return np.array([-1.0, 1.0]), loss
        return as_float_array(classes, "the targets of the shards", (None,)), loss


def shard_statistics(
    shards: Shards, n_threads: int | None = None, by_class: Floats | None = None
) -> Statistics:
    """The statistics of stored rows, from one pass; `by_class` are weights of the classes."""
    engine = shards.engine or ThreadEngine(n_threads)
    found = engine.sum(shards.listed(), Shard.statistics, by_class)
    return found if shards.classes is None else found.with_classes(shards.classes)
