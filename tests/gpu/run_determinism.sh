#!/bin/bash
# A suite of `vosti determinism` on a GPU, with dummy weights, as far as it comes: run_determinism.sh FOLDER SECONDS SUITE
# MODEL... Results are kept in FOLDER; run it again with the same folder, and only what is missing is run.
folder=$1 seconds=$2 suite=$3
shift 3
begin=$SECONDS
for model in "$@"; do
    echo "== $model"
    python3 -c 'import sys; from vosti.impl.cli import main; sys.exit(main())' determinism "$model" --backend cuda \
        --dummy-weights 0 --suite "$suite" --report "$folder" --seconds $((seconds - SECONDS + begin))
done
