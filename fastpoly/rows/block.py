"""Some of the rows, with targets, weights and a loss: the sums over them that training needs.

Every method takes small arguments and returns a small sum over the rows, so that the sums of
several blocks can be added (`fastpoly.rows.rows`). Arrays with one entry per row stay in the block.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastpoly.kernels.checks import BLOCK_DOUBLES
from fastpoly.kernels.explicit import explicit_gamma, row_gamma
from fastpoly.kernels.gamma import Gamma
from fastpoly.kernels.joint import JointObjective
from fastpoly.kernels.matrix import shared_ones
from fastpoly.rows.design import DenseCurvature, Design, take_rows
from fastpoly.rows.engine import Point, PointMissing, receive
from fastpoly.rows.shards import Part, Shard, ShardList
from fastpoly.rows.statistics import Scaling
from fastpoly.state import Floats, Model


class Targets(NamedTuple):
    """Numbers (n, m), or class codes (n,) and what each is to the loss, (n_classes, 1 or m)."""

    values: NDArray
    table: Floats | None = None

    @classmethod
    def of(cls, loss: Any, y: ArrayLike, n_outputs: int | None) -> tuple["Targets", int]:
        """Check y; return it in the form of a complete loss, and the number of outputs."""
        Y = loss.encode(y, n_outputs)
        if loss.target != "label":
            return cls(Y), n_outputs or Y.shape[1]
        n = len(Y)
        m = int(Y.max(initial=0)) + 1 if n_outputs is None else n_outputs
        # Codes far beyond the number of samples are labels that were never encoded.
        if n_outputs is None and m > max(10 * n, 1):
            raise ValueError(
                f"y holds the class code {m - 1}, but there are only {n} samples; number the "
                "classes 0 .. m - 1, e.g. with np.unique(y, return_inverse=True), or pass n_outputs"
            )
        return cls(as_codes(Y[:, 0], m), np.arange(float(m))[:, None]), m

    def take(self, rows: Any) -> "Targets":
        """The targets of some rows."""
        return self._replace(values=self.values[rows])

    def by_row(self) -> Floats:
        """The targets of every row, (n, 1 or m)."""
        return self.values if self.table is None else self.table[self.values]


def as_codes(values: NDArray, n_classes: int) -> NDArray:
    """Class codes in one byte where that is possible, which passes read fastest."""
    return values.astype(np.uint8 if n_classes <= 256 else np.int64)


class Block:
    """Some rows of a fit: X, targets, a complete loss of m outputs, and weights (n,) or None.

    `place` is the position among the blocks, and `spare` memory that all blocks of a process reuse.
    """

    def __init__(
        self, design: Design, targets: Targets, loss: Any, m: int, w: Floats | None,
        place: int = 0, spare: list | None = None,
    ) -> None:  # fmt: skip
        self.design, self.targets, self.loss, self.m = design, targets, loss, m
        self.w, self.place = w, place
        self.activation, self.fit_lower = design.activation, design.fit_lower
        self.explicit = design.fit_lower == "explicit"
        self._point = -1  # the number of the point for which arrays are kept
        self._kept: dict[str, Any] = {}
        values, table = targets
        bytes_ = table is not None and values.dtype == np.uint8
        self.objective = JointObjective(
            design.matrix, loss, table if bytes_ else targets.by_row(), m, w,
            activation=design.activation, linear=self.explicit, n_threads=design.n_threads,
            levels=values if bytes_ else None, spare=spare,
        )  # fmt: skip

    def take(self, rows: NDArray[np.bool_]) -> "Block":
        """Some of the rows, copied."""
        X, n_threads = take_rows(self.design.matrix, np.flatnonzero(rows)), self.design.n_threads
        design = Design(X, self.activation, fit_lower=self.fit_lower, n_threads=n_threads)
        w = None if self.w is None else self.w[rows]
        return Block(design, self.targets.take(rows), self.loss, self.m, w)

    def weight(self) -> float:
        """Sum of the weights."""
        return float(self.design.n_samples if self.w is None else self.w.sum())

    def loss_at_zero(self) -> float:
        """The loss of a model without parameters."""
        values, table = self.targets
        if table is None:
            return float(self.loss.value(values, np.zeros((len(values), self.m)), self.w))
        by_class = np.bincount(values, self.w, len(table)).astype(np.float64)
        return float(self.loss.value(table, np.zeros((len(table), self.m)), by_class))

    def sample(self, numbers: list[NDArray[np.intp]]) -> list[Any]:
        """Rows by their numbers in this block, in a list of one."""
        return [take_rows(self.design.matrix, numbers[self.place])]

    def value_grad(self, x: Floats, k: int, g: Floats | None = None) -> tuple[float, Floats]:
        """The loss and its gradient at the packed model [H | V | intercept | linear]."""
        g = np.empty_like(x) if g is None else g
        return self.objective.value_grad_packed(x, k, g), g

    def value_layers(self, model: Model) -> tuple[float, Floats, Floats | None, Floats | None]:
        """The loss and its gradients in V, intercept and linear weights."""
        value, _, *parts = self.objective.value_grad(*self._parts(model), basis=False)
        return value, *parts

    def outputs(self, model: Model) -> Floats:
        """The outputs of all rows, (n, m)."""
        return self.objective.outputs(*self._parts(model))

    def squared_norms(self, H: Floats, W: Floats | None = None) -> Floats:
        """sum_i w_i a_i^2 for activations, with W x_i added, and if explicit for [1, x_i]."""
        features, linear, w = self.design.features(H), self.design.linear, self.w
        more = None if W is None else linear.outputs(np.ascontiguousarray(W.T))
        norms = np.zeros(features.k)
        for S, rows in features.blocks():
            S = S if more is None else S + more[rows]
            norms += np.einsum("ir,ir->r", S, S if w is None else S * w[rows, None])
        if linear is None:
            return norms
        w = np.ones(features.n) if w is None else w
        return np.concatenate([norms, [w.sum()], linear.squared_column_norms(w)])

    def diagonal_curvature(self, model: Model, flat: bool = False) -> tuple[Any, ...]:
        """The `Curvature` along unit vectors; `flat`: every row has the mean of the curvatures."""
        return tuple(self.objective.curvature(*self._parts(model), flat=flat))

    def _parts(self, model: Model) -> tuple[Any, ...]:
        return tuple(model) if self.explicit else (model.H, model.V)

    # --- at a point, for which arrays of all rows are kept ---

    def _keep(self, point: Point, key: str, make: Callable[[], Any]) -> Any:
        """What is kept at this point by that key, made where it is not here."""
        if self._point != point.number:
            self._point, self._kept = point.number, {}
        if key not in self._kept:
            if point.model is None:
                raise PointMissing
            self._kept[key] = make()
        return self._kept[key]

    def gradient(self, point: Point) -> tuple[Any, ...]:
        """The loss and its gradients in V, intercept and linear weights."""
        value, *gradients, _ = self._gradient(point)
        return value, *(None if G is None else G.copy() for G in gradients)  # sums overwrite them

    def row_gradients(self, point: Point) -> Floats:
        """The weighted gradients of the loss in the outputs of every row, (n, m)."""
        return self._gradient(point)[-1]

    def _gradient(self, point: Point) -> tuple[Any, ...]:
        def make() -> tuple[Any, ...]:
            D = np.empty((self.design.n_samples, self.m))
            parts = self._parts(point.model)
            value, _, *gradients = self.objective.value_grad(*parts, basis=False, D=D)
            if not np.isfinite(value) or not np.isfinite(D).all():
                raise ValueError("the loss overflows; scale X, y or sample_weight down")
            return value, *gradients, D

        return self._keep(point, "gradient", make)

    def conjugate(self, point: Point, c: float) -> float:
        """sum_i w_i l*(c d_i / w_i); NaN where the loss does not define its conjugate l*."""
        D = self.row_gradients(point)
        return float(self.loss.conjugate(self.objective.targets, D, c, self.w))

    def ray(
        self, point: Point, H: Floats, V: Floats, W: Floats | None, t: float
    ) -> tuple[float, float]:
        """The loss and its slope in t at the point with t V on H, and linear weights t W, added."""
        O, added = self._ray(point, H, V, W)
        value, D = self.loss.value_grad(self.objective.targets, O + t * added, self.w)
        return float(value), float(np.vdot(D, added))

    def ray_squares(self, point: Point, H: Floats, V: Floats, W: Floats | None) -> float:
        """sum_i w_i |a_i|^2 of the outputs a_i that V on H and W add."""
        added = self._ray(point, H, V, W)[1]
        squares = np.einsum("ic,ic->i", added, added)
        return float((squares if self.w is None else squares * self.w).sum())

    def _ray(self, point: Point, H: Floats, V: Floats, W: Floats | None) -> tuple[Floats, Floats]:
        def make() -> tuple[Floats, Floats]:
            added = self.design.outputs(H, V)
            more = added if W is None else added + self.design.linear.outputs(W)
            return self.outputs(point.model), more

        return self._keep(point, "ray", make)

    def curvature(self, point: Point, method: Callable[..., Floats], *arguments: Floats) -> Floats:
        """A sum of `DenseCurvature`; nothing is kept after the last one, `gram`."""

        def make() -> DenseCurvature:
            Y, O = self.objective.targets, self.outputs(point.model)
            return DenseCurvature(self.design, self.loss, Y, self.w, point.model, O)

        found = method(self._keep(point, "curvature", make), *arguments)
        if method is DenseCurvature.gram:
            self._kept.clear()
        return found

    # --- the operators Gamma_c of the row gradients at a point ---

    def own_gamma(self, point: Point) -> Gamma:
        """The operators of these rows alone, in the form that is fastest."""
        return self.design.gamma(self.row_gradients(point))

    def gamma_matrices(self, point: Point, S: Floats | None = None) -> Floats:
        """The operators sum_c S_ce Gamma_c as matrices, (e, d, d)."""
        D, anova = self.row_gradients(point), self.design.activation == "anova"
        return explicit_gamma(self.design.matrix, D if S is None else D @ S, anova).dense()

    def gamma_sum(
        self, point: Point, method: Callable[..., Floats], S: Floats | None, *vectors: Floats
    ) -> Floats:
        """A method of `Gamma` for the operators sum_c S_ce Gamma_c, of which the last are kept."""
        D, anova = self.row_gradients(point), self.design.activation == "anova"
        key = b"" if S is None else S.tobytes()
        known, gamma = self._kept.get("gamma", (None, None))
        if known != key:
            gamma = row_gamma(self.design.matrix, D if S is None else D @ S, anova)
            self._kept["gamma"] = key, gamma
        return method(gamma, *vectors, finite=False)  # `SummedGamma` has checked


@dataclass(frozen=True)
class Form:
    """How stored rows become rows of a fit.

    `table` (n_classes, 1 or m) is what each class is to the loss, None for numbers; `by_class`
    (n_classes,) are weights of classes, and `scaling` the units of features and numbers.
    """

    activation: str
    fit_lower: str | None
    loss: Any
    m: int
    table: Floats | None = None
    by_class: Floats | None = None
    scaling: Scaling | None = None

    def block(self, shard: Shard, place: int, spare: list) -> Block:
        """The rows of a shard."""
        matrix = shard.matrix(self.fit_lower == "augment", self.scaling)
        design = Design(matrix, self.activation, fit_lower=self.fit_lower, n_threads=1)
        y = shard.targets()
        targets = Targets(self._numbers(y, shard) if self.table is None else y, self.table)
        w = shard.weights(self.by_class)
        block = Block(design, targets, self.loss, self.m, w, place, spare)
        block.lock = Lock()
        return block

    def _numbers(self, y: Floats, shard: Shard) -> Floats:
        """Targets (n, m) that are stored as numbers; an indicator of labels becomes signs."""
        if self.loss.target == "sign":
            if not (np.isin(y, (0, 1)).all() or (np.abs(y) == 1).all()):
                raise ValueError(f"shard {shard.number}: labels must be 0 and 1, or -1 and +1")
            return np.where(y > 0, 1.0, -1.0)
        return self.loss.encode(y if self.scaling is None else self.scaling.targets(y), y.shape[1])

    def kept_bytes(self, shard: Shard) -> int:
        """The most that the block of a shard keeps between two passes."""
        n, d = shard.shape
        # Row gradients and their products with signs, or outputs on a ray, or curvatures; besides,
        # targets, weights, and the order in which a pass takes the rows.
        kept = n * (3 * self.m + 3)
        if shard.kind == "dense":
            kept += BLOCK_DOUBLES * (n * d <= BLOCK_DOUBLES)  # what `DenseCurvature` keeps
        elif self.scaling is not None:
            kept += shard.n_entries
        return 8 * kept


class StoredBlocks:
    """The blocks of shards, opened when they are needed; only rows of `part` have a weight.

    Those of the first shards, as many as fit in `memory` bytes, are kept between two passes. Other
    processes know the list by its `key`.
    """

    def __init__(
        self, shards: ShardList, form: Form, memory: float | None = None, part: Part | None = None,
        key: str | None = None,
    ) -> None:  # fmt: skip
        self.shards, self.form, self.memory, self.part = shards, form, memory, part
        self.key = key or secrets.token_hex(16)
        sizes = np.cumsum([form.kept_bytes(shard) for shard in shards])
        self.n_kept = len(sizes) if memory is None else int((sizes <= memory).sum())
        self.spare: list[np.ndarray] = []
        self.opened: dict[int, Block] = {}
        # The constants of rows of a fixed number of entries: once, for the longest shard.
        shapes = (shard.files["indices"].shape for shard in shards if shard.kind == "codes")
        self.longest = max(shapes, default=())

    def __len__(self) -> int:
        return len(self.shards)

    def __getitem__(self, place: int) -> Block:
        if place in self.opened:
            return self.opened[place]
        if self.longest:
            shared_ones(*self.longest)
        shard = self.shards[place]
        shard = shard if self.part is None else shard.part_of(self.part)
        block = self.form.block(shard, place, self.spare)
        return self.opened.setdefault(place, block) if place < self.n_kept else block

    def __reduce__(self) -> tuple[Any, ...]:
        return receive, (StoredBlocks, self.key, self.shards, self.form, self.memory, self.part)
