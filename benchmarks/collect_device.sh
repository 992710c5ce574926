#!/bin/bash
# Collecting on a lent machine: bash benchmarks/collect_device.sh cpu|two|all|gpu|again MINUTES
# MORE="--programs STORE --only-programs" asks for a store's programs alone (stages two and all).
# Stores are kept outside $OUT and packed into it after each stage: few files may come back.
set -u
stage=$1 minutes=$2
OUT=${OUT:?a folder for the results must be named}
python3 -c 'import importlib.util as u, sys; sys.exit(u.find_spec("tvm") is None)' ||
  . .carry/tvm/unpack.sh
export PYTHONPATH="$PWD/src:${PYTHONPATH:-}" PYTHONUNBUFFERED=1
work=$(mktemp -d)
mcpu=$(python3 -c 'from tensorese.targets import host_cpu; print(host_cpu().mcpu)')
one="{\"kind\":\"llvm\",\"mcpu\":\"$mcpu\",\"num-cores\":1}"
cores=$(nproc --all)
two="{\"kind\":\"llvm\",\"mcpu\":\"$mcpu\",\"num-cores\":2}"
all="{\"kind\":\"llvm\",\"mcpu\":\"$mcpu\",\"num-cores\":$cores}"
pack() { tar -C "$work" -cf "$OUT/$stage.tar" . 2>/dev/null || true; }
trap pack EXIT
gather() { # NAME OPTIONS...: one run, its result as a line of JSON
  local name=$1
  shift
  echo "== $name at $(date -u +%T)"
  python3 -m tensorese collect --tasks data/tasks.parquet --json "$@" 2>>"$OUT/$stage.log" |
    tee "$work/$name.json"
  tail -2 "$OUT/$stage.log"
  pack
}
lscpu >"$work/lscpu.txt"
# What is published already is not measured again, unless FRESH is set.
[ -n "${FRESH:-}" ] || cp -r data/cpu "$work/cpu"
[ -n "${FRESH:-}" ] || cp -r data/h200 "$work/gpu"
case $stage in
cpu)
  # Programs of one core, many at a time: LAYOUT="--lanes 4 --beside", or what calibrating finds.
  # The programs of data/cpu come first, then new ones.
  # shellcheck disable=SC2086
  gather emr-1c --target "$one" --platform "$mcpu-1c" --out "$work/cpu" \
    ${LAYOUT:---calibrate} --programs data/cpu --minutes "$minutes"
  ;;
two)
  # Programs of two threads on a slice of two cores: the small machine's platform.
  # shellcheck disable=SC2086
  gather emr-2c --target "$two" --platform "$mcpu-2c" --out "$work/cpu" \
    ${LAYOUT:---lanes 3 --stride 2 --beside} ${MORE:---programs data/cpu} --minutes "$minutes"
  ;;
all)
  # shellcheck disable=SC2086
  gather emr-all --target "$all" --platform "$mcpu-${cores}c" --out "$work/cpu" \
    ${MORE:---programs data/cpu} --minutes "$minutes"
  ;;
gpu)
  # A kernel takes a second of nvrtc: fewer tasks, so that each has enough programs to rank.
  # MORE="--split test --per-task 64", say, asks for the test tasks alone.
  # shellcheck disable=SC2086
  gather h200 --target cuda --platform h200 --out "$work/gpu" --minutes "$minutes" \
    --most-tasks "${TASKS:-144}" ${MORE:-}
  ;;
again)
  # The first programs of every task's sequence, which `cpu` measured too: alone.
  gather again-1c --target "$one" --platform "$mcpu-1c" --out "$work/again" \
    --random-share 1 --per-task 12 --verify none --minutes "$minutes"
  ;;
esac
grep calibrating "$OUT/$stage.log" || true
