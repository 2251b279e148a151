#!/usr/bin/env bash
# Every benchmark, one after the other; `bench/run NAME` runs one.
source "$(dirname "$0")/common.sh"
scripts/setup.sh build
for name in $(bench/run --list); do
  say "$name"
  bench/run "$name" --json
done
