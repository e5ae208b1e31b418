#!/bin/sh
# Builds native tests without Python: build.sh FOLDER/NAME[,FOLDER/NAME...] [COMPILER] [FLAGS...] makes each from NAME.cpp.
# CXXFLAGS and LDFLAGS of other kinds go in FLAGS. As many compilers run at once as there are processors.
# ENGINE_OBJECTS=FOLDER links the objects there instead of compiling the engine: those of the installed one, as they are.
set -eu
outputs=$(echo "$1" | tr , ' ')
compiler=${2:-g++}
[ $# -lt 2 ] && shift 1 || shift 2
here=$(dirname "$0")
native=$here/../../src/zerolayer/native
objects=$(mktemp -d)
mkdir "$objects/programs"
trap 'rm -r "$objects"' EXIT
at_once() { xargs -d '\n' -P "$(nproc)" -n 1 sh -c; }
compile() { # NAME FLAGS...: the command
  name=$1
  shift
  echo "'$compiler' -std=c++20 -O3 -ffp-contract=off -fno-math-errno -fno-trapping-math -Wall -Wextra -Wno-maybe-uninitialized" \
    "-I '$native' $* -c '$native/$name.cpp' -o '$objects/$name.o'"
}
avx2="-mavx2 -mfma -mf16c"
avx512="$avx2 -mavx512f -mavx512bw -mavx512vl -mavx512dq"
{ # the longest first
  for output in $outputs; do
    name=$(basename "$output")
    echo "'$compiler' -std=c++20 -O2 -ffp-contract=off -Wall -Wextra -I '$native' $* -c '$here/$name.cpp' -o '$objects/programs/$name.o'"
  done
  case ${ENGINE_OBJECTS:+known}$("$compiler" -dumpmachine) in
  x86_64*)
    compile kernels_avx2 $avx2 "$@"
    compile kernels_amx_emulated $avx2 "$@"
    compile kernels_avx512 $avx512 "$@"
    compile kernels_vnni $avx512 -mavx512vnni "$@"
    compile kernels_amx $avx512 -mavx512vnni -mamx-tile -mamx-int8 "$@"
    ;;
  esac
  [ -n "${ENGINE_OBJECTS:-}" ] || for name in kernels_portable cpu dequantise engine engine_calibrate engine_load engine_refine engine_step pack_groups pool sampler sha256 shift; do
    compile $name "$@"
  done
} | at_once
[ -z "${ENGINE_OBJECTS:-}" ] || find "$ENGINE_OBJECTS" -name '*.cpp.o' ! -name 'module.cpp.o' -exec cp {} "$objects" \;
for output in $outputs; do
  "$compiler" "$@" "$objects/programs/$(basename "$output").o" "$objects"/*.o -pthread -o "$output"
done
