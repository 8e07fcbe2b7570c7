"""A chain of models around a fitted one, and the mean of its draws as one small model.

The density of a model is exp(-T loss) times normal priors by field of columns,

    h_rj ~ N(mu_rf, 1 / lam_rf)     basis vectors, for the columns j of field f
    W_j  ~ N(0, Omega_f^-1)         linear weights; Omega_f is a full (m, m) precision

or around a regression on what is known of the levels of a field (`priors.py`). The parameters of
priors are drawn from their conjugate conditionals after every move. The rows of V keep their
directions, as unit vectors, and H carries the scale: a free V has a funnel with the scale of H.
Moves are underdamped Langevin steps without a correction, in a diagonal metric. The chain needs
nothing of the rows but sums, so it runs wherever a fit runs, with the same bits.
"""

from collections.abc import Callable, Iterator
from copy import copy, deepcopy
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array, issparse

from fastpoly.draws import compressed
from fastpoly.kernels.blas_threads import one_blas_thread
from fastpoly.kernels.checks import as_count, as_float_array
from fastpoly.objective import Objective
from fastpoly.priors import Fields, Prior, Side
from fastpoly.rows import CodedRows, Design, Rows
from fastpoly.rows.block import Block
from fastpoly.state import Floats, Model

Arrays = dict[str, NDArray[Any]]

SCALARS = {
    "seed": int, "n_draws": int, "every": int, "share": float, "step": float, "temper": float,
    "value": float, "samples_noise": bool,
}  # fmt: skip


