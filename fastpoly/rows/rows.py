"""The rows of a fit: a list of blocks, and the engine that adds their sums.

Rows in memory are one block. Rows in shards are a block per shard, here or on a cluster.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from types import SimpleNamespace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastpoly.kernels.checks import as_float_array, as_weights
from fastpoly.kernels.explicit import ExplicitGamma, explicit_pays
from fastpoly.kernels.features import make_features
from fastpoly.kernels.gamma import Gamma
from fastpoly.kernels.losses import complete_loss
from fastpoly.kernels.summed import SummedGamma
from fastpoly.problem import resolve_loss
from fastpoly.rows import design as designs
from fastpoly.rows.block import Block, Form, StoredBlocks, Targets
from fastpoly.rows.design import Curvature, DenseCurvature, Design
from fastpoly.rows.engine import Engine, Point, ThreadEngine
from fastpoly.rows.shards import Part, Shard, Shards
from fastpoly.rows.statistics import Moments, Statistics
from fastpoly.state import Floats, Model

Activations = Callable[[Floats], Floats]  # of basis vectors (k, d) in some rows, (n, k)
Ray = tuple[Callable[[float], tuple[float, float]], float]  # see `Rows.ray`


class Gradient(NamedTuple):
    """The loss at a model, its gradients (as `Model`), and what selection and certificate use."""

    value: float
    V: Floats
    intercept: Floats | None
    linear: Floats | None
    gamma: Callable[[], Gamma]
    conjugate: Callable[[float], float]


class Rows:
    """Blocks of rows with targets and weights, for one loss; one block needs no engine.

    `form` has their activation, fit_lower, loss and m. `shape` is (n_samples, n_features), with the
    constant of fit_lower="augment". `entries` are stored per row; None where rows are dense.
    """

    def __init__(
        self, blocks: Any, engine: Engine | None, form: Any,
        shape: tuple[int, int], entries: float | None,
    ) -> None:  # fmt: skip
        self.blocks, self.engine, self.loss, self.m = blocks, engine, form.loss, form.m
        self.in_memory = engine is None
        self.block: Block | None = blocks[0] if self.in_memory else None
        self.n_samples, self.n_features = shape
        self.activation, self.fit_lower, self.entries = form.activation, form.fit_lower, entries
        self.explicit = form.fit_lower == "explicit"
        self._points = count()
        self._known: dict[Any, float] = {}

    @classmethod
    def of_block(cls, block: Block) -> Self:
        """Rows in memory."""
        M = block.design.matrix
        entries = len(M.arrays[1]) / max(M.n, 1) if M.sparse else None
        return cls([block], None, block, (M.n, M.d), entries)

    @classmethod
    def of_shards(cls, shards: Shards, form: Form, n_threads: int | None = None) -> Self:
        """Rows in shards."""
        blocks = StoredBlocks(shards.list, form, shards.memory)
        entries: float | None = None
        if shards.manifest.kind != "dense":
            entries = sum(shard.n_entries for shard in blocks.shards) / max(shards.n_samples, 1)
        width = shards.manifest.n_features + (form.fit_lower == "augment")
        shape = shards.n_samples, width
        return cls(blocks, shards.engine or ThreadEngine(n_threads), form, shape, entries)

    def sum(self, method: Callable[..., Any], *arguments: Any) -> Any:
        """The sum of a method of `Block` over all blocks."""
        if self.in_memory:
            return method(self.blocks[0], *arguments)
        return self.engine.sum(self.blocks, method, *arguments)

    def point(self, model: Model) -> Point:
        """The model as a point at which blocks keep arrays of their rows."""
        # Where blocks are opened again, their processes need the model in every pass.
        again = isinstance(self.blocks, StoredBlocks) and self.blocks.n_kept < len(self.blocks)
        return Point(next(self._points), model, send=again)

    @property
    def weight(self) -> float:
        """Sum of the weights of the rows."""
        return self._once(Block.weight)

    @property
    def loss_at_zero(self) -> float:
        """The loss of a model without parameters."""
        return self._once(Block.loss_at_zero)

    def _once(self, method: Callable[[Block], float]) -> float:
        if method not in self._known:
            self._known[method] = float(self.sum(method))
        return self._known[method]

    def empty_model(self) -> Model:
        """The model without basis vectors, all zero."""
        d, m = self.n_features, self.m
        linear = np.zeros((d, m)) if self.explicit else None
        return Model(np.zeros((0, d)), np.zeros((0, m)), np.zeros(m), linear)

    def pack(self, model: Model) -> Floats:
        """All parameters in one vector, [H | V | intercept | linear]."""
        parts = model if self.explicit else (model.H, model.V)
        return np.concatenate([part.ravel() for part in parts])

    def unpack(self, x: Floats, k: int) -> Model:
        """The model of k basis vectors in a packed vector, as views of it."""
        d, m = self.n_features, self.m
        H, V, rest = x[: k * d], x[k * d : k * (d + m)], x[k * (d + m) :]
        intercept = rest[:m] if self.explicit else np.zeros(m)
        linear = rest[m:].reshape(d, m) if self.explicit else None
        return Model(H.reshape(k, d), V.reshape(k, m), intercept, linear)

    def value_grad(self, x: Floats, k: int, g: Floats) -> float:
        """The loss at the packed model [H | V | intercept | linear]; its gradient goes to g."""
        if self.block is not None:
            return self.block.value_grad(x, k, g)[0]
        value, g[:] = self.sum(Block.value_grad, x, k)
        return value

    def value(self, model: Model) -> float:
        """The loss."""
        return self.value_layers(model)[0]

    def value_layers(self, model: Model) -> tuple[float, Floats, Floats | None, Floats | None]:
        """The loss and its gradients in V, intercept and linear weights."""
        return self.sum(Block.value_layers, model)

    def squared_norms(self, H: Floats, W: Floats | None = None) -> Floats:
        """sum_i w_i a_i^2 for each activation and, if explicit, the constant and each feature."""
        return self.sum(Block.squared_norms, H, W)

    def gradient(self, model: Model) -> Gradient:
        """The loss and its gradient, with the operators Gamma_c of the row gradients."""
        return self.gradient_at(self.point(model))

    def gradient_at(self, point: Point) -> Gradient:
        """The same at a point."""
        value, *gradients = self.sum(Block.gradient, replace(point, send=True))
        if not np.isfinite(value):
            raise ValueError("the loss overflows; scale X, y or sample_weight down")
        return Gradient(
            value, *gradients, lambda: self._gamma(point),
            lambda c: self.sum(Block.conjugate, point, c),
        )  # fmt: skip

    def _gamma(self, point: Point) -> Gamma:
        if self.block is not None:
            return self.block.own_gamma(point)
        d = self.n_features
        if explicit_pays(self.n_samples, d, self.m, d if self.entries is None else self.entries):
            return ExplicitGamma(self.sum(Block.gamma_matrices, point))
        operators = SimpleNamespace(
            matvecs=partial(self.sum, Block.gamma_sum, point, Gamma.matvecs),
            forms=partial(self.sum, Block.gamma_sum, point, Gamma.forms),
            combine=partial(self.sum, Block.gamma_sum, point, Gamma.combine),
            dense=partial(self.sum, Block.gamma_matrices, point),
        )
        return SummedGamma(d, self.m, operators, self.sample)

    def sample(self, most: int, rng: np.random.Generator) -> Activations:
        """The activations of at most this many distinct rows, drawn at random."""
        X = self.sample_rows(most, rng)
        return Design(X, self.activation, fit_lower=self.fit_lower, n_threads=1).activations

    def sample_rows(self, most: int, rng: np.random.Generator) -> Any:
        """At most this many distinct rows, without the constant: an array or a csr_array."""
        n = self.n_samples
        sizes = [n] if self.in_memory else [shard.n_rows for shard in self.blocks.shards]
        chosen = np.arange(n) if n <= most else np.unique(rng.integers(n, size=most))
        ends = np.cumsum(sizes)
        numbers = np.split(chosen, np.searchsorted(chosen, ends)[:-1])
        numbers = [own - end + size for own, end, size in zip(numbers, ends, sizes, strict=True)]
        parts = self.sum(Block.sample, numbers)
        if self.entries is None:
            return np.vstack(parts)
        from scipy.sparse import vstack

        return vstack(parts, "csr")

    def ray(self, model: Model, H: Floats, V: Floats, W: Floats | None = None) -> Ray:
        """The loss and its slope, by t, with t V on H and linear weights t W added to the model.

        Also a bound on the second derivative, as if of smoothness 1 where that is not known.
        """
        added = replace(self.point(model), send=True), H, V, W
        bound = float(self.loss.smoothness(self.m))
        squares = self.sum(Block.ray_squares, *added)
        bound = squares * (bound if np.isfinite(bound) else 1.0)
        return lambda t: self.sum(Block.ray, *added, t), bound

    def curvature(self, model: Model, penalty: Floats) -> Curvature:
        """The `Curvature`; `penalty` (k,) is the mean one of the penalty in each basis vector."""
        k, d = model.H.shape
        if not designs.has_eigenbasis(self.entries is not None, d):
            return Curvature(None, *self.diagonal_curvature(model))
        point = replace(self.point(model), send=True)
        directions, basis = np.eye(d), np.zeros((k, d))
        if k:
            totals = self.sum(Block.curvature, point, DenseCurvature.totals)
            shares = 1 / np.where(totals > designs.NO_CURVATURE, totals, 1.0)
            mean = self.sum(Block.curvature, point, DenseCurvature.mean, shares)
            mean[np.diag_indices(d)] += shares @ penalty
            directions = designs.shared_directions(mean)
            basis = self.sum(Block.curvature, point, DenseCurvature.along, directions)
        return Curvature(directions, basis, self.sum(Block.curvature, point, DenseCurvature.gram))

    def diagonal_curvature(self, model: Model, flat: bool = False) -> tuple[Any, ...]:
        """The `Curvature` along unit vectors; `flat`: every row has the mean of the curvatures."""
        return self.sum(Block.diagonal_curvature, model, flat)

    def hold_out(self, share: float, seed: int) -> tuple["Rows", "Rows"]:
        """Rows in files to train on, and the random share of them that is held out."""
        whole, shape = self.blocks, (self.n_samples, self.n_features)

        def part(outside: bool) -> Rows:
            own = Part(seed, 0.0, share, outside)
            blocks = StoredBlocks(whole.shards, whole.form, whole.memory, own)
            return Rows(blocks, self.engine, self, shape, self.entries)

        return part(True), part(False)

    def take(self, rows: NDArray[np.bool_]) -> "Rows":
        """Some of the rows in memory, copied."""
        return Rows.of_block(self.block.take(rows))

    def draw(self, n_groups: int, seed: int) -> NDArray[np.intp]:
        """A group for each row in memory, drawn by what it holds; classes are spread evenly."""
        design, (values, table) = self.blocks[0].design, self.blocks[0].targets
        h = np.random.default_rng(seed).standard_normal((1, design.n_features))
        squares = make_features(design.matrix, h, "squared", design.n_threads).activations()[:, 0]
        drawn = np.modf(squares * 2.0**20)[0].round(6)  # digits that look random
        order = np.lexsort((values[:, 0], drawn) if table is None else (drawn, values))
        group = np.empty(self.n_samples, dtype=np.intp)
        group[order] = np.arange(self.n_samples) % n_groups
        return group


@dataclass(frozen=True)
class ShardDesign:
    """`Shards` with an activation, in place of a `Design`.

    Its `y`, where it is given to `conditional_gradient` or `as_rows`, is the target of the loss for
    each class of the shards, (n_classes,) or (n_classes, m). By default that is a class code for a
    multi-class loss, -1 and +1 for a binary loss and two classes, and the class itself for other
    losses. `sample_weight` (n_classes,) are weights of the classes; the shards hold those of rows.

    Parameters
    ----------
    shards : Shards
    activation : {"squared", "anova"}
    fit_lower : {None, "augment", "explicit"}
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

    shards: Shards
    activation: str = "squared"
    fit_lower: str | None = field(default=None, kw_only=True)
    n_threads: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        designs.check_kind(self.activation, self.fit_lower)

    def form(
        self, y: ArrayLike | None, loss: Any, sample_weight: ArrayLike | None,
        n_outputs: int | None,
    ) -> Form:  # fmt: skip
        """How these shards become rows of a fit, with `y` and `sample_weight` by class."""
        classes, m = self.shards.classes, self.shards.manifest.n_targets
        if classes is None:
            for name, given in (("y", y), ("sample_weight", sample_weight)):
                if given is not None:
                    raise ValueError(f"{name} must be None: these targets have no classes")
            loss = resolve_loss(loss, np.ones((1, m)))
            if loss.target == "label":
                raise ValueError(
                    f"{type(loss).__name__} needs classes, but the targets of the shards are "
                    'numbers; use loss="squared"'
                )
            return Form(self.activation, self.fit_lower, complete_loss(loss), m)
        n = len(classes)
        if y is not None:
            y = as_float_array(y, "y", (n, *(None,) * (np.ndim(y) - 1)))
        loss = resolve_loss(loss, np.arange(n) if y is None else y)
        if y is None and loss.target == "label":
            y = np.arange(n)
        elif y is None and loss.target == "sign":
            if n != 2:
                raise ValueError(
                    f"y must be given: {type(loss).__name__} takes signs, and there are {n} classes"
                )
            y = np.array([-1.0, 1.0])
        elif y is None:
            y = as_float_array(classes, "the targets of the shards", (None,))
        loss = complete_loss(loss)
        targets, m = Targets.of(loss, y, n_outputs)
        w = as_weights(sample_weight, "sample_weight", n, some=True)
        return Form(self.activation, self.fit_lower, loss, m, targets.by_row(), w)


