#!/bin/bash
# What the cuda backend must show on a GPU: both backends compared, both bundled checkpoints and a full size checked.
# Each part prints a table; all run at once, and the end says which failed. `run_engine.sh speed` times instead, alone.
cd "$(dirname "$0")" || exit 1
if [ "$1" = speed ]; then
    exec python3 engine_speed.py "${@:2}"
fi
logs=$(mktemp -d)
vosti() { python3 -c 'import sys; from vosti.impl.cli import main; sys.exit(main())' "$@"; }
part() {
    name=$1
    shift
    ("$@" >"$logs/$name" 2>&1 || echo "FAILED: $name" >>"$logs/$name") &
}
part compare python3 engine_compare.py
part gemma3 vosti check --backend cuda tiny-gemma3
part llama3 vosti check --backend cuda tiny-llama3
part generate vosti generate --backend cuda --dummy-weights 0 llama-3.1-8b --prompt 'Once upon a time' --max-tokens 32
part contexts vosti check --backend cuda --dummy-weights 0 llama-3.1-8b --workload contexts.json --page-size 16 \
    --pages 1100 --token-budget 2048 --require 'evictions>=1' --require 'preemptions>=1'
wait
for log in "$logs"/*; do
    echo "== ${log##*/}"
    cat "$log"
done
! grep -q FAILED "$logs"/*
