"""What is installed, and what importing it does to a process."""

import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import files, metadata
from pathlib import Path

import pytest

import fastpoly

ROOT = Path(__file__).parent.parent
KERNELS = ROOT / "fastpoly" / "kernels"
INSTALLED = [Path(str(f)) for f in files("fastpoly") or []]
wheel_only = pytest.mark.skipif(
    Path("fastpoly/__init__.py") not in INSTALLED, reason="an editable install has no files"
)


def quoted(path):
    return set(re.findall(r"'([^'\n]+)'", path.read_text()))


def run(code, **options):
    command = [sys.executable, "-P", "-W", "error", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, **options)


def test_build_files_list_every_source():
    for path in (ROOT / "fastpoly").rglob("*.py"):
        assert path.name in quoted(path.parent / "meson.build"), path
    listed = quoted(KERNELS / "meson.build")
    assert {p.stem for p in KERNELS.glob("*.pyx")} <= listed
    assert {p.stem for p in (KERNELS / "simd").glob("*.c")} <= listed


def test_version_is_written_once():
    (version,) = re.findall(r"\bversion: '([^']+)'", (ROOT / "meson.build").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "version" not in project
    assert version == fastpoly.__version__ == metadata("fastpoly")["Version"]
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text()


def test_license():
    assert metadata("fastpoly")["License-Expression"] == "BSD-3-Clause"
    assert "Redistribution and use" in (ROOT / "LICENSE").read_text()


def test_wheels_are_built_for_the_pythons_that_are_named():
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    named = re.findall(r"Python :: 3\.(\d+)", "\n".join(config["project"]["classifiers"]))
    assert config["tool"]["cibuildwheel"]["build"] == [f"cp3{minor}-*" for minor in named]
    assert config["project"]["requires-python"] == f">=3.{named[0]}"
    # PEP 639: the expression says what a classifier would say again.
    assert not any(c.startswith("License") for c in config["project"]["classifiers"])


def test_recipe_and_citation_say_what_the_project_says():
    """The conda recipe has the version, the dependencies and the commands of pyproject.toml."""
    recipe = (ROOT / ".conda" / "meta.yaml").read_text()
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert f'version: "{fastpoly.__version__}"' in recipe
    for need in config["project"]["dependencies"]:
        name, bound = re.fullmatch(r"([\w-]+)(>=.*)", need).groups()
        assert f"    - {name} {bound}\n" in recipe, need
    for command, function in config["project"]["scripts"].items():
        assert f"    - {command} = {function}\n" in recipe
    citation = (ROOT / "CITATION.cff").read_text()
    assert config["project"]["license"] in citation
    assert config["project"]["urls"]["Homepage"] in citation


def test_workflows_test_the_pythons_that_are_named():
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(config["project"]["classifiers"]))
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    assert f"python: [{', '.join(map(repr, named))}]".replace("'", '"') in workflow


def test_cimportable_files_stand_alone():
    """An installed .pxd cimports only installed ones and includes no header of ours."""
    public = {
        name.removesuffix(".pxd") for name in quoted(KERNELS / "meson.build") if ".pxd" in name
    }
    assert {"losses", "penalties", "gamma"} <= public
    for name in public:
        text = (KERNELS / f"{name}.pxd").read_text()
        assert "cdef extern" not in text, name
        assert set(re.findall(r"fastpoly\.kernels\.(\w+)", text)) <= public, name


@wheel_only
def test_wheel_contents():
    names = {f.as_posix() for f in INSTALLED if f.parts[0] == "fastpoly"}
    suffixes = {f.suffix for f in INSTALLED if f.parts[0] == "fastpoly"}
    assert suffixes <= {".py", ".pyc", ".pxd", ".so", ".pyd", ".typed"}
    wanted = {"fastpoly/py.typed", "fastpoly/__init__.pxd", "fastpoly/kernels/__init__.pxd"}
    for name in ("losses", "penalties", "gamma"):
        wanted.add(f"fastpoly/kernels/{name}.pxd")
    assert wanted <= names
    assert any(f.name == "LICENSE" for f in INSTALLED)


@wheel_only
def test_no_build_paths_in_the_binaries():
    binaries = [f for f in files("fastpoly") if f.suffix in {".so", ".pyd"}]
    assert len(binaries) > len(list(KERNELS.glob("*.pyx")))
    for binary in binaries:
        content = binary.read_binary()
        for trace in (str(ROOT).encode(), b".mesonpy", b"pip-req-build", b"pip-install"):
            assert trace not in content, (binary.name, trace)


def test_import_keeps_denormals_and_warns_of_nothing():
    code = "import fastpoly, fastpoly.kernels.quadratic, numpy; print(numpy.spacing(1e-310) > 0)"
    done = run(code)
    assert done.stdout.strip() == "True", done.stderr


def test_estimators_import_without_a_warning():
    done = run(
        "import fastpoly.estimators, fastpoly.plotting, fastpoly.storage.checkpoint; print('done')"
    )
    assert done.stdout.strip() == "done", done.stderr


@wheel_only
def test_every_source_of_the_package_is_installed():
    """Python files, and the binary of each kernel."""
    names = {f.as_posix() for f in INSTALLED}
    for path in (ROOT / "fastpoly").rglob("*.py"):
        assert path.relative_to(ROOT).as_posix() in names
    for path in KERNELS.glob("*.pyx"):
        assert any(re.match(rf"fastpoly/kernels/{path.stem}\..*(so|pyd)$", n) for n in names), path
    assert not [n for n in names if n.endswith((".pyx", ".c", ".h", ".pxi", ".build"))]


@wheel_only
def test_no_build_paths_in_the_metadata():
    """direct_url.json is pip's own note of where it installed from, not part of the wheel."""
    for f in files("fastpoly"):
        if f.suffix not in {".so", ".pyd", ".pyc"} and f.name != "direct_url.json":
            assert str(ROOT) not in f.locate().read_text(errors="replace"), f


def test_uncompiled_source_tree_says_what_to_do(tmp_path):
    shutil.copytree(
        ROOT / "fastpoly", tmp_path / "fastpoly", ignore=shutil.ignore_patterns("*.so", "*.pyd")
    )
    # An editable install has a separate finder, which comes before sys.path.
    code = f"""
import sys
sys.meta_path = [finder for finder in sys.meta_path if isinstance(finder, type)]
sys.path.insert(0, {str(tmp_path)!r})
import fastpoly.kernels.losses
"""
    done = run(code, cwd=tmp_path)
    assert done.returncode != 0
    assert "pip install" in done.stderr.splitlines()[-1], done.stderr


@pytest.mark.slow
def test_demo_runs_from_the_project_root(tmp_path):
    """The README's first command, after the installation."""
    picture = tmp_path / "demo.png"
    done = subprocess.run(
        [Path(sys.executable).with_name("fastpoly-demo"), "--picture", picture],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    errors, accuracies = (
        {name: float(score) for name, score in re.findall(r"^(\S.*?)  +(\d\.\d{3})", table, re.M)}
        for table in done.stdout.split("\n\n")[1:3]
    )
    assert (
        errors.pop("best possible") < errors.pop("fastpoly ordinal machine") < min(errors.values())
    )
    assert accuracies.pop("fastpoly network") > max(accuracies.values())
    assert (len(errors), len(accuracies)) == (4, 5)
    drawn = f"picture: {picture}" in done.stdout
    assert drawn == picture.exists() != ("needs matplotlib" in done.stdout)
