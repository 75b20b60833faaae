#!/usr/bin/env bash
# How is the loss curve of the README made? Trains configs/gpt-kjv-cpu.yaml anew, in a folder that leaves the run directory
# of the quick start alone, and draws its metrics.
#
#   scripts/plot/loss_curve.sh [OUTPUT.svg]      default: scripts/plot/gpt-kjv-cpu.svg
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
output=${1:-$root/scripts/plot/gpt-kjv-cpu.svg}
run=$root/runs/loss-curve
"$root/scripts/train.sh" "$root/configs/gpt-kjv-cpu.yaml" --output-dir "$run" --overwrite
python3 "$root/scripts/plot/loss.py" "$run" -o "$output"
