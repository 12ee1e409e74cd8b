/* What the parts of the runtime share. */
#ifndef RUNTIME_H
#define RUNTIME_H
#define _GNU_SOURCE
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "machine.h"

extern pthread_mutex_t lock; /* recursive */

/* ---- calls.c ---- */

/* Note a call. Returns an error if the process is a fork of one that has initialised CUDA. */
cudaError_t entered(const char *function);
void count(const char *name);
cudaError_t failed(cudaError_t code);
/* Note that the calling thread waits for the device. */
void note_wait(const char *function);
/* Note a copy to the host that may begin before other streams have written what it reads. */
void note_overtaking(const char *function);
/* Note a call that a capture forbids. */
void note_violation(const char *function);
size_t size_from_environment(const char *name, size_t otherwise);

#define ENTER do { cudaError_t code_ = entered(__func__); if (code_) return failed(code_); } while (0)

/* ---- devices.c ---- */

extern __thread int current_device;
extern int device_count;
void find_devices(void);
const Device *device_at(int index);
/* Bytes that this process may take of a device. */
size_t capacity(int device);
/* Make a device's context, as any use of the device does. */
void use(int device);
int has_context(int device);

/* ---- memory.c ---- */

typedef enum { UNKNOWN_TO_CUDA, ON_DEVICE, PINNED, REGISTERED } Kind;
/* Take bytes of a device's memory. Returns 0 if there are not so many. */
int claim(int device, size_t size);
void release(int device, size_t size);
size_t claimed(int device);
/* Reserve addresses. Nothing of the host's memory is used until it is written to. */
void *map_range(size_t size, Kind kind, int device);
/* Returns the size. */
size_t unmap_range(void *at);

/* ---- streams.c, captures.c ---- */

typedef struct Capture {
    unsigned long long id;
    enum cudaStreamCaptureMode mode;
    long owner; /* thread */
    enum cudaStreamCaptureStatus status;
    long nodes;
} Capture;

struct CUstream_st {
    long long busy_until; /* ns of CLOCK_MONOTONIC, as are all times */
    int device, priority;
    Capture *capture; /* may be over */
};

cudaStream_t stream_of(cudaStream_t given);
int is_capturing(cudaStream_t stream);
long long now(void);
/* Give a stream work that takes `ns`. */
void work(cudaStream_t stream, long ns);
/* Whether work that the stream is given now may begin before earlier work of other streams of its device has ended. */
int is_ahead(cudaStream_t stream);
void wait_until(long long time);
/* Apply the rules of captures to a call that may be unsafe: it is an error, and the captures that forbid it are invalid. */
cudaError_t unsafe(const char *function);
/* The same for a call that needs an answer from what a capture only records. */
cudaError_t invalidate(cudaStream_t stream, const char *function);

#define UNSAFE do { cudaError_t code_ = unsafe(__func__); if (code_) return failed(code_); } while (0)

/* ---- launches.c ---- */

extern long kernel_ns;

#endif
