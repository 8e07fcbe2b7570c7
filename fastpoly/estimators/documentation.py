"""The text that the docstrings of the estimators share."""

import inspect
from typing import TypeVar

Class = TypeVar("Class", bound=type)


class Documented:
    """A scikit-learn estimator whose HTML links to its page of the documentation."""

    _doc_link_module = "fastpoly"
    _doc_link_template = (
        "https://fastpoly.readthedocs.io/en/latest/api/fastpoly.{estimator_name}.html"
    )


PARAMETERS = """\
alpha : float, optional
    Strength of the penalty: loss + alpha Omega(V). The loss is a sum over the rows, not a mean, so
    a suitable alpha grows with the number of rows. By default rows held out choose it: a walk from
    the largest alpha down ends where their loss no longer falls (every fifth of up to 700 rows is
    held out in turn, one third of more rows); the final fit uses all rows. The fitted value is
    `alpha_`. It refers to standardized features. Cannot be combined with tau.
tau : float, optional
    Constrained form: Omega(V) <= tau in place of the penalty.
penalty : {"l1/l2", "l1", "l1/linf"} or penalty object, default="l1/l2"
    Omega. "l1/l2" and "l1/linf" select basis vectors that all outputs share; "l1" lets every
    output choose its own.
{loss}
n_components : int, default=50
    Largest number of basis vectors.
block : int or "auto", default="auto"
    Largest number of basis vectors added per round. "auto" adds many with refit="full", otherwise
    one.
refit : {"auto", "full", "output", None}, default="auto"
    What to fit after each added block: the output layer and the basis vectors ("full", not with
    tau), the output layer alone ("output"), or only the step toward the new vector (None). "auto"
    is "full" with alpha and "output" with tau. It is also "output" for "l1" with fewer than 2 m
    components, because there a vector of the joint descent serves one output only.
    ``block=1, refit="output"`` is the algorithm of the paper.
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
    is divided by the largest |x| of each column. Targets of the squared loss are scaled to unit
    variance, those of the Huber loss by a robust deviation. The fitted model applies to the
    original features and targets; `objective_`, `violation_`, alpha and tau are in standard units.
fields : list of int or str, optional
    Which columns of X belong together, such as one-hot columns of a category: the sizes of groups
    of columns, or a name for each column. With `standardize`, the columns of a field have units
    that suit each other, x / sqrt(q + mean of q over the field), with their mean squares q. Frames
    have their own fields.
shapes : {"auto", "hinges", "steps", None}, default="auto"
    What the numbers of a table are made of, where X is a frame with levels or gaps: their value in
    soft units, which tame long tails (None); that and hinges, so that effects bend; or also steps
    at up to 254 values, which only factorization machines take. What is finer is held back by a
    stronger ridge. "auto" takes what is clearly best on rows held out. The fitted value is
    `shapes_`.
solver : {"auto", "fista", "newton"}, default="auto"
    Solver of the output refit; refit="full" has its own.
max_iter : int, default=1000
    Largest number of iterations of one refit.
tol : float, default=0.1
    Relative tolerance of the optimality at which training stops before n_components: no basis
    vector has a violation above (1 + tol) alpha. With a smaller value than 0.1 the objective falls
    by less than 0.3 % in most cases and predictions do not improve; use 1e-3 if you need a
    certificate.
selection : {"refine", "random+refine", "l1", "random", "best_data", "exact"} or callable, \
default="refine"
    How the next basis vectors are found; see `fastpoly.select_basis`. A callable takes a
    `fastpoly.selection.Request` and returns unit vectors (b, d).
early_stopping : bool, default=False
    Hold out a part of the data, score it after each round, stop when the score no longer improves,
    and keep the model with the best score. Classes are held out in proportion, and so are ordinal
    levels that occur often enough.
validation_fraction : float, default=0.25
    Share of the rows that is held out, with early_stopping.
n_iter_no_change : int, default=10
    With early_stopping, training stops after this many rounds without a better score.
warm_start : bool, default=False
    Whether `fit` continues from the fitted model and adds basis vectors up to n_components, or
    starts from scratch. On other rows, or with another alpha, tau, loss or penalty, the fitted
    model is refitted first, which is often no faster than a new fit: most of that is the choice of
    alpha and the descent of all vectors. For a few new rows there is `partial_fit`. The history
    begins with this fit.
{more}n_threads : int, optional
    Threads of the kernels. The default is one for small data, and in any Python thread but the main
    one, so that a pool of threads does not use more threads than there are cores. Otherwise it is
    OpenMP's number, which joblib sets in the processes that it starts.
checkpoint : str or path-like, optional
    A file that the fit is saved to and continues from. If it exists, `fit` resumes its run and ends
    with the same model, bit for bit for the same number of threads. n_components may be larger than
    before (the blocks then differ from those of a single run). Everything else must be the same, or
    the file is refused. The file is replaced in one step, holds plain arrays, and stays when the
    fit is done. It cannot be combined with warm_start.
checkpoint_every : float, default=60.0
    Seconds between writes of the checkpoint; 0 for every round. It is also written when the fit
    ends or is interrupted.
verbose : int, default=0
    0 is silent, 1 shows a progress bar, and 2 or more logs every round at level INFO to the logger
    "fastpoly"; ``logging.basicConfig(level=logging.INFO)`` shows that log.
random_state : int, RandomState instance or None, default=None
    Seed of the selection and of the early_stopping split."""

