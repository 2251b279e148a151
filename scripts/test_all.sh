#!/usr/bin/env bash
# test_all.sh [NAME…]: the heavier suites, scripts/heavy/NAME.sh; all of them by default. A suite
# prepares what it needs, ends with 0 (passed) or 77 (skipped, having said why); anything else failed.
source "$(dirname "$0")/common.sh"
names=("$@")
if ((${#names[@]} == 0)); then
  for script in scripts/heavy/*.sh; do
    [[ -e $script ]] && names+=("$(basename "$script" .sh)")
  done
fi

summary=()
status=0
for name in "${names[@]}"; do
  say "test-$name"
  start=$SECONDS
  code=0
  "scripts/heavy/$name.sh" || code=$?
  took="$((SECONDS - start)) s"
  case $code in
    0) summary+=("passed   $name ($took)") ;;
    77) summary+=("skipped  $name (its reason is above)") ;;
    *) summary+=("FAILED   $name ($took)") status=1 ;;
  esac
done
say "summary"
printf '%s\n' "${summary[@]}"
exit "$status"
