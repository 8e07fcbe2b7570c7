"""Rows in files: a folder of shards, mapped to memory, in the order in which they were written."""

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from fastpoly.kernels.checks import as_count, as_positive, as_seed
from fastpoly.rows.engine import Engine, as_engine
from fastpoly.rows.format import Manifest
from fastpoly.rows.shard import Part, Shard, ShardList, shared
from fastpoly.tables import Encoding


class Shards:
    """Rows in a folder that `write_shards` wrote. Estimators fit them in place of X and y.

    Opening reads the manifest and checks the sizes and headers of the files. The indices and
    numbers of a shard are checked when it is first used. The files must not change after opening.
    One that was written to or replaced is refused: this process compares its size, time and inode,
    and others its size and its time in whole seconds, so copies on other machines must keep the
    times. A file that is truncated while it is read ends the process.

    Parameters
    ----------
    folder : str or path-like
    verify : bool
        Also read every file now, compare its digest, and check all rows.
    memory : float, optional
        Bytes that the rows may take in each process of a fit, besides the mapped files. What does
        not fit is computed again in every pass, with the same result. By default everything is
        kept, about 8 bytes per row and output.

    Attributes
    ----------
    folder : Path
    n_samples, n_features : int
    classes : ndarray, (n_levels,), or None
        The distinct targets, sorted; None where targets are arbitrary numbers.
    encoding : Encoding or None
        How the columns of a table became codes; None for shards that were written from X.
    field_names : tuple of str
    feature_names : sequence of str, or None
        Names such as "user=3"; None for shards that were written from X.
    digest : str
        A digest of all data: shards with the same digest are the same.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from fastpoly import Shards, write_shards
    >>> folder = tempfile.mkdtemp()
    >>> batches = [(np.eye(3), [1, 2, 1]), (np.ones((1, 3)), [2])]
    >>> shards = write_shards(folder, batches, rows_per_shard=3)
    >>> len(shards), shards.n_samples, shards.n_features, shards.classes
    (2, 4, 3, array([1, 2]))
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        verify: bool = False,
        memory: float | None = None,
    ) -> None:
        self.memory = None if memory is None else as_positive(memory, "memory")
        self.folder = Path(os.path.abspath(folder))
        self.manifest = Manifest.read(self.folder)
        self.numbers: tuple[int, ...] = tuple(range(len(self.manifest.rows)))
        self.part: Part | None = None
        self.engine: Engine | None = None
        self.kept: ShardList | None = None
        self.known_encoding: Encoding | None = None
        self.identities: list[dict[str, tuple[int, ...]]] = [{} for _ in self.numbers]
        # To map the arrays is to check the files.
        self.identities = [shard.identities for shard in self if shard.arrays]
        if verify:
            self.verify()

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, i: int) -> Shard:
        if self.kept is not None:
            return self.kept[i]
        number, m = self.numbers[i], self.manifest
        return Shard(
            self.folder, number, m.shards[number], m.kind, (m.rows[number], m.n_features),
            len(m.classes), self.part, dict(self.identities[number]),
        )  # fmt: skip

    def __iter__(self) -> Iterator[Shard]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return f"Shards({str(self.folder)!r})"

    @property
    def n_samples(self) -> int:
        return sum(self.manifest.rows[i] for i in self.numbers)

    @property
    def n_features(self) -> int:
        return self.manifest.n_features

    @property
    def n_entries(self) -> int:
        """How many numbers are stored in all rows."""
        files = (self.manifest.shards[i] for i in self.numbers)
        return sum(math.prod(f["x" if "x" in f else "indices"].shape) for f in files)

    @property
    def encoding(self) -> Encoding | None:
        """How the columns of a table became codes; None for shards that were written from X."""
        if self.known_encoding is None and self.manifest.encoding:
            self.known_encoding = self.manifest.read_encoding(self.folder)
        return self.known_encoding

    @property
    def field_names(self) -> tuple[str, ...]:
        return () if self.encoding is None else tuple(self.encoding.names)

    @property
    def feature_names(self) -> Sequence[str] | None:
        """Names such as "user=3"; None for shards that were written from X."""
        return None if self.encoding is None else self.encoding.level_names

    @property
    def classes(self) -> NDArray | None:
        return np.array(self.manifest.classes) if self.manifest.classes else None

    @property
    def digest(self) -> str:
        chosen = "" if self.numbers == tuple(range(len(self.manifest.rows))) else self.numbers
        return f"{self.manifest.digest} {chosen} {self.part or ''}".strip()

    def verify(self) -> None:
        """Read everything and raise ValueError where a digest or a row is wrong."""
        for shard in self:
            shard.verify()
        if self.manifest.encoding:
            self.manifest.read_encoding(self.folder, verify=True)

    def categories(self, field: str) -> NDArray:
        """The levels of a field; level i is column first + i of X."""
        fields = () if self.encoding is None else self.encoding.fields
        (found,) = [f for f in fields if f.name == field] or [None]
        if found is None or found.kind == "number":
            raise ValueError(f"{field!r} is not a one-hot field; known: {self.field_names}")
        return found.values

    def encode(self, table: Any) -> Any:
        """A table with the columns of these shards as X, which a model of them takes.

        Estimators that were fitted on these shards take the table itself.

        Parameters
        ----------
        table : DataFrame, Arrow table or batch, or mapping of names to arrays

        Returns
        -------
        csr_array, (n, n_features)
        """
        if self.encoding is None:
            raise ValueError("these shards have no fields, because they were written from X")
        from fastpoly.rows.ingest import Chunk

        columns = Chunk(table).columns(self.encoding.names)
        indices = self.encoding.codes(columns).indices
        begins = np.arange(0, indices.size + 1, indices.shape[1])
        entries = np.ones(indices.size), indices.ravel(), begins
        return csr_array(entries, shape=(len(indices), self.n_features))

    def take(self, numbers: Sequence[int]) -> Self:
        """Some of the shards, in this order; for example a fold of whole shards.

        Negative numbers count from the end.
        """
        wanted = np.asarray(numbers)
        if wanted.ndim != 1 or not wanted.size:
            raise ValueError(f"numbers must be a list of at least one shard, got {numbers!r}")
        if wanted.dtype.kind not in "iu":
            raise TypeError(
                f"numbers must be integers, got {numbers!r}; np.flatnonzero gives those of a mask"
            )
        if not (-len(self) <= wanted.min() and wanted.max() < len(self)):
            raise ValueError(f"numbers must lie in 0..{len(self) - 1}, got {numbers!r}")
        return self._but(numbers=tuple(self.numbers[i] for i in wanted))

    def split(self, *shares: float, seed: int | None = 0) -> list[Self]:
        """Split the rows at random: one Shards per share. Shares must sum to at most 1.

        Each one holds all files; rows that belong to another share have weight 0. The same seed
        always gives the same rows; None draws one.
        """
        seed = as_seed(None) if seed is None else seed
        if not hasattr(seed, "__index__"):
            raise TypeError(f"seed must be an integer or None, got {seed!r}")
        if not 0 <= seed < 2**128:
            raise ValueError(f"seed must lie in 0..2**128 - 1, got {seed}")
        ends = np.concatenate([[0.0], np.cumsum(shares)])
        if not shares or not min(shares) > 0 or not ends[-1] <= 1 + 1e-12:
            raise ValueError(
                f"shares must be one or more positive numbers that sum to at most 1, got {shares}"
            )
        ends[np.abs(ends - 1) < 1e-12] = 1.0
        return [
            self._but(part=Part(int(seed), low, high, within=self.part))
            for low, high in pairwise(ends.tolist())
        ]

    def folds(self, n_folds: int, seed: int | None = 0) -> list[tuple[Self, Self]]:
        """For every fold, random rows to train on and the other rows to test with."""
        if as_count(n_folds, "n_folds") < 2:
            raise ValueError("n_folds must be at least 2; with one fold there are no training rows")
        shares = [1 / n_folds] * n_folds
        return [
            (test._but(part=replace(test.part, outside=True)), test)
            for test in self.split(*shares, seed=seed)
        ]

    def targets(self) -> NDArray:
        """The targets of the rows, (n,) or (n, n_targets), in the order in which they were written.

        For a split, those of its rows; for `take`, shard by shard.
        """
        classes, found = self.classes, []
        for shard in self:
            y = shard.targets()
            found.append(y[shard.own_rows()] if classes is None else classes[y[shard.own_rows()]])
        y = np.concatenate(found)
        return y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y

    def class_counts(self) -> NDArray[np.intp]:
        """The number of rows of every class; rows of weight 0 do not count."""
        counts = np.zeros(len(self.manifest.classes), dtype=np.intp)
        for shard in self:
            y, w = shard.targets(), shard.weights()
            counts += np.bincount(y if w is None else y[w > 0], minlength=len(counts))
        return counts

    def weights(self) -> NDArray[np.float64] | None:
        """The weights of the rows, (n,), in the order of `targets`; None where all are 1."""
        if not any("w" in shard.files for shard in self):
            return None
        return np.concatenate([shard.weights()[shard.own_rows()] for shard in self])

    def opened(self) -> Self:
        """The same shards for one fit, in which each file is checked and mapped once."""
        return self._but(kept=self.listed())

    def listed(self) -> ShardList:
        """The shards themselves; always the same ones where they are those of a fit."""
        return ShardList(self) if self.kept is None else self.kept

    def on(self, engine: Any) -> Self:
        """The same rows, with passes that an executor or an engine runs.

        Parameters
        ----------
        engine : concurrent.futures.Executor or Engine
        """
        return self._but(engine=as_engine(engine))

    def _but(self, **changes: Any) -> Self:
        other = object.__new__(type(self))
        other.__dict__.update({**self.__dict__, "kept": None}, **changes)
        return other

    def __getstate__(self) -> dict[str, Any]:
        # An engine belongs to the process that has it.
        known = [shared(identities) for identities in self.identities]
        own = {"engine": None, "kept": None, "known_encoding": None, "identities": known}
        return {**self.__dict__, **own}
