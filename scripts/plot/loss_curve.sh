#!/usr/bin/env bash
# How is the loss curve of the README made? Trains configs/gpt-kjv-cpu.yaml (or continues it) and draws its metrics. Seed 2
# leaves the run directory of the quick start alone.
#
#   scripts/plot/loss_curve.sh [OUTPUT.svg]      default: scripts/plot/gpt-kjv-cpu.svg
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
output=${1:-$root/scripts/plot/gpt-kjv-cpu.svg}
run=$root/runs/gpt-kjv-cpu-seed2
"$root/scripts/train.sh" "$root/configs/gpt-kjv-cpu.yaml" --set run.seed=2 --output-dir "$run"
python3 "$root/scripts/plot/loss.py" "$run" -o "$output"
