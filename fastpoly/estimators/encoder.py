"""TableEncoder: what the estimators do with a frame, as a transformer of its own."""

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from fastpoly.estimators.data import validate
from fastpoly.kernels.checks import as_count
from fastpoly.problem import check_choice
from fastpoly.tables import Encoding


class TableEncoder(TransformerMixin, BaseEstimator):
    """Columns of numbers from a frame with text, categories, bools, numbers, lists and gaps.

    The estimators of this package encode frames by themselves; this is for others. Numbers are in
    soft standard units, which tame long tails. A missing number is its column's center, with a
    column that says so, if gaps occurred in `fit`. Texts, categories and bools are columns of 0 and
    1, one for each level, one for rare and unseen levels, and one for gaps. Lists, such as genres,
    may have several levels.

    Parameters
    ----------
    shapes : {None, "hinges"}, default=None
        "hinges" adds max(0, value - knot) at four knots to each number, so that effects may bend.
    min_count : int, default=2
        Levels of fewer rows are one level, which is also that of unseen ones.
    sparse_output : bool, optional
        Whether `transform` returns a csr_array. By default it does above 256 columns.

    Attributes
    ----------
    encoding_ : fastpoly.tables.Encoding
        What was learned; it prints, and holds plain arrays.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Only if X had column names that are all strings.

    Examples
    --------
    >>> from fastpoly import TableEncoder
    >>> frame = {"city": ["Oslo", "Rome", "Rome", "Oslo"], "age": [20.0, 30.0, None, 40.0]}
    >>> encoder = TableEncoder().fit(frame)
    >>> encoder.get_feature_names_out().tolist()
    ['city=Oslo', 'city=Rome', 'city=<other>', 'age', 'age=<missing>']
    >>> encoder.transform({"city": ["Lima"], "age": [30.0]}).round(2).tolist()
    [[0.0, 0.0, 1.0, 0.0, 0.0]]
    """

    def __init__(
        self, *, shapes: str | None = None, min_count: int = 2, sparse_output: bool | None = None
    ) -> None:
        self.shapes = shapes
        self.min_count = min_count
        self.sparse_output = sparse_output

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.string = tags.input_tags.categorical = True
        return tags

    @property
    def _encoding(self) -> Encoding | None:
        return getattr(self, "encoding_", None)

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn levels, centers and units.

        Parameters
        ----------
        X : DataFrame, Arrow table, mapping or array-like, (n, d)
        y : ignored

        Returns
        -------
        self
        """
        check_choice(self.shapes, "shapes", (None, "hinges"))
        known, _ = Encoding.learn(
            self._read(X, reset=True), min_count=as_count(self.min_count, "min_count")
        )
        self.encoding_ = known.as_form(self.shapes or "matrix")
        return self

    def transform(self, X: Any) -> Any:
        """The columns of numbers of X.

        Parameters
        ----------
        X : as in `fit`
            Columns of frames are matched by name.

        Returns
        -------
        ndarray or csr_array, (n, n_columns)
        """
        check_is_fitted(self, "encoding_")
        sparse = self.sparse_output
        return self.encoding_.matrix(
            self._read(X, reset=False), dense=None if sparse is None else not sparse
        )

    def _read(self, X: Any, reset: bool) -> Any:
        if issparse(X):
            raise TypeError("X must be a frame or an array, got a sparse matrix")
        return validate(self, X, reset=reset)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """The names of the columns, such as "city=Oslo", "age" and "age > 30".

        Parameters
        ----------
        input_features : ignored

        Returns
        -------
        ndarray of str
        """
        check_is_fitted(self, "encoding_")
        return np.array(list(self.encoding_.column_names), dtype=object)
