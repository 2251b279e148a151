#!/usr/bin/env bash
# Formatting, style and types; changes nothing. clang-tidy runs where it is installed: LINT_FILES limits
# it to some files.
source "$(dirname "$0")/common.sh"
[[ -x $python ]] || scripts/setup.sh build
if changed "$venv/.requirements-lint" python/requirements-lint.txt; then
  "$python" -m pip install -q -r python/requirements-lint.txt
  remember "$venv/.requirements-lint" python/requirements-lint.txt
fi

status=0
step() {
  say "$1"
  "${@:2}" || status=1
}
step "formatting" scripts/format.sh --check
step "ruff" "$python" -m ruff check .
step "mypy" "$python" -m mypy
if command -v clang-tidy >/dev/null; then
  # One source at a time, without the compiler's own precompiled headers.
  cmake --preset dev -B build/lint -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON >/dev/null
  read -r -a files <<<"${LINT_FILES:-$(git ls-files -- 'src/*.cpp' | tr '\n' ' ')}"
  step "clang-tidy" xargs -P "$jobs" -n 1 clang-tidy --quiet -p build/lint < <(printf '%s\n' "${files[@]}")
else
  echo "clang-tidy: skipped (not installed)"
fi
exit "$status"
