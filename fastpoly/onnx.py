"""Models as ONNX graphs; the only module that imports `onnx` and `skl2onnx`.

A graph has three parts, each a function of a value of the graph: numbers in double precision from
what the caller gives (`doubles`, or `columns` of a frame), the polynomial (`polynomial`), and what
its outputs mean (`decode`). `to_onnx` and the converters that skl2onnx knows once this module is
imported write the same graph.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import onnx
import skl2onnx
from numpy.typing import DTypeLike, NDArray
from onnx import TensorProto, helper, numpy_helper
from skl2onnx.common import data_types

from fastpoly import estimators
from fastpoly.decoding import level_values
from fastpoly.model import PolyModel
from fastpoly.tables import Encoding
from fastpoly.tables.fields import MOST_UNITS, Levels, Number, soften

__all__ = ["to_onnx"]

DOUBLE, INT64, STRING = TensorProto.DOUBLE, TensorProto.INT64, TensorProto.STRING
FLOATS = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.float64): DOUBLE}


def to_onnx(model: Any, dtype: DTypeLike = np.float32) -> onnx.ModelProto:
    """The ONNX graph of a model, which other programs and languages can run.

    Parameters
    ----------
    model : PolyModel, fitted estimator or search
    dtype : {numpy.float32, numpy.float64}
        The numbers that go in and out. Inside, the graph computes in double precision.

    Returns
    -------
    onnx.ModelProto
        Its input is X, (n, d), dense; of a model of a frame, one input (n, 1) for each column:
        numbers, NaN where one is missing; str, "" where a text is missing; int64 for levels that
        are integers or bools. Lists, and levels that are fractions, are 0 and 1, (n, size), for
        the levels of the encoding, any other level, and a gap if there were some. Its outputs are,
        by the task of the model,

        ======================= ==================================================================
        regression, rates       variable (n, m)
        classification          label (n,): int64, str, or numbers for classes that are fractions;
                                probabilities (n, classes)
        multilabel              label (n, m): int64, 0 or 1; probabilities (n, m)
        ordinal                 variable (n, 1): the expected level; probabilities (n, levels)
        ======================= ==================================================================

        Where a loss gives no probabilities, scores (n, m) take their place in a classifier.

    Notes
    -----
    A graph does not check X: rows that overflow give infinite or undefined outputs, and not the
    error of `predict`.

    Pipelines are converted by `skl2onnx.to_onnx`, after ``import fastpoly.onnx``; the estimator
    or search must be the last step, and `TableEncoder` may be the first. Columns of a frame are
    inputs as above. The outputs are those above, where a classifier has a second output named
    probabilities, also for scores.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from fastpoly import PolynomialNetworkClassifier
    >>> from fastpoly.onnx import to_onnx
    >>> X, y = load_iris(return_X_y=True)
    >>> model = PolynomialNetworkClassifier(alpha=1.0, random_state=0).fit(X, y)
    >>> graph = to_onnx(model)
    >>> [output.name for output in graph.graph.output]
    ['label', 'probabilities']
    """
    poly = fitted_model(model)
    dtype = np.dtype(dtype)
    if dtype not in FLOATS:
        raise ValueError(f"dtype must be float32 or float64, got {dtype}")
    graph, number, describe = Graph(), FLOATS[dtype], helper.make_tensor_value_info
    if poly.encoding is None:
        inputs = [describe("X", number, ["n", poly.n_features])]
        parts = [Part(doubles(graph, ["X"]), slice(None))]
    else:
        fields = poly.encoding.fields
        inputs = [describe(each.name, *input_type(each, number)) for each in fields]
        parts = columns(graph, poly.encoding, poly.encoding.names)
    outputs = []
    for name, value, type_, shape in decode(graph, poly, polynomial(graph, poly, parts)):
        type_ = number if type_ == DOUBLE else type_
        graph.Cast(value, outputs=[name], to=type_)
        outputs.append(describe(name, type_, ["n", *shape]))
    nodes = [helper.make_node(op, *ends, **attributes) for op, *ends, attributes in graph.nodes]
    constants = [numpy_helper.from_array(array, name) for name, array in graph.constants.items()]
    # ONNX 1.12 of 2022. The operators that a graph consists of have not changed since.
    proto = helper.make_model(
        helper.make_graph(nodes, "fastpoly", inputs, outputs, constants), ir_version=8,
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)],
        producer_name="fastpoly",
    )  # fmt: skip
    onnx.checker.check_model(proto)
    return proto


def fitted_model(model: Any) -> PolyModel:
    """The PolyModel of an estimator or a search, or the model itself."""
    model = getattr(model, "best_estimator_", model)
    model = getattr(model, "model_", model)
    if not isinstance(model, PolyModel):
        raise TypeError(
            f"model must be a PolyModel or a fitted estimator of fastpoly, got "
            f"{type(model).__name__}; fit it first, and convert a Pipeline by skl2onnx.to_onnx"
        )
    return model


class Graph:
    """Nodes (operator, inputs, outputs, attributes) and constants; values are known by name.

    `graph.Add(a, b)` adds a node of that operator, for names or arrays a and b.
    """

    def __init__(self) -> None:
        self.nodes: list[tuple[str, list[str], list[str], dict[str, Any]]] = []
        self.constants: dict[str, NDArray[Any]] = {}
        self.count = 0

    def __getattr__(self, operator: str) -> Callable[..., str]:
        if not operator[0].isupper():
            raise AttributeError(operator)
        return partial(self._add, operator)

    def _add(
        self, operator: str, *inputs: str | NDArray[Any], outputs: Any = 1, **attributes: Any
    ) -> str:
        """Add a node and return its first output; `outputs` are their names or their number."""
        names = outputs if isinstance(outputs, list) else [self._name() for _ in range(outputs)]
        values = [each if isinstance(each, str) else self._constant(each) for each in inputs]
        self.nodes.append((operator, values, names, attributes))
        return names[0]

    def _constant(self, array: NDArray[Any]) -> str:
        name = self._name()
        self.constants[name] = array
        return name

    def _name(self) -> str:
        self.count += 1
        return f"fastpoly_{self.count}"

    def sum(self, values: list[Any]) -> str:
        """The sum of values and constants."""
        total = values[0]
        for value in values[1:]:
            total = self.Add(total, value)
        return total


def doubles(graph: Graph, names: list[str]) -> str:
    """Columns of any numeric type, (n, d) in all, as one matrix in double precision."""
    parts = [graph.Cast(name, to=DOUBLE) for name in names]
    return parts[0] if len(parts) == 1 else graph.Concat(*parts, axis=1)


class Part(NamedTuple):
    """Some features of the rows: x (n, q), or codes (n,) of columns that are 0 and 1."""

    value: str
    columns: Any
    coded: bool = False


def polynomial(graph: Graph, model: PolyModel, parts: list[Part]) -> str:
    """The outputs of a model, (n, m), from all its features.

    ``z^2 V + x linear' + intercept`` with ``z = x F' + f``, where f are the weights of the constant
    feature; for "anova", half of the first term, without the squares ``x^2 (F^2)'V`` and ``f^2 V``.
    """
    anova, k = model.activation == "anova", model.n_components
    V, intercept = model.V / 2 if anova else model.V, model.intercept
    linear = np.zeros((model.n_outputs, model.n_features)) if model.linear is None else model.linear
    z, terms = [], []
    for x, where, coded in parts:
        F, L = model.H[:, model.augment :][:, where], linear[:, where].T
        own = -(F**2).T @ V if anova else 0 * L
        if coded:  # the square of a 1 is 1
            z.append(graph.Gather(np.ascontiguousarray(F.T), x))
            terms.append(graph.Gather(L + own, x))
            continue
        z.append(graph.MatMul(x, np.ascontiguousarray(F.T)) if k else "")
        terms.append(graph.MatMul(x, L))
        if own.any():
            terms.append(graph.MatMul(graph.Mul(x, x), own))
    if k:
        if model.augment:
            z.append(model.H[:, 0])
            intercept = intercept - model.H[:, 0] ** 2 @ V if anova else intercept
        total = graph.sum(z)
        terms.append(graph.MatMul(graph.Mul(total, total), V))
    return graph.sum([*terms, intercept])


def columns(graph: Graph, encoding: Encoding, inputs: list[str]) -> list[Part]:
    """The features of a frame, from an input for each of its columns."""
    parts = []
    for i, (field, given) in enumerate(zip(encoding.fields, inputs, strict=True)):
        where = np.flatnonzero(encoding.fields_of_columns == i)
        if not isinstance(field, Number):
            known = input_type(field, DOUBLE)[0] != DOUBLE
            x = level_codes(graph, field, given) if known else doubles(graph, [given])
            parts.append(Part(x, where, known))
            continue
        v = doubles(graph, [given])
        gaps = graph.IsNaN(v)
        center, unit, mean, deviation = field.units
        if encoding.form == "codes":
            edges = field.edges if len(field.edges) else np.array([np.inf])
            above = graph.Cast(graph.Greater(v, edges[None]), to=INT64)
            gap = field.size - 1 if field.missing else np.searchsorted(field.edges, center, "left")
            code = graph.ReduceSum(above, np.array([1]), keepdims=1)
            code = graph.Squeeze(graph.Where(gaps, np.array([gap]), code), np.array([1]))
            parts.append(Part(code, where, True))
            continue
        u = graph.Sub(graph.Where(gaps, np.array([center]), v), np.array([center]))
        u = graph.Div(u, np.array([unit]))
        if encoding.form == "plain":
            most = np.array([MOST_UNITS])
            features = [graph.Max(graph.Min(u, most), -most)]
        else:
            root = graph.Sqrt(graph.Add(graph.Mul(u, u), np.ones(1)))
            asinh = graph.Log(graph.Add(graph.Abs(u), root))  # of |u|
            soft = graph.Sub(graph.Mul(graph.Sign(u), asinh), np.array([mean]))
            features = [graph.Div(soft, np.array([deviation]))]
        knots = soften(field.edges[field.knots], field.units)
        if encoding.form == "hinges" and len(knots):
            features.append(graph.Max(graph.Sub(features[0], knots[None]), np.zeros(1)))
        if field.missing:
            features.append(graph.Cast(gaps, to=DOUBLE))
        parts.append(Part(graph.Concat(*features, axis=1), where))
    return parts


def input_type(field: Levels | Number, number: int) -> tuple[int, list[Any]]:
    """The type and the shape of the input of a column."""
    if field.kind == "number":
        return number, ["n", 1]
    if field.kind == "list" or field.values.dtype.kind == "f":
        return number, ["n", field.size]
    return STRING if field.values.dtype.kind == "O" else INT64, ["n", 1]


def level_codes(graph: Graph, field: Levels, given: str) -> str:
    """The code of each row, (n,), of a column of texts or integers."""
    text = field.values.dtype.kind == "O"
    keys = field.values.tolist() if text else list(map(int, field.values))
    codes, other = list(range(len(keys))), len(keys)
    if text and field.missing and "" not in keys:
        keys, codes = [*keys, ""], [*codes, field.size - 1]
    if not keys:  # all levels are rare
        keys, codes = ["" if text else 0], [other]
    known = {"keys_strings" if text else "keys_int64s": keys, "values_int64s": codes}
    given = given if text else graph.Cast(given, to=INT64)
    found = graph.LabelEncoder(given, domain="ai.onnx.ml", default_int64=other, **known)
    return graph.Squeeze(found, np.array([1]))


def decode(graph: Graph, model: PolyModel, o: str) -> list[tuple[str, str, Any, list[int]]]:
    """What the outputs o (n, m) mean: names, values, their types, and their shapes after n.

    The same as `fastpoly.decoding`.
    """
    m = model.n_outputs
    if model.task in ("regression", "rates"):
        return [("variable", graph.Exp(o) if model.task == "rates" else o, DOUBLE, [m])]
    if model.task == "ordinal":
        # p(y <= level) in order, and their differences as a product: s_0, s_1 - s_0, .., 1 - s_m
        s = graph.TopK(graph.Sigmoid(o), np.array([m]), outputs=2, axis=1, largest=0)
        p = graph.MatMul(s, np.eye(m, m + 1) - np.eye(m, m + 1, 1))
        p = graph.Add(p, np.eye(m + 1)[m])
        values = model.level_values
        values = level_values(model.classes, m + 1) if values is None else values
        expected = ("variable", graph.MatMul(p, values[:, None]), DOUBLE, [1])
        return [expected, ("probabilities", p, DOUBLE, [m + 1])][: 1 + model.log_odds]
    type_, shape, n_columns = INT64, [m], m
    if model.task == "multilabel":
        label = graph.Cast(graph.Greater(o, np.zeros(1)), to=INT64)
        p = graph.Sigmoid(o) if model.log_odds else o
    else:
        # A single output is the log odds of the second of two classes; that of the first is 0.
        scores = graph.MatMul(o, np.array([[0.0, 1.0]])) if m == 1 else o
        label, shape = graph.ArgMax(scores, axis=1, keepdims=0), []
        if model.classes is not None:
            classes, type_ = as_labels(model.classes)
            label = graph.Gather(classes, label)
        p, n_columns = (graph.Softmax(scores, axis=1), max(m, 2)) if model.log_odds else (o, m)
    name = "probabilities" if model.log_odds else "scores"
    return [("label", label, type_, shape), (name, p, DOUBLE, [n_columns])]


def as_labels(classes: NDArray[Any]) -> tuple[NDArray[Any], Any]:
    """Classes as a constant of a graph, and its type: int64, float64 or str."""
    kind = classes.dtype.kind
    if kind in "biu" and classes.max() > np.iinfo(np.int64).max:
        raise ValueError("ONNX has no classes above 2**63 - 1; use names or smaller numbers")
    if kind in "biu" or (kind == "f" and np.array_equal(classes.astype(np.int64), classes)):
        return classes.astype(np.int64), INT64
    if kind == "f":
        return classes.astype(float), DOUBLE
    if all(isinstance(each, str) for each in classes.tolist()):
        return classes.astype(object), STRING
    raise TypeError(f"classes must be numbers or str for ONNX, got {classes.tolist()[:3]}")


# What skl2onnx asks of a converter: a parser that declares the outputs of an estimator, a function
# that sets their types, and one that adds nodes.


def number_type(operator: Any) -> Any:
    """The type of numbers that come out: double precision if some go in."""
    found = [data_types.guess_tensor_type(each.type) for each in operator.inputs]
    return next((t for t in found if isinstance(t, data_types.DoubleTensorType)), found[0])


def declare_outputs(scope: Any, model: Any, inputs: list[Any], custom_parsers: Any = None) -> Any:
    """The outputs of `to_onnx`; those of plain classifiers and regressors are skl2onnx's own."""
    operator = scope.declare_local_operator(f"Fastpoly{type(model).__name__}", model)
    operator.inputs = inputs
    for name, *_ in decode(Graph(), fitted_model(model), ""):
        operator.outputs.append(scope.declare_local_variable(name, number_type(operator)))
    return operator.outputs


