/* Which devices CUDA shows to this process, and what it tells of them. */
#include "runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__thread int current_device;
int device_count;
static Device *devices[MOST];
static size_t context_bytes;
static int contexts[MOST];

/* ---- CUDA_VISIBLE_DEVICES ---- */

static Device *first_instance(Device *gpu) {
    for (int i = 0; i < gpu->instances; i++)
        if (strcmp(gpu->instance[i]->uuid, "-")) return gpu->instance[i];
    return NULL;
}

/* The only device whose UUID begins with `prefix`. */
static Device *named(const Machine *machine, const char *prefix) {
    Device *found = NULL;
    int matches = 0;
    for (int i = 0; i < machine->gpus; i++) {
        Device *gpu = machine->gpu[i];
        if (!strncmp(gpu->uuid, prefix, strlen(prefix))) found = gpu, matches++;
        for (int place = 0; place < gpu->instances; place++)
            if (!strncmp(gpu->instance[place]->uuid, prefix, strlen(prefix))) found = gpu->instance[place], matches++;
    }
    return matches == 1 ? found : NULL;
}

static Device *numbered(const Machine *machine, const char *text) {
    char *end;
    long index = strtol(text, &end, 10);
    return end != text && index >= 0 && index < machine->gpus ? machine->gpu[index] : NULL;
}

/* Returns 0 if no device comes after. An entry that is wrong ends the list, one that is there twice hides all devices, and an
 * instance of a divided GPU is alone. */
static int add(Device *device) {
    if (device && device->mig == 1) device = first_instance(device);
    if (!device || (device->gpu && device_count) || device_count == MOST) return 0;
    for (int i = 0; i < device_count; i++)
        if (devices[i] == device) return device_count = 0;
    devices[device_count++] = device;
    return !device->gpu;
}

void find_devices(void) {
    static Machine machine;
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    char *text = strdup(visible ? visible : ""), *rest = text, *entry;
    read_machine(&machine);
    context_bytes = size_from_environment("FAKE_CUDA_CONTEXT", 500 << 20);
    if (!visible)
        for (int i = 0; i < machine.gpus && add(machine.gpu[i]); i++) continue;
    else
        while ((entry = strsep(&rest, ","))) {
            int is_name = !strncmp(entry, "GPU-", 4) || !strncmp(entry, "MIG-", 4);
            if (!add(is_name ? named(&machine, entry) : numbered(&machine, entry))) break;
        }
    free(text);
}

const Device *device_at(int index) { return devices[index]; }

size_t capacity(int device) {
    const Device *of = devices[device];
    long long left = of->total - of->reserved - (of->used > 0 ? of->used : 0);
    return left > 0 ? left : 0;
}

/* ---- contexts ---- */

void use(int device) {
    if (!contexts[device]) contexts[device] = 1, claim(device, context_bytes);
}

int has_context(int device) { return contexts[device]; }

unsigned long long fake_cuda_used(const char *uuid) {
    for (int i = 0; i < device_count; i++)
        if (!strcmp(devices[i]->uuid, uuid)) return claimed(i);
    return 0;
}

/* ---- what CUDA tells ---- */

cudaError_t cudaGetDeviceCount(int *found) {
    ENTER;
    *found = device_count;
    return device_count ? cudaSuccess : failed(cudaErrorNoDevice);
}

cudaError_t cudaGetDevice(int *device) {
    ENTER;
    *device = current_device;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
    ENTER;
    if (device < 0 || device >= device_count) return failed(cudaErrorInvalidDevice);
    current_device = device;
    use(device);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
    ENTER;
    (void)device;
    switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = 9; break;
    case cudaDevAttrComputeCapabilityMinor: *value = 0; break;
    case cudaDevAttrMultiProcessorCount: *value = 132; break;
    case cudaDevAttrWarpSize: *value = 32; break;
    default: *value = 1;
    }
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int room, int device) {
    ENTER;
    snprintf(text, room, "%s", devices[device]->pci + 4);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    ENTER;
    *least = 0, *greatest = -5;
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) {
    ENTER;
    *can = device != peer;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version) { return *version = 13000, cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int *version) { return *version = 13000, cudaSuccess; }

static void read_uuid(const char *text, char *bytes) {
    unsigned value;
    text += 4; /* "GPU-" or "MIG-" */
    for (int i = 0; i < 16; text += *text == '-')
        if (sscanf(text, "%2x", &value) != 1) break;
        else bytes[i++] = value, text += 2;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *told, int device) {
    ENTER;
    const Device *of = devices[device];
    unsigned place[3] = {0};
    memset(told, 0, sizeof *told);
    strcpy(told->name, of->name);
    read_uuid(of->uuid, told->uuid.bytes);
    sscanf(of->pci, "%x:%x:%x", &place[0], &place[1], &place[2]);
    told->pciDomainID = place[0], told->pciBusID = place[1], told->pciDeviceID = place[2];
    told->totalGlobalMem = of->total - of->reserved;
    told->major = 9;
    told->multiProcessorCount = 132;
    told->warpSize = 32;
    told->maxThreadsPerBlock = 1024, told->maxThreadsPerMultiProcessor = 2048, told->maxBlocksPerMultiProcessor = 32;
    told->maxThreadsDim[0] = told->maxThreadsDim[1] = 1024, told->maxThreadsDim[2] = 64;
    told->maxGridSize[0] = 2147483647, told->maxGridSize[1] = told->maxGridSize[2] = 65535;
    told->sharedMemPerBlock = 49152, told->sharedMemPerBlockOptin = 232448, told->sharedMemPerMultiprocessor = 233472;
    told->regsPerBlock = told->regsPerMultiprocessor = told->totalConstMem = 65536;
    told->l2CacheSize = 50 << 20;
    told->asyncEngineCount = 3;
    told->textureAlignment = 512;
    told->unifiedAddressing = told->ECCEnabled = told->concurrentKernels = told->canMapHostMemory = told->managedMemory = 1;
    told->memoryPoolsSupported = told->cooperativeLaunch = 1;
    return cudaSuccess;
}
