#!/usr/bin/env bash
# The C++ tests under the address, undefined-behaviour and thread sanitizers.
source "$(dirname "$0")/../common.sh"
scripts/system_packages.sh build test
probe=$(mktemp -d)
trap 'rm -rf "$probe"' EXIT
echo 'int main() {}' >"$probe/empty.cpp"
for flag in address,undefined thread; do
  "${CXX:-c++}" "-fsanitize=$flag" "$probe/empty.cpp" -o "$probe/empty" 2>/dev/null && "$probe/empty" ||
    skip "programs with -fsanitize=$flag do not link or run on this machine"
done
for preset in asan-ubsan tsan; do
  cmake --preset "$preset" >/dev/null
  cmake --build --preset "$preset" -j "$jobs"
  # The tests of the build itself run no code of ours.
  ctest --preset "$preset" -j "$jobs" --output-on-failure -E '^build\.'
done
