#!/usr/bin/env bash
# Train on one host. Run it from the root of the repository; words after it are overrides: train.epochs=3
set -euo pipefail

CONFIG=${CONFIG:-launch/amazon2m-like.toml}
RUN_DIR=${RUN_DIR:-runs/amazon2m-like}
WORKERS=${WORKERS:-2}           # processes: one a GPU, or one for every few cores
MAX_RESTARTS=${MAX_RESTARTS:-3} # how often a crashed run goes on from its last checkpoint

export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}                                 # cores of the host divided by WORKERS
export TORCH_ELASTIC_SHUTDOWN_TIMEOUT=${TORCH_ELASTIC_SHUTDOWN_TIMEOUT:-120} # seconds for the last checkpoint

exec torchrun --standalone --nproc-per-node "$WORKERS" --max-restarts "$MAX_RESTARTS" \
    -m nfdist train "$CONFIG" "run.dir=$RUN_DIR" "$@" --resume
