#!/bin/bash
# Networks side by side on a lent machine: bash benchmarks/end_to_end_device.sh check|run MINUTES
# Two cores a network while tuning; then each is timed alone, on its own cores, all others waiting.
# TVM comes from .carry/tvm where it is not there yet, onnx and onnxruntime from .carry/ort.
set -u
stage=$1 minutes=${2:-7} limit=${LIMIT:-585}
OUT=${OUT:?a folder for the results must be named}
began=$(date +%s)
has() { python3 -c "import importlib.util as u, sys; sys.exit(u.find_spec('$1') is None)"; }
if ! has tvm && [ -e /opt/tvmsite/.ready ]; then export PYTHONPATH="/opt/tvmsite:${PYTHONPATH:-}"; fi
if ! has tvm; then . .carry/tvm/unpack.sh; fi
if ! has onnxruntime || ! has onnx; then . .carry/ort/unpack.sh; fi
export PYTHONPATH="$PWD/src:${PYTHONPATH:-}" PYTHONUNBUFFERED=1
networks=${NETWORKS-resnet18 mobilenet_v2 bert_tiny light_resnet50 light_squeezenet}
unpacked=${UNPACKED-resnet18 light_resnet50} # tuned a second time, without prepacking
hot=${HOT-resnet18}                          # and with weights in the near caches
work=${WORK:-/tmp/end_to_end}
mkdir -p "$work"
B="python3 benchmarks/end_to_end.py"
spent() { echo $(($(date +%s) - began)); }
# Two numbers next to each other may be one core: then a lane takes cores half the machine apart.
lanes=${LANES:-$(python3 - <<'PEAK'
import os
from tensorese.measure.peak import peak_gflops
cores = sorted(os.sched_getaffinity(0))
half = len(cores) // 2
def peak(*chosen):
    os.sched_setaffinity(0, {cores[c] for c in chosen})
    return peak_gflops(seconds=0.2)
near = half > 1 and peak(0, 1) < 0.75 * peak(0, half)
pairs = [(i, i + half) if near else (2 * i, 2 * i + 1) for i in range(half)]
print(*(f"{cores[a]},{cores[b]}" for a, b in pairs))
PEAK
)}
read -ra lane <<<"$lanes"
echo "lanes: $lanes"
if [ "$stage" = check ]; then
  at=0
  for network in $networks; do
    taskset -c "${lane[$at]}" $B check --network "$network" --work "$work" 2>&1 | tail -4 &
    at=$((at + 1))
  done
  wait
  cat /sys/kernel/mm/transparent_hugepage/enabled
  exit 0
fi
tune() { # LANE NAME NETWORK OPTIONS...: a lane that hangs must not take the others with it
  local cores=$1 name=$2 network=$3
  shift 3
  timeout -k 5 $((${minutes%.*} * 60 + ${SLACK:-150})) taskset -c "$cores" \
    $B tune --network "$network" --minutes "$minutes" --work "$work" "$@" >"$work/$name.log" 2>&1
}
at=0
for network in $networks; do
  tune "${lane[$at]}" "$network" "$network" &
  at=$((at + 1))
done
for network in $unpacked; do
  tune "${lane[$at]}" "$network-unpacked" "$network" --no-prepack &
  at=$((at + 1))
done
for network in $hot; do
  tune "${lane[$at]}" "$network-hot" "$network" --cache hot &
  at=$((at + 1))
done
wait
echo "tuned and built after $(spent) s"
tail -qn 3 "$work"/*.log
save() {
  tar -C "$work" --exclude='*.so' --exclude='*.onnx' --exclude='*.npz' --exclude='store' \
    -cJf "$OUT/runs.tar.xz" .
  cp "$work"/end_to_end.jsonl "$OUT"/ 2>/dev/null || true
}
save
# shellcheck disable=SC2086
$B time --network $networks --minutes "$minutes" --work "$work" --rows "$work/end_to_end.jsonl" \
  --lanes $lanes --until $((limit - $(spent) - 8)) 2>&1 | tee "$OUT/time.log"
save
echo "done after $(spent) s"
