#!/usr/bin/env bash
# The C++ tests as on a machine that has just started, as build machines often have: its steady clock
# is near zero, so a deadline by it comes before any time that counts from elsewhere.
source "$(dirname "$0")/../common.sh"
read -r uptime _ </proc/uptime
back=$((${uptime%.*} - 3))
if ((back <= 0)); then skip "this machine has just started: make test is this suite"; fi
apart=(unshare --time --fork)
if ((EUID != 0)); then apart+=(--user --map-root-user); fi
"${apart[@]}" true 2>/dev/null || skip "no time namespaces here (unshare --time)"

scripts/setup.sh build test mpi
cmake --preset test -DPython3_EXECUTABLE="$python" >/dev/null
cmake --build --preset test -j "$jobs" | tail -n 1
# Each program as a whole: as a process for each test they are part of make test already.
mapfile -t programs < <(find build/test/tests -mindepth 2 -maxdepth 2 -type f -executable \
  \( -name '*_test' -o -name 'test_*' \) -not -name mpi_test | LC_ALL=C sort)
((${#programs[@]})) || fail "no test programs under build/test/tests"
for program in "${programs[@]}"; do
  echo "$program"
  timeout 300 "${apart[@]}" --monotonic="-$back" --boottime="-$back" "$program" --gtest_brief=1 ||
    fail "failed: $program"
done