class Chain:
    """Draws of H, intercept and linear weights, from a fitted model on, and what is kept of them.

    `temper` is T; None for the squared loss, where it is the precision of the noise, drawn with the
    rest. `share` is the step relative to the longest that is stable: .9 gains nothing, and .5 needs
    half as many draws again. Of more draws than `memory` bytes hold, in single precision, every
    second one is kept; `outputs` has those of some rows in all of them.
    """

    def __init__(
        self, objective: Objective, start: Model, fields: Fields, seed: int, temper: float | None,
        sides: dict[int, Side] | None = None, *, memory: float = 2.5e8, share: float = 0.8,
    ) -> None:  # fmt: skip
        norms = np.linalg.norm(start.V, axis=1, keepdims=True)
        norms[norms == 0] = 1.0
        start = start._replace(H=start.H * np.sqrt(norms), V=start.V / norms)
        self.objective, self.k, self.memory, self.share = objective, len(start.H), memory, share
        self.seed, self.rng = seed, np.random.default_rng(seed)
        self.watch = watched(objective.rows, fields, np.random.default_rng(seed))
        self.prior, self.x = Prior(start, fields, sides or {}), objective.pack(start)
        self.momentum = self.rng.standard_normal(len(self.x))
        self.probe = self.rng.standard_normal(len(self.x))
        self.scale, self.step, self.n_draws = np.ones(len(self.x)), 0.0, 0
        self.samples_noise, self.temper = temper is None, temper or 1.0
        self.value, self.slope = self._loss(self.x)
        self.total, self.every = np.zeros(len(self.x)), 1
        self.kept: list[NDArray[np.float32]] = []
        self.outputs: list[Floats] = []
        if self.samples_noise:
            self._draw_noise()

    @property
    def model(self) -> Model:
        """The last draw."""
        return self.objective.unpack(self.x, self.k)

    def draw(self) -> Model:
        """The next model of the chain; ValueError if there is no step that is short enough.

        A move out of the region where the metric holds is taken back, and the step halved for good.
        """
        with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
            if self.n_draws in (1, 2, 4, 8) or self.n_draws % 20 == 0:
                self._find_metric(2 if self.n_draws else 10)
            x, value, slope = self.x, self.value, self.slope
            while not self._move() or self.temper * (self.value - value) > 1000 + len(x):
                self.x, self.value, self.slope = x, value, slope
                self.momentum = self.rng.standard_normal(len(x))
                self.share *= 0.5
                if self.share < 1e-3:
                    raise ValueError(
                        "the chain diverges with every step; fit with a larger alpha, or scale y"
                    )
                self._find_metric(10)
        self.prior.draw(self.model, self.rng)
        if self.samples_noise:
            self._draw_noise()
        self.n_draws += 1
        return self.model

    def _move(self, n_moves: int = 2, friction: float = 0.3) -> bool:
        """The moves of one draw; whether they end at a finite density.

        With friction 1, averages of MovieLens need twice as many draws. The variance of the
        stiffest direction is 1 / (1 - share^2) times too large. This is wanted: with the noise in
        the middle of the drift (BAOAB) it is right, and averages of MovieLens are worse by .002.
        """
        keep, half = np.exp(-friction * self.step), 0.5 * self.step * self.scale
        force = self._force(self.x, self.slope)
        for _ in range(n_moves):
            noise = self.rng.standard_normal(len(self.x))
            momentum = keep * self.momentum + np.sqrt(1 - keep**2) * noise - half * force
            self.x = self.x + 2 * half * momentum
            self.value, self.slope = self._loss(self.x)
            force = self._force(self.x, self.slope)
            self.momentum = momentum - half * force
        return bool(np.isfinite(self.value) and np.isfinite(force).all())

    def _draw_noise(self) -> None:
        """The precision of the noise; its prior is that of one more residual 1."""
        n = self.objective.rows.weight * self.objective.problem.m
        self.temper = self.rng.gamma(0.5 * (1 + n)) / (0.5 + self.value)

    def _loss(self, x: Floats) -> tuple[float, Floats]:
        """The loss and its gradient: the pass over the rows."""
        g = np.empty_like(x)
        return self.objective.rows.value_grad(x, self.k, g), g

    def _force(self, x: Floats, slope: Floats) -> Floats:
        """The gradient of -log density at x from that of the loss, with 0 for V."""
        g, prior = self.temper * slope, self.prior
        model, G = self.objective.unpack(x, self.k), self.objective.unpack(g, self.k)
        G.H[:] += (model.H - prior.H) * prior.lam[:, prior.fields]
        G.V[:] = 0.0
        if model.linear is not None:
            for own, Omega in zip(prior.own, prior.Omega, strict=True):
                G.linear[own] += (model.linear[own] - prior.linear[own]) @ Omega
        return g

    def _find_metric(self, n_iter: int, length: float = 1e-3) -> None:
        """The metric at this model, and the step, by a power iteration on the scaled Hessian.

        The curvature is a mean over rows: from confident rows, the chain would not come back.
        """
        model, prior = self.model, self.prior
        basis, _, *lower = self.objective.rows.diagonal_curvature(model, flat=True)
        parts = [self.temper * basis + prior.lam[:, prior.fields], np.full(model.V.shape, np.inf)]
        if model.linear is not None:
            intercept, linear = lower
            precision = np.einsum("fcc->fc", prior.Omega)[prior.fields]
            parts += [self.temper * intercept, self.temper * linear + precision]
        self.scale = 1 / np.sqrt(np.concatenate([part.ravel() for part in parts]))
        force = self._force(self.x, self.slope)
        for _ in range(n_iter):
            x = self.x + length / np.linalg.norm(self.probe) * self.scale * self.probe
            self.probe = self.scale / length * (self._force(x, self._loss(x)[1]) - force)
        self.step = 2 * self.share / np.sqrt(max(float(np.linalg.norm(self.probe)), 1.0))

    def copy(self) -> Self:
        """The chain as it is now, to go back to: draws replace arrays, and never change them."""
        other = copy(self)
        other.prior, other.rng = copy(self.prior), deepcopy(self.rng)
        other.kept, other.outputs = self.kept.copy(), self.outputs.copy()
        return other

    def keep(self) -> None:
        """Add the last draw to the mean, and watch it."""
        self.total = self.total + self.x
        if len(self.outputs) % self.every == 0:
            self.kept.append(self.x.astype(np.float32))
            if len(self.kept) * self.kept[0].nbytes > self.memory and len(self.kept) > 2:
                self.kept, self.every = self.kept[::2], 2 * self.every
        self.outputs.append(self.watch(self.model))

    def kept_models(self) -> Iterator[Model]:
        """The draws that are kept, evenly spaced, in single precision; they share V."""
        for x in self.kept:
            yield self.objective.unpack(x, self.k)._replace(V=self.model.V)

    def mean(self, n_components: int, exclusive: NDArray[np.bool_]) -> tuple[Model, float]:
        """The mean with at most n_components vectors, and the share of its squares it misses.

        `exclusive` (n_fields,) says whether a row has at most one entry in each field.
        """
        rows, unit = self.objective.rows, np.ones(self.objective.rows.n_features)
        if self.objective.explicit:
            squares = rows.squared_norms(np.zeros((0, rows.n_features)))[1:]
            seen = squares > 0
            rarest = squares[seen].min(initial=rows.weight)  # what never occurred counts as much
            unit = np.sqrt(np.where(seen, squares, rarest) / rows.weight)
        squared = rows.activation == "squared"
        H, V, missed = compressed(
            self.kept_models, self.prior.fields, exclusive & (not squared), squared, unit,
            n_components,
        )  # fmt: skip
        mean = self.objective.unpack(self.total / len(self.outputs), self.k)
        return mean._replace(H=H, V=V), missed

    # --- checkpoints ---

    def _arrays(self) -> Arrays:
        prior = {f"prior.{name}": getattr(self.prior, name) for name in Prior.ARRAYS}
        names = ("x", "momentum", "probe", "scale", "total")
        return {name: getattr(self, name) for name in names} | prior

    def record(self) -> tuple[dict[str, Any], Arrays]:
        """Scalars for JSON, and arrays: all that `resume` needs to go on bit for bit."""
        scalars = {name: getattr(self, name) for name in SCALARS}
        kept: Arrays = {"kept": np.array(self.kept), "outputs": np.array(self.outputs)}
        state = {"k": self.k, "rng": self.rng.bit_generator.state}
        return scalars | state, kept | self._arrays()

    @classmethod
    def resume(
        cls, objective: Objective, fields: Fields, sides: dict[int, Side], memory: float,
        scalars: Any, arrays: Arrays,
    ) -> Self:  # fmt: skip
        """The chain of a record; an error where it is none of this objective."""
        k, d, m = int(scalars["k"]), objective.rows.n_features, objective.problem.m
        size = len(objective.pack(objective.empty_model())) + k * (d + m)
        start = objective.unpack(as_float_array(arrays["x"], "x", (size,)), k)
        chain = cls(objective, start, fields, int(scalars["seed"]), 1.0, sides, memory=memory)
        for name, own in chain._arrays().items():
            own[...] = as_float_array(arrays[name], name, own.shape)
        vars(chain).update({name: kind(scalars[name]) for name, kind in SCALARS.items()})
        chain.rng.bit_generator.state = scalars["rng"]
        chain.kept = list(as_float_array(arrays["kept"], "kept", (None, size)).astype(np.float32))
        chain.outputs = list(as_float_array(arrays["outputs"], "outputs", (None, None, m)))
        return chain


