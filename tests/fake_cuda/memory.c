/* A device's memory is host memory, and copies are made at once. Only what is written to uses memory of the host. */
#include "runtime.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

typedef struct {
    char *at;
    size_t size;
    Kind kind;
    int device;
} Range;
static Range *ranges;
static int range_count, range_room;
static size_t claims[MOST];

/* ---- bytes ---- */

int claim(int device, size_t size) {
    pthread_mutex_lock(&lock);
    int fits = claims[device] + size <= capacity(device);
    if (fits) claims[device] += size;
    pthread_mutex_unlock(&lock);
    return fits;
}

void release(int device, size_t size) {
    pthread_mutex_lock(&lock);
    claims[device] -= size;
    pthread_mutex_unlock(&lock);
}

size_t claimed(int device) { return claims[device]; }

/* ---- addresses ---- */

static int find(const void *pointer) {
    for (int i = 0; i < range_count; i++)
        if ((char *)pointer >= ranges[i].at && (char *)pointer < ranges[i].at + ranges[i].size) return i;
    return -1;
}

static void add(void *at, size_t size, Kind kind, int device) {
    pthread_mutex_lock(&lock);
    if (range_count == range_room) ranges = realloc(ranges, (range_room = range_room * 2 + 64) * sizeof *ranges);
    ranges[range_count++] = (Range){at, size, kind, device};
    pthread_mutex_unlock(&lock);
}

void *map_range(size_t size, Kind kind, int device) {
    if (!size) size = 1;
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return NULL;
    add(at, size, kind, device);
    return at;
}

size_t unmap_range(void *at) {
    pthread_mutex_lock(&lock);
    int i = find(at);
    size_t size = i < 0 ? 0 : ranges[i].size;
    if (i >= 0) {
        if (ranges[i].kind != REGISTERED) munmap(ranges[i].at, size);
        ranges[i] = ranges[--range_count];
    }
    pthread_mutex_unlock(&lock);
    return size;
}

static Range range_of(const void *pointer) {
    pthread_mutex_lock(&lock);
    int i = find(pointer);
    Range found = i < 0 ? (Range){NULL, 0, UNKNOWN_TO_CUDA, -1} : ranges[i];
    pthread_mutex_unlock(&lock);
    return found;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *told, const void *pointer) {
    ENTER;
    Range range = range_of(pointer);
    memset(told, 0, sizeof *told);
    told->device = range.device;
    if (range.kind == ON_DEVICE) told->type = cudaMemoryTypeDevice;
    else told->type = range.kind == UNKNOWN_TO_CUDA ? cudaMemoryTypeUnregistered : cudaMemoryTypeHost;
    told->devicePointer = told->hostPointer = (void *)pointer;
    return cudaSuccess;
}

/* ---- memory of the device ---- */

cudaError_t cudaMalloc(void **pointer, size_t size) {
    ENTER;
    UNSAFE;
    use(current_device);
    if (!claim(current_device, size)) return failed(cudaErrorMemoryAllocation);
    *pointer = map_range(size, ON_DEVICE, current_device);
    if (*pointer) return cudaSuccess;
    release(current_device, size);
    return failed(cudaErrorMemoryAllocation);
}

cudaError_t cudaFree(void *pointer) {
    ENTER;
    use(current_device);
    if (!pointer) return cudaSuccess;
    UNSAFE;
    note_wait(__func__);
    int device = range_of(pointer).device;
    if (device >= 0) release(device, unmap_range(pointer));
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free, size_t *total) {
    ENTER;
    use(current_device);
    *free = capacity(current_device) - claims[current_device];
    *total = device_at(current_device)->total - device_at(current_device)->reserved;
    return cudaSuccess;
}

/* ---- pinned memory of the host ---- */

cudaError_t cudaHostAlloc(void **pointer, size_t size, unsigned flags) {
    ENTER;
    UNSAFE;
    (void)flags;
    use(current_device);
    *pointer = map_range(size, PINNED, -1);
    return *pointer ? cudaSuccess : failed(cudaErrorMemoryAllocation);
}

cudaError_t cudaFreeHost(void *pointer) {
    ENTER;
    UNSAFE;
    note_wait(__func__);
    unmap_range(pointer);
    return cudaSuccess;
}

cudaError_t cudaHostRegister(void *pointer, size_t size, unsigned flags) {
    ENTER;
    UNSAFE;
    (void)flags;
    add(pointer, size, REGISTERED, -1);
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *pointer) {
    ENTER;
    UNSAFE;
    unmap_range(pointer);
    return cudaSuccess;
}

/* ---- copies ---- */

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, enum cudaMemcpyKind kind, cudaStream_t given) {
    ENTER;
    cudaStream_t stream = stream_of(given);
    /* To memory that is not pinned, the call itself waits. */
    if (kind == cudaMemcpyDeviceToHost && range_of(to).kind == UNKNOWN_TO_CUDA) {
        count("pageable device-to-host copy");
        if (is_capturing(stream)) return failed(invalidate(stream, __func__));
        note_wait(__func__);
        wait_until(stream->busy_until);
    }
    if (kind == cudaMemcpyDeviceToHost && is_ahead(stream)) note_overtaking(__func__);
    if (!is_capturing(stream)) memmove(to, from, size);
    work(stream, 2000 + size / 20);
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t size, enum cudaMemcpyKind kind) {
    ENTER;
    UNSAFE;
    (void)kind;
    note_wait(__func__);
    memmove(to, from, size);
    return cudaSuccess;
}

cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t size, cudaStream_t stream) {
    ENTER;
    (void)to_device, (void)from_device;
    memmove(to, from, size);
    work(stream_of(stream), 2000 + size / 20);
    return cudaSuccess;
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
                              enum cudaMemcpyKind kind, cudaStream_t stream) {
    ENTER;
    (void)kind;
    for (size_t row = 0; row < height; row++)
        memmove((char *)to + row * to_pitch, (const char *)from + row * from_pitch, width);
    work(stream_of(stream), 2000 + width * height / 20);
    return cudaSuccess;
}

/* Zeros of whole pages are those that the system has not given yet. */
static void fill(char *at, int value, size_t size) {
    uintptr_t page = 4096, begin = ((uintptr_t)at + page - 1) & ~(page - 1), end = ((uintptr_t)at + size) & ~(page - 1);
    if (value || end <= begin || madvise((void *)begin, end - begin, MADV_DONTNEED)) {
        memset(at, value, size);
        return;
    }
    memset(at, 0, begin - (uintptr_t)at);
    memset((void *)end, 0, (uintptr_t)at + size - end);
}

cudaError_t cudaMemset(void *at, int value, size_t size) {
    ENTER;
    UNSAFE;
    fill(at, value, size);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *at, int value, size_t size, cudaStream_t stream) {
    ENTER;
    if (!is_capturing(stream_of(stream))) fill(at, value, size);
    work(stream_of(stream), 1000);
    return cudaSuccess;
}
