#!/bin/sh
# run_fuzzer.sh FUZZER SEEDS SECONDS [OPTION...] - fuzz for a while, from the
# seeds and a fixed random seed. What crashes is kept beside the fuzzer, to be replayed.
# The exit status that libFuzzer has for a crash, 77, is a skipped test to Meson.
set -eu
fuzzer=$1 seeds=$2 seconds=$3
shift 3
corpus=$(mktemp -d)
trap 'rm -rf "$corpus"' EXIT
"$fuzzer" -seed=20260101 -max_total_time="$seconds" -timeout=60 -rss_limit_mb=2048 -max_len=4096 \
	-error_exitcode=1 -print_final_stats=1 -artifact_prefix="$(dirname "$fuzzer")/" "$@" "$corpus" "$seeds"
