#!/usr/bin/env bash
# Train on a fixed set of hosts. Run it on each, with its own NODE_RANK; words after it are overrides: train.epochs=3
set -euo pipefail

CONFIG=${CONFIG:-launch/amazon2m-like.toml}
RUN_DIR=${RUN_DIR:-runs/amazon2m-like}     # on a file system that every host sees
HOSTS=${HOSTS:-2}                          # how many hosts
NODE_RANK=${NODE_RANK:-0}                  # which of them this is, from 0
MASTER_ADDR=${MASTER_ADDR:-host-0.example} # the host of node rank 0, as the others reach it
MASTER_PORT=${MASTER_PORT:-29500}          # a free port of that host, open to the others
WORKERS=${WORKERS:-2}                      # processes of each host: one a GPU, or one for every few cores
MAX_RESTARTS=${MAX_RESTARTS:-0}            # hosts with fixed ranks do not restart together: run it again instead

export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}                                 # cores of the host divided by WORKERS
export TORCH_ELASTIC_SHUTDOWN_TIMEOUT=${TORCH_ELASTIC_SHUTDOWN_TIMEOUT:-120} # seconds for the last checkpoint

exec torchrun --nnodes "$HOSTS" --node-rank "$NODE_RANK" --master-addr "$MASTER_ADDR" --master-port "$MASTER_PORT" \
    --nproc-per-node "$WORKERS" --max-restarts "$MAX_RESTARTS" \
    -m nfdist train "$CONFIG" "run.dir=$RUN_DIR" "$@" --resume
