"""Arrays and models in .npz files from any source: nothing is unpickled, nothing is trusted.

The format is that of `numpy.savez`: a zip archive of uncompressed .npy members, which must hold
exactly the bytes that their headers declare. So reading never takes more memory than the size of
the file. The checksums of the archive catch accidental damage.
"""

import contextlib
import io
import math
import os
import re
import secrets
import stat
import struct
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from fastpoly.tables import Encoding

MODEL_VERSION = 2  # 1 had neither fields nor background
# The type of each array in a file, as a kind or in full; PolyModel checks the shapes.
_REQUIRED = {"H": "<f8", "V": "<f8", "intercept": "<f8", "activation": "U", "augment": "b"}
_TYPES = _REQUIRED | {
    "linear": "<f8", "feature_names": "U", "output_names": "U", "task": "U", "classes": "Uifub",
    "level_values": "<f8", "log_odds": "b", "fields": "i", "background": "<f8",
}  # fmt: skip
_NUMBERS = ("H", "V", "intercept", "linear", "classes", "level_values", "fields", "background")
_ENCODING = "encoding."  # before the names of the arrays of an encoding

# Booleans, integers, floats and text, as NumPy spells their types in a file.
_PLAIN = re.compile(r"\|b1|[<|][iu][1248]|<f[248]|<U[1-9][0-9]{0,7}")


def open_file(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a file to read it; ValueError for a device or pipe, which may have no end."""
    mode = os.stat(path).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # `open` has an error for folders
        raise ValueError(f"{path} is not a file but a device or pipe, which may have no end")
    return open(path, "rb")


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file that takes the place of `path` in one step when it is complete, or never.

    A symbolic link keeps pointing at its target.
    """
    target = Path(os.path.realpath(path))
    # Not a file of `tempfile`: only its owner could read it, and then the same holds for `path`.
    temporary = target.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError) and error.errno is not None:
            # The caller does not know the temporary name.
            raise OSError(error.errno, error.strerror, os.fspath(path)) from None
        raise


