#!/bin/bash
# What only a GPU can tell, on a lent machine: bash benchmarks/h200_device.sh STAGE
#   networks  benchmarks/h200.py, some four minutes a network: NETWORKS="resnet50 bert_base"
#   minute    `tune zoo:mobilenet_v2 --target cuda --minutes 1`, as a user types it, and its seconds
#   again     3,000 known programs measured with asynchronous copies (MINUTES=7), old times beside
#   race      benchmarks/tune_vs_metaschedule.py on the GPU's test tasks, stock's rows anew with FRESH=1
#   tlm       benchmarks/tlm_trials.py on the same tasks
# What comes back is small and written as it is made; run folders and libraries stay in /tmp.
set -u
stage=$1
OUT=${OUT:?a folder for the results must be named}
if [ -e /opt/tvmsite/.ready ]; then export PYTHONPATH="/opt/tvmsite:${PYTHONPATH:-}"; fi
python3 -c 'import importlib.util as u, sys; sys.exit(u.find_spec("tvm") is None)' ||
  . .carry/tvm/unpack.sh
export PYTHONPATH="$PWD/src:${PYTHONPATH:-}" PYTHONUNBUFFERED=1
results=benchmarks/results
python3 -m tensorese doctor >"$OUT/doctor.txt" 2>&1
case $stage in
networks)
  # shellcheck disable=SC2086
  python3 benchmarks/h200.py run --networks ${NETWORKS:-resnet50 bert_base mobilenet_v2 gpt2} \
    --minutes "${MINUTES:-2}" --out /tmp/h200 >"$OUT/networks.log" 2>&1
  cp /tmp/h200/*.jsonl "$OUT/"
  ;;
minute)
  began=$(date +%s)
  python3 -m tensorese tune zoo:mobilenet_v2 --target cuda --minutes 1 --out /tmp/minute \
    >"$OUT/minute.log" 2>&1
  echo "exit $?, $(($(date +%s) - began)) s" | tee -a "$OUT/minute.log"
  cp /tmp/minute/certificate.json "$OUT/minute.json"
  ;;
again)
  python3 benchmarks/label_shift.py choose --out /tmp/list --programs "${PROGRAMS:-3000}"
  python3 -m tensorese collect --tasks data/tasks.parquet --target cuda --platform h200 \
    --programs /tmp/list --only-programs --minutes "${MINUTES:-7}" --out /tmp/again \
    >"$OUT/again.log" 2>&1
  tar -C /tmp -cJf "$OUT/again.tar.xz" again
  python3 benchmarks/label_shift.py report /tmp/again | tee -a "$OUT/again.log"
  cp -r "$results/label_shift" "$OUT/"
  ;;
race)
  python3 benchmarks/tune_vs_metaschedule.py run --set test-cuda ${FRESH:+--out /tmp/race} \
    $([ -n "${FRESH:-}" ] || echo --again) >"$OUT/race.log" 2>&1
  cp /tmp/race/h200.* "$results"/tune_vs_metaschedule/h200.* "$OUT/" 2>/dev/null
  ;;
tlm)
  for step in "run --seeds ${SEEDS:-3} --systems ${SYSTEMS:-tlm auto portfolio}" retime report; do
    # shellcheck disable=SC2086
    python3 benchmarks/tlm_trials.py $step --set test-cuda >>"$OUT/tlm.log" 2>&1
  done
  cp "$results"/tlm_trials/h200.* "$OUT/"
  ;;
esac
