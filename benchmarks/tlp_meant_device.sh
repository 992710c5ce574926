#!/bin/bash
# TLP's rows on a lent machine with a GPU, ten minutes a command:
#   bash benchmarks/tlp_meant_device.sh single|mtl|losses|push|trunk [OPTIONS of tlp_meant.py]
# $OUT/h200.jsonl comes back with the rows that were there and the new ones: copy it to
# benchmarks/results/tlp_meant before the next command, which goes on where this one ended.
# Nothing new is started after LIMIT seconds; STACK networks train side by side, and a command is
# killed after ten minutes: many epochs want few networks. In this order, each until nothing is left:
#   single --systems "published;language only;both;physics only", then the rest with STACK=5;
#   losses; trunk; mtl --seeds 1; push --seeds 3 with STACK=5; mtl --seeds 3 --platforms of the claims.
set -u
stage=$1
shift
OUT=${OUT:?a folder for the results must be named}
kept=benchmarks/results/tlp_meant/h200.jsonl
if [ -e "$kept" ]; then cp "$kept" "$OUT/h200.jsonl"; fi
export PYTHONPATH="$PWD/src${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
python3 benchmarks/tlp_meant.py "$stage" --machine h200 --rows "$OUT/h200.jsonl" \
  --limit "${LIMIT:-400}" --stack "${STACK:-15}" "$@" 2>&1 | tee "$OUT/$stage.log"
