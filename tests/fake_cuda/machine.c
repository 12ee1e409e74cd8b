#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "machine.h"

static const char *ONE_H100 =
    "gpu NVIDIA_H100_80GB_HBM3 GPU-8932f937-d72c-4106-c12f-20bd9faed9f0 00000000:3B:00.0 0 86423633920 524288000 73 0";

static void describe(Machine *machine, Device **now, const char *line) {
    Device *made = calloc(1, sizeof *made), *gpu = machine->gpus ? machine->gpu[machine->gpus - 1] : NULL;
    char uuid[96], kind[16], function[64];
    long long used, total;
    unsigned pid;
    int code;
    if (sscanf(line, "gpu %95s %95s %31s %lld %lld %lld %d %d", made->name, made->uuid, made->pci, &made->used, &made->total,
               &made->reserved, &made->load, &made->mig) == 8 && machine->gpus < MOST) {
        for (char *each = made->name; *each; each++)
            if (*each == '_') *each = ' ';
        machine->gpu[machine->gpus++] = *now = made;
    } else if (gpu && sscanf(line, "instance %95s %lld %lld", uuid, &used, &total) == 3 && gpu->instances < MOST) {
        strcpy(made->uuid, uuid);
        snprintf(made->name, sizeof made->name, "%.80s MIG", gpu->name);
        strcpy(made->pci, gpu->pci);
        made->used = used, made->total = total, made->load = made->mig = -1, made->gpu = gpu;
        gpu->instance[gpu->instances++] = *now = made;
    } else if (gpu && sscanf(line, "condition %u %u %u %u %u %x", &gpu->celsius, &gpu->milliwatts, &gpu->limit, &gpu->mhz,
                             &gpu->highest, &gpu->reasons) == 6) {
        gpu->has_condition = 1;
    } else if (sscanf(line, "processes %15s", kind) == 1) {
        strcpy(machine->lists, kind);
    } else if (sscanf(line, "refuse %63s %d", function, &code) == 2 && machine->refusals < MOST) {
        strcpy(machine->refused[machine->refusals].function, function);
        machine->refused[machine->refusals++].code = code;
    } else if (*now && sscanf(line, "%15s %u %lld", kind, &pid, &used) == 3 && (*now)->processes < MOST) {
        (*now)->process[(*now)->processes++] = (Process){pid, used, kind[0]};
    } else if (*line) {
        fprintf(stderr, "fake CUDA: no machine has \"%s\"\n", line);
    }
}

void read_machine(Machine *machine) {
    const char *given = getenv("FAKE_CUDA_MACHINE");
    char *text = strdup(given ? given : ONE_H100), *rest = text, *line;
    Device *now = NULL;
    memset(machine, 0, sizeof *machine);
    while ((line = strsep(&rest, "\n"))) describe(machine, &now, line);
    free(text);
}