# --- the rows of a chain ---


def watched(
    rows: Rows, fields: Fields, rng: np.random.Generator, most: int = 1000
) -> Callable[[Model], Floats]:
    """A function from models to outputs of some rows.

    Where there are fields, each comes from rows of its own, so that most of these rows are new.
    """
    codes = rows.codes if isinstance(rows, CodedRows) else rows
    X = codes.sample_rows(most, rng)
    labels = fields[len(fields) - X.shape[1] :]
    if isinstance(rows, CodedRows):
        sizes = np.diff(rows.tables.level_offsets)
        labels = np.repeat(np.arange(len(sizes)), sizes)[-X.shape[1] :]
    parts = []
    for f in np.unique(labels):
        shuffled = X[rng.permutation(X.shape[0])]
        mask = (labels == f).astype(np.float64)
        parts.append(shuffled @ diags_array(mask) if issparse(X) else shuffled * mask)
    X = csr_array(sum(parts)) if issparse(X) else sum(parts)
    design = Design(X, rows.activation, fit_lower=codes.fit_lower, n_threads=1)

    def outputs(model: Model) -> Floats:
        if isinstance(rows, CodedRows):
            model = rows.level_model(model)
        H, V = np.ascontiguousarray(model.H), np.ascontiguousarray(model.V)
        O = design.outputs(H, V) + model.intercept
        return O if model.linear is None else O + X @ model.linear

    return outputs


