"""The names of the features of shards, made when they are asked for: there may be millions."""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray


class FeatureNames(Sequence[str]):
    """Names such as "user=3" for categories, and the names of numeric columns.

    Parameters
    ----------
    fields : sequence of tuples (name, categories)
        The columns of the table in the order of the features; categories is None for a number.

    Examples
    --------
    >>> from fastpoly.rows.names import FeatureNames
    >>> names = FeatureNames([("age", None), ("user", [3, 7])])
    >>> list(names), names[-1], names[:2]
    (['age', 'user=3', 'user=7'], 'user=7', ['age', 'user=3'])
    """

    def __init__(self, fields: Sequence[tuple[str, NDArray | None]]) -> None:
        self.fields, self.first, size = list(fields), [], 0
        for _, categories in self.fields:
            self.first.append(size)
            size += 1 if categories is None else len(categories)
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, j: int | slice) -> Any:
        if isinstance(j, slice):
            return [self[i] for i in range(*j.indices(self.size))]
        if not -self.size <= j < self.size:
            raise IndexError(f"there are {self.size} features, and no {j}")
        j %= self.size
        at = bisect_right(self.first, j) - 1
        name, categories = self.fields[at]
        text = name if categories is None else f"{name}={categories[j - self.first[at]]}"
        return text.replace("\0", "\\0")  # which the names of a model cannot hold
