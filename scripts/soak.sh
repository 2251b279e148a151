#!/usr/bin/env bash
# Repeats the tests of threads, ranks and stores, in changing order, until a failure or until
# SOAK_MINUTES (default 10) are over: what `make test` runs once may race once in a thousand.
source "$(dirname "$0")/common.sh"
scripts/setup.sh build test mpi
cmake --preset dev -DPython3_EXECUTABLE="$python" >/dev/null
cmake --build --preset dev -j "$jobs"

end=$((SECONDS + 60 * ${SOAK_MINUTES:-10}))
rounds=0
while ((SECONDS < end)); do
  ctest --preset dev -j "$((2 * jobs))" --schedule-random --output-on-failure \
    -R "${SOAK_TESTS:-[Tt]hread|[Rr]ank|[Aa]gree|[Gg]roup|[Jj]ournal|[Ss]tore|[Ss]ession}" -Q ||
    fail "a test failed in round $((rounds + 1)); repeat with: ctest --preset dev --rerun-failed"
  rounds=$((rounds + 1))
done
say "no failure in $rounds rounds"
