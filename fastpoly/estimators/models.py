"""The six estimators that users import, with the text that they share, and TableEncoder."""

import inspect
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from fastpoly.estimators.base import SHAPES
from fastpoly.estimators.data import validate
from fastpoly.estimators.prediction import Documented
from fastpoly.estimators.targets import PolyClassifier, PolyOrdinalRegressor, PolyRegressor
from fastpoly.kernels.checks import as_count
from fastpoly.problem import check_choice
from fastpoly.tables import Encoding

Class = TypeVar("Class", bound=type)

TEXT = """\
The outputs are V's(Hx), plus linear terms, with {activation}
All outputs share the basis vectors h_r. Training adds them in blocks, those that violate the
optimality condition most, and fits both layers together.

{outputs}

Parameters
----------
alpha : float, optional
    Strength of the penalty: loss + alpha Omega(V). The loss is a sum over the rows, not a mean, so
    a suitable alpha grows with their number. It refers to standardized features, and excludes tau.
    By default rows held out choose it (every fifth of up to 700 rows in turn, one third of more
    rows), by a walk from the largest alpha down; the final fit uses all rows. See `alpha_`.
tau : float, optional
    Constrained form: Omega(V) <= tau in place of the penalty.
penalty : {"l1/l2", "l1", "l1/linf"} or penalty object, default="l1/l2"
    Omega. With "l1/l2" and "l1/linf" all outputs share basis vectors; "l1" lets each choose its
    own.
loss : {loss}
n_components : int, default=50
    Largest number of basis vectors.
block : int or "auto", default="auto"
    Most basis vectors added per round. "auto" adds many with refit="full", otherwise one.
refit : {"auto", "full", "output", None}, default="auto"
    What to fit after each added block: the output layer and the basis vectors ("full", not with
    tau), the output layer alone ("output"), or only the step toward the new vector (None). "auto"
    is "full" with alpha, and "output" with tau or for "l1" with fewer than 2 m components, where a
    vector would serve one output only. ``block=1, refit="output"`` is the algorithm of the paper.
fit_lower : {"explicit", "augment", None}, default="explicit"
    Source of the linear terms. "explicit" fits an intercept and linear weights. "augment" puts a
    constant feature in front of every row, as in the paper; in a factorization machine that gives
    linear terms but no intercept. None fits no linear terms.
alpha_linear : float, optional
    Ridge penalty of the linear weights, with fit_lower="explicit". By default it is chosen together
    with alpha; where alpha or tau is given, it is 1.
standardize : bool, default=True
    Whether to train in standard units, so that the scale of the features does not matter: dense X
    is centered and scaled to unit variance; sparse X, and any X where fit_lower is not "explicit",
    is divided by the largest |x| of each column. Targets of the squared loss get unit variance,
    those of the Huber loss a robust unit. The fitted model applies to the original features and
    targets; `objective_`, `violation_`, alpha and tau are in standard units.
fields : list of int or str, optional
    Which columns of X belong together, such as one-hot columns of a category: sizes of groups of
    columns, or a name for each column. With `standardize` their units suit each other,
    x / sqrt(q + mean of q over the field), with mean squares q. Frames have their own fields.
shapes : {"auto", "plain", "hinges", "steps", None}, default="auto"
    What the numbers of a table are made of, where X is a frame or has gaps: their value in soft
    units, which tame long tails (None, which leaves frames of numbers alone as they are); their
    plain value, for effects that are straight lines; soft values and hinges, so that effects bend;
    or also steps at up to 254 values, which only factorization machines take. A stronger ridge
    holds back what is finer. "auto" takes the first of these whose loss on rows held out is not
    clearly above the least one. See `shapes_`.
solver : {"auto", "fista", "newton"}, default="auto"
    Solver of the output refit; refit="full" has its own.
max_iter : int, default=1000
    Largest number of iterations of one refit.
tol : float, default=0.1
    Relative tolerance of the optimality at which training stops before n_components: no basis
    vector has a violation above (1 + tol) alpha. Below 0.1 the objective falls by less than 0.3 %
    in most cases and predictions do not improve; use 1e-3 if you need a certificate.
selection : {"refine", "random+refine", "l1", "random", "best_data", "exact"} or callable, \
default="refine"
    How the next basis vectors are found; see `fastpoly.select_basis`. A callable takes a
    `fastpoly.selection.Request` and returns unit vectors (b, d).
early_stopping : bool, default=False
    Hold out a part of the data, by class or level where they occur often enough, score it after
    each round, stop when the score no longer improves, and keep the model with the best score.
validation_fraction : float, default=0.25
    Share of the rows that early_stopping holds out.
n_iter_no_change : int, default=10
    Rounds without a better score after which early_stopping ends the training.
warm_start : bool, default=False
    Whether `fit` continues from the fitted model and adds basis vectors up to n_components. On
    other rows, or with another alpha, tau, loss or penalty, the model is refitted first, which is
    often no faster than a new fit. The history begins with this fit. For a few new rows there is
    `partial_fit`.
{more}n_threads : int, optional
    Threads of the kernels. The default is one for small data and in any Python thread but the main
    one, so that pools of threads do not use more than there are cores; otherwise OpenMP's number,
    which joblib sets in the processes that it starts.
checkpoint : str or path-like, optional
    A file that the fit is saved to and continues from. If it exists, `fit` resumes its run and ends
    with the same model, bit for bit for the same number of threads. n_components may be larger than
    before (the blocks then differ from those of a single run); if anything else differs, the file
    is refused. It is replaced in one step, holds plain arrays, and stays when the fit is done. It
    excludes warm_start.
checkpoint_every : float, default=60.0
    Seconds between writes of the checkpoint, which is also written at the end; 0 for every round.
verbose : int, default=0
    1 shows a progress bar, and 2 or more logs every round at level INFO to the logger "fastpoly"
    (``logging.basicConfig(level=logging.INFO)`` shows it).
random_state : int, RandomState instance or None, default=None
    Seed of the selection and of the early_stopping split.

Attributes
----------
components_ : ndarray, (k, d), or (k, d + 1) with fit_lower="augment"
    Basis vectors; the weight of the constant feature comes first.
output_weights_ : ndarray, (k, m)
    Output layer.
intercept_, linear_coef_ : ndarray, (m,) and (m, d)
    Linear terms; linear_coef_ only with fit_lower="explicit".
feature_importances_ : ndarray, (d,)
    How much each feature matters, for `sklearn.feature_selection.SelectFromModel`.
model_ : PolyModel
    The fitted model, which can be saved, and loaded without scikit-learn.
{classes}n_components_, n_iter_ : int
    k, the number of basis vectors, and the rounds of training.
alpha_, alpha_linear_ : float
    The strengths of the fit: alpha_ without tau, alpha_linear_ with fit_lower="explicit".
shapes_ : {"plain", "hinges", "steps", None}
    The shapes of the fit, only where X was a frame or had gaps.
objective_, violation_ : float
    Loss plus penalty, and the largest dual norm of a gradient row that was found: the model is
    optimal if it is at most alpha.
dual_gap_ : float
    Upper bound on objective - optimum, only with tau.
history_ : dict of ndarray
    One entry per round: "objective", "loss", "penalty", "violation", "violation_bound", "gap",
    "gap_found", "n_components", "alpha" (NaN with tau), "seconds", and, with early_stopping,
    "validation_score". The first one is the model without basis vectors, or that of the choice of
    alpha. If the last round gained nothing, the model before it has another entry.
n_features_in_, feature_names_in_ : int and ndarray of str
    The names only if X had column names that are all strings.

See Also
--------
{other}
PathSearchCV : Chooses alpha and the number of basis vectors."""

