#!/bin/sh
# Builds native tests without Python: build.sh FOLDER/NAME[,FOLDER/NAME...] [COMPILER] [FLAGS...] makes each from NAME.cpp.
# CXXFLAGS and LDFLAGS of other kinds go in FLAGS.
set -eu
outputs=$(echo "$1" | tr , ' ')
compiler=${2:-g++}
[ $# -lt 2 ] && shift 1 || shift 2
native=$(dirname "$0")/../../src/zerolayer/native
objects=$(mktemp -d)
trap 'rm -r "$objects"' EXIT
compile() { # NAME FLAGS...
  name=$1
  shift
  "$compiler" -std=c++20 -O3 -ffp-contract=off -fno-math-errno -fno-trapping-math -Wall -Wextra -Wno-maybe-uninitialized -I "$native" \
    "$@" -c "$native/$name.cpp" -o "$objects/$name.o"
}
avx2="-mavx2 -mfma -mf16c"
avx512="$avx2 -mavx512f -mavx512bw -mavx512vl -mavx512dq"
for name in cpu dequantise engine engine_calibrate engine_load engine_refine engine_step kernels_portable pack_groups pool sampler sha256; do compile $name "$@"; done
case $("$compiler" -dumpmachine) in
x86_64*)
  compile kernels_avx2 $avx2 "$@"
  compile kernels_amx_emulated $avx2 "$@"
  compile kernels_avx512 $avx512 "$@"
  compile kernels_vnni $avx512 -mavx512vnni "$@"
  compile kernels_amx $avx512 -mavx512vnni -mamx-tile -mamx-int8 "$@"
  ;;
esac
for output in $outputs; do
  "$compiler" -std=c++20 -O2 -ffp-contract=off -Wall -Wextra -I "$native" "$@" "$(dirname "$0")/$(basename "$output").cpp" "$objects"/*.o \
    -pthread -o "$output"
done