ATTRIBUTES = """\
components_ : ndarray, (k, d), or (k, d + 1) with fit_lower="augment"
    Basis vectors; the weight of the constant feature comes first.
output_weights_ : ndarray, (k, m)
    Output layer.
intercept_ : ndarray, (m,)
linear_coef_ : ndarray, (m, d)
    Linear weights, only with fit_lower="explicit".
feature_importances_ : ndarray, (d,)
    How much each feature matters, for `sklearn.feature_selection.SelectFromModel`.
model_ : PolyModel
    The fitted model, which can be saved, and loaded without scikit-learn.
{classes}n_components_ : int
    k, the number of basis vectors.
n_iter_ : int
    Rounds of training.
alpha_ : float
    The alpha of the fit, only without tau.
alpha_linear_ : float
    The alpha_linear of the fit, only with fit_lower="explicit".
shapes_ : {"hinges", "steps", None}
    The shapes of the fit, only where X was a frame with levels or gaps.
objective_ : float
    Loss plus penalty.
violation_ : float
    Largest dual norm of a gradient row that was found; the model is optimal if it is at most alpha.
dual_gap_ : float
    Upper bound on objective - optimum, only with tau.
history_ : dict of ndarray
    One entry per round: "objective", "loss", "penalty",
    "violation", "violation_bound", "gap", "gap_found", "n_components", "alpha" (NaN with tau),
    "seconds", and, with early_stopping, "validation_score". The first one is the model without
    basis vectors, or the model that the choice of alpha ended with. If the last round gained
    nothing, the model before it has another entry.
n_features_in_ : int
feature_names_in_ : ndarray of str
    Only if X had column names that are all strings."""


def documented(loss: str, classes: str = "", more: str = ""):
    """A class decorator that writes the shared text into {parameters} and {attributes}.

    `more` describes the parameters that the class has beyond the shared ones.
    """

    def write(cls: Class) -> Class:
        if cls.__doc__:  # there is none under python -OO
            texts = {
                "{parameters}": PARAMETERS,
                "{attributes}": ATTRIBUTES,
                "{loss}": loss.strip(),
                "{classes}": classes.lstrip(),
                "{more}": more,
            }
            text = inspect.cleandoc(cls.__doc__)
            for place, words in texts.items():
                text = text.replace(place, words)
            cls.__doc__ = text
        return cls

    return write
