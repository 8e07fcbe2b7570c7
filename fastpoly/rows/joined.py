"""Rows that name entities, each with a table of its own, as factorization machines see them.

    X = P B    P (n, L) one-hot keys, an entry per entity;  B (L, d) block-diagonal tables

As `CodedRows`, but pairs of columns within a table count. With z_r = B h_r and the bias

    a_rl = sum_{i<j} h_ri b_li h_rj b_lj = 1/2 (z_rl^2 - sum_j h_rj^2 b_lj^2)

of key l, the outputs are those of the machine (z, V) over keys, with W_l + sum_r v_rc a_rl as
linear weights: a pass over the plain rows at the price of their keys.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from fastpoly.kernels.explicit import ExplicitGamma
from fastpoly.kernels.gamma import Gamma
from fastpoly.kernels.summed import SummedGamma
from fastpoly.rows.block import Block, Point
from fastpoly.rows.coded import CodedRows, Tables
from fastpoly.rows.design import Curvature, Design
from fastpoly.rows.rows import Activations, Gradient, Rows
from fastpoly.state import Model

Floats = NDArray[np.float64]


class JoinedRows(CodedRows):
    """Rows X = P B of a factorization machine.

    Parameters
    ----------
    codes : Rows
        P, with fit_lower="explicit" whatever that of the model is.
    tables : Tables
    fit_lower : {"explicit", "augment", None}
    fields : ndarray of int, (d,)
        Columns that share a prior; see `fastpoly.posterior`.
    exclusive : ndarray of bool, (n_fields,)
        Whether a row has at most one entry in each field.
    """

    def __init__(
        self, codes: Rows, tables: Tables, fit_lower: str | None, fields: NDArray[np.intp],
        exclusive: NDArray[np.bool_],
    ) -> None:  # fmt: skip
        super().__init__(codes, tables)
        self.fit_lower, self.explicit = fit_lower, fit_lower == "explicit"
        self.constant = int(fit_lower == "augment")
        self.n_features = tables.n_columns + self.constant
        self.fields, self.exclusive = fields, exclusive

    def keys(self, H: Floats) -> tuple[Floats, Floats]:
        """Z and the biases A of all keys, (k, L) each, from basis vectors (k, d)."""
        return of_keys(self.tables, self._squared, H, self.constant)

    def level_model(self, model: Model) -> Model:
        Z, A = self.keys(model.H)
        linear = A.T @ model.V
        if model.linear is not None:
            linear += self.tables.levels(model.linear.T).T
        return Model(Z, model.V, model.intercept, linear)

    def value_grad(self, x: Floats, k: int, g: Floats) -> float:
        d, m = self.n_features, self.m
        H, V, rest = np.split(x, [k * d, k * (d + m)])
        H, V = H.reshape(k, d), V.reshape(k, m)
        intercept = rest[:m] if self.explicit else np.zeros(m)
        own = Model(H, V, intercept, rest[m:].reshape(-1, m) if self.explicit else None)
        levels = self.level_model(own)
        packed = np.concatenate([part.ravel() for part in levels])
        gradient = np.empty_like(packed)
        value = self.codes.value_grad(packed, k, gradient)
        ends = np.cumsum([part.size for part in levels])[:-1]
        GZ, GV, Gb, GW = np.split(gradient, ends)
        GZ, GW = GZ.reshape(levels.H.shape), GW.reshape(-1, m)
        G = g[: k * d].reshape(k, d)
        G[:] = self._pull(H, levels.H, V @ GW.T, GZ)
        g[k * d : k * (d + m)] = (GV.reshape(k, m) + self.keys(H)[1] @ GW).ravel()
        if self.explicit:
            g[k * (d + m) :] = np.concatenate([Gb, self._own(GW).ravel()])
        return value

    def _pull(self, H: Floats, Z: Floats, Q: Floats, GZ: Floats | float = 0.0) -> Floats:
        """The gradient in H of sum(GZ * Z) + sum(Q * A), (k, d)."""
        c = self.constant
        ahead = H[:, :c].sum(axis=1, keepdims=True)  # of the constant, or 0
        G = self.tables.columns(GZ + Q * (Z + ahead)) - H[:, c:] * self._squared.columns(Q)
        return np.hstack([(Q * Z).sum(axis=1, keepdims=True), G]) if c else G

    def value_layers(self, model: Model) -> tuple[float, Floats, Floats | None, Floats | None]:
        value, V, intercept, linear = self.codes.value_layers(self.level_model(model))
        V = V + self.keys(model.H)[1] @ linear
        return (value, V, intercept, self._own(linear)) if self.explicit else (value, V, None, None)

    def squared_norms(self, H: Floats) -> Floats:
        norms = self.codes.sum(squared_norms, *self.keys(H))
        if not self.explicit:
            return norms
        L = self.tables.n_levels
        rest = self.codes.squared_norms(np.zeros((0, L)))
        return np.concatenate([norms, rest[:1], self._squared.columns(rest[None, 1:])[0]])

    def gradient(self, model: Model) -> Gradient:
        found = self.codes.gradient(self.level_model(model))
        D = found.linear
        V = found.V + self.keys(model.H)[1] @ D
        own = (found.intercept, self._own(D)) if self.explicit else (None, None)
        return Gradient(
            found.value, V, *own, lambda: self._joined_gamma(found.gamma(), D), found.conjugate
        )

    def _joined_gamma(self, gamma: Gamma, D: Floats) -> Gamma:
        operators = JoinedOperators(self, gamma, D)
        if isinstance(gamma, ExplicitGamma):
            return ExplicitGamma(operators.dense(None))
        return SummedGamma(self.n_features, self.m, operators, self.sample)

    def sample(self, most: int, rng: np.random.Generator) -> Activations:
        P = self.codes.sample_rows(most, rng)
        design = Design(P, "anova", n_threads=1)

        def activations(H: Floats) -> Floats:
            Z, A = self.keys(H)
            return design.activations(Z) + P @ A.T

        return activations

    def ray(
        self, model: Model, H: Floats, V: Floats
    ) -> tuple[Callable[[float], tuple[float, float]], float]:
        point = replace(self.codes.point(self.level_model(model)), send=True)
        Z, A = self.keys(H)
        call = point, Z, V, A.T @ V
        bound = float(self.loss.smoothness(self.m))
        squares = self.codes.sum(ray_squares, *call)
        return (
            lambda t: self.codes.sum(ray, *call, t),
            squares * (bound if np.isfinite(bound) else 1.0),
        )

    def curvature(self, model: Model, penalty: Floats) -> Curvature:
        """Diagonals; a column's share in its own key and in others are added as if apart."""
        found = self.codes.curvature(self.level_model(model), penalty)
        return found._replace(**self._diagonals(model, *found[-2:], found.basis))

    def flat_curvature(self, model: Model) -> tuple[Any, ...]:
        basis, output, *lower = self.codes.flat_curvature(self.level_model(model))
        found = self._diagonals(model, *lower, basis)
        return found["basis"], output, found["intercept"], found["linear"]

    def _diagonals(
        self, model: Model, intercept: Floats, linear: Floats, basis: Floats
    ) -> dict[str, Any]:
        Z, c = self.keys(model.H)[0], self.constant
        H, K = model.H[:, c:], (model.V**2) @ linear.T
        cubed, fourth = power(self.tables, 3), power(self.tables, 4)
        own = self._squared.columns(basis + K * Z**2)
        own += H**2 * fourth.columns(K) - 2 * H * cubed.columns(K * Z)
        own = np.maximum(own, 0.0)
        if c:
            own = np.hstack([(K * Z**2).sum(axis=1, keepdims=True), own])
        if not self.explicit:
            return {"basis": own, "intercept": None, "linear": None}
        columns = self._squared.columns(linear.T).T
        return {"basis": own, "intercept": intercept, "linear": columns}

    def _on(self, codes: Rows) -> Self:
        return type(self)(codes, self.tables, self.fit_lower, self.fields, self.exclusive)


