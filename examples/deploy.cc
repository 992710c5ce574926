// Runs a tuned library from C++, with TVM's runtime alone: deploy_cpp.sh builds and calls this.
//
//   deploy LIBRARY.so REPEATS INPUT.bin DIMxDIMx...    float32, in the order of the bytes
//
// Prints the outputs' sums and the fastest of REPEATS calls.
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

using tvm::ffi::Any;
using tvm::ffi::Function;
using tvm::ffi::Module;
using tvm::ffi::Tensor;

constexpr int kPooledAllocator = 2;  // of tvm/runtime/memory/memory_manager.h

struct Heap {  // where this program's own tensors live
  void AllocData(DLTensor* tensor) { tensor->data = std::aligned_alloc(64, Padded(*tensor)); }
  void FreeData(DLTensor* tensor) { std::free(tensor->data); }
  static size_t Padded(const DLTensor& tensor) {
    return (tvm::ffi::GetDataSize(tensor) + 63) / 64 * 64;
  }
};

static Tensor Read(const char* path, const char* dims) {
  std::vector<int64_t> shape;
  std::stringstream text(dims);
  for (std::string dim; std::getline(text, dim, 'x');) shape.push_back(std::stoll(dim));
  Tensor tensor = Tensor::FromNDAlloc(Heap(), tvm::ffi::Shape(shape), DLDataType{kDLFloat, 32, 1},
                                      DLDevice{kDLCPU, 0});
  std::streamsize bytes = tvm::ffi::GetDataSize(tensor);
  std::ifstream file(path, std::ios::binary);
  if (!file.read(static_cast<char*>(tensor.data_ptr()), bytes)) {
    std::fprintf(stderr, "%s must hold %ld bytes\n", path, static_cast<long>(bytes));
    std::exit(2);
  }
  return tensor;
}

static void Print(const Any& output) {
  if (auto many = output.try_cast<tvm::ffi::Array<Any>>()) {
    for (const Any& one : *many) Print(one);
    return;
  }
  Tensor tensor = output.cast<Tensor>();
  const float* data = static_cast<const float*>(tensor.data_ptr());
  size_t count = tvm::ffi::GetDataSize(tensor) / sizeof(float);
  double sum = 0;
  for (size_t i = 0; i < count; ++i) sum += data[i];
  std::printf("output of %zu numbers, sum %.6g\n", count, sum);
}

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: %s LIBRARY.so REPEATS INPUT.bin DIMxDIMx...\n", argv[0]);
    return 2;
  }
  Module library = Module::LoadFromFile(argv[1]);
  Module machine = (*library->GetFunction("vm_load_executable"))().cast<Module>();
  (*machine->GetFunction("vm_initialization"))(static_cast<int>(kDLCPU), 0, kPooledAllocator);
  Function network = *machine->GetFunction("main");

  Tensor input = Read(argv[3], argv[4]);
  Print(network(input));
  double best = 1e30;
  for (int i = 0; i < std::atoi(argv[2]); ++i) {
    auto start = std::chrono::steady_clock::now();
    network(input);
    std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    best = std::min(best, took.count());
  }
  std::printf("%.4f ms\n", best);
}
