#!/usr/bin/env bash
# Train on hosts that may come and go. Run the same on each; words after it are overrides: train.epochs=3
set -euo pipefail

CONFIG=${CONFIG:-launch/amazon2m-like.toml}
RUN_DIR=${RUN_DIR:-runs/amazon2m-like}     # on a file system that every host sees
HOSTS=${HOSTS:-2:4}                        # at least and at most so many hosts
ENDPOINT=${ENDPOINT:-host-0.example:29400} # the host where they meet, and a free port of it; it must outlive the run
JOB=${JOB:-amazon2m-like}                  # the same on every host, and another for every run at one time
RDZV_CONF=${RDZV_CONF:-}                   # if names do not tell: is_host=1 on ENDPOINT's host, is_host=0 elsewhere
WORKERS=${WORKERS:-2}                      # processes of each host: one a GPU, or one for every few cores
MAX_RESTARTS=${MAX_RESTARTS:-3}            # how often a crashed run goes on from its last checkpoint

export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}                                 # cores of the host divided by WORKERS
export TORCH_ELASTIC_SHUTDOWN_TIMEOUT=${TORCH_ELASTIC_SHUTDOWN_TIMEOUT:-120} # seconds for the last checkpoint

exec torchrun --nnodes "$HOSTS" --rdzv-backend c10d --rdzv-endpoint "$ENDPOINT" --rdzv-id "$JOB" \
    --rdzv-conf "$RDZV_CONF" --nproc-per-node "$WORKERS" --max-restarts "$MAX_RESTARTS" \
    -m nfdist train "$CONFIG" "run.dir=$RUN_DIR" "$@" --resume
