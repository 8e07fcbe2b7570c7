"""The sums over the rows of one shard, which a thread or a worker computes.

One thread sums a shard in the order of its rows. It keeps the loss gradients D of the rows at the
current model. They are only a cache: any process can compute them again from the model.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpoly.kernels.explicit import explicit_gamma, row_gamma
from fastpoly.kernels.gamma import Gamma
from fastpoly.kernels.joint import JointObjective
from fastpoly.problem import Problem
from fastpoly.rows.design import Design, sparse_values
from fastpoly.rows.pages import huge_pages
from fastpoly.rows.sampling import take_rows
from fastpoly.rows.shard import Affine, Shard
from fastpoly.rows.statistics import Statistics, row_statistics
from fastpoly.rows.sums import RowSums, noise_weights, squared_outputs
from fastpoly.state import Model

Floats = NDArray[np.float64]


class ModelMissing(Exception):
    """The model must be sent, because row gradients have to be computed again."""


@dataclass(frozen=True)
class At:
    """A model and its version. The model itself is sent only where it is not known yet.

    Attributes
    ----------
    version : int
    model : Model or None
    send : bool
        Whether pickling keeps the model.
    """

    version: int
    model: Model | None
    send: bool = False

    def __reduce__(self) -> tuple[Any, ...]:
        return At, (self.version, self.model if self.send else None, self.send)


class ShardRows:
    """The sums of one shard for one problem.

    Parameters
    ----------
    shard : Shard
    place : int
        The position among the shards of the run.
    problem : Problem or None
        Its Y holds the targets of every level, and its w their weights. None is enough for
        `statistics`.
    activation, fit_lower : str
    scaling : Affine or None
    spare : list
        Memory of earlier passes for reuse; all shards of a process share it.
    """

    def __init__(
        self,
        shard: Shard,
        place: int,
        problem: Problem | None,
        activation: str,
        fit_lower: str | None,
        scaling: Affine | None,
        spare: list,
    ) -> None:
        self.shard, self.place, self.template, self.spare = shard, place, problem, spare
        matrix = shard.matrix(fit_lower == "augment", scaling)
        self.design = Design(matrix, activation, fit_lower=fit_lower, n_threads=1)
        self.version = -1
        self.D: Floats | None = None
        self.gammas: dict[bytes, Gamma] = {}

    @cached_property
    def weights(self) -> Floats | None:
        """The weights of the rows, each times the weight of its level."""
        w, problem = self.shard.weights(), self.template
        by_level = None if problem is None else problem.w
        if by_level is None:
            return w
        levels = by_level[self.shard.targets()]
        return levels if w is None else levels * w

    @cached_property
    def objective(self) -> JointObjective:
        problem, y = self.template, self.shard.targets()
        levels = y if y.dtype == np.uint8 else None
        Y = problem.Y if levels is not None else self._numbers(y) if y.ndim == 2 else problem.Y[y]
        return JointObjective(
            self.design.matrix, problem.loss, Y, problem.m, self.weights,
            activation=self.design.activation, linear=self.design.fit_lower == "explicit",
            levels=levels, spare=self.spare,
        )  # fmt: skip

    def _numbers(self, y: Floats) -> Floats:
        """Targets (n, m) that are stored as numbers; an indicator of labels becomes signs."""
        if self.template.loss.target != "sign":
            center, unit = self.template.Y
            plain = not center.any() and (unit == 1).all()
            return self.template.loss.encode(y if plain else (y - center) / unit, self.template.m)
        if not (np.isin(y, (0, 1)).all() or (np.abs(y) == 1).all()):
            raise ValueError(f"shard {self.shard.number}: labels must be 0 and 1, or -1 and +1")
        return np.where(y > 0, 1.0, -1.0)

    @property
    def sums(self) -> RowSums:
        """The sums over rows in memory, for methods that do not need the targets of all rows."""
        problem = replace(self.template, w=self.weights)
        return RowSums(self.design, problem, self.objective)

    @property
    def full_sums(self) -> RowSums:
        """All sums over rows in memory; the targets are made for this one use."""
        problem = replace(self.template, Y=self.objective.targets, w=self.weights)
        return RowSums(self.design, problem, self.objective)

    # --- sums that need the parameters only ---

    def value(self, model: Model) -> float:
        return self.value_layers(model)[0]  # as fast as the outputs, and without their memory

    def value_grad_packed(self, x: Floats, k: int) -> tuple[float, Floats]:
        g = np.empty_like(x)
        return self.objective.value_grad_packed(x, k, g), g

    def value_layers(self, model: Model) -> tuple[Any, ...]:
        return self.sums.value_layers(model)

    def squared_outputs(self, H: Floats, V: Floats) -> float:
        return squared_outputs(self.design.outputs(H, V), self.weights)

    def squared_norms(self, H: Floats) -> Floats:
        return self.sums.squared_norms(H)

    def diagonal_curvature(self, model: Model) -> tuple[Any, ...]:
        return self.sums.diagonal_curvature(model)

    def dense_curvature(self, model: Model, name: str, *arguments: Any) -> Floats:
        return getattr(self.full_sums.dense_curvature(model), name)(*arguments)

    def statistics(self, by_class: Floats | None) -> Statistics:
        """The statistics of these rows, without the classes that their codes stand for.

        `by_class` (n_classes,) are weights of the classes; the weight of a row is multiplied by
        that of its class.
        """
        X, y, w = self.design.matrix, self.shard.targets(), self.shard.weights()
        if by_class is not None:
            w = by_class[y] if w is None else by_class[y] * w
        rows = sparse_values(X) if X.sparse else X.array
        return row_statistics(rows, y, w, self.shard.n_classes)

    def sample(self, numbers: list[NDArray[np.intp]]) -> list[Any]:
        """The rows of this shard among the requested ones, in a list."""
        return [take_rows(self.design.matrix, numbers[self.place])]

    def outputs(self, model: Model) -> Floats:
        """The outputs of all rows, (n, m)."""
        self.shard.check_unchanged()
        O = self.design.outputs(model.H, model.V)
        if self.design.linear is not None:
            O += model.intercept
            O += self.design.linear.outputs(model.linear)
        return O

    # --- sums that need the gradients of the rows ---

    def gradient(self, at: At) -> tuple[Any, ...]:
        """The loss and its gradients in V, intercept and linear weights; D stays here."""
        shape = self.design.n_samples, self.template.m
        D = self.D if self.D is not None else huge_pages(shape)
        self.version, self.gammas = -1, {}
        if at.model is None:
            raise ModelMissing
        value, *gradients, self.D = self.sums.row_gradients(at.model, D)
        self.version = at.version
        return value, *gradients

    def _gradients(self, at: At) -> Floats:
        """D at that model, computed again where it is not here."""
        if self.version != at.version:
            self.gradient(at)
        return self.D

    def conjugate(self, at: At, c: float) -> float:
        D = self._gradients(at)
        return self.full_sums.conjugate(D, c)

    def explicit(self, at: At) -> Floats:
        """The matrices Gamma_c, (m, d, d)."""
        D = self._gradients(at)
        return explicit_gamma(self.design.matrix, D, self.design.activation == "anova").dense()

    def noise_weights(self, at: At) -> Floats:
        return noise_weights(self.design, self._gradients(at), self.weights)

    def noise_matrix(self, at: At) -> Floats:
        """The matrix of the noise level, (1, d, d)."""
        return explicit_gamma(self.design.matrix, self.noise_weights(at), False).dense()

    def noise(self, at: At, name: str, S: Floats | None, *arguments: Any) -> Floats:
        """A method of the operator of the noise level."""
        weights = self.noise_weights(at)
        own = weights if S is None else weights @ S
        gamma = row_gamma(self.design.matrix, own, False)
        return getattr(gamma, name)(*arguments, finite=False)  # `SummedGamma` has checked them

    def gamma(self, at: At, name: str, S: Floats | None, *arguments: Any) -> Floats:
        """A method of the operators sum_c S_ce Gamma_c."""
        D = self._gradients(at)
        key = b"" if S is None else S.tobytes()
        if key not in self.gammas:
            own = D if S is None else D @ S
            anova = self.design.activation == "anova"
            self.gammas = {key: row_gamma(self.design.matrix, own, anova)}
        return getattr(self.gammas[key], name)(*arguments, finite=False)