# What differs between the activations, and between the kinds of targets.
WORDS: dict[Any, dict[str, str]] = {
    "squared": {"activation": "s_r = (h_r'x)^2."},
    "anova": {
        "activation": """\
s_r = sum over i < j of h_ri x_i h_rj x_j:
no squares, which one-hot features do not need."""
    },
    PolyClassifier: {
        "outputs": "There is one output per class, or one per label where y is a 2-D indicator.",
        "loss": """\
{"logistic", "smoothed_hinge", "squared_hinge"} or loss object, default="logistic"
    The multi-class form where y is 1-D; the binary form, summed over labels, where it is a label
    indicator.""",
        "more": """\
class_weight : dict, list of dict, "balanced" or None, default=None
    Weights of the classes, times sample_weight; a list has one dict, a further factor, per label.
""",
        "classes": """\
classes_ : ndarray, (m,)
    The classes, in the order of the outputs; 0 .. m-1 where y is a label indicator.
""",
    },
    PolyRegressor: {
        "outputs": "There is one output per column of y.",
        "loss": """\
{"squared", "huber", "poisson"} or loss object, default="squared"
    Summed over outputs and rows. "squared": 1/2 (o - y)^2. "huber": the same up to a distance of 1,
    then linear, for targets with outliers; with `standardize`, distances are in units of the median
    absolute deviation of the targets, times 1.48. `fastpoly.kernels.losses.Huber(width)` has
    another width. "poisson": exp(o) - y o, for counts and rates y >= 0; `predict` gives exp(o).""",
    },
    PolyOrdinalRegressor: {
        "outputs": """\
For m levels there are m - 1 outputs, the log odds that y is at most the level. Numbers are levels
in their order and need not be equally spaced; give `levels` for labels that are not numbers.
`predict` returns the expected level, a number between the levels; for labels that are not numbers,
the expected rank among the declared levels, from 1. The most probable level is
``classes_[predict_proba(X).argmax(axis=1)]``.""",
        "loss": """\
{"logistic"} or loss object, default="logistic"
    Binary loss of the m - 1 questions whether y is at most a level. A loss object must have the
    target "sign"; there is `predict_proba` if its attribute log_odds is True.""",
        "more": """\
levels : array-like, optional
    The levels, the lowest first. Needed where they are not numbers, unless y is an ordered
    categorical (pandas) or an Enum (polars), whose order is taken.
""",
        "classes": """\
classes_ : ndarray, (m,)
    The levels that occur, the lowest first.
""",
    },
}


