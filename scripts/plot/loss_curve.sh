#!/usr/bin/env bash
# How is the loss curve of the README made? Trains configs/gpt-kjv-cpu.yaml, or continues it, and draws its metrics.
#
#   scripts/plot/loss_curve.sh [OUTPUT.svg]      default: scripts/plot/gpt-kjv-cpu.svg
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
output=${1:-$root/scripts/plot/gpt-kjv-cpu.svg}
# Evaluated more often than in the file, which changes no number of the training: the curve gets more points.
(cd "$root" && scripts/train.sh configs/gpt-kjv-cpu.yaml --set eval.every_steps=50)
python3 "$root/scripts/plot/loss.py" "$root/runs/gpt-kjv-cpu" -o "$output"
