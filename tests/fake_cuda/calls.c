/* Which functions were called, by which kind of thread, and where the host waited: for tests to read. */
#include "runtime.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

enum { MOST_NAMES = 200 };
static struct {
    const char *name;
    long main_thread, others;
} counts[MOST_NAMES];
static int names, violations, waits;
static pid_t first_pid;
static __thread cudaError_t last_error;

/* Write the counts as JSON: calls of each function on the main thread and on others. */
void fake_cuda_report(char *to, size_t room) {
    pthread_mutex_lock(&lock);
    size_t at = snprintf(to, room, "{\"violations\": %d, \"waits\": %d, \"calls\": {", violations, waits);
    for (int i = 0; i < names && at < room; i++)
        at += snprintf(to + at, room - at, "%s\"%s\": [%ld, %ld]", i ? ", " : "", counts[i].name, counts[i].main_thread,
                       counts[i].others);
    if (at < room) snprintf(to + at, room - at, "}}");
    pthread_mutex_unlock(&lock);
}

static void write_log(void) {
    const char *path = getenv("FAKE_CUDA_LOG");
    if (!path || getpid() != first_pid) return;
    FILE *file = fopen(path, "a");
    if (!file) return;
    char text[1 << 14];
    fake_cuda_report(text, sizeof text);
    fprintf(file, "%s\n", text);
    fclose(file);
}

size_t size_from_environment(const char *name, size_t otherwise) {
    const char *value = getenv(name);
    return value && *value ? strtoull(value, NULL, 0) : otherwise;
}

void count(const char *name) {
    int is_main = syscall(SYS_gettid) == getpid(), i = 0;
    pthread_mutex_lock(&lock);
    while (i < names && counts[i].name != name) i++;
    if (i == names && names < MOST_NAMES) counts[names++].name = name;
    if (i < names) ++*(is_main ? &counts[i].main_thread : &counts[i].others);
    pthread_mutex_unlock(&lock);
}

cudaError_t entered(const char *function) {
    pthread_mutex_lock(&lock);
    if (!first_pid) {
        first_pid = getpid();
        find_devices();
        kernel_ns = size_from_environment("FAKE_CUDA_KERNEL_US", 5) * 1000;
        atexit(write_log);
    }
    pthread_mutex_unlock(&lock);
    count(function);
    return getpid() == first_pid ? cudaSuccess : cudaErrorInitializationError;
}

/* Append the Python stack of the calling thread to the file that FAKE_CUDA_TRACE names. */
static void trace(const char *what, const char *function) {
    const char *path = getenv("FAKE_CUDA_TRACE");
    int file = path ? open(path, O_WRONLY | O_CREAT | O_APPEND, 0644) : -1;
    if (file < 0) return;
    dprintf(file, "== %s %s\n", what, function);
    void *(*state)(void) = (void *(*)(void))dlsym(RTLD_DEFAULT, "PyGILState_GetThisThreadState");
    void (*write_stack)(int, void *) = (void (*)(int, void *))dlsym(RTLD_DEFAULT, "_Py_DumpTraceback");
    void *mine = state ? state() : NULL;
    if (mine && write_stack) write_stack(file, mine);
    else dprintf(file, "  (no Python on this thread)\n");
    close(file);
}

void note_wait(const char *function) {
    __atomic_add_fetch(&waits, 1, __ATOMIC_RELAXED);
    trace("WAIT", function);
}

void note_overtaking(const char *function) {
    count("overtaking copy");
    trace("OVERTAKING", function);
}

void note_violation(const char *function) {
    __atomic_add_fetch(&violations, 1, __ATOMIC_RELAXED);
    trace("VIOLATION", function);
    fprintf(stderr, "fake CUDA: %s during a capture\n", function);
}

/* ---- errors ---- */

cudaError_t failed(cudaError_t code) { return last_error = code; }

cudaError_t cudaGetLastError(void) {
    cudaError_t code = last_error;
    last_error = cudaSuccess;
    return code;
}

cudaError_t cudaPeekAtLastError(void) { return last_error; }

const char *cudaGetErrorString(cudaError_t code) {
    switch (code) {
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInitializationError: return "initialization error";
    case cudaErrorNoDevice: return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorInvalidResourceHandle: return "invalid resource handle";
    case cudaErrorNotReady: return "device not ready";
    case cudaErrorStreamCaptureUnsupported: return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated: return "operation failed due to a previous error during capture";
    case cudaErrorStreamCaptureIsolation: return "dependency created on uncaptured work in another stream";
    case cudaErrorCapturedEvent: return "operation not permitted on an event last recorded in a capturing stream";
    default: return "an error of the simulated device";
    }
}

const char *cudaGetErrorName(cudaError_t code) {
    switch (code) {
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorStreamCaptureUnsupported: return "cudaErrorStreamCaptureUnsupported";
    default: return "cudaError";
    }
}
