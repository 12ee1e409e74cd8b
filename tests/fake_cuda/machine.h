/* The imaginary machine, which the runtime and the driver's library each read from the environment variable FAKE_CUDA_MACHINE.
 *
 * One item a line:
 *
 *     gpu NAME UUID PCI USED TOTAL RESERVED LOAD MIG
 *         an underscore in NAME is a blank; USED: bytes of other processes, -1 for NO_PERMISSION; RESERVED: bytes of the driver
 *         itself; LOAD (percent) and MIG (1: divided, 0: not): -1 for NOT_SUPPORTED
 *     instance UUID USED TOTAL
 *         of the gpu before it, which is divided (MIG); UUID: - for an empty place
 *     compute PID BYTES, graphics PID BYTES, mps PID BYTES
 *         a process on the gpu or instance before it; BYTES: -1 for NOT_AVAILABLE
 *     condition CELSIUS MILLIWATTS LIMIT MHZ HIGHEST REASONS
 *         of the gpu before it: temperature, power and its limit, clock of the multiprocessors and the highest, and the bits of
 *         nvmlClocksEventReasons; without it NVML tells none of these
 *     processes hidden|unavailable|renumbered
 *         how the driver's lists differ from the truth: they are empty, have no figures, or this process has another number
 *     refuse FUNCTION CODE
 *         this function of the driver's library returns this code; all: each of them
 *
 * Without the variable there is one H100 of 80 GiB.
 */
#ifndef MACHINE_H
#define MACHINE_H

enum { MOST = 16 };

typedef struct {
    unsigned pid;
    long long bytes;
    char kind; /* the first letter of its line */
} Process;

typedef struct Device {
    char name[96], uuid[96], pci[32];
    long long used, total, reserved;
    int load, mig, has_condition;
    unsigned celsius, milliwatts, limit, mhz, highest, reasons;
    struct Device *gpu; /* of an instance; else NULL */
    int processes, instances;
    Process process[MOST];
    struct Device *instance[MOST];
} Device;

typedef struct {
    int gpus, refusals;
    Device *gpu[MOST];
    char lists[16];
    struct {
        char function[64];
        int code;
    } refused[MOST];
} Machine;

void read_machine(Machine *machine);

/* Bytes of this process on a device, context included: of the runtime if it is loaded. */
unsigned long long fake_cuda_used(const char *uuid);

#endif
