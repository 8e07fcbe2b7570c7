"""Models as ONNX graphs; the only module that imports `onnx` and `skl2onnx`.

A graph has three parts, each a function of a value of the graph: numbers in double precision from
what the caller gives (`doubles`), the polynomial (`polynomial`), and what its outputs mean
(`decode`). An encoding of tables goes between the first two. `to_onnx` and the converters that
skl2onnx knows once this module is imported write the same graph.
"""

from itertools import count
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
from fastpoly.tables.fields import Levels, Number

__all__ = ["to_onnx"]

# ONNX 1.12 of 2022. The operators that a graph consists of have not changed since.
OPSET, IR_VERSION = 17, 8
ML = "ai.onnx.ml"  # the domain of operators for texts

FLOATS = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.float64): TensorProto.DOUBLE}


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
        numbers, NaN where one is missing; str, "" where a text is missing; int64 for integers and
        bools. Its outputs are, by the task of the model,

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
    must be the last step. The outputs are those above, where a classifier has a second output
    named probabilities, also for scores.

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
    graph = Graph()
    inputs: dict[str, tuple[int, int]] = {"X": (FLOATS[dtype], poly.n_features)}
    if poly.encoding is None:
        parts = [Part(doubles(graph, ["X"]), slice(None))]
    else:
        inputs = {
            field.name: (_input_type(field, FLOATS[dtype]), 1) for field in poly.encoding.fields
        }
        parts = columns(graph, poly.encoding)
    outputs = decode(graph, poly, polynomial(graph, poly, parts))
    described = []
    for name, (value, type_, shape) in outputs.items():
        type_ = FLOATS[dtype] if type_ == TensorProto.DOUBLE else type_
        graph("Cast", value, outputs=[name], to=type_)
        described.append(helper.make_tensor_value_info(name, type_, ["n", *shape]))
    given = [helper.make_tensor_value_info(n, t, ["n", w]) for n, (t, w) in inputs.items()]
    nodes = [helper.make_node(op, *ends, **attributes) for op, *ends, attributes in graph.nodes]
    constants = [numpy_helper.from_array(array, name) for name, array in graph.constants.items()]
    opset = [helper.make_opsetid("", OPSET), helper.make_opsetid(ML, 3)]
    proto = helper.make_model(
        helper.make_graph(nodes, "fastpoly", given, described, constants),
        opset_imports=opset, ir_version=IR_VERSION, producer_name="fastpoly",
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
    """Nodes (operator, inputs, outputs, attributes) and constants; values are known by name."""

    def __init__(self) -> None:
        self.nodes: list[tuple[str, list[str], list[str], dict[str, Any]]] = []
        self.constants: dict[str, NDArray[Any]] = {}
        self._numbers = count()

    def __call__(
        self, operator: str, *inputs: str | NDArray[Any], outputs: Any = 1, **attributes: Any
    ) -> str:
        """Add a node and return its first output; `outputs` are their names or their number."""
        names = outputs if isinstance(outputs, list) else [self._name() for _ in range(outputs)]
        self.nodes.append((operator, list(map(self._value, inputs)), names, attributes))
        return names[0]

    def sum(self, values: list[Any]) -> str:
        """The sum of values and constants."""
        total = values[0]
        for value in values[1:]:
            total = self("Add", total, value)
        return total

    def _value(self, value: str | NDArray[Any]) -> str:
        if isinstance(value, str):
            return value
        name = self._name()
        self.constants[name] = value
        return name

    def _name(self) -> str:
        return f"fastpoly_{next(self._numbers)}"


def doubles(graph: Graph, names: list[str]) -> str:
    """Columns of any numeric type, (n, d) in all, as one matrix in double precision."""
    parts = [graph("Cast", name, to=TensorProto.DOUBLE) for name in names]
    return parts[0] if len(parts) == 1 else graph("Concat", *parts, axis=1)


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
            z.append(graph("Gather", np.ascontiguousarray(F.T), x))
            terms.append(graph("Gather", L + own, x))
            continue
        z.append(graph("MatMul", x, np.ascontiguousarray(F.T)) if k else "")
        terms.append(graph("MatMul", x, L))
        if own.any():
            terms.append(graph("MatMul", graph("Mul", x, x), own))
    if k:
        if model.augment:
            z.append(model.H[:, 0])
            intercept = intercept - model.H[:, 0] ** 2 @ V if anova else intercept
        total = graph.sum(z)
        terms.append(graph("MatMul", graph("Mul", total, total), V))
    return graph.sum([*terms, intercept])


def columns(graph: Graph, encoding: Encoding) -> list[Part]:
    """The features of a frame, from an input for each of its columns."""
    parts = []
    for i, field in enumerate(encoding.fields):
        where = np.flatnonzero(encoding.fields_of_columns == i)
        p = encoding.frequencies[encoding.offsets[i] : encoding.offsets[i + 1]]
        if not isinstance(field, Number):
            parts.append(Part(_level_codes(graph, field), where, True))
            continue
        v = doubles(graph, [field.name])
        gaps = graph("IsNaN", v)
        if encoding.form == "codes":
            edges = field.edges if len(field.edges) else np.array([np.inf])
            above = graph("Cast", graph("Greater", v, edges[None]), to=TensorProto.INT64)
            center = np.searchsorted(field.edges, field.units[0], "left")
            gap = np.array([field.size - 1 if field.missing else center])
            code = graph("ReduceSum", above, np.array([1]), keepdims=1)
            code = graph("Squeeze", graph("Where", gaps, gap, code), np.array([1]))
            parts.append(Part(code, where, True))
            continue
        center, unit, mean, deviation = field.units
        u = graph("Sub", graph("Where", gaps, np.array([center]), v), np.array([center]))
        u = graph("Div", u, np.array([unit]))
        root = graph("Sqrt", graph("Add", graph("Mul", u, u), np.ones(1)))
        asinh = graph("Log", graph("Add", graph("Abs", u), root))  # of |u|
        soft = graph("Sub", graph("Mul", graph("Sign", u), asinh), np.array([mean]))
        features = [graph("Div", soft, np.array([deviation]))]
        knots = field._knots(p[: len(field.values)])
        if encoding.form == "hinges" and len(knots):
            features.append(graph("Max", graph("Sub", features[0], knots[None]), np.zeros(1)))
        if field.missing:
            features.append(graph("Cast", gaps, to=TensorProto.DOUBLE))
        parts.append(Part(graph("Concat", *features, axis=1), where))
    return parts


def _input_type(field: Levels | Number, number: int) -> int:
    """The type of the input of a column; TypeError where ONNX has none."""
    if isinstance(field, Number):
        return number
    if field.kind == "list" or field.values.dtype.kind == "f":
        raise TypeError(f"column {field.name!r} holds lists or fractions as levels, not for ONNX")
    return TensorProto.STRING if field.values.dtype.kind == "O" else TensorProto.INT64


def _level_codes(graph: Graph, field: Levels) -> str:
    """The code of each row, (n,), of a column of texts or integers."""
    keys, kind = field.values.tolist(), "strings" if field.values.dtype.kind == "O" else "int64s"
    codes, other = list(range(len(keys))), len(keys)
    if kind == "strings" and field.missing and "" not in keys:
        keys, codes = [*keys, ""], [*codes, field.size - 1]
    if not keys:  # all levels are rare
        keys, codes = ["" if kind == "strings" else 0], [other]
    keys = keys if kind == "strings" else list(map(int, keys))
    options = {f"keys_{kind}": keys, "values_int64s": codes, "default_int64": other}
    found = graph("LabelEncoder", field.name, domain=ML, **options)
    return graph("Squeeze", found, np.array([1]))


Outputs = dict[str, tuple[str, Any, list[int]]]  # Any: a type of TensorProto


def decode(graph: Graph, model: PolyModel, o: str) -> Outputs:
    """What the outputs o (n, m) mean: names, values, their types, and their shapes after n.

    The same as `fastpoly.decoding`.
    """
    m = model.n_outputs
    if model.task in ("regression", "rates"):
        value = graph("Exp", o) if model.task == "rates" else o
        return {"variable": (value, TensorProto.DOUBLE, [m])}
    if model.task == "ordinal":
        # p(y <= level) in order, and their differences as a product: s_0, s_1 - s_0, .., 1 - s_m
        order = np.array([m])
        s = graph("TopK", graph("Sigmoid", o), order, outputs=2, axis=1, largest=0)
        last = np.zeros(m + 1)
        last[m] = 1.0
        p = graph("Add", graph("MatMul", s, np.eye(m, m + 1) - np.eye(m, m + 1, 1)), last)
        values = model.level_values
        if values is None:
            values = level_values(model.classes, m + 1)
        levels: Outputs = {
            "variable": (graph("MatMul", p, values[:, None]), TensorProto.DOUBLE, [1])
        }
        if model.log_odds:
            levels["probabilities"] = p, TensorProto.DOUBLE, [m + 1]
        return levels
    if model.task == "multilabel":
        label = graph("Cast", graph("Greater", o, np.zeros(1)), to=TensorProto.INT64)
        found: Outputs = {"label": (label, TensorProto.INT64, [m])}
        p, n_columns = (graph("Sigmoid", o) if model.log_odds else o), m
    else:
        # A single output is the log odds of the second of two classes; that of the first is 0.
        scores = graph("MatMul", o, np.array([[0.0, 1.0]])) if m == 1 else o
        label, type_ = graph("ArgMax", scores, axis=1, keepdims=0), TensorProto.INT64
        if model.classes is not None:
            classes, type_ = as_labels(model.classes)
            label = graph("Gather", classes, label)
        found = {"label": (label, type_, [])}
        p, n_columns = (graph("Softmax", scores, axis=1), max(m, 2)) if model.log_odds else (o, m)
    name = "probabilities" if model.log_odds else "scores"
    return found | {name: (p, TensorProto.DOUBLE, [n_columns])}


def as_labels(classes: NDArray[Any]) -> tuple[NDArray[Any], Any]:
    """Classes as a constant of a graph, and its type: int64, float64 or str."""
    if classes.dtype.kind in "biu":
        if classes.max() > np.iinfo(np.int64).max:
            raise ValueError("ONNX has no classes above 2**63 - 1; use names or smaller numbers")
        return classes.astype(np.int64), TensorProto.INT64
    if classes.dtype.kind == "f":
        whole = classes.astype(np.int64)
        same = np.array_equal(whole, classes)
        return (whole, TensorProto.INT64) if same else (classes.astype(float), TensorProto.DOUBLE)
    if all(isinstance(each, str) for each in classes.tolist()):
        return classes.astype(object), TensorProto.STRING
    raise TypeError(f"classes must be numbers or str for ONNX, got {classes.tolist()[:3]}")


# What skl2onnx asks of a converter: a parser that declares the outputs of an estimator, a function
# that sets their types, and one that adds nodes.


def _declare_levels(scope: Any, model: Any, inputs: list[Any], custom_parsers: Any = None) -> Any:
    """The outputs of an ordinal regressor; those of the others are skl2onnx's own."""
    operator = scope.declare_local_operator(f"Fastpoly{type(model).__name__}", model)
    operator.inputs = inputs
    number = data_types.guess_tensor_type(inputs[0].type)
    for name in decode(Graph(), fitted_model(model), ""):
        operator.outputs.append(scope.declare_local_variable(name, number))
    return operator.outputs


def _set_types(operator: Any) -> None:
    number = type(data_types.guess_tensor_type(operator.inputs[0].type))
    types = {
        TensorProto.INT64: data_types.Int64TensorType,
        TensorProto.STRING: data_types.StringTensorType,
        TensorProto.DOUBLE: number,
    }
    found = decode(Graph(), fitted_model(operator.raw_operator), "").values()
    for output, (_, type_, shape) in zip(operator.outputs, found, strict=True):
        output.type = types[type_]([None, *shape])


def _convert(scope: Any, operator: Any, container: Any) -> None:
    poly, graph = fitted_model(operator.raw_operator), Graph()
    if poly.encoding is not None:
        raise TypeError("a model of a frame is converted by fastpoly.onnx.to_onnx, by itself")
    x = doubles(graph, [each.full_name for each in operator.inputs])
    outputs = decode(graph, poly, polynomial(graph, poly, [Part(x, slice(None))]))
    for output, (value, _, _) in zip(operator.outputs, outputs.values(), strict=True):
        type_ = data_types.guess_proto_type(output.type)
        graph("Cast", value, outputs=[output.full_name], to=type_)
    # Names of this graph are made unique in the whole Pipeline.
    names: dict[str, str] = {}
    for name, array in graph.constants.items():
        names[name] = scope.get_unique_variable_name(name)
        tensor = numpy_helper.from_array(array)
        text = tensor.data_type == TensorProto.STRING
        content = array.tolist() if text else array.ravel()
        container.add_initializer(names[name], tensor.data_type, list(array.shape), content)
    for op, inputs, results, attributes in graph.nodes:
        for name in results:
            if name.startswith("fastpoly_"):
                names[name] = scope.get_unique_variable_name(name)
        ends = [[names.get(name, name) for name in each] for each in (inputs, results)]
        container.add_node(op, *ends, name=scope.get_unique_operator_name(op), **attributes)


# Options that skl2onnx's parser of classifiers reads.
ZIPMAP = {
    "zipmap": [True, False, "columns"],
    "output_class_labels": [False, True],
    "nocl": [False],
}


def register() -> None:
    """Make the six estimators known to skl2onnx; importing this module does it."""
    for name in estimators.__all__:
        cls = getattr(estimators, name)
        classifier, ordinal = name.endswith("Classifier"), name.endswith("OrdinalRegressor")
        if not name.startswith(("PolynomialNetwork", "FactorizationMachine")):
            continue
        skl2onnx.update_registered_converter(
            cls, f"Fastpoly{name}", _set_types, _convert,
            parser=_declare_levels if ordinal else None,
            options=ZIPMAP if classifier else None,
        )  # fmt: skip


register()
