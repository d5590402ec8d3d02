#!/bin/bash
# Run every section of kernels_check.py in a process of its own, all at once on one GPU, and print their outputs.
cd "$(dirname "$0")" || exit 1
python3 -c 'import kernels_check; print("\n".join(kernels_check.SECTIONS))' | {
    failed=0
    logs=$(mktemp -d)
    while read -r section; do
        (python3 kernels_check.py "$section" >"$logs/${section// /_}" 2>&1 || echo "FAILED: $section" >>"$logs/${section// /_}") &
    done
    wait
    cat "$logs"/*
    ! grep -q FAILED "$logs"/*
}
