#!/usr/bin/env bash
# How does one command train a model? Installs what is missing, builds, prepares the data, then runs colossal-train.
set -euo pipefail
# shellcheck source=scripts/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

usage() {
  cat <<'USAGE'
usage: scripts/train.sh CONFIG [option of `colossal-train train`]...
       scripts/train.sh --help

Installs what is missing, builds build/cpu/colossal-train, makes the data files that CONFIG's line
`# prepare: scripts/data/NAME.sh` stands for, and trains with `--nproc auto` unless --nproc is given.

examples:
  scripts/train.sh configs/gpt-kjv-cpu.yaml
  scripts/train.sh configs/gpt-kjv-cpu.yaml --dry-run
  scripts/train.sh configs/gpt-kjv-cpu.yaml --set train.steps=100 --output-dir runs/short --nproc 1

TORCH_DIR=<folder of an installed torch 2.11.0> uses that LibTorch instead of one in .venv.
USAGE
}

# has_option NAME ARGUMENT...: is --NAME or --NAME=value among the arguments?
has_option() {
  local name=$1 argument
  shift
  for argument in "$@"; do
    case $argument in "--$name" | "--$name="*) return 0 ;; esac
  done
  return 1
}

# config_of ARGUMENT...: the first argument that is neither an option nor the value of one.
config_of() {
  while [ $# -gt 0 ]; do
    case $1 in
      --set | --nproc | --resume | --output-dir | --allow | --config-overlay) shift ;; # and its value below
      -*) ;;
      *) printf '%s\n' "$1" && return ;;
    esac
    shift $(($# > 0))
  done
}

# prepare_data CONFIG: runs the script named by the config's `# prepare:` line, which decides itself if there is work.
prepare_data() {
  local script
  [ -r "$1" ] || return 0 # also without CONFIG: colossal-train reports it
  script=$(sed -n 's/^# prepare: *//p' "$1" | head -n 1)
  [ -n "$script" ] || return 0
  if ! [[ $script =~ ^scripts/data/[a-z0-9_]+\.sh$ && -f $colossal_root/$script ]]; then
    die 3 "$1: '# prepare: $script' must name a script of scripts/data/, as in '# prepare: scripts/data/kjv.sh'"
  fi
  bash "$colossal_root/$script" >&2
}

setup_and_build() {
  setup_build
  configure cpu
  build cpu colossal-train
}

[ $# -gt 0 ] || { usage >&2; exit 2; }
if [ "$1" = --help ] || [ "$1" = -h ]; then
  usage
  printf '\noptions of colossal-train train:\n\n'
fi

with_lock setup_and_build
options=()
if ! has_option help "$@" && [ "$1" != -h ]; then
  prepare_data "$(config_of "$@")"
  has_option nproc "$@" || options=(--nproc auto)
fi
exec "$colossal_root/build/cpu/colossal-train" train "$@" "${options[@]}"
