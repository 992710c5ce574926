/* Calls one kernel of a library as TVM's runtime would: what runs under qemu, where TVM is not.
 *
 * run_kernel LIBRARY KERNEL FILE:64x32 ...   float32 arrays; each file is read, and written back. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { /* DLTensor */
  void *data;
  int32_t device_type, device_id, ndim;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *strides;
  uint64_t byte_offset;
} Tensor;
typedef struct { int32_t type_index, padding; void *value; } Any; /* TVMFFIAny */
typedef struct { void *sync; int32_t tasks; } Group;
typedef int (*Job)(int, Group *, void *);
typedef int (*Kernel)(void *, Any *, int32_t, Any *);
typedef struct { Job job; Group *group; void *data; int task, failed; } Share;

static void *run_share(void *given) {
  Share *share = given;
  share->failed = share->job(share->task, share->group, share->data);
  return NULL;
}

static int launch(Job job, void *data, int tasks) {
  Group group = {NULL, tasks ? tasks : 4};
  Share shares[64];
  pthread_t threads[64];
  int failed = group.tasks > 64;
  for (int i = 0; !failed && i < group.tasks; ++i) {
    shares[i] = (Share){job, &group, data, i, 0};
    failed = pthread_create(&threads[i], NULL, run_share, &shares[i]);
  }
  for (int i = 0; !failed && i < group.tasks; ++i)
    failed = pthread_join(threads[i], NULL) || shares[i].failed;
  return failed ? -1 : 0;
}

static void *allocate(int type, int device, uint64_t bytes, int code, int bits) {
  return aligned_alloc(64, (bytes + 63) / 64 * 64);
}

static int release(int type, int device, void *block) {
  free(block);
  return 0;
}

/* A library has a variable for each function of the runtime that it calls. */
static void provide(void *library, const char *name, void *function) {
  void **variable = dlsym(library, name);
  if (variable) *variable = function;
}

static int64_t read_argument(char *text, Tensor *tensor, FILE **file) {
  char *shape = strrchr(text, ':');
  int64_t n = 1;
  *shape++ = 0;
  *tensor = (Tensor){.device_type = 1, .code = 2, .bits = 32, .lanes = 1};
  tensor->shape = malloc(8 * sizeof(int64_t));
  for (char *one = strtok(shape, "x"); one; one = strtok(NULL, "x"))
    n *= tensor->shape[tensor->ndim++] = atoll(one);
  tensor->data = aligned_alloc(64, (4 * n + 63) / 64 * 64);
  *file = fopen(text, "r+b");
  return *file && fread(tensor->data, 4, n, *file) == (size_t)n ? n : 0;
}

int main(int argc, char **argv) {
  int count = argc - 3;
  Tensor tensors[16];
  FILE *files[16];
  int64_t sizes[16];
  Any arguments[16], result = {0, 0, NULL};
  void *library = dlopen(argv[1], RTLD_NOW);
  if (!library) return fprintf(stderr, "%s\n", dlerror()), 1;
  provide(library, "__TVMBackendParallelLaunch", launch);
  provide(library, "__TVMBackendAllocWorkspace", allocate);
  provide(library, "__TVMBackendFreeWorkspace", release);
  Kernel kernel = (Kernel)dlsym(library, argv[2]);
  if (!kernel || count > 16) return fprintf(stderr, "no kernel %s\n", argv[2]), 1;
  for (int i = 0; i < count; ++i) {
    sizes[i] = read_argument(argv[3 + i], &tensors[i], &files[i]);
    if (!sizes[i]) return fprintf(stderr, "%s cannot be read\n", argv[3 + i]), 1;
    arguments[i] = (Any){7, 0, &tensors[i]}; /* kTVMFFIDLTensorPtr */
  }
  if (kernel(NULL, arguments, count, &result)) return fprintf(stderr, "it failed\n"), 1;
  for (int i = 0; i < count; ++i) {
    rewind(files[i]);
    fwrite(tensors[i].data, 4, sizes[i], files[i]);
    fclose(files[i]);
  }
  return 0;
}