class JoinedOperators:
    """Gamma_c = B' Gamma_c(P) B + 1/2 sum_l s_lc (b_l b_l' - diag(b_l^2)), for `SummedGamma`.

    s = P'D (L, m) are the row gradients, summed over the rows of each key.
    """

    def __init__(self, rows: JoinedRows, gamma: Gamma, s: Floats) -> None:
        self.rows, self.gamma, self.s = rows, gamma, s
        self._combined: tuple[bytes, Gamma] = (b"", gamma)

    def _of(self, S: Floats | None) -> tuple[Gamma, Floats]:
        if S is None:
            return self.gamma, self.s
        if self._combined[0] != S.tobytes():
            self._combined = S.tobytes(), self.gamma.combined(S)
        return self._combined[1], self.s @ S

    def matvecs(self, S: Floats | None, B: Floats) -> Floats:
        gamma, s = self._of(S)
        H = np.ascontiguousarray(B.T)
        Z = self.rows.keys(H)[0]
        G = gamma.matvecs(np.ascontiguousarray(Z.T), finite=False).T
        return np.ascontiguousarray(self.rows._pull(H, Z, 0.5 * s.T, G).T)

    def forms(self, S: Floats | None, h: Floats) -> Floats:
        gamma, s = self._of(S)
        Z, A = self.rows.keys(h[None])
        return gamma.forms(np.ascontiguousarray(Z[0]), finite=False) + A[0] @ s

    def combine(self, S: Floats | None, w: Floats, h: Floats) -> Floats:
        gamma, s = self._of(S)
        Z = self.rows.keys(h[None])[0]
        G = gamma.combine(w, np.ascontiguousarray(Z[0]), finite=False)[None]
        return self.rows._pull(h[None], Z, 0.5 * (s @ w)[None], G)[0]

    def dense(self, S: Floats | None) -> Floats:
        gamma, s = self._of(S)
        eye = np.eye(self.rows.n_features)
        Z = self.rows.keys(eye)[0]
        G = np.stack(
            [
                self.rows._pull(eye, Z, np.tile(0.5 * s[:, c], (len(eye), 1)), Z @ part)
                for c, part in enumerate(gamma.dense())
            ]
        )
        return 0.5 * (G + G.transpose(0, 2, 1))


