#!/usr/bin/env bash
# How does a sweep run on this machine? Starts its trials, some at a time, and tells how they ended.
set -uo pipefail
# shellcheck source=scripts/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
# shellcheck source=scripts/wait.sh
. "$(dirname "${BASH_SOURCE[0]}")/wait.sh"

usage() {
  cat <<'USAGE'
usage: scripts/sweep.sh SWEEP.yaml [--parallel K] [--retries N] [--on-failure continue|stop] [--retry-failed] [--accept] [--dry-run]

Runs the trials of `colossal-train sweep expand SWEEP.yaml`. Those that have finished are left out, those that were
interrupted go on from their checkpoints; a trial that another machine runs is left to it.

  --parallel K        so many trials at a time
  --retries N         start a trial again after exit code 8, 9 or a signal, so often
  --on-failure WORD   continue: with the other trials; stop: start no other trial once one has failed
  --retry-failed      also trials that failed before
  --accept            folders of trials that the sweep no longer has are left alone
  --dry-run           print the commands of what would run

The first three beat run.parallel, run.retries and run.on_failure of the sweep, whose defaults are 1, 0 and continue.

Ends with the table of `sweep status`. Exit code: 0 all have finished, 1 some failed or were not started, 75 some were
stopped: the same command goes on; 2 and 3: the command line or the sweep is wrong; 9: nothing is built. The program is the
one that scripts/train.sh would run, else the other one if that is built, with a word; COLOSSAL_TRAIN names another.
USAGE
}

fail_usage() {
  printf 'error: %s\n' "$1" >&2
  usage >&2
  exit 2
}

# number OPTION VALUE LEAST
number() {
  if ! [[ $2 =~ ^[0-9]{1,6}$ ]] || [ "$2" -lt "$3" ]; then
    fail_usage "$1 '$2': give a number from $3"
  fi
}

sweep='' parallel='' retries='' on_failure='' retry_failed=0 dry_run=0 accept=()
while [ $# -gt 0 ]; do
  case $1 in
    --parallel) number "$1" "${2-}" 1; parallel=$2; shift ;;
    --retries) number "$1" "${2-}" 0; retries=$2; shift ;;
    --retry-failed) retry_failed=1 ;;
    --on-failure)
      case ${2-} in continue | stop) on_failure=$2; shift ;; *) fail_usage "$1 '${2-}': give continue or stop" ;; esac ;;
    --accept) accept=(--accept) ;;
    --dry-run) dry_run=1 ;;
    --help | -h) usage; exit 0 ;;
    -*) fail_usage "unknown option '$1'" ;;
    *) [ -z "$sweep" ] || fail_usage "'$1' is one argument too many"; sweep=$1 ;;
  esac
  shift
done
[ -n "$sweep" ] || fail_usage "SWEEP.yaml is missing"

program=${COLOSSAL_TRAIN:-$(built_program)} || exit
trials=$("$program" sweep expand "$sweep" "${accept[@]}" --format script) || exit
# The first line is how trials are run; options beat it.
read -r own_parallel own_retries own_on_failure <<<"$trials"
parallel=${parallel:-$own_parallel} retries=${retries:-$own_retries} on_failure=${on_failure:-$own_on_failure}
results=$(mktemp -d) || exit 9
trap 'rm -rf "$results"' EXIT
stopping=0 # how many signals to stop have come
trap 'stopping=$((stopping + 1))' HUP INT TERM
declare -A running=() # trials by process: how many of the signals each has been told of

# Whether the exit code may be another one next time.
is_passing() { [ "$1" = 8 ] || [ "$1" = 9 ] || { [ "$1" -gt 128 ] && [ "$1" != 130 ] && [ "$1" != 143 ]; }; }

# run_trial NAME COMMAND: to its end, with retries; leaves the exit code in a file of that name. The trial is in a session of
# its own, because a terminal signals all that is in its session or in front: it would be stopped twice, which saves nothing.
run_trial() {
  local name=$1 command=$2 left=$((10#$retries)) code
  [ $stopping = 0 ] || return
  trap 'left=0; held+=(TERM)' USR1
  trap 'left=0' HUP INT TERM
  while :; do
    setsid sh -c "exec $command" >"$results/$name.log" 2>&1 </dev/null &
    await $!
    code=$?
    if ! is_passing "$code" || [ "$left" -le 0 ]; then
      break
    fi
    left=$((left - 1))
    printf 'trial  %s  exit %s, again\n' "$name" "$code"
  done
  echo "$code" >"$results/$name.exit"
  printf 'trial  %s  exit %s\n' "$name" "$code"
  [ "$code" = 0 ] || grep -E '(^|: )error: ' "$results/$name.log" | head -n 1
}

# look_after: forgets trials that have ended and tells the others of signals: each is one SIGTERM to them, of which the second
# one ends them at once.
look_after() {
  local pid
  for pid in "${!running[@]}"; do
    if ! kill -0 "$pid" 2>/dev/null; then
      unset "running[$pid]"
    elif [ "${running[$pid]}" -lt $stopping ]; then
      running[$pid]=$((running[$pid] + 1))
      kill -USR1 "$pid" 2>/dev/null
    fi
  done
}

# Files and here-strings from here on: `... | grep -q` fails under pipefail if grep has found it before all was written.
failed_so_far() { grep -qvxE "0|75" "$results"/*.exit 2>/dev/null; }

while IFS=$'\t' read -r index id state command <&3; do
  name=$(printf '%04d-%s' "$index" "$id")
  case $state in
    finished | running) continue ;;
    failed) [ $retry_failed = 1 ] || { printf 'trial  %s  failed before: --retry-failed runs it again\n' "$name"; continue; } ;;
  esac
  if [ $dry_run = 1 ]; then
    printf '%s\n' "$command"
    continue
  fi
  while look_after; [ $stopping = 0 ] && [ ${#running[@]} -ge "$parallel" ]; do
    pause
  done
  [ $stopping = 0 ] || break
  [ "$on_failure" = stop ] && failed_so_far && break
  run_trial "$name" "$command" &
  running[$!]=0
done 3< <(tail -n +2 <<<"$trials")
[ $dry_run = 0 ] || exit 0
while look_after; [ ${#running[@]} -gt 0 ]; do
  pause
done

trap '' HUP INT TERM
table=$("$program" sweep status "$sweep" "${accept[@]}" 2>/dev/null)
printf '%s\n' "$table"
if grep -qxE '75|130|143' "$results"/*.exit 2>/dev/null || [ $stopping != 0 ]; then
  exit 75
fi
states=$("$program" sweep expand "$sweep" "${accept[@]}" 2>/dev/null)
grep -qvx finished <<<"$(cut -f 3 <<<"$states")" && exit 1
exit 0
