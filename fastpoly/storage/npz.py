"""Arrays in .npz files from any source: nothing is unpickled, nothing is trusted.

The format is that of `numpy.savez` and `numpy.load`: a zip archive of uncompressed .npy members.
Reading accepts nothing else. Members are never decompressed and must hold exactly the bytes that
their headers declare. So reading never takes more memory than the size of the file, whatever the
headers say. The checksums of the archive catch accidental damage.
"""

import contextlib
import math
import os
import re
import secrets
import struct
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

# The header of a .npy member as NumPy writes it, for booleans, integers, floats and text.
_MAGIC = b"\x93NUMPY\x01\x00"
_DTYPE = r"\|b1|<i8|<f8|<U[1-9][0-9]{0,7}"
_HEADER = re.compile(
    rf"\{{'descr': '(?P<dtype>{_DTYPE})', "
    r"'fortran_order': (?P<fortran>False|True), "
    r"'shape': \((?P<shape>|[0-9]{1,18},|[0-9]{1,18}(?:, [0-9]{1,18}){1,7})\), \} *\n"
)
# Errors that zipfile raises for damaged or forged archives, in addition to ValueError.
_DAMAGE = (zipfile.BadZipFile, RuntimeError, EOFError, OverflowError, struct.error)


def write_arrays(path: str | os.PathLike[str], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write named arrays to a .npz file, all or nothing.

    The file is written under another name in the same directory and then replaces `path` in one
    step, so that `path` never holds an incomplete file. Equal arrays give equal bytes.

    Parameters
    ----------
    path : str or path-like
        Used as it is, without adding a suffix. A symbolic link keeps pointing at its target.
    arrays : mapping of str to ndarray
        Arrays of dtype bool, int64, float64 or str.
    """
    path = _as_path(path)
    target = Path(os.path.realpath(path))
    # Not a file of `tempfile`: only its owner could read it, and then the same holds for `path`.
    temporary = target.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb") as file:
            _write(file, arrays)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError) and error.errno is not None:
            # The caller does not know the temporary name.
            raise OSError(error.errno, error.strerror, path) from None
        raise


def _as_path(path: str | os.PathLike[str]) -> str:
    """The path as a string. (`open` would also take integers, as file descriptors.)"""
    path = os.fspath(path) if hasattr(path, "__fspath__") else path
    if not isinstance(path, str):
        raise TypeError(f"path must be a str or path-like, got {path!r}")
    return path


def _write(file: BinaryIO, arrays: Mapping[str, NDArray[Any]]) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            array = array.astype(array.dtype.newbyteorder("<"), copy=False)
            if not re.fullmatch(_DTYPE, array.dtype.str):
                raise TypeError(f"{name} must be bool, int64, float64 or str, got {array.dtype}")
            info = zipfile.ZipInfo(f"{name}.npy")  # dated 1980: equal arrays give equal bytes
            info.external_attr = 0o644 << 16
            with archive.open(info, "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, version=(1, 0), allow_pickle=False)


def read_arrays(path: str | os.PathLike[str]) -> dict[str, NDArray[Any]]:
    """Read all arrays of a .npz file without trusting it.

    Parameters
    ----------
    path : str or path-like

    Returns
    -------
    dict of str to ndarray
        Read-only arrays of dtype bool, int64, float64 or str.

    Raises
    ------
    ValueError
        If the file is not an archive of uncompressed arrays of these types, is truncated or
        damaged, or declares shapes that its contents do not have.
    OSError
        If the file cannot be opened (such as FileNotFoundError).

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from fastpoly.storage.npz import read_arrays, write_arrays
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "arrays.npz")
    ...     write_arrays(path, {"a": np.array([1.0, 2.0]), "b": np.array("text")})
    ...     read_arrays(path)
    {'a': array([1., 2.]), 'b': array('text', dtype='<U4')}
    """
    with open(_as_path(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        try:
            with zipfile.ZipFile(file) as archive:
                members = archive.infolist()
                _check_members(members, size)
                return {
                    info.filename.removesuffix(".npy"): _parse(archive.read(info), info.filename)
                    for info in members
                }
        except (ValueError, *_DAMAGE) as error:
            raise ValueError(f"{os.fspath(path)} is not a readable .npz file: {error}") from error


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
        # Other attributes come from damaged lengths, which swallow the following members.
        if info.comment or not _is_zip64(info.extra):
            raise ValueError(f"{info.filename} has a comment or unknown attributes")
        if not 0 <= info.header_offset <= size - info.compress_size:
            raise ValueError(f"{info.filename} lies outside the file")


def _is_zip64(extra: bytes) -> bool:
    """Whether these attributes are empty, or a single record of sizes and offset above 4 GB."""
    return not extra or extra[:4] == struct.pack("<HH", 1, len(extra) - 4)


def _parse(data: bytes, name: str) -> NDArray[Any]:
    """The array in the bytes of a .npy member; it shares the memory of `data`."""
    start = len(_MAGIC) + 2
    if len(data) < start or not data.startswith(_MAGIC):
        raise ValueError(f"{name} is not in version 1.0 of the .npy format")
    first = start + int.from_bytes(data[len(_MAGIC) : start], "little")
    header = _HEADER.fullmatch(data[start:first].decode("latin1"))
    if header is None:
        raise ValueError(f"{name} must hold booleans, int64, float64 or text, in NumPy's layout")
    shape = tuple(int(length) for length in header["shape"].replace(",", " ").split())
    dtype = np.dtype(header["dtype"])
    declared = math.prod(shape) * dtype.itemsize
    if declared != len(data) - first:
        raise ValueError(
            f"{name} declares {declared} bytes, shape {shape}, but holds {len(data) - first}"
        )
    if declared == 0:
        return np.zeros(shape, dtype)
    if dtype.kind == "U" and np.frombuffer(data, "<u4", offset=first).max() > sys.maxunicode:
        raise ValueError(f"{name} holds text that is not Unicode")
    values = np.frombuffer(data, dtype, offset=first)
    return values.reshape(shape, order="F" if header["fortran"] == "True" else "C")
