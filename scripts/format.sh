#!/usr/bin/env bash
# Formats every C++ and Python file that git knows. With --check: changes nothing, fails instead.
source "$(dirname "$0")/common.sh"
check=0
[[ ${1:-} == --check ]] && check=1
mapfile -t cpp < <(git ls-files -c -o --exclude-standard -- '*.hpp' '*.cpp')
if command -v clang-format >/dev/null; then
  if ((check)); then clang-format --dry-run -Werror "${cpp[@]}"; else clang-format -i "${cpp[@]}"; fi
else
  echo "clang-format is not installed: C++ formatting not looked at"
fi
if ((check)); then "$python" -m ruff format --check -q .; else "$python" -m ruff format -q .; fi
