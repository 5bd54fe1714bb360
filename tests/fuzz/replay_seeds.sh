#!/bin/sh
# replay_seeds.sh REPLAY SEEDS FOUND COUNT - run all seeds, what fuzzers found, and COUNT random inputs.
set -eu
exec "$1" "$4" 20260101 "$2"/* "$3"/*