def set_types(operator: Any) -> None:
    """The types and shapes of the outputs."""
    number = type(number_type(operator))
    types = {INT64: data_types.Int64TensorType, STRING: data_types.StringTensorType, DOUBLE: number}
    found = decode(Graph(), fitted_model(operator.raw_operator), "")
    for output, (_, _, type_, shape) in zip(operator.outputs, found, strict=True):
        output.type = types[type_]([None, *shape])


def set_width(operator: Any) -> None:
    """The type and the shape of what an encoder makes."""
    width = len(operator.raw_operator.encoding_.column_names)
    operator.outputs[0].type = type(number_type(operator))([None, width])


def convert(scope: Any, operator: Any, container: Any) -> None:
    """The nodes of an estimator."""
    poly, graph = fitted_model(operator.raw_operator), Graph()
    if poly.encoding is None:
        x = doubles(graph, [each.full_name for each in operator.inputs])
        parts = [Part(x, slice(None))]
    else:
        parts = columns(graph, poly.encoding, frame_inputs(graph, poly.encoding, operator))
    found = decode(graph, poly, polynomial(graph, poly, parts))
    add_nodes(scope, operator, container, graph, [value for _, value, *_ in found])


def convert_encoder(scope: Any, operator: Any, container: Any) -> None:
    """The nodes of a `TableEncoder`."""
    encoding, graph = operator.raw_operator.encoding_, Graph()
    parts = []
    for part in columns(graph, encoding, frame_inputs(graph, encoding, operator)):
        one_hot = np.eye(len(part.columns))
        parts.append(graph.Gather(one_hot, part.value) if part.coded else part.value)
    add_nodes(scope, operator, container, graph, [doubles(graph, parts)])


