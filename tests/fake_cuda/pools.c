/* The driver's own asynchronous allocator, as the backend cudaMallocAsync of torch uses it: one pool for each device. */
#include "runtime.h"

static const size_t GROWTH = 32 << 20;

static struct {
    size_t used, used_high, reserved, reserved_high;
} pools[MOST];

static int index_of(cudaMemPool_t pool) { return (int)(uintptr_t)pool - 1; }

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device) {
    ENTER;
    *pool = (cudaMemPool_t)(uintptr_t)(device + 1);
    return cudaSuccess;
}

static int take(int device, size_t size) {
    size_t needed = pools[device].used + size, *reserved = &pools[device].reserved;
    if (needed > *reserved) {
        size_t grown = (needed + GROWTH - 1) / GROWTH * GROWTH;
        if (!claim(device, grown - *reserved)) return 0;
        *reserved = grown;
    }
    pools[device].used = needed;
    if (needed > pools[device].used_high) pools[device].used_high = needed;
    if (*reserved > pools[device].reserved_high) pools[device].reserved_high = *reserved;
    return 1;
}

cudaError_t cudaMallocAsync(void **pointer, size_t size, cudaStream_t stream) {
    ENTER;
    (void)stream;
    use(current_device);
    pthread_mutex_lock(&lock);
    int is_taken = take(current_device, size);
    pthread_mutex_unlock(&lock);
    *pointer = is_taken ? map_range(size, ON_DEVICE, current_device) : NULL;
    return *pointer ? cudaSuccess : failed(cudaErrorMemoryAllocation);
}

cudaError_t cudaFreeAsync(void *pointer, cudaStream_t stream) {
    ENTER;
    (void)stream;
    struct cudaPointerAttributes known;
    cudaPointerGetAttributes(&known, pointer);
    pthread_mutex_lock(&lock);
    if (known.device >= 0) pools[known.device].used -= unmap_range(pointer);
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t least) {
    ENTER;
    int device = index_of(pool);
    size_t kept = (pools[device].used + GROWTH - 1) / GROWTH * GROWTH;
    if (kept < least) kept = least;
    if (kept >= pools[device].reserved) return cudaSuccess;
    release(device, pools[device].reserved - kept);
    pools[device].reserved = kept;
    return cudaSuccess;
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value) {
    ENTER;
    unsigned long long *to = value;
    int device = index_of(pool);
    switch (attribute) {
    case cudaMemPoolAttrReservedMemCurrent: *to = pools[device].reserved; break;
    case cudaMemPoolAttrReservedMemHigh: *to = pools[device].reserved_high; break;
    case cudaMemPoolAttrUsedMemCurrent: *to = pools[device].used; break;
    case cudaMemPoolAttrUsedMemHigh: *to = pools[device].used_high; break;
    default: *to = 0;
    }
    return cudaSuccess;
}

/* To set a highest value is to set it back. */
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value) {
    ENTER;
    (void)value;
    int device = index_of(pool);
    if (attribute == cudaMemPoolAttrReservedMemHigh) pools[device].reserved_high = pools[device].reserved;
    if (attribute == cudaMemPoolAttrUsedMemHigh) pools[device].used_high = pools[device].used;
    return cudaSuccess;
}
