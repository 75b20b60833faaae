#!/usr/bin/env bash
# Does everything work? Installs what is missing, lints, builds with warnings as errors, and runs all tests.
set -uo pipefail
# shellcheck source=scripts/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
cd "$colossal_root" || exit 1

usage() {
  cat <<'USAGE'
usage: scripts/test.sh [--quick | --tidy]

  (nothing)  all that CI runs: lints, build, unit, golden, rank and end-to-end tests, schema, configs, sanitizers
  --quick    lints, then build and unit tests of the folders that differ from the main branch
  --tidy     every clang-tidy check on every source file (minutes), nothing else

The last line is `N passed, M failed`; the exit code is 1 if anything failed, 9 if something cannot be installed here.
USAGE
}

# Folders that read what strangers wrote and place bytes. Kernels and processes are left out: their builds and
# runs would take the time of all others together.
readonly sanitized=(core config data mesh checkpoint)
readonly tidy_fast='-*,readability-identifier-naming,readability-function-size'
passed=0
failed=0

heading() { printf '\n=== %s (%d s)\n' "$*" "$SECONDS"; }

finish() {
  printf '%d passed, %d failed\n' "$passed" "$failed"
  [ "$failed" = 0 ] && [ "$passed" -gt 0 ]
  exit
}

# count PASSED FAILED
count() {
  passed=$((passed + $1))
  failed=$((failed + $2))
}

