/* libnvidia-ml.so.1, by the ABI of nvml.h: what the driver of the imaginary machine answers.
 *
 * The file named by FAKE_NVML_FAILS, once it exists, holds a code that every further call returns: the GPU is lost in mid-run.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "machine.h"

enum { SUCCESS, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7 };
enum { ARGUMENT_VERSION_MISMATCH = 25, UNKNOWN = 999 };
static const unsigned long long NOT_AVAILABLE = ~0ULL;

typedef struct {
    unsigned long long total, free, used;
} Memory;
typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} MemoryV2;
typedef struct {
    unsigned gpu, memory;
} Utilisation;
typedef struct {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
} ProcessInfo;
_Static_assert(sizeof(MemoryV2) == 40 && sizeof(ProcessInfo) == 24, "as in nvml.h");

static Machine machine;
static int is_open;

static int failing(const char *function) {
    const char *path = getenv("FAKE_NVML_FAILS");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (file) {
        int code;
        if (fscanf(file, "%d", &code) != 1) code = UNKNOWN;
        fclose(file);
        return code;
    }
    for (int i = 0; i < machine.refusals; i++)
        if (!strcmp(machine.refused[i].function, function) || !strcmp(machine.refused[i].function, "all"))
            return machine.refused[i].code;
    return is_open ? SUCCESS : UNINITIALIZED;
}
#define BEGIN do { int code_ = failing(__func__); if (code_ != SUCCESS) return code_; } while (0)

static unsigned long long own_bytes(Device *device) {
    static unsigned long long (*used)(const char *);
    if (!used) {
        void *runtime = dlopen("libcudart.so.13", RTLD_NOW | RTLD_NOLOAD);
        if (runtime) used = (unsigned long long (*)(const char *))dlsym(runtime, "fake_cuda_used");
        if (!used) return 0;
    }
    unsigned long long bytes = used(device->uuid);
    for (int i = 0; i < device->instances; i++) bytes += used(device->instance[i]->uuid);
    return bytes;
}

static int copy_text(const char *from, char *to, unsigned room) {
    if (strlen(from) >= room) return INSUFFICIENT_SIZE;
    strcpy(to, from);
    return SUCCESS;
}

/* ---- the library itself ---- */

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    read_machine(&machine);
    is_open = 1;
    int code = failing(__func__);
    if (code != SUCCESS) is_open = 0;
    return code;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlInit(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { BEGIN; is_open = 0; return SUCCESS; }

const char *nvmlErrorString(int code) {
    switch (code) {
    case SUCCESS: return "Success";
    case UNINITIALIZED: return "Uninitialized";
    case INVALID_ARGUMENT: return "Invalid Argument";
    case NOT_SUPPORTED: return "Not Supported";
    case NO_PERMISSION: return "Insufficient Permissions";
    case NOT_FOUND: return "Not Found";
    case INSUFFICIENT_SIZE: return "Insufficient Size";
    case 9: return "Driver Not Loaded";
    case 15: return "GPU is lost";
    case 18: return "Driver/library version mismatch";
    default: return "Unknown Error";
    }
}

int nvmlSystemGetCudaDriverVersion(int *version) { BEGIN; *version = 13000; return SUCCESS; }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { BEGIN; *version = 13000; return SUCCESS; }
int nvmlSystemGetDriverVersion(char *text, unsigned room) { BEGIN; return copy_text("580.65.06", text, room); }
int nvmlSystemGetNVMLVersion(char *text, unsigned room) { BEGIN; return copy_text("13.580.65.06", text, room); }

/* ---- handles ---- */

int nvmlDeviceGetCount_v2(unsigned *count) { BEGIN; *count = machine.gpus; return SUCCESS; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **device) {
    BEGIN;
    if (index >= (unsigned)machine.gpus) return INVALID_ARGUMENT;
    *device = machine.gpu[index];
    return SUCCESS;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, Device **device) {
    BEGIN;
    for (int i = 0; i < machine.gpus; i++) {
        Device *gpu = machine.gpu[i];
        if (!strcmp(gpu->uuid, uuid)) return *device = gpu, SUCCESS;
        for (int place = 0; place < gpu->instances; place++)
            if (!strcmp(gpu->instance[place]->uuid, uuid)) return *device = gpu->instance[place], SUCCESS;
    }
    return NOT_FOUND;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *pci, Device **device) {
    unsigned asked[3], known[3];
    BEGIN;
    if (sscanf(pci, "%x:%x:%x", &asked[0], &asked[1], &asked[2]) != 3) return INVALID_ARGUMENT;
    for (int i = 0; i < machine.gpus; i++) {
        sscanf(machine.gpu[i]->pci, "%x:%x:%x", &known[0], &known[1], &known[2]);
        if (!memcmp(asked, known, sizeof asked)) return *device = machine.gpu[i], SUCCESS;
    }
    return NOT_FOUND;
}

/* ---- divided GPUs (MIG) ---- */

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

int nvmlDeviceIsMigDeviceHandle(Device *device, unsigned *is_instance) { BEGIN; *is_instance = !!device->gpu; return SUCCESS; }

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Device *instance, Device **gpu) {
    BEGIN;
    if (!instance->gpu) return INVALID_ARGUMENT;
    *gpu = instance->gpu;
    return SUCCESS;
}

