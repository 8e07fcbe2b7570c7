"""A chain of models around a fitted one, and the mean of its draws as one small model.

The density of a model is exp(-T loss) times normal priors by field of columns,

    h_rj ~ N(mu_rf, 1 / lam_rf)     basis vectors, for the columns j of field f
    W_j  ~ N(0, Omega_f^-1)         linear weights; Omega_f is a full (m, m) precision

or around a regression on what is known of the levels of a field (`Side`). The parameters of priors
are drawn from their conjugate conditionals after every move. The rows of V keep their directions,
as unit vectors, and H carries the scale: a free V has a funnel with the scale of H. Moves are
underdamped Langevin steps without a correction, in a diagonal metric. The chain needs nothing of
the rows but sums, so it runs wherever a fit runs, with the same bits.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse import csr_array, diags_array, issparse
from scipy.sparse.linalg import svds
from scipy.special import expit, logit, softmax

from fastpoly.kernels.blas_threads import one_blas_thread
from fastpoly.kernels.checks import as_float_array
from fastpoly.objective import Objective
from fastpoly.rows import CodedRows, Design, Rows
from fastpoly.state import Floats, Model

Fields = NDArray[np.intp]
Arrays = dict[str, NDArray[Any]]

SCALARS = {
    "seed": int, "n_draws": int, "every": int, "share": float, "step": float, "temper": float,
    "value": float, "samples_noise": bool,
}  # fmt: skip


class Prior:
    """The parameters of the priors of a model, and draws of them.

    `sides` has, for fields whose levels have side information C (d_f, p), its `Side`. Their
    vectors are a regression on it: h_r = mu_r + U diag(S) b_r + N(0, I / lam_r) with b_r ~
    N(0, I / (tau_r lam_r)), and so are their linear weights, without mu and with one tau.
    """

    ARRAYS = ("mu", "lam", "tau", "Omega", "linear_tau", "H", "linear")

    def __init__(self, model: Model, fields: Fields, sides: "dict[int, Side]") -> None:
        k, m, n_fields = len(model.H), model.V.shape[1], int(fields.max()) + 1
        self.fields, self.sides = fields, sides
        self.own = [np.flatnonzero(fields == f) for f in range(n_fields)]
        self.mu, self.tau = np.zeros((k, n_fields)), np.ones((k, n_fields))
        squares = [(1 + len(j)) / (1 + (model.H[:, j] ** 2).sum(axis=1)) for j in self.own]
        self.lam = np.stack(squares, axis=1)
        self.Omega, self.linear_tau = np.tile(np.eye(m), (n_fields, 1, 1)), np.ones(n_fields)
        self.H, self.linear = np.zeros((k, len(fields))), np.zeros((len(fields), m))  # the means

    def draw(self, model: Model, rng: np.random.Generator) -> None:
        """Draw all parameters given a model, from their conjugate conditionals.

        mu has the prior of one more entry 0, lam and tau that of one more square 1; Omega is
        Wishart, with m degrees of freedom and unit scale.
        """
        for f, own in enumerate(self.own):
            side = self.sides.get(f) or Side.none(len(own))
            self._draw_basis(f, own, side, model.H[:, own], rng)
            if model.linear is not None:
                self._draw_linear(f, own, side, model.linear[own], rng)

    def _draw_basis(
        self, f: int, own: Fields, side: "Side", H: Floats, rng: np.random.Generator
    ) -> None:
        mu, lam, tau = (a[:, f, None] for a in (self.mu, self.lam, self.tau))
        (k, n), p = H.shape, len(side.S)
        precision = side.S**2 + tau
        b = side.S / precision * ((H - mu) @ side.U)
        b += rng.standard_normal((k, p)) / np.sqrt(lam * precision)
        squares = (b * b).sum(axis=1)
        tau = rng.gamma(0.5 * (1 + p), size=k) / (0.5 * (1 + lam[:, 0] * squares))
        known = (b * side.S) @ side.U.T
        spread = ((H - known - mu) ** 2).sum(axis=1) + mu[:, 0] ** 2 + tau * squares
        lam = rng.gamma(0.5 * (2 + n + p), size=k) / (0.5 * (1 + spread))
        mu = (H - known).sum(axis=1) / (n + 1) + rng.standard_normal(k) / np.sqrt(lam * (n + 1))
        self.mu[:, f], self.lam[:, f], self.tau[:, f] = mu, lam, tau
        self.H[:, own] = known + mu[:, None]

    def _draw_linear(
        self, f: int, own: Fields, side: "Side", W: Floats, rng: np.random.Generator
    ) -> None:
        (n, m), p, Omega = W.shape, len(side.S), self.Omega[f]
        precision = (side.S**2 + self.linear_tau[f])[:, None]
        b = side.S[:, None] / precision * (side.U.T @ W)
        root = np.linalg.cholesky(np.linalg.inv(Omega))
        b += rng.standard_normal((p, m)) @ root.T / np.sqrt(precision)
        tau = rng.gamma(0.5 * (1 + p * m)) / (0.5 * (1 + np.sum(b @ Omega * b)))
        known = side.U @ (side.S[:, None] * b)
        E = np.vstack([W - known, np.sqrt(tau) * b])
        root = np.linalg.cholesky(np.linalg.inv(np.eye(m) + E.T @ E))
        Z = rng.standard_normal((m + n + p, m)) @ root.T
        self.Omega[f], self.linear_tau[f], self.linear[own] = Z.T @ Z, tau, known


class Side(NamedTuple):
    """What is known of n levels: C diag(unit) = U diag(S) R'; loadings are diag(unit) R, (p, r)."""

    U: Floats
    S: Floats
    loadings: Floats

    @classmethod
    def none(cls, n: int) -> Self:
        return cls(np.zeros((n, 0)), np.zeros(0), np.zeros((0, 0)))

    @classmethod
    def of(cls, C: csr_array, unit: Floats, most: int = 300) -> Self:
        """The leading directions of C (n, p), whose columns were multiplied by units (p,)."""
        if min(C.shape) > 2000:
            v0 = np.random.default_rng(0).standard_normal(min(C.shape))
            U, S, R = svds(C, k=most, v0=v0)
        else:
            U, S, R = np.linalg.svd(C.toarray(), full_matrices=False)
        kept = np.greater(S, 1e-6 * S.max())
        return cls(U[:, kept], S[kept], unit[:, None] * R[kept].T)

    def split(self, Z: Floats, tau: float) -> Floats:
        """The weights of columns (k, p) by which a ridge regression explains vectors (k, n)."""
        return Z @ self.U * (self.S / (self.S**2 + tau)) @ self.loadings.T