# count_or_fail [PASSED FAILED]: what a report said; without one, the program that was to write it has failed.
count_or_fail() {
  [ $# = 2 ] || set -- 0 1
  count "$@"
}

# step NAME COMMAND...: one check that passes or fails.
step() {
  local name=$1
  shift
  if "$@"; then
    count 1 0
  else
    printf 'FAILED: %s\n' "$name"
    count 0 1
    return 1
  fi
}

# test_programs PRESET CTEST_ARGUMENT...: runs CTest.
test_programs() {
  local folder=build/$1
  shift
  rm -f "$folder/Testing/Temporary/LastTest.log"
  ctest --test-dir "$folder" --output-on-failure --no-tests=error "$@" || echo "FAILED: ctest $*"
}

# count_cases PRESET: counts the test cases inside each test program that CTest has run last.
count_cases() {
  local counts
  read -ra counts < <(python3 scripts/test_report.py count "build/$1/Testing/Temporary/LastTest.log")
  count_or_fail "${counts[@]}"
}

run_tests() {
  test_programs "$@"
  count_cases "$1"
}

# changed_files: what differs from the main branch, or else from the commit before, and what is not committed.
changed_files() {
  local base
  base=$(git merge-base HEAD origin/main 2>/dev/null)
  if [ -z "$base" ] || [ "$base" = "$(git rev-parse HEAD)" ]; then
    base=$(git rev-parse --verify -q HEAD~1 || git hash-object -t tree /dev/null)
  fi
  { git diff --name-only --diff-filter=d "$base" -- "$@"; git ls-files --others --exclude-standard -- "$@"; } | sort -u
}

# tidy CHECKS: clang-tidy on the source files named on standard input; "" = the checks of .clang-tidy.
# Each file by itself, so that one which lacks an include shows. It reads g++'s flags: -Werror would make errors of warnings
# that only clang has (the build judges g++'s), and g++'s <omp.h> has attributes that clang refuses, so OpenMP is off here.
tidy() {
  configure tidy && build tidy colossal_build_info || return
  local options=(--quiet -p build/tidy --extra-arg=-Wno-error --extra-arg=-fno-openmp)
  [ -z "$1" ] || options+=("--checks=$1")
  xargs -r -n 1 -P "$(nproc)" .venv/bin/clang-tidy "${options[@]}" 2>/dev/null
}

print_versions() {
  printf '%s, %s cores, %s\n' "$(system_name)" "$(nproc)" "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)"
  printf 'g++ %s, %s, torch %s\n' "$(g++ -dumpfullversion)" "$(cmake --version | head -n 1)" \
    "$(sed -n "s/^__version__ = '\(.*\)'/\1/p" "$(torch_folder)/version.py")"
}

# start_lint: in the background, as LibTorch may have to be downloaded meanwhile.
start_lint() {
  mkdir -p build
  scripts/lint/all.sh >build/lint.log 2>&1 9>&- &
  lint_job=$!
}

lint() {
  heading "lint"
  local counts
  wait "$lint_job"
  cat build/lint.log
  read -ra counts < <(sed -n '$s/lint: \([0-9]*\) passed, \([0-9]*\) failed/\1 \2/p' build/lint.log)
  count_or_fail "${counts[@]}"
}

schema_is_fresh() {
  build/cpu/colossal-train config schema | diff -u schemas/colossal-train.schema.json - && return 0
  echo "regenerate it: build/cpu/colossal-train config schema > schemas/colossal-train.schema.json"
  return 1
}

sweep_schema_is_fresh() {
  build/cpu/colossal-train sweep schema | diff -u schemas/sweep.schema.json - && return 0
  echo "regenerate it: build/cpu/colossal-train sweep schema > schemas/sweep.schema.json"
  return 1
}

keys_are_fresh() {
  build/cpu/colossal-train config schema --format markdown | diff -u schemas/keys.md - && return 0
  echo "regenerate it: build/cpu/colossal-train config schema --format markdown > schemas/keys.md"
  return 1
}

configs_are_valid() {
  local config
  for config in configs/*.yaml; do
    step "validate $config" build/cpu/colossal-train validate "$config"
  done
  for config in configs/sweeps/*.yaml; do
    step "expand $config" build/cpu/colossal-train sweep expand "$config"
  done
}

tokenizers_equal() { .venv/bin/python scripts/golden/compare_tokenizers.py; }

sanitizer_build() {
  local targets=("${sanitized[@]/#/unit_}")
  build sanitize "${targets[@]/%/_test}"
}

sanitizer_tests() { test_programs sanitize -R "^unit\.($(IFS='|' && echo "${sanitized[*]}"))(\.|$)" -j "$(nproc)"; }

sanitizers() {
  step "sanitizer build" sanitizer_build || return 0
  if [ -e build/sanitizers.log ]; then # ran ahead, to the end
    cat build/sanitizers.log
  else
    sanitizer_tests
  fi
  count_cases sanitize
}

# What GPUs run compiles and links wherever nvcc is; objects without CUDA come from the compiler cache. It runs where a GPU is.
cuda_can_be_built() { has_nvcc && [ -e "$(torch_folder)/lib/libtorch_cuda.so" ]; }

cuda_build() {
  local targets
  mapfile -t targets < <(sed -n 's/^colossal_test(\([a-z]*\) KIND cuda .*/cuda_\1_test/p' tests/cuda/CMakeLists.txt)
  configure cuda && build cuda colossal-train "${targets[@]}"
}

cuda_part() {
  if ! cuda_can_be_built; then
    echo "no nvcc, or a torch without CUDA: skipped"
    return 0
  fi
  step "CUDA build" cuda_build || return 0
  if has_gpu; then
    run_tests cuda -L cuda -j 1
  else
    echo "no GPU: built, not run"
  fi
}

# work_ahead: the builds of later steps, and the sanitizers' tests, at the lowest priority, while rank and end-to-end tests wait
# for their processes. The steps themselves build again what failed here, and show why.
work_ahead() {
  rm -f build/sanitizers.log
  set -m # a process group of its own, which ends with the script
  (
    renice -n 19 "$BASHPID" >/dev/null
    sanitizer_build
    sanitized_ahead=$?
    cuda_can_be_built && cuda_build
    [ "$sanitized_ahead" = 0 ] && sanitizer_tests >build/sanitizers.part 2>&1 && mv build/sanitizers.part build/sanitizers.log
  ) >build/ahead.log 2>&1 </dev/null &
  ahead=$!
  set +m
  trap 'kill -- "-$ahead" 2>/dev/null' EXIT
}

quick() {
  local folder targets=() names=()
  lint
  while IFS= read -r folder; do
    [ -f "tests/unit/$folder/CMakeLists.txt" ] || continue
    names+=("$folder")
    grep -q "^build unit_${folder}_test:" build/cpu/build.ninja && targets+=("unit_${folder}_test")
  done < <(changed_files src tests/unit scripts/lint | sed -n 's#^src/\([^/]*\)/.*#\1#p; s#^tests/unit/\([^/]*\)/.*#\1#p; s#^scripts/\(lint\)/.*#\1#p' | sort -u)
  [ ${#names[@]} = 0 ] && { echo "no folder with unit tests has changed"; return; }
  heading "build and test: ${names[*]}"
  [ ${#targets[@]} = 0 ] || step "build" build cpu "${targets[@]}" || return
  run_tests cpu -R "^unit\.($(IFS='|' && echo "${names[*]}"))(\.|$)" -j "$(nproc)"
}

everything() {
  lint
  heading "build"
  step "build" build cpu || return
  heading "unit and golden tests"
  run_tests cpu -L 'unit|golden' -E '\.mutation' -j 2 # damaged files are read under the sanitizers
  work_ahead
  heading "rank tests"
  run_tests cpu -L ranks -j 1
  heading "end-to-end tests"
  run_tests cpu -L e2e -j 1
  heading "token ids of Python's tokenizers on real lines"
  step "tokenizers" tokenizers_equal
  heading "schema and configs"
  step "schema" schema_is_fresh
  step "schema of sweeps" sweep_schema_is_fresh
  step "key reference" keys_are_fresh
  configs_are_valid
  wait "$ahead"
  heading "address and undefined-behaviour sanitizers"
  sanitizers
  heading "CUDA"
  cuda_part
  heading "clang-tidy: names and sizes in changed files"
  step "clang-tidy" tidy "$tidy_fast" < <(changed_files 'src/*.cpp' 'apps/*.cpp')
  heading "slowest files and sizes"
  python3 scripts/test_report.py slowest build/cpu/.ninja_log
  ls -lh build/cpu/colossal-train build/cpu/colossal-train-engine
}

mode=${1:-everything}
case $mode in
  everything | --quick | --tidy) ;;
  --help | -h) usage; exit 0 ;;
  *) usage >&2; exit 2 ;;
esac

setup_all() {
  need_packages "${build_packages[@]}" && setup_tests && { [ "$mode" = --tidy ] || start_lint; } && setup_build && print_versions &&
    configure cpu && { [ "$mode" != everything ] || configure sanitize; }
}
heading "setup"
with_lock setup_all || {
  [ -z "${lint_job:-}" ] || lint
  count 0 1
  finish
}

case $mode in
  everything) everything ;;
  --quick) quick ;;
  --tidy) step "clang-tidy" tidy "" < <(git ls-files 'src/*.cpp' 'apps/*.cpp') ;;
esac
printf '\n'
finish
