#!/bin/bash
# Run the sections of kernels_check.py that are named, or all, each in a process of its own, all at once on one GPU, and
# print their outputs, also if this script is ended before them.
cd "$(dirname "$0")" || exit 1
if [ $# -gt 0 ]; then
    sections=$(printf '%s\n' "$@")
else
    sections=$(python3 -c 'import kernels_check; print("\n".join(kernels_check.SECTIONS))')
fi
logs=$(mktemp -d)
trap 'cat "$logs"/*' EXIT
trap 'exit 1' TERM
while read -r section; do
    log=$logs/${section// /_}
    (python3 kernels_check.py "$section" >"$log" 2>&1 || echo "FAILED: $section" >>"$log") &
done <<<"$sections"
wait
! grep -q FAILED "$logs"/*
