#!/usr/bin/env bash
# Install with the oldest versions of the dependencies that pyproject.toml allows, and run tests.
#
#     tests/oldest.sh [pytest arguments]
#
# Needs gcc and pip's index, on a Python for which those versions have wheels (3.11).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[ $# -gt 0 ] || set -- tests/test_{estimators,estimator_data,model,npz,checkpoint,matrix,layering}.py
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/environment"
# shellcheck disable=SC1091
source "$place/environment/bin/activate"
mapfile -t oldest < <(python - <<'PYTHON'
import re
import tomllib

with open("pyproject.toml", "rb") as file:
    for dependency in tomllib.load(file)["project"]["dependencies"]:
        print(re.sub(r">=([\d.]+)", r"==\1.*", dependency))
PYTHON
)
pip install --quiet --disable-pip-version-check "${oldest[@]}" pytest hypothesis pandas polars .
pip check
pip list 2> /dev/null | grep -iE "^(numpy|scipy|scikit-learn|tqdm|threadpoolctl) "
python -P -W error -c "import fastpoly, fastpoly.estimators"
pytest -q -p no:cacheprovider "$@"
