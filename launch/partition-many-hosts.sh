#!/usr/bin/env bash
# Partition on a fixed set of hosts. Run it on each, with its own NODE_RANK; words after it are options: --memory 4GiB
set -euo pipefail

SOURCE=${SOURCE:-partitions/amazon2m-like.toml} # a recipe, or a source with --parts P --out DIR; on every host
HOSTS=${HOSTS:-2}                               # how many hosts
NODE_RANK=${NODE_RANK:-0}                       # which of them this is, from 0
MASTER_ADDR=${MASTER_ADDR:-host-0.example}      # the host of node rank 0, as the others reach it
MASTER_PORT=${MASTER_PORT:-29503}               # a free port of that host, open to the others
WORKERS=${WORKERS:-2}                           # processes of each host: one for every few cores

export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} # cores of the host divided by WORKERS

exec torchrun --nnodes "$HOSTS" --node-rank "$NODE_RANK" --master-addr "$MASTER_ADDR" --master-port "$MASTER_PORT" \
    --nproc-per-node "$WORKERS" --max-restarts 0 \
    -m nfdist partition "$SOURCE" "$@"