def with_text(cls: Class) -> Class:
    """A class decorator that puts TEXT, with the words of the class, in place of {text}."""
    if cls.__doc__:  # there is none under python -OO
        squares = cls._activation == "squared"
        names = ("PolynomialNetwork", "FactorizationMachine")[:: 1 if squares else -1]
        what = "Products of different features only." if squares else "Also has squares."
        words = {"other": f"{cls.__name__.replace(*names)} : {what}", "more": "", "classes": ""}
        words |= WORDS[cls._activation] | WORDS[cls.__base__]
        text = TEXT
        for place, word in words.items():
            text = text.replace(f"{{{place}}}", word)
        cls.__doc__ = inspect.cleandoc(cls.__doc__).replace("{text}", text)
    return cls


@with_text
class PolynomialNetworkClassifier(PolyClassifier):
    """Classification with a polynomial network: squares and products of features.

    {text}

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.preprocessing import scale
    >>> from fastpoly import PolynomialNetworkClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = PolynomialNetworkClassifier(alpha=0.1, random_state=0).fit(scale(X), y)
    >>> model.score(scale(X), y) > 0.97, model.predict_proba(scale(X[:5])).shape
    (True, (5, 3))
    """

    _activation = "squared"


@with_text
class FactorizationMachineClassifier(PolyClassifier):
    """Classification with a factorization machine: products of different features.

    {text}

    Examples
    --------
    >>> import numpy as np
    >>> from fastpoly import FactorizationMachineClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 4))
    >>> labels = np.column_stack([X[:, 0] * X[:, 1] > 0, X[:, 2] > 0]).astype(int)
    >>> model = FactorizationMachineClassifier(alpha=0.5, random_state=0).fit(X, labels)
    >>> model.score(X, labels) > 0.9
    True
    """

    _activation = "anova"


@with_text
class PolynomialNetworkRegressor(PolyRegressor):
    """Regression with a polynomial network: squares and products of features.

    {text}

    Examples
    --------
    >>> import numpy as np
    >>> from fastpoly import PolynomialNetworkRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 5))
    >>> y = X[:, 0] * X[:, 1] - X[:, 2] ** 2
    >>> model = PolynomialNetworkRegressor(alpha=0.1, n_components=8, random_state=0).fit(X, y)
    >>> model.score(X, y) > 0.98
    True
    >>> [(i, j, round(float(c), 1)) for i, j, c in model.top_interactions(k=1, standardized=False)]
    [(0, 1, 1.0)]
    """

    _activation = "squared"


