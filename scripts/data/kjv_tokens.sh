#!/usr/bin/env bash
# Where do the token files of gpt-tokens-cpu.yaml come from? From the text of kjv.sh, one document a verse.
#
#   scripts/data/kjv_tokens.sh [FOLDER]     default: datasets/kjv
#
# Makes train-bpe.bin and eval-bpe.bin with their .idx in FOLDER, by `colossal-train dataset prepare` and the tokenizer of
# datasets/tokenizers. Does nothing if all are there and not older than the texts.
set -euo pipefail
# shellcheck source=scripts/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/../setup.sh"

readonly folder=${1:-$colossal_root/datasets/kjv}
readonly tokenizer=$colossal_root/datasets/tokenizers/kjv-bpe-1024.json

bash "$colossal_root/scripts/data/kjv.sh" "$folder"
for part in train eval; do
  tokens=$folder/$part-bpe
  # The .idx is renamed into place last, so it stands for a whole pair.
  if [ -s "$tokens.bin" ] && [ -s "$tokens.idx" ] && ! [ "$folder/$part.txt" -nt "$tokens.idx" ]; then
    continue
  fi
  program=$(built_program)
  "$program" dataset prepare --tokenizer "bpe:$tokenizer" --split-documents line "$folder/$part.txt" -o "$tokens"
done
