#!/bin/bash
# Trains a cost model on measured programs, judges it on workloads it has not seen, tunes with it:
#   examples/train_model.sh STORE PLATFORM OUT [KEY=VALUE...]       settings of the training
# A store of your own machine comes from: tensorese collect --tasks zoo:resnet18 --out STORE
set -euo pipefail
store=$1 platform=$2 out=$3
shift 3
tensorese="${PYTHON:-python3} -m tensorese"
settings=()
for setting in "$@"; do settings+=(--set "$setting"); done
$tensorese train physics --data "$store" --platform "$platform" --out "$out/model" "${settings[@]}"
$tensorese eval "$out/model" --data "$store"
$tensorese tune zoo:bert_tiny@1x16 --model "$out/model" --trials "${TRIALS:-200}" --out "$out/run"
