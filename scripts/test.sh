#!/usr/bin/env bash
# What `make test` runs: set-up, then the C++ tests and the Python tests. All parts run even when one
# fails, so that one look shows everything; the exit status tells.
source "$(dirname "$0")/common.sh"
scripts/setup.sh build test mpi

failed=()
run() {
  local name=$1 start=$SECONDS
  shift
  say "$name"
  if "$@"; then
    echo "-- $name: passed in $((SECONDS - start)) s"
  else
    failed+=("$name")
    echo "-- $name: FAILED after $((SECONDS - start)) s"
  fi
}
cpp_tests() {
  cmake --preset test -DPython3_EXECUTABLE="$python" >build/test-configure.log 2>&1 ||
    { cat build/test-configure.log; return 1; }
  cmake --build --preset test -j "$jobs" && ctest --preset test -j "$jobs" --output-on-failure
}

mkdir -p build
run "C++ tests" cpp_tests
run "Python tests" env DISTTUNE_BUILD="$PWD/build/test" "$python" -m pytest -q tests/python

if ((${#failed[@]})); then fail "failed: ${failed[*]}"; fi
say "all tests passed"
