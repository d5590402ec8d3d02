#!/bin/bash
# A suite of `vosti determinism` on a GPU, with dummy weights, as far as it comes: run_determinism.sh FOLDER SECONDS SUITE
# MODEL... Results are kept in FOLDER; run it again with the same folder, and only what is missing is run. ENGINE=transformers
# measures that in its place.
folder=$1 end=$((SECONDS + $2)) suite=$3
shift 3
for model in "$@"; do
    left=$((end - SECONDS))
    echo "== $model, $left seconds left"
    [ $left -gt 0 ] || continue
    python3 -c 'import sys; from vosti.impl.cli import main; sys.exit(main())' determinism "$model" --backend cuda \
        --engine "${ENGINE:-vosti}" --dummy-weights 0 --suite "$suite" --report "$folder" --seconds "$left"
done
