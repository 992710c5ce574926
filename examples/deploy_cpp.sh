#!/bin/bash
# Builds deploy.cc against the TVM wheel beside your Python, and runs a tuned library with it:
#   examples/deploy_cpp.sh RUN/library.so REPEATS INPUT.bin DIMxDIMx...
# The program needs libtvm_runtime.so and libtvm_ffi.so, and neither Python nor this package.
set -euo pipefail
python=${PYTHON:-python3}
home() { "$python" -c "import importlib.util as u; print(u.find_spec('$1').submodule_search_locations[0])"; }
tvm=$(home tvm) ffi=$(home tvm_ffi)
threads=${TVM_NUM_THREADS:-$(nproc)}  # as the library was tuned; TVM alone takes half of the cores
program=$(mktemp -d)/deploy
trap 'rm -rf "$(dirname "$program")"' EXIT
g++ -std=c++17 -O2 "$(dirname "$0")/deploy.cc" -o "$program" \
  -I"$ffi/include" \
  -L"$tvm/lib" -L"$ffi/lib" -ltvm_runtime -ltvm_ffi -Wl,-rpath,"$tvm/lib:$ffi/lib"
TVM_NUM_THREADS=$threads "$program" "$@"