def frame_inputs(graph: Graph, encoding: Encoding, operator: Any) -> list[str]:
    """A value for each column of a frame: those of that name, or the columns of one matrix."""
    given = {each.raw_name: each.full_name for each in operator.inputs}
    names = list(getattr(operator.raw_operator, "feature_names_in_", encoding.names))
    if len(given) == 1 and not given.keys() & set(names):
        (X,) = given.values()
        places = [np.array([names.index(name)]) for name in encoding.names]
        return [graph.Gather(X, place, axis=1) for place in places]
    lacking = [name for name in encoding.names if name not in given]
    if lacking:
        raise ValueError(f"the inputs lack the columns {lacking[:10]}; name them as in the fit")
    return [given[name] for name in encoding.names]


def add_nodes(scope: Any, operator: Any, container: Any, graph: Graph, values: list[str]) -> None:
    """Add the nodes of a graph, under names that are unique in the whole Pipeline."""
    for output, value in zip(operator.outputs, values, strict=True):
        type_ = data_types.guess_proto_type(output.type)
        graph.Cast(value, outputs=[output.full_name], to=type_)
    own = [f"fastpoly_{i}" for i in range(1, graph.count + 1)]
    names = {name: scope.get_unique_variable_name(name) for name in own}
    for name, array in graph.constants.items():
        type_ = numpy_helper.from_array(array).data_type
        content = array.tolist() if type_ == STRING else array.ravel()
        container.add_initializer(names[name], type_, list(array.shape), content)
    for op, inputs, outputs, attributes in graph.nodes:
        ends = [[names.get(name, name) for name in each] for each in (inputs, outputs)]
        attributes = attributes | {"name": scope.get_unique_operator_name(op)}
        if domain := attributes.pop("domain", ""):  # LabelEncoder
            attributes |= {"op_domain": domain, "op_version": 2}
        container.add_node(op, *ends, **attributes)


def register() -> None:
    """Make the estimators known to skl2onnx; importing this module does it."""
    # Options that skl2onnx's parser of classifiers reads.
    zipmap = {"zipmap": [True, False, "columns"]}
    zipmap |= {"output_class_labels": [False, True], "nocl": [False]}
    for name in estimators.__all__:
        if name != "TableEncoder":
            plain = name.endswith(("Classifier", "Regressor")) and "Ordinal" not in name
            skl2onnx.update_registered_converter(
                getattr(estimators, name), f"Fastpoly{name}", set_types, convert,
                parser=None if plain else declare_outputs,
                options=zipmap if name.endswith("Classifier") else None,
            )  # fmt: skip
    skl2onnx.update_registered_converter(
        estimators.TableEncoder, "FastpolyTableEncoder", set_width, convert_encoder
    )


register()
