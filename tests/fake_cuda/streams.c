/* Streams and events. A device's time is simulated: work makes its stream busy, events complete later, and waiting sleeps. */
#include "runtime.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

struct CUevent_st {
    long long at;
    int is_recorded, is_timing, device;
    Capture *capture; /* in which it was recorded last */
};
enum { MOST_AHEAD = 1024 }; /* kernels in the queue of a stream */
static struct CUstream_st default_streams[MOST];
static long long busy_until[MOST];

long long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

void wait_until(long long time) {
    long long left = time - now();
    if (left <= 0) return;
    struct timespec rest = {left / 1000000000LL, left % 1000000000LL};
    while (nanosleep(&rest, &rest) && errno == EINTR) continue;
}

void work(cudaStream_t stream, long ns) {
    if (is_capturing(stream)) {
        stream->capture->nodes++;
        count("captured node");
        return;
    }
    /* The host waits where it is too far ahead, which is no call that waits for the device. */
    wait_until(stream->busy_until - MOST_AHEAD * kernel_ns);
    long long begin = now();
    if (stream->busy_until > begin) begin = stream->busy_until;
    stream->busy_until = begin + ns;
    if (stream->busy_until > busy_until[stream->device]) busy_until[stream->device] = stream->busy_until;
}

int is_ahead(cudaStream_t stream) {
    long long begin = now();
    if (is_capturing(stream)) return 0;
    if (stream->busy_until > begin) begin = stream->busy_until;
    return begin < busy_until[stream->device];
}

/* ---- streams ---- */

cudaStream_t stream_of(cudaStream_t given) {
    if ((uintptr_t)given > 2) return given; /* 1 and 2 are names of the default stream */
    default_streams[current_device].device = current_device;
    return &default_streams[current_device];
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *made, unsigned flags, int priority) {
    ENTER;
    (void)flags;
    use(current_device);
    *made = calloc(1, sizeof **made);
    (*made)->device = current_device;
    (*made)->priority = priority;
    return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *made) { return cudaStreamCreateWithPriority(made, 0, 0); }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *made, unsigned flags) {
    return cudaStreamCreateWithPriority(made, flags, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    ENTER;
    free(stream);
    return cudaSuccess;
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority) {
    ENTER;
    *priority = stream_of(stream)->priority;
    return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
    ENTER;
    UNSAFE;
    return stream_of(stream)->busy_until > now() ? failed(cudaErrorNotReady) : cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t given) {
    ENTER;
    cudaStream_t stream = stream_of(given);
    if (is_capturing(stream)) return failed(invalidate(stream, __func__));
    UNSAFE;
    note_wait(__func__);
    wait_until(stream->busy_until);
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void) {
    ENTER;
    UNSAFE;
    note_wait(__func__);
    use(current_device);
    wait_until(busy_until[current_device]);
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t given, cudaEvent_t event, unsigned flags) {
    ENTER;
    (void)flags;
    cudaStream_t stream = stream_of(given);
    if (!event->is_recorded) return cudaSuccess;
    if (event->capture) {
        /* The stream joins the capture that the event is part of. */
        if (!is_capturing(stream)) stream->capture = event->capture;
        return cudaSuccess;
    }
    if (is_capturing(stream)) {
        invalidate(stream, __func__);
        return failed(cudaErrorStreamCaptureIsolation);
    }
    if (stream->busy_until < event->at) stream->busy_until = event->at;
    return cudaSuccess;
}

/* A function of the host that a stream calls is called at once. */
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data) {
    ENTER;
    (void)stream;
    function(data);
    return cudaSuccess;
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t function, void *data, unsigned flags) {
    ENTER;
    (void)flags;
    function(stream, cudaSuccess, data);
    return cudaSuccess;
}

/* ---- events ---- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *made, unsigned flags) {
    ENTER;
    use(current_device);
    *made = calloc(1, sizeof **made);
    (*made)->is_timing = !(flags & cudaEventDisableTiming);
    (*made)->device = current_device;
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *made) { return cudaEventCreateWithFlags(made, 0); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    ENTER;
    free(event);
    return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t given, unsigned flags) {
    ENTER;
    cudaStream_t stream = stream_of(given);
    if (stream->device != event->device) return failed(cudaErrorInvalidResourceHandle);
    event->is_recorded = 1;
    event->capture = is_capturing(stream) && !(flags & cudaEventRecordExternal) ? stream->capture : NULL;
    event->at = stream->busy_until > now() ? stream->busy_until : now();
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) { return cudaEventRecordWithFlags(event, stream, 0); }

cudaError_t cudaEventQuery(cudaEvent_t event) {
    ENTER;
    UNSAFE;
    if (event->capture) return failed(cudaErrorCapturedEvent);
    return event->is_recorded && event->at > now() ? failed(cudaErrorNotReady) : cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    ENTER;
    UNSAFE;
    if (event->capture) return failed(cudaErrorCapturedEvent);
    note_wait(__func__);
    wait_until(event->at);
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end) {
    ENTER;
    int have_times = begin->is_timing && end->is_timing && begin->is_recorded && end->is_recorded;
    if (!have_times || begin->device != end->device) return failed(cudaErrorInvalidResourceHandle);
    if (begin->capture || end->capture) return failed(cudaErrorCapturedEvent);
    if (begin->at > now() || end->at > now()) return failed(cudaErrorNotReady);
    *ms = (end->at - begin->at) / 1e6f;
    return cudaSuccess;
}