class Chain:
    """Draws of H, intercept and linear weights, from a fitted model on, and what is kept of them.

    `temper` is T; None for the squared loss, where it is the precision of the noise, drawn with the
    rest. `share` is the step relative to the longest that is stable: with .9 nothing is gained, and
    with .5 a chain needs half as many draws again. Of more draws than `memory` bytes hold, in
    single precision, every second one is kept; `outputs` has those of some rows in all of them.
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
        self.value = objective.loss(start)
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

        A move that leaves the region where the metric holds is taken back, and the step is halved
        for good. Nothing else is corrected.
        """
        with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
            if self.n_draws < 10 or self.n_draws % 10 == 0:
                self._find_metric(2 if self.n_draws else 10)
            x, value = self.x, self.value
            while not self._move() or self.temper * (self.value - value) > 1000 + len(x):
                self.x, self.value = x, value
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

        With friction 1 per unit of time, averages of MovieLens need twice as many draws. The
        variance of the stiffest direction is too large, by 1 / (1 - share^2). This is wanted:
        with the noise in the middle of the drift (BAOAB), normal densities have the right variance,
        and averages of MovieLens are worse by .002 RMSE with the best temper of all.
        """
        keep, half = np.exp(-friction * self.step), 0.5 * self.step * self.scale
        slope = self._gradient(self.x)[1]
        for _ in range(n_moves):
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
        G.H[:] += (model.H - prior.H) * prior.lam[:, prior.fields]
        G.V[:] = 0.0
        if model.linear is not None:
            for own, Omega in zip(prior.own, prior.Omega, strict=True):
                G.linear[own] += (model.linear[own] - prior.linear[own]) @ Omega
        return value, g

    def _find_metric(self, n_iter: int, length: float = 1e-3) -> None:
        """The metric at this model, and the step, by a power iteration on the scaled Hessian.

        The curvature of the loss is its mean over the rows: that of confident rows is so small that
        the chain, once there, would not come back.
        """
        model, prior = self.model, self.prior
        basis, _, *lower = self.objective.rows.diagonal_curvature(model, flat=True)
        parts = [self.temper * basis + prior.lam[:, prior.fields], np.full(model.V.shape, np.inf)]
        if model.linear is not None:
            intercept, linear = lower
            precision = np.einsum("fcc->fc", prior.Omega)[prior.fields]
            parts += [self.temper * intercept, self.temper * linear + precision]
        self.scale = 1 / np.sqrt(np.concatenate([part.ravel() for part in parts]))
        for _ in range(n_iter):
            move = length / np.linalg.norm(self.probe) * self.scale * self.probe
            change = self._gradient(self.x + move)[1] - self._gradient(self.x - move)[1]
            self.probe = self.scale * change / (2 * length)
        self.step = 2 * self.share / np.sqrt(max(float(np.linalg.norm(self.probe)), 1.0))

    def keep(self) -> None:
        """Add the last draw to the mean, and watch it."""
        self.total += self.x
        if len(self.outputs) % self.every == 0:
            self.kept.append(self.x.astype(np.float32))
            if len(self.kept) * self.kept[0].nbytes > self.memory and len(self.kept) > 2:
                self.kept, self.every = self.kept[::2], 2 * self.every
        self.outputs.append(self.watch(self.model))

    def kept_models(self) -> Iterator[Model]:
        """The draws that are kept, evenly spaced; they share V."""
        for x in self.kept:
            yield self.objective.unpack(x.astype(np.float64), self.k)._replace(V=self.model.V)

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


# --- the mean as one model ---


def compressed(
    models: Callable[[], Iterator[Model]], fields: Fields, exclusive: NDArray[np.bool_],
    squared: bool, unit: Floats, n_components: int, width: int = 40,
) -> tuple[Floats, Floats, float]:  # fmt: skip
    """H (r, d), V (r, m) of the mean of models that share V, and the share of squares they miss.

    Output c of the mean is x' M_c x with M_c = sum_r v_rc E[h_r h_r'], which has no low rank. It is
    approximated in the least squares of the entries that matter, weighted by `unit` (d,), the root
    mean squares of columns, and within `width` dimensions of each field.
    """
    own = [np.flatnonzero(fields == f) for f in range(len(exclusive))]
    V, n = next(models()).V, 0

    def draws() -> Iterator[list[Floats]]:  # by field, (k, d_f) each, one draw at a time in memory
        return ([model.H[:, j] * unit[j] for j in own] for model in models())

    bases = field_ranges(draws, [len(j) for j in own], V, exclusive, width)
    labels = np.repeat(np.arange(len(own)), [Q.shape[1] for Q in bases])
    G, H = np.zeros((V.shape[1], len(labels), len(labels))), np.zeros((len(V), len(labels)))
    for parts in draws():
        n += 1
        P = np.hstack([part @ Q for part, Q in zip(parts, bases, strict=True)])
        H += P
        for c, core in enumerate(G):
            core += (P.T * V[:, c]) @ P
    mask = (labels[:, None] != labels) | ~exclusive[labels]
    if not squared:  # a column does not meet itself
        whole = np.array([len(j) == Q.shape[1] for j, Q in zip(own, bases, strict=True)])
        mask &= ~np.diag(whole[labels])
    largest = np.argsort(-np.linalg.norm(H, axis=1), kind="stable")[:n_components]
    H, V, missed = factorize(G / n, mask, H[largest] / n, V[largest])
    full = np.zeros((len(H), len(fields)))
    for f, (j, Q) in enumerate(zip(own, bases, strict=True)):
        full[:, j] = H[:, labels == f] @ Q.T
    H = np.divide(full, unit, out=np.zeros_like(full), where=unit > 0)
    norms = np.linalg.norm(H, axis=1, keepdims=True)
    norms[norms == 0] = 1.0
    return H / norms, V * norms**2, missed


def field_ranges(
    draws: Callable[[], Iterator[list[Floats]]], sizes: list[int], V: Floats,
    exclusive: NDArray[np.bool_], width: int,
) -> list[Floats]:  # fmt: skip
    """Orthonormal columns for every field, (d_f, at most width), that nearly span the mean."""
    rng = np.random.default_rng(0)
    tests = np.split(rng.standard_normal((sum(sizes), width)), np.cumsum(sizes)[:-1])
    weight = V @ rng.standard_normal((V.shape[1], width))
    for _ in range(2):  # the second sketch has far less of the noise of the draws
        sketches = [np.zeros((size, width)) for size in sizes]
        for parts in draws():
            ahead = [part @ test for part, test in zip(parts, tests, strict=True)]
            total = sum(ahead)
            for sketch, part, one, apart in zip(sketches, parts, ahead, exclusive, strict=True):
                sketch += part.T @ (weight * (total - apart * one))
        bases = [np.linalg.qr(sketch)[0] for sketch in sketches]
        for test, Q in zip(tests, bases, strict=True):
            test[:, : Q.shape[1]] = Q
    return [np.eye(s) if s <= width else Q for s, Q in zip(sizes, bases, strict=True)]


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


# --- rows that watch a chain ---


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


def composite_temper(O: Floats) -> float:
    """T for the outputs O (n, m) of ordered levels, whose loss counts each row m times.

    It is v'Hv / v'Jv for a common shift v of all outputs, with the curvature H of the loss and the
    covariance J of its gradients under the model itself: p_c (1 - p_e) for levels c <= e.
    """
    P = np.sort(expit(O), axis=1)
    curvature = (P * (1 - P)).sum()
    later = np.cumsum((1 - P)[:, ::-1], axis=1)[:, ::-1] - (1 - P)  # sum of 1 - p_e over e > c
    return float(curvature / (curvature + 2 * (P * later).sum())) if curvature else 1.0


def split_rhat(draws: Floats) -> float:
    """The median of the split R-hat over the outputs of draws, (N, ...): 1 if they have mixed."""
    half = len(draws) // 2
    if half < 2:
        return 1.0
    halves = np.stack([draws[:half], draws[-half:]])
    within = halves.var(axis=1, ddof=1).mean(axis=0)
    between = halves.mean(axis=1).var(axis=0, ddof=1)
    some = within > 0
    ratio = (half - 1) / half + between[some] / within[some]
    return float(np.sqrt(np.median(ratio))) if some.any() else 1.0


def effective_draws(draws: Floats) -> float:
    """The median over outputs of the number of independent draws, by means of batches."""
    length = max(1, int(np.sqrt(len(draws))))
    n_batches = len(draws) // length
    batches = draws[: n_batches * length].reshape(n_batches, length, *draws.shape[1:])
    spread = length * batches.mean(axis=1).var(axis=0)
    some = spread > 0
    found = len(draws) * draws.var(axis=0)[some] / spread[some]
    return float(min(np.median(found), len(draws))) if some.any() else float(len(draws))


def calibrated(model: Model, O: Floats, draws: Floats, target: str) -> Model:
    """The model with outputs scaled so that its probabilities are the means of those of draws.

    The probabilities of mean outputs are too sure. Each output gets the slope of the log odds of
    the mean probability over the outputs O (n, m) of the model; draws are (N, n, m).
    """
    if target == "sign":
        P = expit(draws).mean(axis=0)
        wanted, weight = logit(np.clip(P, 1e-9, 1 - 1e-9)), P * (1 - P)
        slope = (weight * wanted * O).sum(axis=0) / (weight * O * O).sum(axis=0)
    elif target == "label":
        P = softmax(draws, axis=2).mean(axis=0)
        wanted = np.log(np.maximum(P, 1e-9))
        wanted, O = (A - A.mean(axis=1, keepdims=True) for A in (wanted, O))
        slope = np.full(O.shape[1], (P * wanted * O).sum() / (P * O * O).sum())
    else:
        return model
    slope = np.where(np.isfinite(slope), np.clip(slope, 0.1, 1.0), 1.0)
    linear = None if model.linear is None else model.linear * slope
    return Model(model.H, model.V * slope, model.intercept * slope, linear)
