/* Kernels, which compute nothing: a launch makes its stream busy for FAKE_CUDA_KERNEL_US (5) microseconds. */
#include "runtime.h"

#include <stdlib.h>
#include <string.h>

long kernel_ns;

static __thread struct {
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
} pushed;

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
    pushed.grid = grid, pushed.block = block, pushed.shared = shared, pushed.stream = stream;
    return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, cudaStream_t *stream) {
    *grid = pushed.grid, *block = pushed.block, *shared = pushed.shared, *stream = pushed.stream;
    return cudaSuccess;
}

cudaError_t cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **arguments, size_t shared, cudaStream_t stream) {
    ENTER;
    (void)kernel, (void)grid, (void)block, (void)arguments, (void)shared;
    use(current_device);
    work(stream_of(stream), kernel_ns);
    return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(const void *k, dim3 grid, dim3 block, void **arguments, size_t shared, cudaStream_t stream) {
    return cudaLaunchKernel(k, grid, block, arguments, shared, stream);
}

cudaError_t cudaLaunchCooperativeKernel(const void *k, dim3 grid, dim3 block, void **arguments, size_t shared, cudaStream_t s) {
    return cudaLaunchKernel(k, grid, block, arguments, shared, s);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *kernel, void **arguments) {
    return cudaLaunchKernel(kernel, config->gridDim, config->blockDim, arguments, 0, config->stream);
}

/* ---- what is known of kernels ---- */

cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *function) {
    return *kernel = (cudaKernel_t)function, cudaSuccess;
}

void **__cudaRegisterFatBinary(void *binary) {
    (void)binary;
    return calloc(1, sizeof(void *));
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *told, const void *kernel) {
    (void)kernel;
    memset(told, 0, sizeof *told);
    told->maxThreadsPerBlock = 1024;
    told->numRegs = 32;
    told->ptxVersion = told->binaryVersion = 90;
    told->maxDynamicSharedSizeBytes = 232448;
    return cudaSuccess;
}

cudaError_t cudaGetSymbolAddress(void **pointer, const void *symbol) {
    static char room[1 << 16];
    (void)symbol;
    return *pointer = room, cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *kernel, int size, size_t shared) {
    (void)kernel, (void)size, (void)shared;
    return *blocks = 2, cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *kernel, int size, size_t shared,
                                                                   unsigned flags) {
    (void)flags;
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, kernel, size, shared);
}
