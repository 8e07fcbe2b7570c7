"""Encodings of frames: every kind of column, from every library, against plain Python."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastpoly.tables import Encoding
from fastpoly.tables.fields import MISSING, OTHER

LIBRARIES = ("mapping", "pandas", "polars", "pyarrow")
TEXTS = st.sampled_from(["", "a", "b", "Oslo", "x\ny", "nul\0", "é", "1"])
NUMBERS = st.one_of(st.integers(-3, 3).map(float), st.floats(-1e6, 1e6, allow_nan=False, width=32))
KINDS = {
    "text": TEXTS,
    "bool": st.booleans(),
    "number": NUMBERS,
    "list": st.lists(TEXTS | st.none(), max_size=3),
}


@st.composite
def tables(draw, least=1):
    """Lists of values by name, with gaps, and the kind of each."""
    n = draw(st.integers(least, 25))
    kinds = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=4))
    table = {}
    for j, kind in enumerate(kinds):
        values = st.one_of(KINDS[kind], KINDS[kind], st.none())
        table[f"{kind} {j}"] = draw(st.lists(values, min_size=n, max_size=n))
        if all(value is None for value in table[f"{kind} {j}"]):  # of no known kind
            table[f"{kind} {j}"][0] = draw(KINDS[kind])
    return table


def as_frame(table, library):
    if library == "mapping":
        return table
    module = pytest.importorskip(library)
    if library == "pandas":
        return module.DataFrame({k: module.Series(v, dtype=object) for k, v in table.items()})
    if library == "polars":
        kinds = {
            "text": module.String, "bool": module.Boolean, "number": module.Float64,
            "list": module.List(module.String),
        }  # fmt: skip
        return module.DataFrame(table, schema={k: kinds[k.split()[0]] for k in table})
    kinds = {
        "text": module.string(), "bool": module.bool_(), "number": module.float64(),
        "list": module.list_(module.string()),
    }  # fmt: skip
    return module.table({k: module.array(v, kinds[k.split()[0]]) for k, v in table.items()})


def learn(frame, **options):
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return Encoding.learn(frame, **options)


def one_hot(rows, n_codes):
    """Codes as an array of 0 and 1."""
    if hasattr(rows, "toarray"):
        return rows.toarray()
    P = np.zeros((rows.shape[0], n_codes))
    P[np.arange(len(P))[:, None], rows.indices] = 1
    return P


def expected_codes(encoding, table):
    """The names of the codes of each row, by plain Python."""
    names = []
    for i in range(len(next(iter(table.values())))):
        found = set()
        for field in encoding.fields:
            value, kind = table[field.name][i], field.kind
            if kind == "number":
                if value is None:
                    value = None if field.missing else float(field.units[0])
                at = len(field.values) if value is None else sum(field.edges < value)
                found.add(field.column_name(at))
                continue
            values = (value if kind == "list" else [value]) if value is not None else [None]
            for each in values:
                if each is None and field.missing:
                    found.add(f"{field.name}={MISSING}")
                elif each in field.values.tolist():
                    found.add(f"{field.name}={each}")
                else:
                    found.add(f"{field.name}={OTHER}")
        names.append({name.replace("\0", "\\0") for name in found})
    return names


@settings(max_examples=60, deadline=None)
@given(tables(), tables(), st.integers(1, 3))
def test_codes_are_those_of_plain_python(table, other, min_count):
    other = {name: other.get(name, [None] * len(next(iter(other.values())))) for name in table}
    encodings = []
    for library in LIBRARIES:
        encoding, codes = learn(as_frame(table, library), min_count=min_count)
        encodings.append(encoding)
        names = np.array(encoding.column_names[:], dtype=object)
        for rows, given_ in ((codes, table), (encoding.codes(as_frame(other, library)), other)):
            P = one_hot(rows, encoding.n_codes)
            found = [set(names[row == 1]) for row in P]
            assert found == expected_codes(encoding, given_)
        assert set(np.unique(P)) <= {0.0, 1.0}
        np.testing.assert_allclose(
            one_hot(codes, encoding.n_codes).mean(axis=0), encoding.frequencies
        )
    for encoding in encodings[1:]:
        assert encoding == encodings[0]
    again = Encoding.from_arrays(encodings[0].arrays())
    assert again == encodings[0]
    P = one_hot(again.codes(other), again.n_codes)
    np.testing.assert_array_equal(P, one_hot(encodings[0].codes(other), again.n_codes))


@settings(max_examples=40, deadline=None)
@given(tables(), st.randoms())
def test_order_of_rows_and_columns_does_not_matter(table, random):
    encoding, codes = learn(table)
    n = codes.shape[0]
    order, names = random.sample(range(n), n), random.sample(sorted(table), len(table))
    shuffled = {name: [table[name][i] for i in order] for name in names}
    other, _ = learn(shuffled)
    fields = {field.name: field for field in other.fields}
    assert encoding == Encoding(
        [fields[name] for name in encoding.names], encoding.frequencies, encoding.form
    )
    for form in ("plain", "matrix", "hinges"):
        X = encoding.as_form(form).matrix(table, dense=True)
        np.testing.assert_array_equal(encoding.as_form(form).matrix(shuffled, dense=True), X[order])


@settings(max_examples=40, deadline=None)
@given(tables(least=2))
def test_plain_columns(table):
    """Numbers have mean 0 and deviation 1 in soft units, levels are indicators, gaps are marked."""
    encoding = learn(table)[0].as_form("matrix")
    X, names = encoding.matrix(table, dense=True), list(encoding.column_names)
    assert X.shape[1] == len(names) == len(encoding.fields_of_columns)
    np.testing.assert_array_equal(encoding.matrix(table, dense=False).toarray(), X)
    for field in encoding.fields:
        values = table[field.name]
        gaps = np.array([v is None or (isinstance(v, list) and None in v) for v in values])
        if field.missing:
            np.testing.assert_array_equal(X[:, names.index(f"{field.name}={MISSING}")], gaps)
        if field.kind != "number" or gaps.all():
            continue
        v = np.array([value for value in values if value is not None])
        x = X[~gaps, names.index(field.name)]
        order = np.argsort(v, kind="stable")
        assert (np.diff(x[order]) >= 0).all()
        assert abs(x.mean()) < 1e-8
        assert x.std() == pytest.approx(1.0) or len(set(v)) == 1
    assert np.isfinite(X).all()


@settings(max_examples=30, deadline=None)
@given(tables(), st.sampled_from([None, "hinges", "steps"]))
def test_tables_are_centered(table, shape):
    encoding, codes = learn(table)
    P = one_hot(codes, encoding.n_codes)
    for field, B, first, last in zip(
        encoding.fields,
        encoding.tables(shape),
        encoding.offsets,
        encoding.offsets[1:],
        strict=False,
    ):
        assert len(B) == last - first
        if B.ndim == 2:
            X = P[:, first:last] @ B
            inside = X if field.kind != "number" else X[:, : X.shape[1] - field.missing]
            np.testing.assert_allclose(inside.sum(axis=0), 0, atol=1e-7 * len(P))


def test_units_hold_back_rare_levels():
    """1 / sqrt(p + mean of p), by hand; few levels are centered."""
    encoding, _ = learn({"a": ["x"] * 6 + ["y"] * 2})
    p = np.array([0.75, 0.25])
    unit = 1 / np.sqrt(p + 0.5)
    (B,) = encoding.tables()
    np.testing.assert_allclose(B[:2, :2], np.diag(unit) - p * unit)
    assert (B[:, 2] == 0).all()  # of no row
    many = [str(i % 100) for i in range(300)]
    (B,) = learn({"a": many})[0].tables()
    np.testing.assert_allclose(B[:100], 1 / np.sqrt(0.02))


def test_steps_are_finer_and_smaller_than_hinges_and_these_than_the_value():
    rng = np.random.default_rng(0)
    encoding, _ = learn({"v": rng.normal(size=3000).tolist()})
    p = encoding.frequencies
    sizes = {shape: (p @ encoding.tables(shape)[0] ** 2) for shape in (None, "hinges", "steps")}
    assert len(sizes[None]) < len(sizes["hinges"]) < len(sizes["steps"]) == 259
    assert sizes["hinges"][0] == pytest.approx(1.0)
    assert sizes["hinges"][1:].max() < 1
    assert sizes["steps"][5:].max() <= 0.25


def test_long_tails_are_tamed():
    v = np.concatenate([np.linspace(-1, 1, 1000), [1e9]])
    X = learn({"v": v.tolist()})[0].as_form("matrix").matrix({"v": v.tolist()})
    assert X.max() < 30 < (v[-1] - v.mean()) / v.std()


@pytest.mark.parametrize(
    ("column", "problem"),
    [
        ([1.0, "a"], "column 'c' mixes types: 1.0, 'a'; convert it"),
        ([True, "a"], "column 'c' mixes types"),
        ([{"a": 1}, None], "column 'c' holds values of type dict"),
        ([np.datetime64("2020-01-01")], "column 'c' holds dates or times"),
        (np.array(["2020-01-01"], "M8[D]"), "column 'c' holds dates or times.*the year"),
        ([1.0, np.inf], "column 'c' is infinite in row 1"),
        ([[["a"]]], "column 'c'"),
        ([1j], "column 'c' holds values of type complex"),
    ],
)
def test_what_cannot_be_read_is_named(column, problem):
    with pytest.raises((ValueError, TypeError), match=problem):
        learn({"c": column})


def test_frames_of_other_columns_are_refused():
    encoding, _ = learn({"a": ["x", "x", "y", "y"], "b": [1.0, 2.0, 3.0, 4.0]})
    with pytest.raises(
        ValueError, match=r"lacks the columns \['a'\] and has the unknown .*\['c'\]"
    ):
        encoding.codes({"b": [1.0], "c": [1.0]})
    with pytest.raises(ValueError, match="column 'a' held texts .* holds numbers now, such as 3.0"):
        encoding.codes({"a": [3.0], "b": [1.0]})
    with pytest.raises(ValueError, match="column 'b' must hold numbers, got 'x'"):
        encoding.codes({"a": ["x"], "b": ["x"]})
    with pytest.raises(ValueError, match="no rows"):
        learn({"a": []})
    with pytest.raises(ValueError, match="different numbers of rows"):
        learn({"a": [1.0], "b": [1.0, 2.0]})
    pandas = pytest.importorskip("pandas")
    with pytest.raises(ValueError, match="two columns 'a'; rename or drop one"):
        learn(pandas.DataFrame([[1, "x"]], columns=["a", "a"]))


def test_a_level_of_a_list_counts_once_a_row():
    rows = [["a", "a"], ["b"], ["b", "c"], []]
    (field,) = learn({"likes": rows})[0].fields
    assert field.values.tolist() == ["b"]


def test_a_column_may_be_called_column_names():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"column_names": [1.0, 2.0], "b": ["x", "y"]})
    assert learn(frame)[0].names == ["column_names", "b"]


def test_constant_columns_are_told_and_not_fatal():
    table = {"c": [1.0] * 4, "gone": [None] * 4, "id": list("abcd"), "v": [1.0, 2.0, 3.0, 4.0]}
    table |= {"nan": [float("nan")] * 4, "same": [["a", "b"]] * 4}
    told = r"say nothing.*\['c', 'gone', 'id', 'nan', 'same'\]"
    with pytest.warns(UserWarning, match=told):
        encoding, _ = Encoding.learn(table)
    assert np.isfinite(encoding.as_form("matrix").matrix(table)).all()


def test_a_million_levels():
    levels = np.arange(1_000_000) % 400_000
    encoding, codes = learn({"id": levels.astype(str)})
    assert encoding.n_codes == 400_001
    assert len(np.unique(codes.indices)) == 400_000


def test_a_saved_model_serves_frames_without_scikit_learn_and_pandas(tmp_path):
    """In a process where importing either of them fails."""
    import fastpoly

    rng = np.random.default_rng(0)
    table = {
        "city": rng.choice(["Oslo", "Rome", "x\0y"], 80).tolist(),
        "age": [None if v < -1.5 else v for v in rng.normal(size=80).tolist()],
        "likes": [list(rng.choice(["a", "b", "c"], rng.integers(3))) for _ in range(80)],
    }
    y = np.where(np.array(table["city"]) == "Oslo", "yes", "no")
    model = fastpoly.FactorizationMachineClassifier(random_state=0).fit(table, y)
    model.model_.save(tmp_path / "model.npz")
    np.save(tmp_path / "expected.npy", model.predict_proba(table))
    code = f"""
import sys
for name in ("sklearn", "pandas", "polars", "pyarrow", "narwhals"):
    sys.modules[name] = None
import numpy as np
from fastpoly import PolyModel
table = {table!r}
model = PolyModel.load({str(tmp_path / "model.npz")!r})
expected = np.load({str(tmp_path / "expected.npy")!r})
assert np.array_equal(model.predict_proba(table), expected)
assert (model.predict(table) == np.array(["no", "yes"])[expected.argmax(axis=1)]).all()
"""
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