@with_text
class FactorizationMachineRegressor(PolyRegressor):
    """Regression with a factorization machine: products of different features.

    {text}

    Examples
    --------
    >>> import numpy as np
    >>> from fastpoly import FactorizationMachineRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 5))
    >>> Y = np.column_stack([X[:, 0] * X[:, 1], X[:, 2] - X[:, 0] * X[:, 1]])
    >>> model = FactorizationMachineRegressor(alpha=0.1, n_components=8, random_state=0).fit(X, Y)
    >>> model.predict(X).shape, model.output_weights_.shape[1]
    ((200, 2), 2)
    >>> model.score(X, Y) > 0.98
    True
    """

    _activation = "anova"


@with_text
class PolynomialNetworkOrdinalRegressor(PolyOrdinalRegressor):
    """Regression on ordered levels with a polynomial network: squares and products of features.

    {text}

    Examples
    --------
    >>> import numpy as np
    >>> from fastpoly import PolynomialNetworkOrdinalRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((300, 4))
    >>> stars = np.clip(np.round(X[:, 0] * X[:, 1] + X[:, 2]) / 2 + 3, 2, 4)
    >>> model = PolynomialNetworkOrdinalRegressor(alpha=1.0, n_components=8, random_state=0)
    >>> model.fit(X, stars).classes_
    array([2. , 2.5, 3. , 3.5, 4. ])
    >>> model.score(X, stars) > 0.8
    True
    """

    _activation = "squared"


@with_text
class FactorizationMachineOrdinalRegressor(PolyOrdinalRegressor):
    """Regression on ordered levels with a factorization machine: ratings of items by users.

    {text}

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.preprocessing import OneHotEncoder
    >>> from fastpoly import FactorizationMachineOrdinalRegressor
    >>> rng = np.random.default_rng(0)
    >>> pairs = rng.integers(0, 20, size=(1000, 2))
    >>> taste, style = rng.choice([-1, 1], size=(2, 20))
    >>> ratings = 3 + taste[pairs[:, 0]] * style[pairs[:, 1]] + rng.integers(-1, 2, size=1000)
    >>> X = OneHotEncoder().fit_transform(pairs)
    >>> model = FactorizationMachineOrdinalRegressor(alpha=0.1, n_components=8, random_state=0)
    >>> model.fit(X, ratings).score(X, ratings) > 0.5
    True
    """

    _activation = "anova"


class TableEncoder(Documented, TransformerMixin, BaseEstimator):
    """Columns of numbers from a frame with text, categories, bools, numbers, lists and gaps.

    The estimators of this package encode frames by themselves; this is for others. Numbers are in
    soft standard units, which tame long tails. A missing number is its column's center, with a
    column that says so, if gaps occurred in `fit`. Texts, categories, bools and lists (genres) are
    columns of 0 and 1, one for each level, one for rare and unseen levels, and one for gaps.

    Parameters
    ----------
    shapes : {None, "plain", "hinges"}, default=None
        "plain" leaves out what tames tails: (value - center) / unit with robust center and unit.
        "hinges" adds max(0, value - knot) at four knots to each number, so that effects may bend.
    min_count : int, default=2
        Levels of fewer rows are one level, which is also that of unseen ones.
    sparse_output : bool, optional
        Whether `transform` returns a csr_array. By default it does above 256 columns.

    Attributes
    ----------
    encoding_ : fastpoly.tables.Encoding
        What was learned; it prints, and holds plain arrays.
    n_features_in_, feature_names_in_ : int and ndarray of str
        The names only if X had column names that are all strings.

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
        vars(self).update((name, value) for name, value in locals().items() if name != "self")

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
        """
        check_choice(self.shapes, "shapes", SHAPES["squared"])
        columns, min_count = self._read(X, reset=True), as_count(self.min_count, "min_count")
        known, _ = Encoding.learn(columns, min_count=min_count)
        self.encoding_ = known.as_form(self.shapes or "matrix")
        return self

    def transform(self, X: Any) -> Any:
        """The columns of numbers of X, matched by name: ndarray or csr_array, (n, n_columns)."""
        check_is_fitted(self, "encoding_")
        dense = None if self.sparse_output is None else not self.sparse_output
        return self.encoding_.matrix(self._read(X, reset=False), dense=dense)

    def _read(self, X: Any, reset: bool) -> Any:
        if issparse(X):
            raise TypeError("X must be a frame or an array, got a sparse matrix")
        return validate(self, X, reset=reset)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """The names of the columns, such as "city=Oslo", "age" and "age > 30", (n_columns,)."""
        check_is_fitted(self, "encoding_")
        return np.array(list(self.encoding_.column_names), dtype=object)
