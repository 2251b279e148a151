#!/usr/bin/env bash
# What `make quickstart` runs: set-up, then a Python example (scale a tensor) and a C++ example (product
# of two matrices), each as two processes with one store: the first tunes, the second uses what the first
# learned.
source "$(dirname "$0")/common.sh"
scripts/setup.sh build

say "C++ example, compiled"
# In the tree where pip has just compiled the library: it is the same library.
tree=$(ls -dt build/python-*/ 2>/dev/null | head -n 1 || true)
[[ -n $tree ]] || fail "pip left no build/python-*; remove $venv/.package and repeat"
cmake -DDISTTUNE_BUILD_EXAMPLES=ON -S . -B "$tree" >/dev/null
cmake --build "$tree" -j "$jobs" --target example_matmul | tail -n 1

# A store of its own: the first process always tunes, and nothing of the user's is touched.
store=$root/build/quickstart/store
rm -rf "$store"
twice() {
  local name=$1 which
  shift
  for which in first second; do
    say "$name, $which process"
    env -i PATH="$PATH" HOME="$HOME" LANG="${LANG:-C.UTF-8}" TRITON_INTERPRET=1 \
      TRITON_DIST_AUTOTUNE_HOME="$store" PYTHONUNBUFFERED=1 "$@"
  done
}
# The example has device="cpu"; with Triton's interpreter it needs no accelerator.
twice "Python: scale a tensor" "$python" examples/python/scale.py
twice "C++: product of two matrices" "${tree}examples/cpp/matmul"

say "done. The records are JSON files under $store"
echo "Next: docs/en/getting_started.md (中文：docs/zh/getting_started.md); make test runs the tests."
