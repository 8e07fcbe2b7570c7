"""What is wrong with a table is said by the name of the column, with a cure, by every library."""

import datetime
import warnings

import numpy as np
import pytest

from fastpoly import (
    FactorizationMachineClassifier,
    FactorizationMachineRegressor,
    PolynomialNetworkClassifier,
    PolynomialNetworkOrdinalRegressor,
    PolynomialNetworkRegressor,
)

N = 40
AGE = np.random.default_rng(0).normal(40, 10, N)
GOOD = {"city": ["Oslo", "Rome"] * (N // 2), "age": AGE.tolist()}
Y = np.where(AGE > 40, "old", "young")
MACHINE = FactorizationMachineClassifier(alpha=0.1, random_state=0)
NETWORK = PolynomialNetworkClassifier(alpha=0.1, random_state=0)
WRITERS = {
    "pandas": lambda module, table: module.DataFrame(table),
    "polars": lambda module, table: module.DataFrame(
        [module.Series(name, values, strict=False) for name, values in table.items()]
    ),
    "pyarrow": lambda module, table: module.table(table),
    "mapping": lambda _, table: table,
}


def objects(values):
    """A column whose values no library converts."""
    found = np.empty(len(values), object)
    found[:] = values
    return found


def as_frame(table, library):
    if library == "polars":  # has a type for objects, and converts arrays of them
        polars = pytest.importorskip("polars")
        table = {
            name: polars.Series(name, list(v), polars.Object) if isinstance(v, np.ndarray) else v
            for name, v in table.items()
        }
    elif library == "pyarrow" and any(isinstance(v, np.ndarray) for v in table.values()):
        pytest.skip("Arrow has no columns of objects")
    module = None if library == "mapping" else pytest.importorskip(library)
    return WRITERS[library](module, table)


EVERY = pytest.mark.parametrize("library", WRITERS)
DAYS = [datetime.date(2020, 1, 1 + i % 28) for i in range(N)]


@EVERY
@pytest.mark.parametrize("model", [MACHINE, NETWORK], ids=["machine", "network"])
@pytest.mark.parametrize(
    ("column", "message"),
    [
        (objects(["a", 1] * (N // 2)), "column 'x' mixes types: .*; convert it to texts or"),
        (objects([True, 1.5] * (N // 2)), "column 'x' mixes types: .*; convert it to texts or"),
        (DAYS, "column 'x' holds dates or times .* such as the year"),
        ([datetime.datetime(2020, 1, 1)] * N, "column 'x' holds dates or times .* such as"),
        ([datetime.timedelta(days=i) for i in range(N)], "column 'x' holds dates or times .* days"),
        ([{"a": i} for i in range(N)], "column 'x' holds values of type .*; make columns of"),
        ([[{"a": i}] for i in range(N)], "column 'x' has values that are no levels: .*; convert"),
        ([[["a"]]] * N, "column 'x' has values that are no levels: .*; convert"),
        ([b"ab"] * N, "column 'x' holds values of type .*; make columns of numbers or texts"),
        (objects([1j] * N), "column 'x' holds values of type complex; make columns of numbers"),
        ([np.inf] + [1.0] * (N - 1), "column 'x' is infinite in row 0; replace it by a number"),
    ],
)
def test_columns_that_cannot_be_read(library, model, column, message):
    frame = as_frame(GOOD | {"x": column}, library)
    with pytest.raises(ValueError, match=message):
        model.fit(frame, Y)


@EVERY
def test_tables_that_cannot_be_read(library):
    empty = as_frame({"city": [], "age": []}, library)
    with pytest.raises(ValueError, match="X has no rows; give at least one"):
        MACHINE.fit(empty, [])
    with pytest.raises(ValueError, match=r"inconsistent numbers of samples: \[40, 39\]"):
        MACHINE.fit(as_frame(GOOD, library), Y[:-1])
    if library == "mapping":
        with pytest.raises(ValueError, match="different numbers of rows: {'a': 2, 'b': 1}"):
            MACHINE.fit({"a": [1, 2], "b": [1]}, [0, 1])
    if library == "pandas":
        frame = as_frame(GOOD, library)
        for names in (["a", "a"], [1, "1"]):
            with pytest.raises(ValueError, match=r"two columns '[a1]'; rename or drop one"):
                MACHINE.fit(frame.set_axis(names, axis=1), Y)
        with pytest.raises(ValueError, match="the frame has no columns"):
            MACHINE.fit(frame[[]], Y)
    if library == "pyarrow":
        with pytest.raises(ValueError, match="two columns 'a'; rename or drop one"):
            MACHINE.fit(as_frame(GOOD, library).rename_columns(["a", "a"]), Y)
    if library == "polars":
        with pytest.raises(TypeError, match="collect a lazy one"):
            MACHINE.fit(as_frame(GOOD, library).lazy(), Y)


@EVERY
@pytest.mark.parametrize("model", [MACHINE, NETWORK], ids=["machine", "network"])
def test_other_tables_than_those_of_the_fit(library, model):
    model.fit(as_frame(GOOD, library), Y)
    city, age = GOOD.values()
    swapped = as_frame({"age": age, "city": city}, library)
    np.testing.assert_array_equal(
        model.predict_proba(swapped), model.predict_proba(as_frame(GOOD, library))
    )
    for table, message in (
        ({"city": city}, r"lacks the columns \['age'\]; give it the columns of the training"),
        (GOOD | {"z": age}, r"has the unknown columns \['z'\]; give it the columns"),
        (GOOD | {"city": [1] * N}, "column 'city' held texts .* now, such as 1; convert it"),
        (GOOD | {"city": [["a"]] * N}, r"column 'city' must hold single values, got \['a'\]"),
        (GOOD | {"age": city}, "column 'age' must hold numbers, got 'Oslo'; convert it"),
        (GOOD | {"age": [["a"]] * N}, r"column 'age' must hold numbers, got \['a'\]; convert it"),
        ({"city": [], "age": []}, "X has no rows; give at least one"),
    ):
        with pytest.raises(ValueError, match=message):
            model.predict(as_frame(table, library))


@EVERY
@pytest.mark.parametrize("kind", ["text", "number"])
@pytest.mark.parametrize("model", [MACHINE, NETWORK], ids=["machine", "network"])
def test_columns_without_values_are_told(library, kind, model):
    gone = [None] * N if kind == "text" else [np.nan] * N
    with pytest.warns(UserWarning, match=r"these columns say nothing, .*\['x'\]; leave them out"):
        model.fit(as_frame(GOOD | {"x": gone}, library), Y)
    here = model.predict_proba(as_frame(GOOD | {"x": gone}, library))
    assert np.isfinite(here).all()
    np.testing.assert_array_equal(model.predict(as_frame(GOOD | {"x": gone}, library)), Y)


@EVERY
def test_levels_are_any_texts(library):
    """A newline and NUL are kept; NUL is written as \\0 in the names of features."""
    frame = as_frame(GOOD | {"x": ["a\nb", "c\0d"] * (N // 2)}, library)
    model = FactorizationMachineClassifier(alpha=0.1, random_state=0).fit(frame, Y)
    names = set(model.model_.feature_names)
    assert {"x=a\nb", "x=c\\0d"} <= names
    np.testing.assert_array_equal(model.predict(frame), Y)


@EVERY
def test_many_levels(library):
    """As many as half of the rows; `test_tables` has a million rows."""
    n = 20_000
    table = {"id": [f"u{i % (n // 2)}" for i in range(n)], "z": [0.0, 1.0] * (n // 2)}
    frame = as_frame(table, library)
    model = FactorizationMachineClassifier(alpha=1.0, alpha_linear=1.0, n_components=1, max_iter=20)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of so few steps
        model.fit(frame, np.arange(n) % 2)
    assert model.n_features_in_ == 2
    assert len(model.model_.feature_names) == n // 2 + 1 + 2  # and rare or unseen ones
    assert model.score(frame, np.arange(n) % 2) == 1.0


@EVERY
def test_targets_that_are_no_numbers(library):
    frame = as_frame(GOOD, library)
    texts = as_frame({"y": Y.tolist()}, library)
    days = as_frame({"y": DAYS}, library)
    cure = "y holds dates or times; make numbers|make numbers of such values"
    for y, message in ((texts, "y holds text; use a classifier"), (days, cure)):
        y = np.array(y["y"], "M8[D]" if y is days else object) if library == "mapping" else y["y"]
        for cls in (FactorizationMachineRegressor, PolynomialNetworkRegressor):
            with pytest.raises((ValueError, TypeError), match=message):
                cls(alpha=1.0).fit(frame, y)
    with pytest.raises(ValueError, match="the order of the levels .* is not known"):
        PolynomialNetworkOrdinalRegressor(alpha=1.0).fit(frame, Y)
