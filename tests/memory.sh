#!/usr/bin/env bash
# Build with memory accesses checked, in an environment of its own, and run tests there.
#
#     tests/memory.sh checked [pytest arguments]     every index of the kernels and the C loops
#     tests/memory.sh sanitized [pytest arguments]   AddressSanitizer, UndefinedBehaviorSanitizer
#     tests/memory.sh both [pytest arguments]        both in one build
#
# Without pytest arguments: the tests of kernels, files and estimators. Needs gcc and pip's index.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mode=${1:-both}
shift || true
if [ $# -eq 0 ]; then
    set -- tests/test_{losses,penalties,fista_update,matrix,gamma,features,eigen,runtime,design,stored_rows}.py \
        tests/test_{objective,joint_objective,joint,quadratic,refit,selection,guards,model,npz,checkpoint}.py \
        tests/test_{estimators,estimator_data,estimator_training,fit_robustness,fuzz,leaks}.py
    existing=()
    for file in "$@"; do [ ! -e "$file" ] || existing+=("$file"); done
    set -- "${existing[@]}"
fi

setup=(--config-settings=setup-args=-Doptimization=1)
case $mode in checked | both) setup+=(--config-settings=setup-args=-Dbounds_checks=true) ;; esac
case $mode in sanitized | both)
    setup+=(--config-settings=setup-args=-Db_sanitize=address,undefined)
    setup+=(--config-settings=setup-args=-Db_lundef=false) ;;
esac
if [ ${#setup[@]} -eq 1 ]; then
    sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/environment"
# shellcheck disable=SC1091
source "$place/environment/bin/activate"
export PIP_DISABLE_PIP_VERSION_CHECK=1
pip install --quiet . "${setup[@]}"
pip install --quiet pytest pytest-xdist hypothesis pandas polars spams-bin

if [ "$mode" != checked ]; then
    # The runtimes come first of all, and that of C++ before a library that throws exceptions.
    for name in libasan.so libubsan.so libstdc++.so.6; do
        LD_PRELOAD_LATER="${LD_PRELOAD_LATER:-} $(gcc -print-file-name=$name)"
    done
    # Python's own leaks at exit are not ours; its objects come from malloc, where they are watched.
    export ASAN_OPTIONS=detect_leaks=0:abort_on_error=1 PYTHONMALLOC=malloc
    export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
    kernel=$(python -P -c 'import importlib.util as u; print(u.find_spec("fastpoly").origin)')
    nm -D "${kernel%/*}"/kernels/matrix.*.so | grep -q __asan_init ||
        { echo "the build is not sanitized" >&2; exit 1; }
fi
# A kernel cannot raise: an index out of bounds is reported as an exception that was ignored.
LD_PRELOAD=${LD_PRELOAD_LATER:-} pytest -q -p no:cacheprovider \
    -W error::pytest.PytestUnraisableExceptionWarning "$@"
