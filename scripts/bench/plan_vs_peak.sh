#!/usr/bin/env bash
# Do runs take the memory that their plans say? Three steps of each configuration on random tokens, on the device it finds.
set -euo pipefail
# shellcheck source=scripts/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/../setup.sh"

usage() {
  cat <<'USAGE'
usage: scripts/bench/plan_vs_peak.sh [--program FILE] [--nproc N] [--set KEY=VALUE]... CONFIG...

  --program FILE   colossal-train (default: what scripts/train.sh has built)
  --nproc N        processes of each run (1)
  --set KEY=VALUE  a key of all runs, as of colossal-train: run.device=cuda, run.threads=16 (repeatable)

Prints a line for each configuration: bytes planned and measured on the device of rank 0, and by how much the plan is off.
Batches, precision and parallel settings are as written, but for parallel.data, which is auto; data are synthetic and nothing is saved. Exit code 1 if a plan is
off by more than 5 % or a run fails.
USAGE
}

program=
nproc=1
more=()
while [ $# -gt 0 ]; do
  case $1 in
    --program) program=${2:?--program needs a file}; shift 2 ;;
    --nproc) nproc=${2:?--nproc needs a number}; shift 2 ;;
    --set) more+=(--set "${2:?--set needs KEY=VALUE}"); shift 2 ;;
    --help | -h) usage; exit 0 ;;
    -*) usage >&2; exit 2 ;;
    *) break ;;
  esac
done
[ $# -gt 0 ] || { usage >&2; exit 2; }
[ -n "$program" ] || program=$(built_program)

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failed=0
for config in "$@"; do
  if ! resolved=$("$program" config show --quiet "$config"); then
    failed=1
    continue
  fi
  length=$(sed -n 's/^  seq_length: \([0-9]*\).*/\1/p' <<<"$resolved")
  vocabulary=$(sed -n 's/^  vocab_size: \([0-9]*\).*/\1/p' <<<"$resolved") # which a tokenizer may have decided
  sets=()
  for set in "data={type: synthetic, seq_length: ${length:-1024}, num_samples: 4096}" 'scheduler={type: constant}' train.tokens=null train.epochs=null train.samples=null \
    ${vocabulary:+model.vocab_size=$vocabulary} parallel.data=auto train.steps=3 eval=null checkpoint=null checkpoint.at_end=false; do
    sets+=(--set "$set")
  done
  if ! "$program" train "$config" --nproc "$nproc" --output-dir "$folder/run" --overwrite "${sets[@]}" "${more[@]}" >"$folder/out" 2>"$folder/err"; then
    printf '%-32s failed:\n' "$config"
    tail -n 20 "$folder/err"
    failed=1
    continue
  fi
  tail -n 1 "$folder/out" | python3 -c '
import json, sys
line = json.loads(sys.stdin.read())
planned, peak = line["device_planned"], line["device_peak"]
off = planned / peak - 1
print(f"{sys.argv[1]:32s} planned {planned:,}  measured {peak:,}  {off:+.1%}", flush=True)
sys.exit(abs(off) > 0.05)' "$config" || failed=1
done
exit "$failed"