/* ---- what is known of a device ---- */

int nvmlDeviceGetName(Device *device, char *text, unsigned room) { BEGIN; return copy_text(device->name, text, room); }
int nvmlDeviceGetUUID(Device *device, char *text, unsigned room) { BEGIN; return copy_text(device->uuid, text, room); }

int nvmlDeviceGetMemoryInfo(Device *device, Memory *memory) {
    BEGIN;
    if (device->used < 0) return NO_PERMISSION;
    memory->total = device->total, memory->used = device->used + own_bytes(device) + device->reserved;
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(Device *device, MemoryV2 *memory) {
    BEGIN;
    if (memory->version != (sizeof *memory | 2u << 24)) return ARGUMENT_VERSION_MISMATCH;
    if (device->used < 0) return NO_PERMISSION;
    memory->total = device->total, memory->used = device->used + own_bytes(device), memory->reserved = device->reserved;
    memory->free = memory->total - memory->used - memory->reserved;
    return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(Device *device, Utilisation *rates) {
    BEGIN;
    if (device->load < 0) return NOT_SUPPORTED;
    rates->gpu = device->load, rates->memory = 0;
    return SUCCESS;
}

/* ---- temperature, power, clocks ---- */

#define CONDITION(name, type, field, value) \
    int name(Device *device, value) { \
        BEGIN; \
        if (!device->has_condition) return NOT_SUPPORTED; \
        *answer = (type)device->field; \
        return SUCCESS; \
    }
CONDITION(nvmlDeviceGetPowerUsage, unsigned, milliwatts, unsigned *answer)
CONDITION(nvmlDeviceGetEnforcedPowerLimit, unsigned, limit, unsigned *answer)
CONDITION(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, reasons, unsigned long long *answer)
#define OF_A_KIND(name, field) \
    int name(Device *device, unsigned kind, unsigned *answer) { \
        BEGIN; \
        (void)kind; \
        if (!device->has_condition) return NOT_SUPPORTED; \
        *answer = device->field; \
        return SUCCESS; \
    }
OF_A_KIND(nvmlDeviceGetTemperature, celsius)
OF_A_KIND(nvmlDeviceGetClockInfo, mhz)
OF_A_KIND(nvmlDeviceGetMaxClockInfo, highest)

/* ---- processes ---- */

static int list(Device *device, char kind, unsigned *count, ProcessInfo *infos) {
    unsigned found = 0, room = *count;
    unsigned long long own = kind == 'c' ? own_bytes(device) : 0;
    Process all[MOST + 1];
    for (int i = 0; i < device->processes; i++)
        if (device->process[i].kind == kind) all[found++] = device->process[i];
    if (own) all[found++] = (Process){strcmp(machine.lists, "renumbered") ? getpid() : 4000000, own, 'c'};
    if (!strcmp(machine.lists, "hidden")) found = 0;
    *count = found;
    if (found > room || (found && !infos)) return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < found; i++) {
        int is_known = all[i].bytes >= 0 && strcmp(machine.lists, "unavailable");
        infos[i] = (ProcessInfo){all[i].pid, is_known ? (unsigned long long)all[i].bytes : NOT_AVAILABLE, ~0u, ~0u};
    }
    return SUCCESS;
}

#define LIST(name, kind) \
    int name(Device *device, unsigned *count, ProcessInfo *infos) { BEGIN; return list(device, kind, count, infos); }
LIST(nvmlDeviceGetComputeRunningProcesses, 'c')
LIST(nvmlDeviceGetComputeRunningProcesses_v3, 'c')
LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, 'g')
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, 'm')

/* torch asks these of links between devices: there are none. */
int nvmlDeviceGetNvLinkRemoteDeviceType(void) { return NOT_SUPPORTED; }
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void) { return NOT_SUPPORTED; }
