#!/bin/sh
# Runs the native tests and random calls under sanitizers: sanitize.sh [SECONDS] [SEED]. Needs g++ with its sanitizer libraries.
# -O1: sanitizers see more, and the build takes a third of the time. -g1: files and lines of a stack, no more.
set -eu
seconds=${1:-10}
seed=${2:-$(date +%s)}
here=$(dirname "$0")
built=$(mktemp -d)
trap 'rm -r "$built"' EXIT
export ASAN_OPTIONS=detect_stack_use_after_return=1 UBSAN_OPTIONS=print_stacktrace=1

echo "address and undefined-behaviour sanitizers, seed $seed"
sh "$here/build.sh" "$built/fuzz_deadline,$built/kernel_test,$built/fuzz_engine,$built/fuzz_guard" g++ -O1 -g1 -fsanitize=address,undefined -fno-sanitize-recover=undefined
"$built/kernel_test"
"$built/fuzz_engine" "$seconds" "$seed"
"$built/fuzz_guard" $((seconds * 20000)) "$seed"
"$built/fuzz_deadline" $((seconds * 50000)) "$seed"

echo "thread sanitizer, seed $seed"
rm "$built/fuzz_engine"
sh "$here/build.sh" "$built/fuzz_engine" g++ -O1 -g1 -fsanitize=thread
"$built/fuzz_engine" "$seconds" "$seed"
