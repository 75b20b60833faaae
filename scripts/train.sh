#!/usr/bin/env bash
# How does one command train a model? Installs what is missing, builds, prepares the data, then runs colossal-train.
set -euo pipefail
# shellcheck source=scripts/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
# shellcheck source=scripts/wait.sh
. "$(dirname "${BASH_SOURCE[0]}")/wait.sh"

usage() {
  cat <<'USAGE'
usage: scripts/train.sh CONFIG [option of `colossal-train train`]...
       scripts/train.sh --help

Installs what is missing, builds build/cpu/colossal-train (build/cuda/colossal-train where nvcc and a GPU are), makes the
data files that CONFIG's line `# prepare: scripts/data/NAME.sh` stands for, and trains with `--nproc auto` unless --nproc is
given. If CONFIG has a line `# sample: TEXT`, it then shows (on stderr) how the trained model continues TEXT. Started by
torchrun, mpirun, mpiexec or srun, it trains as one of their processes, and shows nothing.

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
      --) printf '%s\n' "${2:-}" && return ;;
      --set | --nproc | --resume | --output-dir | --allow | --config-overlay | --diagnostics | --color | --launch | --master-addr | \
        --master-port | --rendezvous | --max-restarts | --restart-delay) shift ;; # its value: below
      -*) ;;
      *) printf '%s\n' "$1" && return ;;
    esac
    shift $(($# > 0))
  done
}

# is_rank: has a launcher started this script, as one of its processes?
is_rank() { [ -n "${RANK-}${OMPI_COMM_WORLD_SIZE-}${PMI_SIZE-}${SLURM_STEP_ID-}" ]; }

# line_of NAME CONFIG: the rest of CONFIG's first line `# NAME: `, also of a file that another system's editor has written
# (a byte order mark, CR LF).
line_of() { LC_ALL=C sed -n -e $'1s/^\xEF\xBB\xBF//' -e 's/\r$//' -e "s/^# $1: *//p" "$2" | head -n 1; }

# prepare_data CONFIG: runs the script named by the config's `# prepare:` line, which decides itself if there is work.
prepare_data() {
  local script
  [ -r "$1" ] || return 0 # also without CONFIG: colossal-train reports it
  script=$(line_of prepare "$1")
  [ -n "$script" ] || return 0
  if ! [[ $script =~ ^scripts/data/[a-z0-9_]+\.sh$ && -f $colossal_root/$script ]]; then
    die 3 "$1: '# prepare: $script' must name a script of scripts/data/, as in '# prepare: scripts/data/kjv.sh'"
  fi
  bash "$colossal_root/$script" >&2
}

# prompt_of CONFIG: the text of its line `# sample: TEXT`, if it has one.
prompt_of() { [ ! -r "$1" ] || line_of sample "$1"; }

# run_stoppable COMMAND...: runs it, hands it the signals that this script gets (once, and not ignored as background
# jobs otherwise have them), and returns its exit code.
run_stoppable() {
  local code=0
  hold HUP INT QUIT TERM USR1 USR2
  set -m
  "$@" &
  await $! || code=$?
  trap - HUP INT QUIT TERM USR1 USR2
  set +m
  return "$code"
}

# sample PROMPT FILE: how does the checkpoint that train's summary in FILE names continue the prompt?
sample() {
  local checkpoint
  checkpoint=$(python3 -c 'import json, sys; print(json.loads(sys.stdin.read().splitlines()[-1])["checkpoint"])' <"$2")
  if [ -n "$checkpoint" ]; then
    printf '\nsample    (%s generate --help tells how to make others)\n\n' "build/$preset/colossal-train"
    "$program" generate --checkpoint "$checkpoint" --prompt "$1" --temperature 0.7 --max-tokens 400 -q
  fi
}

# train_and_sample PROMPT ARGUMENT...: stdout is that of `train`, which ends with one line of JSON.
train_and_sample() {
  local prompt=$1 summary code=0
  shift
  summary=$(mktemp)
  run_stoppable "$program" train "$@" >"$summary" || code=$?
  cat "$summary"
  [ "$code" != 0 ] || sample "$prompt" "$summary" >&2 || code=$?
  rm -f "$summary"
  return "$code"
}

preset=$(best_preset)
setup_and_build() { setup_build && configure "$preset" && build "$preset" colossal-train; }

[ $# -gt 0 ] || { usage >&2; exit 2; }
if [ "$1" = --help ] || [ "$1" = -h ]; then
  usage
  printf '\noptions of colossal-train train:\n\n'
fi

with_lock setup_and_build
program=$(built_program)
options=()
prompt=
if ! has_option help "$@" && [ "$1" != -h ]; then
  config=$(config_of "$@")
  prepare_data "$config"
  has_option nproc "$@" || is_rank || options=(--nproc auto)
  has_option dry-run "$@" || is_rank || prompt=$(prompt_of "$config")
fi
# Ours come first: behind `--` the program takes no options.
[ -z "$prompt" ] || { train_and_sample "$prompt" "${options[@]}" "$@"; exit; }
exec "$program" train "${options[@]}" "$@"
