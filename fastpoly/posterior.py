"""Averages over the posterior: a chain of models around a fitted one, and their mean.

The density of a model is exp(-T loss) times normal priors by field of columns,

    h_rj ~ N(mu_rf, 1 / lam_rf)     basis vectors, for the columns j of field f
    W_j  ~ N(0, Omega_f^-1)         linear weights; Omega_f is a full (m, m) precision

whose parameters are drawn from their conjugate conditionals after every move. The rows of V keep
their directions, as unit vectors, and H carries the scale: a free V has a funnel with the scale of
H. Moves are underdamped Langevin steps without a correction, in a diagonal metric. The chain needs
nothing of the rows but sums, so it runs wherever a fit runs, with the same bits.
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, logit, softmax

from fastpoly.kernels.blas_threads import one_blas_thread
from fastpoly.kernels.checks import as_float_array
from fastpoly.objective import Objective
from fastpoly.state import Model

Floats = NDArray[np.float64]
Fields = NDArray[np.intp]
Arrays = dict[str, NDArray[Any]]
Record = tuple[dict[str, Any], Arrays]  # scalars that JSON can hold, and arrays

# The step, as a share of the longest that is stable. With .9 nothing is gained, and with .5 a chain
# needs half as many draws again.
STEP_SHARE = 0.8
SHORTEST_SHARE = 1e-3
# Per unit of time. With 1, averages of MovieLens need twice as many draws.
FRICTION = 0.3
MOVES_PER_DRAW = 2
# Draws between two computations of the metric, which also follows each of the first ones.
METRIC_DRAWS = 10
# The mean is compressed within this many dimensions of each field.
FIELD_WIDTH = 40
MEMORY = 2.5e8  # bytes of the draws that are kept
PROBE = 1e-3  # length of the finite difference that finds the largest eigenvalue


@dataclass
class Prior:
    """The parameters of the priors.

    Attributes
    ----------
    fields : ndarray of int, (d,)
        The field of every column.
    mu, lam : ndarray, (k, n_fields)
        Mean and precision of the entries of a basis vector in a field.
    Omega : ndarray, (n_fields, m, m)
        Precision of the linear weights of a field.
    """

    fields: Fields
    mu: Floats
    lam: Floats
    Omega: Floats

    @classmethod
    def of(cls, model: Model, fields: Fields) -> Self:
        """A prior as wide as the entries of a model."""
        k, m, n_fields = len(model.H), model.V.shape[1], int(fields.max()) + 1
        zero = np.zeros((k, n_fields))
        prior = cls(fields, zero, zero + 1, np.tile(np.eye(m), (n_fields, 1, 1)))
        prior.lam = (1 + prior.counts) / (1 + prior.by_field(model.H**2))
        return prior

    @property
    def counts(self) -> NDArray[np.intp]:
        """The number of columns of every field."""
        return np.bincount(self.fields, minlength=self.mu.shape[1])

    def by_field(self, A: Floats) -> Floats:
        """Sums over the columns of every field: (k, d) -> (k, n_fields)."""
        sums = [np.bincount(self.fields, a, self.mu.shape[1]) for a in A]
        return np.reshape(sums, self.mu.shape)

    def draw(self, model: Model, rng: np.random.Generator) -> None:
        """Draw all parameters given a model.

        mu has the prior of one more entry 0; lam that of one more square 1; Omega is Wishart, with
        m degrees of freedom and unit scale.
        """
        counts, sums = self.counts, self.by_field(model.H)
        spread = self.by_field(model.H**2) - 2 * self.mu * sums + (counts + 1) * self.mu**2
        shape = 0.5 * (2 + counts)  # one half more for the density of mu, which lam scales
        self.lam = rng.gamma(shape, size=self.mu.shape) / (0.5 * (1 + spread))
        noise = rng.standard_normal(self.mu.shape)
        self.mu = sums / (counts + 1) + noise / np.sqrt(self.lam * (counts + 1))
        if model.linear is not None:
            m = model.linear.shape[1]
            for f, count in enumerate(counts):
                W = model.linear[self.fields == f]
                root = np.linalg.cholesky(np.linalg.inv(np.eye(m) + W.T @ W))
                Z = rng.standard_normal((m + count, m)) @ root.T
                self.Omega[f] = Z.T @ Z


class Chain:
    """Draws of H, intercept and linear weights.

    Parameters
    ----------
    objective : Objective
        Its penalty does not matter; the priors take its place.
    start : Model
        A fitted model. A chain from elsewhere loses its scale for a hundred draws.
    fields : ndarray of int, (d,)
        The field of every column.
    seed : int
    temper : float or None
        T; None for the squared loss, where it is the precision of the noise, drawn with the rest.

    Attributes
    ----------
    value : float
        The loss of the last draw.
    """

    def __init__(
        self, objective: Objective, start: Model, fields: Fields, seed: int, temper: float | None
    ) -> None:
        self.objective, self.rng = objective, np.random.default_rng(seed)
        norms = np.linalg.norm(start.V, axis=1, keepdims=True)
        norms[norms == 0] = 1.0
        start = start._replace(H=start.H * np.sqrt(norms), V=start.V / norms)
        self.k, self.prior = len(start.H), Prior.of(start, fields)
        self.x, self.n_draws = objective.pack(start), 0
        self.momentum = self.rng.standard_normal(len(self.x))
        self.probe = self.rng.standard_normal(len(self.x))
        self.share = STEP_SHARE
        self.samples_noise, self.temper = temper is None, temper or 1.0
        self.value = objective.loss(start)
        if self.samples_noise:
            self._draw_noise()

    def record(self) -> Record:
        """All that `resume` needs to go on bit for bit, after a first draw."""
        prior, names = self.prior, ("k", "n_draws", "share", "step", "temper", "value")
        scalars = {name: getattr(self, name) for name in (*names, "samples_noise")}
        arrays = {name: getattr(self, name) for name in ("x", "momentum", "probe", "scale")}
        arrays |= {"mu": prior.mu, "lam": prior.lam, "Omega": prior.Omega}
        return {**scalars, "rng": self.rng.bit_generator.state}, arrays

    @classmethod
    def resume(cls, objective: Objective, fields: Fields, record: Record) -> Self:
        """The chain of a record; an error where it is none of this objective."""
        scalars, arrays = record
        k, n_fields, m = int(scalars["k"]), int(fields.max()) + 1, objective.problem.m
        size = len(objective.pack(objective.empty_model())) + k * (objective.rows.n_features + m)
        shapes = {"mu": (k, n_fields), "lam": (k, n_fields), "Omega": (n_fields, m, m)}
        found = {
            name: as_float_array(arrays[name], name, shapes.get(name, (size,))).copy()
            for name in ("x", "momentum", "probe", "scale", *shapes)
        }
        chain = cls(objective, objective.unpack(found["x"], k), fields, 0, 1.0)
        chain.prior = Prior(fields, *(found.pop(name) for name in shapes))
        chain.rng.bit_generator.state = scalars["rng"]
        kinds = {"n_draws": int, "share": float, "step": float, "temper": float, "value": float}
        found |= {name: kind(scalars[name]) for name, kind in kinds.items()}
        vars(chain).update(found, samples_noise=bool(scalars["samples_noise"]))
        return chain

    def draw(self) -> Model:
        """The next model of the chain; ValueError if there is no step that is short enough.

        A move that leaves the region where the metric holds is taken back, and the step is halved
        for good. Nothing else is corrected.
        """
        with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
            if self.n_draws < METRIC_DRAWS or self.n_draws % METRIC_DRAWS == 0:
                self._find_metric(2 if self.n_draws else 10)
            x, value = self.x, self.value
            while not self._move() or self.temper * (self.value - value) > 1000 + len(x):
                self.x, self.value = x, value
                self.momentum = self.rng.standard_normal(len(x))
                self.share *= 0.5
                if self.share < SHORTEST_SHARE:
                    raise ValueError(
                        "the chain diverges with every step; fit with a larger alpha, or scale y"
                    )
                self._find_metric(10)
        model = self.objective.unpack(self.x, self.k)
        self.prior.draw(model, self.rng)
        if self.samples_noise:
            self._draw_noise()
        self.n_draws += 1
        return model

    def _move(self) -> bool:
        """The moves of one draw; whether they end at a finite density.

        The variance of the stiffest direction is too large, by 1 / (1 - share^2). This is wanted:
        with the noise in the middle of the drift (BAOAB), normal densities have the right variance,
        and averages of MovieLens are worse by .002 RMSE with the best temper of all.
        """
        keep, half = np.exp(-FRICTION * self.step), 0.5 * self.step * self.scale
        slope = self._gradient(self.x)[1]
        for _ in range(MOVES_PER_DRAW):
            self.momentum *= keep
            self.momentum += np.sqrt(1 - keep**2) * self.rng.standard_normal(len(self.x))
            self.momentum -= half * slope
            self.x = self.x + 2 * half * self.momentum
            self.value, slope = self._gradient(self.x)
            self.momentum -= half * slope
        return bool(np.isfinite(self.value) and np.isfinite(slope).all())

    def _draw_noise(self) -> None:
        """The precision of the noise; its prior is that of one more residual 1."""
        n = self.objective.rows.weight * self.objective.problem.m
        self.temper = self.rng.gamma(0.5 * (1 + n)) / (0.5 + self.value)

    def _gradient(self, x: Floats) -> tuple[float, Floats]:
        """The loss, and the gradient of -log density, with 0 for V."""
        g, prior = np.empty_like(x), self.prior
        value = self.objective.rows.value_grad(x, self.k, g)
        g *= self.temper
        model, G = self.objective.unpack(x, self.k), self.objective.unpack(g, self.k)
        G.H[:] += (model.H - prior.mu[:, prior.fields]) * prior.lam[:, prior.fields]
        G.V[:] = 0.0
        if model.linear is not None:
            for f, Omega in enumerate(prior.Omega):
                own = prior.fields == f
                G.linear[own] += model.linear[own] @ Omega
        return value, g

    def _find_metric(self, n_iter: int) -> None:
        """The metric at this model, and the step, by a power iteration on the scaled Hessian.

        The curvature of the loss is its mean over the rows: that of confident rows is so small that
        the chain, once there, would not come back.
        """
        model, prior = self.objective.unpack(self.x, self.k), self.prior
        basis, _, *lower = self.objective.rows.diagonal_curvature(model, flat=True)
        parts = [self.temper * basis + prior.lam[:, prior.fields], np.full(model.V.shape, np.inf)]
        if model.linear is not None:
            intercept, linear = lower
            precision = np.einsum("fcc->fc", prior.Omega)[prior.fields]
            parts += [self.temper * intercept, self.temper * linear + precision]
        self.scale = 1 / np.sqrt(np.concatenate([part.ravel() for part in parts]))
        for _ in range(n_iter):
            move = PROBE / np.linalg.norm(self.probe) * self.scale * self.probe
            change = self._gradient(self.x + move)[1] - self._gradient(self.x - move)[1]
            self.probe = self.scale * change / (2 * PROBE)
        self.step = 2 * self.share / np.sqrt(max(float(np.linalg.norm(self.probe)), 1.0))


class Average:
    """The mean of the draws, as one model.

    Output c of the mean is x' M_c x with M_c = sum_r v_rc E[h_r h_r'], which has no low rank. It is
    approximated by few vectors in the least squares of the entries that matter, weighted by the
    mean squares of their columns: pairs of columns of an exclusive field never meet in a row.

    Parameters
    ----------
    objective : Objective
    fields : ndarray of int, (d,)
    exclusive : ndarray of bool, (n_fields,)
        Whether a row has at most one entry in each field.
    memory : float
        Bytes for draws, in single precision; of more, every second one is kept.

    Attributes
    ----------
    draws : list of Model
        Those that are kept, evenly spaced.
    count : int
        Draws so far.
    """

    def __init__(
        self, objective: Objective, fields: Fields, exclusive: NDArray[np.bool_],
        memory: float = MEMORY,
    ) -> None:  # fmt: skip
        rows = objective.rows
        self.explicit, self.fields, self.memory = objective.explicit, fields, memory
        self.exclusive, self.squared = exclusive, rows.activation == "squared"
        self.unit = np.ones(rows.n_features)
        if self.explicit:
            squares = rows.squared_norms(np.zeros((0, rows.n_features)))
            self.unit = np.sqrt(squares[1:] / rows.weight)
        self.draws: list[Model] = []
        self.count, self.every = 0, 1
        self.intercept, self.linear = 0.0, 0.0

    def record(self) -> Record:
        """All that `resume` needs, after a first draw."""
        arrays: Arrays = {"intercept": np.asarray(self.intercept)}
        arrays |= {"linear": np.asarray(self.linear)} if self.explicit else {}
        for name, parts in zip(Model._fields, zip(*self.draws, strict=True), strict=True):
            if parts[0] is not None:
                arrays[f"draws.{name}"] = np.array(parts[:1] if name == "V" else parts)
        return {"count": self.count, "every": self.every}, arrays

    def resume(self, record: Record) -> None:
        """Go on from a record; an error where it is none of these rows."""
        scalars, arrays = record
        d, names = len(self.fields), Model._fields if self.explicit else Model._fields[:3]
        H, V, b = (arrays[f"draws.{name}"] for name in names[:3])
        n, (k, m) = len(H), V.shape[1:]
        shapes = [(n, k, d), (1, k, m), (n, m), (n, d, m)]
        for name, shape in zip(names, shapes, strict=False):
            as_float_array(arrays[f"draws.{name}"], name, shape)
        W = arrays["draws.linear"] if self.explicit else [None] * n
        self.draws = [Model(*parts) for parts in zip(H, [V[0]] * n, b, W, strict=True)]
        self.intercept = as_float_array(arrays["intercept"], "intercept", (m,)).copy()
        self.linear = (
            as_float_array(arrays["linear"], "linear", (d, m)).copy() if self.explicit else None
        )
        self.count, self.every = int(scalars["count"]), int(scalars["every"])

    def add(self, model: Model) -> None:
        """Add a draw."""
        self.intercept = self.intercept + model.intercept
        self.linear = None if model.linear is None else self.linear + model.linear
        if self.count % self.every == 0:
            kept = (None if part is None else part.astype(np.float32) for part in model)
            self.draws.append(Model(*kept)._replace(V=model.V.copy()))
            size = sum(part.nbytes for part in self.draws[0] if part is not None)
            if len(self.draws) * size > self.memory and len(self.draws) > 2:
                self.draws, self.every = self.draws[::2], 2 * self.every
        self.count += 1

    def model(self, n_components: int, seed: int = 0) -> tuple[Model, float]:
        """The mean with at most n_components vectors, and the share of its squares it misses."""
        own = [np.flatnonzero(self.fields == f) for f in range(int(self.fields.max()) + 1)]
        bases = self._ranges(own, np.random.default_rng(seed))
        labels = np.repeat(np.arange(len(own)), [Q.shape[1] for Q in bases])
        G = np.zeros((self.draws[0].V.shape[1], len(labels), len(labels)))
        H: Any = 0.0
        for draw in self.draws:
            P = np.hstack(
                [draw.H[:, j] * self.unit[j] @ Q for j, Q in zip(own, bases, strict=True)]
            )
            H = H + P
            for c, core in enumerate(G):
                core += (P.T * draw.V[:, c]) @ P
        G /= len(self.draws)
        mask = np.ones(G.shape[1:], dtype=bool)
        if not self.squared:  # a column does not meet itself, nor others of an exclusive field
            whole = np.array([len(j) == Q.shape[1] for j, Q in zip(own, bases, strict=True)])
            mask = (labels[:, None] != labels) | ~self.exclusive[labels]
            mask &= ~np.diag(whole[labels])
        largest = np.argsort(-np.linalg.norm(H, axis=1), kind="stable")[:n_components]
        H, V, missed = factorize(G, mask, H[largest] / len(self.draws), self.draws[0].V[largest])
        full = np.zeros((len(H), len(self.fields)))
        parts = np.split(H, np.cumsum([Q.shape[1] for Q in bases])[:-1], axis=1)
        for j, Q, part in zip(own, bases, parts, strict=True):
            full[:, j] = part @ Q.T
        H = np.divide(full, self.unit, out=np.zeros_like(full), where=self.unit > 0)
        norms = np.linalg.norm(H, axis=1, keepdims=True)
        norms[norms == 0] = 1.0
        linear = None if self.linear is None else self.linear / self.count
        return Model(H / norms, V * norms**2, self.intercept / self.count, linear), missed

    def _ranges(self, own: list[Fields], rng: np.random.Generator) -> list[Floats]:
        """Orthonormal columns for every field, (d_f, p), that nearly span the mean."""
        width, m = FIELD_WIDTH, self.draws[0].V.shape[1]
        tests, mix = rng.standard_normal((len(self.fields), width)), rng.standard_normal((m, width))
        apart = 1.0 - self.squared  # whether pairs within an exclusive field are left out
        for _ in range(2):  # the second sketch has far less of the noise of the draws
            sketches = [np.zeros((len(j), width)) for j in own]
            for draw in self.draws:
                parts = [draw.H[:, j] * self.unit[j] for j in own]
                ahead = [H @ tests[j] for H, j in zip(parts, own, strict=True)]
                total, weight = sum(ahead), draw.V @ mix
                for sketch, H, one, f in zip(sketches, parts, ahead, self.exclusive, strict=True):
                    sketch += H.T @ (weight * (total - apart * f * one))
            bases = [np.linalg.qr(sketch)[0] for sketch in sketches]
            for j, Q in zip(own, bases, strict=True):
                tests[j, : Q.shape[1]] = Q
        return [np.eye(len(j)) if len(j) <= width else Q for j, Q in zip(own, bases, strict=True)]


def factorize(
    G: Floats, mask: NDArray[np.bool_], H: Floats, V: Floats
) -> tuple[Floats, Floats, float]:
    """Minimize sum_c |mask (G_c - H' diag(V_c) H)|^2 from H (r, D), V (r, m); G is (m, D, D).

    Also returns the share of |G|^2 that is left.
    """
    r, D = H.shape
    total = float((G * mask * G).sum()) or 1.0

    def value_grad(x: Floats) -> tuple[float, Floats]:
        H, V = x[: r * D].reshape(r, D), x[r * D :].reshape(r, -1)
        E = (np.einsum("rc,ri,rj->cij", V, H, H, optimize=True) - G) * mask
        EH = np.einsum("cij,rj->cri", E, H, optimize=True)
        gH = 4 * np.einsum("rc,cri->ri", V, EH)
        gV = 2 * np.einsum("cri,ri->rc", EH, H)
        return float((E * E).sum()) / total, np.concatenate([gH.ravel(), gV.ravel()]) / total

    found = minimize(
        value_grad, np.concatenate([H.ravel(), V.ravel()]), jac=True, method="L-BFGS-B",
        options={"maxiter": 500},
    )  # fmt: skip
    return found.x[: r * D].reshape(r, D), found.x[r * D :].reshape(r, -1), float(found.fun)


def composite_temper(O: Floats) -> float:
    """T for the outputs O (n, m) of ordered levels, whose loss counts each row m times.

    It is v'Hv / v'Jv for a common shift v of all outputs, with the curvature H of the loss and the
    covariance J of its gradients under the model itself: p_c (1 - p_e) for levels c <= e.
    """
    P = np.sort(expit(O), axis=1)
    curvature = (P * (1 - P)).sum()
    later = np.cumsum((1 - P)[:, ::-1], axis=1)[:, ::-1] - (1 - P)  # sum of 1 - p_e over e > c
    return float(curvature / (curvature + 2 * (P * later).sum())) if curvature else 1.0


class Watch:
    """Outputs of some rows in every draw: whether the chain has mixed, and what the mean lacks.

    Parameters
    ----------
    outputs : callable
        From a model to the outputs (n, m) of the rows.
    target : str
        That of the loss: "sign" (log odds one by one), "label" (softmax), or another.
    """

    def __init__(self, outputs: Any, target: str) -> None:
        self.outputs, self.target = outputs, target
        self.draws: list[Floats] = []

    def add(self, model: Model) -> None:
        """Keep the outputs of a draw."""
        self.draws.append(self.outputs(model))

    def record(self) -> Record:
        """All that `resume` needs."""
        return {}, {"outputs": np.array(self.draws)}

    def resume(self, record: Record) -> None:
        """Go on from a record."""
        self.draws = list(as_float_array(record[1]["outputs"], "outputs", (None, None, None)))

    def rhat(self) -> float:
        """The median over outputs of the split R-hat: 1 for a chain that has mixed."""
        draws = np.array(self.draws)
        half = len(draws) // 2
        if half < 2:
            return 1.0
        halves = np.stack([draws[:half], draws[-half:]])
        within = halves.var(axis=1, ddof=1).mean(axis=0)
        between = half * halves.mean(axis=1).var(axis=0, ddof=1)
        some = within > 0
        ratio = (half - 1) / half + between[some] / (half * within[some])
        return float(np.sqrt(np.median(ratio))) if some.any() else 1.0

    def effective_draws(self) -> float:
        """The median over outputs of the number of independent draws, by means of batches."""
        draws = np.array(self.draws)
        length = max(1, int(np.sqrt(len(draws))))
        n_batches = len(draws) // length
        batches = draws[: n_batches * length].reshape(n_batches, length, *draws.shape[1:])
        spread = length * batches.mean(axis=1).var(axis=0)
        some = spread > 0
        found = len(draws) * draws.var(axis=0)[some] / spread[some]
        return float(min(np.median(found), len(draws))) if some.any() else float(len(draws))

    def calibrate(self, model: Model) -> Model:
        """Scale the outputs of the mean, so that its probabilities are the means of those.

        The probabilities of mean outputs are too sure. Each output gets the slope of the log odds
        of the mean probability over the outputs of the model.
        """
        if self.target not in ("sign", "label"):
            return model
        O, draws = self.outputs(model), np.array(self.draws)
        if self.target == "sign":
            P = expit(draws).mean(axis=0)
            wanted, weight = logit(np.clip(P, 1e-9, 1 - 1e-9)), P * (1 - P)
            slope = (weight * wanted * O).sum(axis=0) / (weight * O * O).sum(axis=0)
        else:
            P = softmax(draws, axis=2).mean(axis=0)
            wanted = np.log(np.maximum(P, 1e-9))
            wanted, O = (A - A.mean(axis=1, keepdims=True) for A in (wanted, O))
            slope = np.full(O.shape[1], (P * wanted * O).sum() / (P * O * O).sum())
        slope = np.where(np.isfinite(slope), np.clip(slope, 0.1, 1.0), 1.0)
        linear = None if model.linear is None else model.linear * slope
        return Model(model.H, model.V * slope, model.intercept * slope, linear)
