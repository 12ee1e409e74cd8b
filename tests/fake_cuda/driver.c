/* The driver's functions that torch asks for by name: memory in pages, of which expandable segments are made. */
#include "runtime.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

typedef struct {
    size_t size;
    int device;
} Part;

static CUresult reserve_addresses(CUdeviceptr *at, size_t size, size_t alignment, CUdeviceptr hint, unsigned long long flags) {
    (void)alignment, (void)hint, (void)flags;
    *at = (CUdeviceptr)map_range(size, ON_DEVICE, current_device);
    return *at ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult free_addresses(CUdeviceptr at, size_t size) {
    (void)size;
    unmap_range((void *)at);
    return CUDA_SUCCESS;
}

static CUresult create(CUmemGenericAllocationHandle *made, size_t size, const CUmemAllocationProp *wanted,
                       unsigned long long flags) {
    (void)flags;
    count("cuMemCreate");
    if (unsafe("cuMemCreate")) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (!claim(wanted->location.id, size)) return CUDA_ERROR_OUT_OF_MEMORY;
    Part *part = malloc(sizeof *part);
    *part = (Part){size, wanted->location.id};
    *made = (CUmemGenericAllocationHandle)part;
    return CUDA_SUCCESS;
}

static CUresult free_part(CUmemGenericAllocationHandle made) {
    Part *part = (Part *)made;
    count("cuMemRelease");
    release(part->device, part->size);
    free(part);
    return CUDA_SUCCESS;
}

static CUresult unmap(CUdeviceptr at, size_t size) {
    madvise((void *)at, size, MADV_DONTNEED);
    return CUDA_SUCCESS;
}

static CUresult granularity(size_t *size, const CUmemAllocationProp *wanted, CUmemAllocationGranularity_flags flags) {
    (void)wanted, (void)flags;
    *size = 2 << 20;
    return CUDA_SUCCESS;
}

static CUresult attribute(int *value, CUdevice_attribute asked, CUdevice device) {
    (void)asked, (void)device;
    *value = 1;
    return CUDA_SUCCESS;
}

static CUresult current_context(CUcontext *context) {
    *context = has_context(current_device) ? (CUcontext)8 : NULL;
    return CUDA_SUCCESS;
}

static CUresult context_state(CUdevice device, unsigned *flags, int *is_active) {
    *flags = 0;
    *is_active = has_context(device);
    return CUDA_SUCCESS;
}

static CUresult error_text(CUresult code, const char **text) {
    *text = code == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory" : "an error of the simulated driver";
    return CUDA_SUCCESS;
}

static CUresult nothing(void) { return CUDA_SUCCESS; }

static const struct {
    const char *name;
    void *function;
} FUNCTIONS[] = {
    {"cuMemAddressReserve", reserve_addresses},
    {"cuMemAddressFree", free_addresses},
    {"cuMemCreate", create},
    {"cuMemRelease", free_part},
    {"cuMemUnmap", unmap},
    {"cuMemGetAllocationGranularity", granularity},
    {"cuDeviceGetAttribute", attribute},
    {"cuCtxGetCurrent", current_context},
    {"cuDevicePrimaryCtxGetState", context_state},
    {"cuGetErrorString", error_text},
};

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version, unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *status) {
    (void)version, (void)flags;
    *function = nothing;
    for (size_t i = 0; i < sizeof FUNCTIONS / sizeof *FUNCTIONS; i++)
        if (!strcmp(name, FUNCTIONS[i].name)) *function = FUNCTIONS[i].function;
    if (status) *status = cudaDriverEntryPointSuccess;
    return cudaSuccess;
}