def field_labels(rows: Rows, sizes: list[int] | None) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """The field of every column, and whether a row has at most one entry in each field."""
    if isinstance(rows, CodedRows):
        return rows.fields, rows.exclusive
    constant = int(rows.fit_lower == "augment")
    d = rows.n_features - constant
    if sizes is None:
        sizes = one_hot_fields(rows)
        exclusive = np.full(len(sizes), len(sizes) > 1)
    else:
        sizes = [as_count(s, "fields") for s in sizes]
        if sum(sizes) != d:
            raise ValueError(f"fields must add up to the {d} columns of X, got {sum(sizes)}")
        exclusive = np.max(rows.sum(most_entries, sizes), axis=0) <= 1
    labels = np.repeat(np.arange(len(sizes)), sizes)
    labels = np.append(np.zeros(constant, np.intp), labels + constant)  # the constant comes first
    return labels, np.append(np.ones(constant, bool), exclusive)


def one_hot_fields(rows: Rows) -> list[int]:
    """The sizes of the fields of one-hot rows; one field where there are none.

    All rows must have as many entries, and the columns of their first, second, ... must be apart.
    """
    d = rows.n_features - (rows.fit_lower == "augment")
    found = rows.sum(entry_ranges)
    if len({len(one) for one in found}) > 1 or not len(found[0]):
        return [d]
    first, last = np.min(found, axis=0)[:, 0], np.max(found, axis=0)[:, 1]
    apart = (last[:-1] < first[1:]).all()
    return np.diff(np.r_[0, last[:-1] + 1, d]).tolist() if apart else [d]


def most_entries(block: Block, sizes: list[int]) -> list[NDArray]:
    """The most entries of a row of a block in fields of these sizes, (n_fields,), in a list."""
    matrix, d = block.design.matrix, sum(sizes)
    if matrix.sparse:
        _, indices, indptr = matrix.arrays
        X = csr_array((np.ones(len(indices)), indices, indptr), shape=(matrix.n, d))
    else:
        X = csr_array(matrix.rows(slice(None)) != 0)
    labels = np.repeat(np.arange(len(sizes)), sizes)
    by_field = csr_array((np.ones(d), labels, np.arange(d + 1)), shape=(d, len(sizes)))
    return [(X @ by_field).max(axis=0).toarray()]


def entry_ranges(block: Block) -> list[NDArray]:
    """The least and largest column of each entry of the rows of a block, in a list of one.

    (width, 2), or (0, 2) where rows are dense or differ in their number of entries.
    """
    matrix = block.design.matrix
    width = int(matrix.arrays[2][1]) if matrix.sparse and matrix.n else 0
    if not width or (np.diff(matrix.arrays[2]) != width).any():
        return [np.empty((0, 2))]
    columns = np.sort(np.reshape(matrix.arrays[1], (matrix.n, width)), axis=1)
    return [np.stack([columns.min(axis=0), columns.max(axis=0)], axis=1)]
