#!/usr/bin/env bash
# What must be copied to a machine with a GPU that has only the torch wheel? One folder: programs, tests, libraries.
set -euo pipefail
# shellcheck source=scripts/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

usage() {
  cat <<'USAGE'
usage: scripts/gpu_bundle.sh [FOLDER] [-- TEST_PROGRAM...]

Packs what the preset `cuda` has built into FOLDER (default: .gpu, which git ignores): the stripped programs, the tests of
label cuda (or the named test programs of build/cuda), the configurations, and the libraries that other machines lack.
torch and NVIDIA's libraries are not packed. On the other machine, with torch 2.11.0 of PyPI installed in its python3:

  FOLDER/run colossal-train train FOLDER/configs/tiny-cpu.yaml --set run.device=cuda
  FOLDER/run cuda_train_test

PYTHON=... names another Python there. The folder must stay under 40 MiB; the script fails otherwise.
USAGE
}

readonly most_kib=$((40 * 1024))

# The machine's own: glibc and the compiler's runtime, which are newer there. torch and NVIDIA's come with the wheels.
readonly not_packed='^(linux-vdso|ld-linux-x86-64|libc|libm|libdl|librt|libpthread|libresolv|libutil|libstdc\+\+|libgcc_s|libgomp)\.so'

# libraries_of PROGRAM...: paths of the shared libraries to pack.
libraries_of() {
  LD_LIBRARY_PATH= ldd "$@" | sed -n 's/^[[:space:]]*\([^ ]*\) => \(\/[^ ]*\) .*/\1 \2/p' | sort -u |
    grep -Ev "$not_packed" | grep -v '/site-packages/' | cut -d ' ' -f 2
}

# write_starter FILE: finds torch without importing it, and starts a program of the bundle.
write_starter() {
  cat >"$1" <<'STARTER'
#!/usr/bin/env bash
# Starts a program of this folder with the libraries of the installed torch wheel: run PROGRAM [ARGUMENT...]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
packages=$("${PYTHON:-python3}" -c '
import importlib.util, os
spec = importlib.util.find_spec("torch")
print(os.path.dirname(os.path.dirname(spec.origin)) if spec else "")')
[ -n "$packages" ] || { echo "error: ${PYTHON:-python3} has no torch: install torch==2.11.0" >&2; exit 9; }
# Unpacked once, beside other bundles' programs, where no other user can put programs of his own.
cache=${XDG_CACHE_HOME:-~/.cache}
mkdir -p "$cache"
unpacked=$cache/colossal-bundle-$(cksum <"$here/programs.tar.gz" | tr ' ' -)
if [ ! -d "$unpacked" ]; then
  fresh=$(mktemp -d "$unpacked.XXXXXX")
  tar -xzf "$here/programs.tar.gz" -C "$fresh"
  mv -T "$fresh" "$unpacked" 2>/dev/null || rm -rf "$fresh" # another process was faster
fi
[ -O "$unpacked" ] || { echo "error: $unpacked belongs to another user: XDG_CACHE_HOME names another folder for it" >&2; exit 9; }
path=$unpacked/lib:$packages/torch/lib
for folder in "$packages"/nvidia/*/lib; do path=$path:$folder; done
export LD_LIBRARY_PATH=$path${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
program=$1
shift
exec "$unpacked/bin/$program" "$@"
STARTER
  chmod +x "$1"
}

case ${1:-} in
  -h | --help) usage; exit 0 ;;
esac
folder=$colossal_root/.gpu
if [ $# -gt 0 ] && [ "$1" != -- ]; then
  folder=$1
  shift
fi
[ "${1:-}" != -- ] || shift

cd "$colossal_root/build/cuda" 2>/dev/null || die 9 "build/cuda is missing: cmake --preset cuda && ninja -C build/cuda"
[ -x colossal-train-engine ] || die 9 "build/cuda holds no colossal-train-engine: ninja -C build/cuda"
programs=(colossal-train colossal-train-engine)
tests=("$@")
if [ ${#tests[@]} = 0 ]; then
  shopt -s nullglob
  tests=(cuda_*_test)
fi

rm -rf "$folder"
mkdir -p "$folder/bin" "$folder/lib"
for program in "${programs[@]}" "${tests[@]}"; do
  strip -o "$folder/bin/$program" "$program"
done
while IFS= read -r library; do
  strip -o "$folder/lib/$(basename "$library")" "$library"
done < <(libraries_of "${programs[@]}" "${tests[@]}")
libraries=$(find "$folder/lib" -type f | wc -l)
# Each test program holds most of the engine's code: together they shrink to a third.
tar -czf "$folder/programs.tar.gz" -C "$folder" bin lib
rm -rf "$folder/bin" "$folder/lib"
cp -r "$colossal_root/configs" "$folder/configs"
write_starter "$folder/run"

size=$(du -sk "$folder" | cut -f 1)
say "$folder: $((size / 1024)) MiB, ${#tests[@]} tests, $libraries libraries"
[ "$size" -le "$most_kib" ] || die 9 "the bundle is larger than $((most_kib / 1024)) MiB: name fewer tests"
