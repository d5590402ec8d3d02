#!/bin/bash
# Run the sections of kernels_check.py that are named, or all, each in a process of its own, as many at once as there are
# processors (so that one GPU's memory holds them), and print their outputs, also if this script is ended before them.
cd "$(dirname "$0")" || exit 1
if [ $# -gt 0 ]; then
    sections=$(printf '%s\n' "$@")
else
    sections=$(python3 -c 'import kernels_check; print("\n".join(kernels_check.SECTIONS))')
fi
export logs=$(mktemp -d)
trap 'cat "$logs"/*' EXIT
trap 'exit 1' TERM
section() {
    log=$logs/${1// /_}
    python3 kernels_check.py "$1" >"$log" 2>&1 || echo "FAILED: $1" >>"$log"
}
export -f section
xargs -P "$(nproc)" -I{} bash -c 'section "{}"' <<<"$sections"
! grep -q FAILED "$logs"/*
