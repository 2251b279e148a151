#!/usr/bin/env bash
# setup.sh GROUP…: system packages of the groups, the virtual environment and, installed in it,
# disttune and disttune-triton-dist. Does nothing for what is there already.
source "$(dirname "$0")/common.sh"

scripts/system_packages.sh "$@"

python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
  fail "Python 3.10 or newer is needed, this is $(python3 --version)"
if [[ ! -x $python ]]; then
  say "virtual environment $venv"
  python3 -m venv "$venv"
fi

if changed "$venv/.requirements" python/requirements-test.txt; then
  say "Python packages (torch and triton are large: minutes on a first run)"
  "$python" -m pip install -q -r python/requirements-test.txt
  remember "$venv/.requirements" python/requirements-test.txt
fi

# Everything that ends in the package: one digest over names and contents.
mapfile -t sources < <(find CMakeLists.txt cmake include src python pyproject.toml README.md \
  -type f -not -name '*.pyc' -not -path '*/build/*' -not -path '*.egg-info/*' | LC_ALL=C sort)
list=$venv/.sources
printf '%s\n' "${sources[@]}" >"$list"
if changed "$venv/.package" "$list" "${sources[@]}" || ! compgen -G 'build/python-*' >/dev/null; then
  say "disttune, compiled and installed in $venv"
  CMAKE_BUILD_PARALLEL_LEVEL=$jobs "$python" -m pip install -q --no-build-isolation --no-deps \
    --force-reinstall . ./python/triton_dist
  remember "$venv/.package" "$list" "${sources[@]}"
fi
