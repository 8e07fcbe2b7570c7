"""Training rows in files, as the estimators take them; the twin of `TrainingData`."""

from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastpoly.rows.contract import Statistics
from fastpoly.rows.scaling import Scaling
from fastpoly.rows.shard_design import ShardDesign
from fastpoly.rows.shards import Shards
from fastpoly.storage.state_file import fingerprint

Floats = NDArray[np.float64]


class ShardData:
    """Rows in shards, with what an estimator makes of their targets.

    Parameters
    ----------
    shards : Shards

    Attributes
    ----------
    targets : ndarray, (n_classes, ...), or None
        What the loss takes for every class of the shards; None where targets are numbers.
    m : int
        Number of outputs.
    w : ndarray, (n_classes,), or None
        Weights of the classes.
    """

    y = None  # targets stay with the rows
    targets: NDArray | None
    m: int
    w: Floats | None

    def __init__(self, shards: Shards) -> None:
        self.shards = shards

    @cached_property
    def statistics(self) -> Statistics:
        """One pass over the rows."""
        return ShardDesign(self.shards).statistics

    @cached_property
    def weighted_statistics(self) -> Statistics:
        """The same with the weights of the classes: another pass where there are any."""
        if self.w is None:
            return self.statistics
        return ShardDesign(self.shards).statistics_with(self.w)

    def _with(self, shards: Shards) -> Self:
        other = ShardData(shards)
        other.targets, other.m, other.w = self.targets, self.m, self.w
        return other

    def hold_out(self, share: float, seed: int, strata: None) -> tuple[Self, Self]:
        """Random rows to train on and to validate with."""
        if self.shards.part is not None:
            raise ValueError("early_stopping cannot split shards that are a part already")
        train, held = self.shards.split(1 - share, share, seed=seed)
        return self._with(train), self._with(held)

    def merged(self) -> Self:
        """As they are: equal rows are not looked for."""
        return self

    def digest(self) -> str:
        """A digest of the rows, from the manifest."""
        return fingerprint("shards", self.shards.digest, self.targets, self.w)

    def largest(self) -> float:
        """The largest |x|."""
        return self.statistics.largest

    def feature_units(self, standardize: bool, centered: bool) -> Scaling:
        """The units of the features, or those they have."""
        found = self.weighted_statistics
        if not standardize:
            return Scaling(None, None, found.by_column > 0)
        if found.features is None or not centered:
            return Scaling.to_largest(found.by_column)
        return Scaling.to_deviation(found.features.mean, found.features.deviation)

    def offset_columns(self, scaling: Scaling) -> NDArray[np.intp]:
        """None: sparse shards are not searched for columns that would have to be centered."""
        return np.zeros(0, dtype=np.intp)

    def target_units(self, scaling: Scaling, centered: bool) -> Scaling:
        """The same with units of the targets."""
        found = self.weighted_statistics
        if self.targets is None:
            return scaling.with_target_moments(
                found.targets.mean, found.targets.deviation, centered
            )
        return scaling.with_targets(self.targets, found.weights, centered)

    def design(
        self, scaling: Scaling, activation: str, fit_lower: str | None, n_threads: int | None
    ) -> ShardDesign:
        """The rows as the core takes them."""
        return ShardDesign(
            self.shards, activation, fit_lower=fit_lower, center=scaling.center,
            factor=scaling.factor, n_threads=n_threads,
        )  # fmt: skip

    def scaled_targets(self, scaling: Scaling) -> NDArray | None:
        """The targets as the core takes them."""
        if self.targets is not None:
            return scaling.targets(self.targets)
        if scaling.target_unit is None:
            return None
        return np.stack([scaling.target_center, scaling.target_unit])

    def score(self, model: Any) -> float:
        """The `score` of an estimator on these rows."""
        return model.score(self.shards, self.shards.targets())