def of_keys(tables: Tables, squared: Tables, H: Floats, constant: int) -> tuple[Floats, Floats]:
    """Z and the biases A of all keys, from basis vectors that may begin with a constant."""
    Z = tables.levels(H[:, constant:])
    A = 0.5 * (Z * Z - squared.levels(H[:, constant:] ** 2))
    return Z, A + H[:, :1] * Z if constant else A


def power(tables: Tables, p: int) -> Tables:
    """The tables of entries to a power."""
    return Tables([B.power(p) if issparse(B) else B**p for B in tables.blocks])


def squared_norms(block: Block, Z: Floats, A: Floats) -> Floats:
    """sum_i w_i a_ir^2 of the activations of the joined rows."""
    S = block.design.activations(Z) + block.design.linear.outputs(np.ascontiguousarray(A.T))
    return np.einsum("ir,ir->r", S, S if block.w is None else S * block.w[:, None])


def _ray(block: Block, point: Point, Z: Floats, V: Floats, W: Floats) -> tuple[Floats, Floats]:
    def make() -> tuple[Floats, Floats]:
        added = block.design.outputs(Z, V) + block.design.linear.outputs(W)
        return block.outputs(point.model), added

    return block._keep(point, "ray", make)


def ray(
    block: Block, point: Point, Z: Floats, V: Floats, W: Floats, t: float
) -> tuple[float, float]:
    """As `Block.ray`, where V on Z also adds the linear weights W."""
    O, added = _ray(block, point, Z, V, W)
    value, D = block.loss.value_grad(block.objective.targets, O + t * added, block.w)
    return float(value), float(np.vdot(D, added))


def ray_squares(block: Block, point: Point, Z: Floats, V: Floats, W: Floats) -> float:
    """As `Block.ray_squares`."""
    added = _ray(block, point, Z, V, W)[1]
    squares = np.einsum("ic,ic->i", added, added)
    return float((squares if block.w is None else squares * block.w).sum())
