#!/usr/bin/env bash
# The OpenCL device on PoCL, a real OpenCL implementation on the processor.
source "$(dirname "$0")/../common.sh"
scripts/setup.sh build test
(scripts/system_packages.sh opencl) || skip "OpenCL headers and PoCL could not be installed here"

cmake --preset test -DPython3_EXECUTABLE="$python" >/dev/null
cmake --build --preset test -j "$jobs" --target opencl_test
result=$root/build/pocl.json
POCL_CACHE_DIR=$root/build/pocl-cache build/test/tests/devices/opencl_test --gtest_brief=1 \
  --gtest_output="json:$result"
# A test that finds no platform skips itself: that would prove nothing here.
"$python" - "$result" <<'PYTHON'
import json
import sys

with open(sys.argv[1]) as f:
    suites = json.load(f)["testsuites"]
tests = [test for suite in suites for test in suite["testsuite"]]
skipped = [test["name"] for test in tests if test.get("result") == "SKIPPED"]
print(f"{len(tests) - len(skipped)} of {len(tests)} ran; skipped: {', '.join(skipped) or 'none'}")
sys.exit(len(skipped) > 1)
PYTHON
