#!/bin/bash
# Five networks side by side on a lent machine: bash benchmarks/end_to_end_device.sh check|run MINUTES
# Two cores a network while tuning, the others stay free; then each is timed alone, on its own cores.
# TVM comes from .carry/tvm where it is not there yet, onnx and onnxruntime from .carry/ort.
set -u
stage=$1 minutes=${2:-7} limit=${LIMIT:-585}
OUT=${OUT:?a folder for the results must be named}
began=$(date +%s)
has() { python3 -c "import importlib.util as u, sys; sys.exit(u.find_spec('$1') is None)"; }
if ! has tvm; then
  if [ -e /opt/tvmsite/.ready ]; then export PYTHONPATH="/opt/tvmsite:${PYTHONPATH:-}"; else . .carry/tvm/unpack.sh; fi
fi
if ! has onnxruntime || ! has onnx; then . .carry/ort/unpack.sh; fi
export PYTHONPATH="$PWD/src:${PYTHONPATH:-}" PYTHONUNBUFFERED=1
networks=${NETWORKS:-resnet18 mobilenet_v2 bert_tiny light_resnet50 light_squeezenet}
work=${WORK:-/tmp/end_to_end}
mkdir -p "$work"
B="python3 benchmarks/end_to_end.py"
spent() { echo $(($(date +%s) - began)); }
if [ "$stage" = check ]; then
  lane=0
  for network in $networks; do
    taskset -c $lane,$((lane + 1)) $B check --network "$network" --work "$work" 2>&1 | tail -4 &
    lane=$((lane + 2))
  done
  wait
  cat /sys/kernel/mm/transparent_hugepage/enabled
  exit 0
fi
lane=0
for network in $networks; do
  # A lane that hangs must not take the others' results with it.
  timeout -k 5 $((${minutes%.*} * 60 + ${SLACK:-115})) taskset -c $lane,$((lane + 1)) \
    $B tune --network "$network" --minutes "$minutes" --work "$work" >"$work/$network.log" 2>&1 &
  lane=$((lane + 2))
done
wait
echo "tuned and built after $(spent) s"
tail -qn 3 "$work"/*.log
save() {
  tar -C "$work" --exclude='*.so' --exclude='*.onnx' --exclude='*.npz' --exclude='store' -cJf "$OUT/runs.tar.xz" .
  cp "$work"/end_to_end.jsonl "$OUT"/ 2>/dev/null || true
}
save
# shellcheck disable=SC2086
$B time --network $networks --minutes "$minutes" --work "$work" --rows "$work/end_to_end.jsonl" \
  --lanes --until $((limit - $(spent) - 8)) 2>&1 | tee "$OUT/time.log"
save
echo "done after $(spent) s"
