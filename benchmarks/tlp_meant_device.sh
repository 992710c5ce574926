#!/bin/bash
# TLP's rows on a lent machine with a GPU, ten minutes a command:
#   bash benchmarks/tlp_meant_device.sh single|mtl|losses|push [OPTIONS of tlp_meant.py]
# $OUT/h200.jsonl comes back with the rows that were there and the new ones: copy it to
# benchmarks/results/tlp_meant before the next command, which goes on where this one ended.
# Nothing new is started after LIMIT seconds; STACK networks train side by side.
set -u
stage=$1
shift
OUT=${OUT:?a folder for the results must be named}
kept=benchmarks/results/tlp_meant/h200.jsonl
if [ -e "$kept" ]; then cp "$kept" "$OUT/h200.jsonl"; fi
export PYTHONPATH="$PWD/src${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
python3 benchmarks/tlp_meant.py "$stage" --machine h200 --rows "$OUT/h200.jsonl" \
  --limit "${LIMIT:-400}" --stack "${STACK:-15}" "$@" 2>&1 | tee "$OUT/$stage.log"