def shard_statistics(
    shards: Shards, n_threads: int | None = None, by_class: Floats | None = None
) -> Statistics:
    """The statistics of stored rows, from one pass; `by_class` are weights of the classes."""
    engine = shards.engine or ThreadEngine(n_threads)
    found = engine.sum(shards.list, Shard.statistics, by_class)
    if shards.classes is None or shards.classes.dtype.kind == "U":
        return found
    levels = shards.classes.astype(np.float64)[:, None]
    return replace(found, targets=Moments.of(levels, found.weights))


def as_rows(
    data: Any, y: ArrayLike | Targets | None = None, *, loss: Any = "logistic",
    sample_weight: ArrayLike | None = None, n_outputs: int | None = None,
) -> Rows:  # fmt: skip
    """The rows of a fit from a `Design` and its targets, or from shards; all checks are here."""
    if isinstance(data, Rows):
        return data
    if isinstance(data, Shards):
        data = ShardDesign(data)
    if isinstance(data, ShardDesign):
        form = data.form(y, loss, sample_weight, n_outputs)
        data.shards.check_unchanged()
        found = shard_statistics(data.shards, data.n_threads, form.by_class)
        designs.check_largest(found.largest)
        if not found.weight:
            raise ValueError("the weights of all rows are zero")
        return Rows.of_shards(data.shards, form, data.n_threads)
    if not isinstance(data, Design):
        raise TypeError(f"design must be a Design; wrap X: Design(X), got {type(data).__name__}")
    if y is None:
        raise ValueError("y must be given, because a Design holds no targets")
    n = data.n_samples
    if isinstance(y, Targets):
        loss, targets, m = complete_loss(loss), y, n_outputs
    else:
        loss = complete_loss(resolve_loss(loss, y))
        targets, m = Targets.of(loss, y, n_outputs)
    if len(targets.values) != n:
        raise ValueError(f"y has {len(targets.values)} samples, X has {n}")
    if not n:
        raise ValueError("there are no samples: X and y are empty")
    designs.check_largest(designs.largest_size(data.matrix))
    w = as_weights(sample_weight, "sample_weight", n, some=True)
    return Rows.of_block(Block(data, targets, loss, m, w))
