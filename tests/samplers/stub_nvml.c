/* A libnvidia-ml.so.1 for tests: what the driver of an imaginary machine answers, by the ABI of nvml.h.
 *
 * The machine is described by the environment variable STUB_NVML, one item a line:
 *
 *     gpu NAME UUID PCI USED TOTAL RESERVED LOAD MIG     LOAD and MIG: -1 for NOT_SUPPORTED; USED: -1 for NO_PERMISSION
 *     instance UUID USED TOTAL                           of the gpu before it; UUID: - for an empty place
 *     compute PID BYTES, graphics PID BYTES, mps PID BYTES   of the gpu or instance before it; BYTES: -1 for NOT_AVAILABLE
 *     refuse FUNCTION CODE                               this function returns this code
 *
 * The file named by STUB_NVML_FAILS, once it exists, holds a code that every further call returns.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7 };
enum { MOST = 16 };
static const unsigned long long NOT_AVAILABLE = ~0ULL;

typedef struct { unsigned pid; long long bytes; int kind; } Process;
typedef struct Device {
    char name[96], uuid[96], pci[32];
    long long used, total, reserved;
    int load, mig, is_instance, processes, instances;
    Process process[MOST];
    struct Device *instance[MOST];
} Device;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } MemoryV2;
typedef struct { unsigned gpu, memory; } Utilisation;
typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } ProcessInfo;
_Static_assert(sizeof(MemoryV2) == 40 && sizeof(ProcessInfo) == 24, "as in nvml.h");

static Device *gpus[MOST];
static int gpu_count, is_open, refusals;
static struct { char function[64]; int code; } refused[MOST];

static int failing(const char *function) {
    const char *path = getenv("STUB_NVML_FAILS");
    FILE *file = path ? fopen(path, "r") : NULL;
    int code = SUCCESS, i;
    if (file) {
        if (fscanf(file, "%d", &code) != 1) code = 999;
        fclose(file);
        return code;
    }
    for (i = 0; i < refusals; i++)
        if (!strcmp(refused[i].function, function)) return refused[i].code;
    return is_open ? SUCCESS : UNINITIALIZED;
}
#define BEGIN do { int code = failing(__func__); if (code != SUCCESS) return code; } while (0)

static void describe(const char *line, Device **now) {
    char uuid[96], kind[16];
    long long used, total;
    unsigned pid;
    Device *made = calloc(1, sizeof *made), *gpu = gpu_count ? gpus[gpu_count - 1] : NULL;
    if (sscanf(line, "gpu %95s %95s %31s %lld %lld %lld %d %d", made->name, made->uuid, made->pci, &made->used, &made->total,
               &made->reserved, &made->load, &made->mig) == 8) {
        gpus[gpu_count++] = *now = made;
    } else if (gpu && sscanf(line, "instance %95s %lld %lld", uuid, &used, &total) == 3) {
        strcpy(made->uuid, uuid);
        snprintf(made->name, sizeof made->name, "%.80s_MIG", gpu->name);
        made->used = used, made->total = total, made->load = made->mig = -1, made->is_instance = 1;
        gpu->instance[gpu->instances++] = *now = made;
    } else if (*now && sscanf(line, "%15s %u %lld", kind, &pid, &used) == 3) {
        Process *process = &(*now)->process[(*now)->processes++];
        process->pid = pid, process->bytes = used, process->kind = kind[0];
    } else if (sscanf(line, "refuse %63s %d", refused[refusals].function, &refused[refusals].code) == 2) {
        refusals++;
    }
}

int nvmlInitWithFlags(unsigned flags) {
    const char *given = getenv("STUB_NVML");
    char *text = strdup(given ? given : ""), *rest = text, *line;
    Device *now = NULL;
    (void)flags;
    is_open = 1, gpu_count = refusals = 0;
    while ((line = strsep(&rest, "\n"))) describe(line, &now);
    free(text);
    BEGIN;
    return SUCCESS;
}

int nvmlShutdown(void) { BEGIN; is_open = 0; return SUCCESS; }

int nvmlDeviceGetCount_v2(unsigned *count) { BEGIN; *count = gpu_count; return SUCCESS; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **device) {
    BEGIN;
    if (index >= (unsigned)gpu_count) return INVALID_ARGUMENT;
    *device = gpus[index];
    return SUCCESS;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, Device **device) {
    int gpu, place;
    BEGIN;
    for (gpu = 0; gpu < gpu_count; gpu++) {
        if (!strcmp(gpus[gpu]->uuid, uuid)) return *device = gpus[gpu], SUCCESS;
        for (place = 0; place < gpus[gpu]->instances; place++)
            if (!strcmp(gpus[gpu]->instance[place]->uuid, uuid)) return *device = gpus[gpu]->instance[place], SUCCESS;
    }
    return NOT_FOUND;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *pci, Device **device) {
    int gpu;
    BEGIN;
    for (gpu = 0; gpu < gpu_count; gpu++)
        if (!strcmp(gpus[gpu]->pci, pci)) return *device = gpus[gpu], SUCCESS;
    return NOT_FOUND;
}

int nvmlDeviceGetMigMode(Device *device, unsigned *current, unsigned *pending) {
    BEGIN;
    if (device->mig < 0) return NOT_SUPPORTED;
    *current = *pending = device->mig;
    return SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(Device *device, unsigned *count) { BEGIN; *count = device->instances; return SUCCESS; }

int nvmlDeviceGetMigDeviceHandleByIndex(Device *device, unsigned index, Device **instance) {
    BEGIN;
    if (index >= (unsigned)device->instances) return INVALID_ARGUMENT;
    if (!strcmp(device->instance[index]->uuid, "-")) return NOT_FOUND;
    *instance = device->instance[index];
    return SUCCESS;
}

int nvmlDeviceGetName(Device *device, char *name, unsigned length) {
    BEGIN;
    if (strlen(device->name) >= length) return INSUFFICIENT_SIZE;
    strcpy(name, device->name);
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(Device *device, Memory *memory) {
    BEGIN;
    if (device->used < 0) return NO_PERMISSION;
    memory->total = device->total, memory->used = device->used + device->reserved;
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(Device *device, MemoryV2 *memory) {
    BEGIN;
    if (memory->version != (sizeof *memory | 2u << 24)) return 25; /* ARGUMENT_VERSION_MISMATCH */
    if (device->used < 0) return NO_PERMISSION;
    memory->total = device->total, memory->used = device->used, memory->reserved = device->reserved;
    memory->free = memory->total - memory->used - memory->reserved;
    return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(Device *device, Utilisation *rates) {
    BEGIN;
    if (device->load < 0) return NOT_SUPPORTED;
    rates->gpu = device->load, rates->memory = 0;
    return SUCCESS;
}

static int list(Device *device, int kind, unsigned *count, ProcessInfo *infos) {
    unsigned found = 0, room = *count;
    int i;
    for (i = 0; i < device->processes; i++) {
        if (device->process[i].kind != kind) continue;
        if (infos && found < room) {
            infos[found].pid = device->process[i].pid;
            infos[found].used = device->process[i].bytes < 0 ? NOT_AVAILABLE : (unsigned long long)device->process[i].bytes;
            infos[found].gpu_instance = infos[found].compute_instance = ~0u;
        }
        found++;
    }
    *count = found;
    return found > room || (found && !infos) ? INSUFFICIENT_SIZE : SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(Device *d, unsigned *count, ProcessInfo *infos) { BEGIN; return list(d, 'c', count, infos); }
int nvmlDeviceGetGraphicsRunningProcesses_v3(Device *d, unsigned *count, ProcessInfo *infos) { BEGIN; return list(d, 'g', count, infos); }
int nvmlDeviceGetMPSComputeRunningProcesses_v3(Device *d, unsigned *count, ProcessInfo *infos) { BEGIN; return list(d, 'm', count, infos); }