def write_arrays(path: str | os.PathLike[str], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write named arrays of booleans, numbers or text to a .npz file, all or nothing.

    No suffix is added to `path`. Equal arrays give equal bytes.
    """
    with replacing(_as_path(path)) as file, zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            array = array.astype(array.dtype.newbyteorder("<"), copy=False)
            if not _PLAIN.fullmatch(array.dtype.str):
                raise TypeError(f"{name} must hold booleans, numbers or text, got {array.dtype}")
            info = zipfile.ZipInfo(f"{name}.npy")  # dated 1980: equal arrays give equal bytes
            info.external_attr = 0o644 << 16
            with archive.open(info, "w", force_zip64=True) as member:
                npy.write_array(member, array, version=(1, 0), allow_pickle=False)


def read_arrays(path: str | os.PathLike[str]) -> dict[str, NDArray[Any]]:
    """Read all arrays of a .npz file without trusting it; they are read-only.

    ValueError unless it is an undamaged archive of uncompressed arrays of booleans, numbers or
    text; OSError if it cannot be opened.
    """
    path = _as_path(path)
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        try:
            with zipfile.ZipFile(file) as archive:
                members = archive.infolist()
                _check_members(members, size)
                return {
                    info.filename.removesuffix(".npy"): _parse(archive.read(info), info.filename)
                    for info in members
                }
        except Exception as error:  # zipfile and ast fail in many ways on forged bytes
            raise ValueError(f"{path} is not a readable .npz file: {error}") from error


def _as_path(path: str | os.PathLike[str]) -> str:
    """The path as a string. (`open` would also take integers, as file descriptors.)"""
    path = os.fspath(path) if hasattr(path, "__fspath__") else path
    if not isinstance(path, str):
        raise TypeError(f"path must be a str or path-like, got {path!r}")
    return path


def _check_members(members: list[zipfile.ZipInfo], size: int) -> None:
    """Check what the archive's directory says about its members, before any of them is read."""
    names = [info.filename for info in members]
    if len(set(names)) != len(names) or not all(name.endswith(".npy") for name in names):
        raise ValueError("its members must be .npy files, each once")
    if sum(info.compress_size for info in members) > size:
        raise ValueError("its members are declared larger than the file")
    for info in members:
        if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
            raise ValueError(f"{info.filename} is compressed; write it with numpy.savez")
        # Other attributes than sizes above 4 GB come from damaged lengths, which swallow members.
        zip64 = struct.pack("<HH", 1, max(0, len(info.extra) - 4))
        if info.comment or (info.extra and info.extra[:4] != zip64):
            raise ValueError(f"{info.filename} has a comment or unknown attributes")


def _parse(data: bytes, name: str) -> NDArray[Any]:
    """The array in the bytes of a .npy member; it shares the memory of `data`."""
    file = io.BytesIO(data)
    if npy.read_magic(file) != (1, 0):
        raise ValueError(f"{name} is not in version 1.0 of the .npy format")
    shape, fortran, dtype = npy.read_array_header_1_0(file)
    if not _PLAIN.fullmatch(dtype.str):
        raise ValueError(f"{name} must hold booleans, numbers or text, not {dtype}")
    first = file.tell()
    declared = math.prod(shape) * dtype.itemsize
    if declared != len(data) - first:
        raise ValueError(
            f"{name} declares {declared} bytes, shape {shape}, but holds {len(data) - first}"
        )
    if dtype.kind == "U" and (np.ndarray(declared // 4, "<u4", data, first) > sys.maxunicode).any():
        raise ValueError(f"{name} holds text that is not Unicode")
    return np.ndarray(shape, dtype, data, first, order="F" if fortran else "C")


# --- models ---


def write_model(path: str | os.PathLike[str], fields: Mapping[str, Any]) -> None:
    """Write the fields of a model, all or nothing; None and log_odds=True are left out."""
    encoding = fields.get("encoding")
    left_out = () if encoding is None else ("encoding", "feature_names", "fields")
    known = {k: v for k, v in fields.items() if v is not None and k not in left_out}
    arrays = {name: np.asarray(value) for name, value in known.items()}
    if encoding is not None:
        arrays |= {f"{_ENCODING}{name}": array for name, array in encoding.arrays().items()}
    if arrays.get("log_odds"):
        del arrays["log_odds"]
    classes = arrays.get("classes", np.empty(0))
    if classes.dtype.kind == "O":
        if not all(isinstance(each, str) and "\0" not in each for each in classes):
            raise TypeError(
                "a file holds classes that are numbers or strings without NUL; to save positions "
                "in their place: dataclasses.replace(model, classes=None).save(path)"
            )
        arrays["classes"] = classes.astype(str)
    write_arrays(path, {"format_version": np.asarray(MODEL_VERSION, dtype=np.int64), **arrays})


def read_model(path: str | os.PathLike[str], build: Callable[..., Any]) -> Any:
    """The model that `build` makes of the fields in a file; nothing is unpickled.

    ValueError if the file is damaged, of another version, or if `build` refuses the fields.
    """
    arrays = read_arrays(path)
    try:
        return build(**_fields(arrays))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{os.fspath(path)} does not hold a PolyModel: {error}") from error


def _fields(arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
    """The fields of a model from the arrays of a file."""
    version = arrays.pop("format_version", None)
    if version is None or version.dtype.kind != "i" or version.ndim:
        raise ValueError("it has no integer format_version")
    if not 1 <= version <= MODEL_VERSION:
        raise ValueError(
            f"it has format version {version}, this fastpoly reads 1 to {MODEL_VERSION}"
        )
    own = [name for name in arrays if name.startswith(_ENCODING)]
    parts = {name.removeprefix(_ENCODING): arrays.pop(name) for name in own}
    encoding = Encoding.from_arrays(parts) if parts else None
    missing, unknown = _REQUIRED.keys() - arrays.keys(), arrays.keys() - _TYPES.keys()
    if missing or unknown:
        raise ValueError(f"missing arrays: {sorted(missing)}; unknown: {sorted(unknown)}")
    for name, array in arrays.items():
        if (array.dtype.str if _TYPES[name] == "<f8" else array.dtype.kind) not in _TYPES[name]:
            raise ValueError(f"{name} must not have dtype {array.dtype}")
    # Arrays stay arrays; names, texts and flags become plain Python values.
    fields = {name: a if name in _NUMBERS else a.tolist() for name, a in arrays.items()}
    return fields | {"encoding": encoding}
