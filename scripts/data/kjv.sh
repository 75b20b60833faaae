#!/usr/bin/env bash
# Where does the text of the gpt-kjv configs come from? The King James Bible of Debian's package bible-kjv.
#
#   scripts/data/kjv.sh [FOLDER]     default: datasets/kjv
#
# Makes train.txt (the first 95 % of the bytes) and eval.txt (the rest), split at the end of a verse. Does nothing if
# both are there and whole.
set -euo pipefail
# shellcheck source=scripts/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/../setup.sh"

readonly folder=${1:-$colossal_root/datasets/kjv}
readonly num_verses=31102

# The text is the same in every release of the package, so whole means: all verses are there.
whole() {
  [ -s "$folder/train.txt" ] && [ -s "$folder/eval.txt" ] &&
    [ "$(cat "$folder/train.txt" "$folder/eval.txt" | wc -l)" = "$num_verses" ]
}

if whole; then
  exit 0
fi

need_packages "${test_packages[@]}"
# Debian installs the program into /usr/bin, which a bare environment may lack on its PATH.
bible=$(command -v bible || echo /usr/bin/bible)
mkdir -p "$folder"
work=$(mktemp -d "$folder/.making-XXXXXX")
trap 'rm -rf "$work"' EXIT

LC_ALL=C "$bible" -f gen1:1-rev22:21 </dev/null >"$work/all.txt"
[ "$(wc -l <"$work/all.txt")" = "$num_verses" ] ||
  die 4 "$bible printed $(wc -l <"$work/all.txt") verses instead of $num_verses: is the package bible-kjv-text whole?"
! LC_ALL=C grep -qP '[^\x20-\x7e]' "$work/all.txt" || die 4 "$bible printed bytes that are not printable ASCII"

# The split is a verse boundary: train.txt ends with the verse that reaches 95 % of all bytes.
LC_ALL=C awk -v total="$(wc -c <"$work/all.txt")" -v train="$work/train.txt" -v eval="$work/eval.txt" '
  { print > (done < 0.95 * total ? train : eval); done += length($0) + 1 }' "$work/all.txt"
mv "$work/train.txt" "$folder/train.txt"
mv "$work/eval.txt" "$folder/eval.txt"
(cd "$folder" && wc -c train.txt eval.txt && sha256sum train.txt eval.txt)
