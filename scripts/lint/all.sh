#!/usr/bin/env bash
# Do all lints and the format check pass? Prints what is wrong, then "lint: N passed, M failed".
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root" || exit 1
readonly clang_format=${CLANG_FORMAT:-$root/.venv/bin/clang-format}
passed=0
failed=0

# run NAME COMMAND...
run() {
  local name=$1
  shift
  if "$@"; then
    passed=$((passed + 1))
  else
    printf 'lint %s failed\n' "$name"
    failed=$((failed + 1))
  fi
}

tracked() { git ls-files -z --cached --others --exclude-standard -- "$@"; }

check_format() {
  [ -x "$clang_format" ] || { echo "no $clang_format: run scripts/setup.sh --tests"; return 1; }
  local wrong
  wrong=$(tracked '*.cpp' '*.hpp' '*.cu' | xargs -0 -r -n 40 -P "$(nproc)" "$clang_format" --dry-run --Werror 2>&1 |
    sed -n '/clang-format-violations/s/:.*//p' | sort | uniq -c) && return 0
  printf '%s\n' "places that clang-format would change, by file (mend with $clang_format -i FILE):" "$wrong"
  return 1
}

check_shell() {
  local script
  while IFS= read -r -d '' script; do
    bash -n "$script" || return 1
  done < <(tracked '*.sh' .ci/run)
}

for script in layers includes size names todo docs words error_ids errors user_cases; do
  run "$script" python3 "scripts/lint/$script.py"
done
run shell check_shell
run format check_format
printf 'lint: %d passed, %d failed\n' "$passed" "$failed"
[ "$failed" = 0 ]
