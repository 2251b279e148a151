#!/usr/bin/env bash
# ascend.sh [PYTEST ARGUMENT…]: the real wheels of torch_npu and triton-ascend over the contract library
# of tests/ascend_contract, in an environment of its own below build/. No NPU is needed, and none is
# proven: see tests/ascend/README.md.
source "$(dirname "$0")/../common.sh"
scripts/setup.sh build test

work=$root/build/ascend
env=$work/venv
packages=(torch==2.13.0 torch-npu==2.13.0 triton-ascend==3.2.0 pybind11 pytest
  "numpy<2.4") # the interpreter of triton-ascend 3.2.0 takes one-element arrays for numbers
mkdir -p "$work"
if [[ ! -e $env/.ready || $(cat "$env/.ready") != "${packages[*]}" ]]; then
  say "environment with ${packages[*]} (1.5 GB, minutes)"
  rm -rf "$env"
  python3 -m venv "$env"
  if ! "$env/bin/python" -m pip install -q "${packages[@]}" >"$work/pip.log" 2>&1; then
    tail -n 3 "$work/pip.log"
    skip "torch-npu and triton-ascend could not be installed here"
  fi
  echo "${packages[*]}" >"$env/.ready"
fi

say "disttune, installed beside them"
rm -rf "$work/wheels"
CMAKE_BUILD_PARALLEL_LEVEL=$jobs "$python" -m pip wheel -q --no-build-isolation --no-deps \
  -w "$work/wheels" . ./python/triton_dist
"$env/bin/python" -m pip install -q --no-deps --no-index --force-reinstall "$work"/wheels/*.whl

say "contract library"
"$env/bin/python" tests/ascend_contract/build.py --out "$work/contract"

# torch loads torch_npu by itself, and that needs the libraries; with its task queue off an error
# belongs to the call that made it.
export NPU_CONTRACT_LIB=$work/contract LD_LIBRARY_PATH=$work/contract
export TASK_QUEUE_ENABLE=0 TRITON_INTERPRET=1 TRITON_CACHE_DIR=$work/triton-cache
failed=()
say "the contract library itself"
(unset TRITON_INTERPRET && "$env/bin/python" -m pytest -q -p no:cacheprovider \
  --import-mode=prepend tests/ascend_contract/tests) ||
  failed+=("contract library")
say "disttune on torch.npu"
"$env/bin/python" -m pytest -q -p no:cacheprovider tests/ascend "$@" || failed+=("torch.npu")
say "behind torch_npu's task queue, which is on by default"
TASK_QUEUE_ENABLE=1 "$env/bin/python" -m pytest -q -p no:cacheprovider tests/ascend/test_gate.py \
  tests/ascend/test_native_road.py || failed+=("task queue")

# The C++ device over the same library, where `make test` has built it.
test=$root/build/test/tests/devices/ascend_contract_test
if [[ -x $test ]]; then
  say "C++ on the contract library"
  DISTTUNE_ASCEND_CONTRACT=$work/contract "$test" --gtest_brief=1 || failed+=("C++")
else
  echo "C++ on the contract library: not built here (make test builds it)"
fi

if ((${#failed[@]})); then fail "failed: ${failed[*]}"; fi
