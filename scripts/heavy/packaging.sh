#!/usr/bin/env bash
# What users install, made from nothing: a source distribution and the wheel built from it in an
# isolated environment, and the C++ package as a shared library used by a project of its own.
source "$(dirname "$0")/../common.sh"
scripts/setup.sh build test mpi
work=$root/build/packaging
rm -rf "$work"
mkdir -p "$work"

say "source distribution and wheel"
"$python" -m pip install -q build
"$python" -m build -q --outdir "$work/dist" . >"$work/build.log" 2>&1 || { tail -n 30 "$work/build.log"; exit 1; }
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --no-index "$work"/dist/disttune-*.whl
# Outside the checkout, so that nothing but the wheel can be imported; nothing heavy may come along.
(cd "$work" && TRITON_DIST_AUTOTUNE_HOME="$work/store" "$work/venv/bin/python" - <<'PYTHON'
import sys

import disttune

assert not {"torch", "triton", "numpy"} & sys.modules.keys(), "disttune imported its users' libraries"

@disttune.autotune(config_space=[{"n": 1}, {"n": 2}], key_fn=lambda x: x)
def launcher(x, n):
    return x + n - n

assert launcher(3) == 3
assert launcher.result(3) is not None
print("wheel:", disttune.__version__)
PYTHON
)

say "shared library"
cmake -S . -B "$work/shared" -G Ninja -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=ON \
  -DDISTTUNE_BUILD_EXAMPLES=OFF -DDISTTUNE_BUILD_TESTS=OFF >/dev/null
cmake --build "$work/shared" -j "$jobs" | tail -n 1
cmake=$(command -v cmake)
"$python" tests/build/consume.py installed --cmake "$cmake" --compiler "$(command -v "${CXX:-c++}")" \
  --generator Ninja --build "$work/shared" --work "$work/shared-user"
echo "shared library: used by an installed project"
