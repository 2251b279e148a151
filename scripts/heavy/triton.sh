#!/usr/bin/env bash
# Contextual tuning under several Tritons, each in an environment of its own below build/. What else
# the tests need (torch, disttune) comes from the project's environment.
source "$(dirname "$0")/../common.sh"
scripts/setup.sh build test
packages=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')

missing=()
failed=()
for version in ${DISTTUNE_TRITONS:-3.4.0 3.6.0 3.9.0}; do
  say "Triton $version"
  env=$root/build/triton-$version
  if [[ ! -e $env/.ready ]]; then
    rm -rf "$env"
    python3 -m venv "$env"
    if ! "$env/bin/python" -m pip install -q --no-deps "triton==$version" 2>"$env.log"; then
      tail -n 3 "$env.log"
      missing+=("$version")
      continue
    fi
    # After the environment's own packages, so that its Triton is the one that is found.
    own=$("$env/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
    printf '%s\n' "$packages" >"$own/project.pth"
    touch "$env/.ready"
  fi
  found=$("$env/bin/python" -c 'import triton; print(triton.__version__)')
  [[ $found == "$version" ]] || fail "Triton $found was found instead of $version"
  TRITON_INTERPRET=1 "$env/bin/python" -m pytest -q -p no:cacheprovider tests/python/test_contextual*.py ||
    failed+=("$version")
done

if ((${#failed[@]})); then fail "failed with Triton ${failed[*]}"; fi
if ((${#missing[@]})); then skip "Triton ${missing[*]} could not be installed here"; fi
