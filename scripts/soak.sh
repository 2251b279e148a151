#!/usr/bin/env bash
# What `make test` runs once may race once in a thousand: first 100,000 random worlds of ranks with
# faults (SOAK_RUNS; the seed of a failing one is printed), then the tests of threads, ranks and
# stores in changing order until SOAK_MINUTES (default 10) are over.
source "$(dirname "$0")/common.sh"
scripts/setup.sh build test mpi
cmake --preset test -DPython3_EXECUTABLE="$python" >/dev/null
cmake --build --preset test -j "$jobs"

say "random worlds of ranks"
export DISTTUNE_SOAK_RUNS=${SOAK_RUNS:-100000}
# No two rounds see the same worlds; a failing one names its seed.
export DISTTUNE_SOAK_SEED=${SOAK_SEED:-$((RANDOM * 100000 + 1))}
echo "DISTTUNE_SOAK_SEED=$DISTTUNE_SOAK_SEED DISTTUNE_SOAK_RUNS=$DISTTUNE_SOAK_RUNS"
simulator=$(find build/test -type f -name simulator_test -perm -u+x)
"$simulator" --gtest_brief=1 --gtest_filter='Simulator.RandomWorlds*'
unset DISTTUNE_SOAK_RUNS DISTTUNE_SOAK_SEED

say "tests in changing order"
end=$((SECONDS + 60 * ${SOAK_MINUTES:-10}))
rounds=0
while ((SECONDS < end)); do
  ctest --preset test -j "$((2 * jobs))" --schedule-random --output-on-failure \
    -R "${SOAK_TESTS:-[Tt]hread|[Rr]ank|[Aa]gree|[Gg]roup|[Jj]ournal|[Ss]tore|[Ss]ession}" -Q ||
    fail "a test failed in round $((rounds + 1)); repeat with: ctest --preset test --rerun-failed"
  rounds=$((rounds + 1))
done
say "no failure in $rounds rounds"
