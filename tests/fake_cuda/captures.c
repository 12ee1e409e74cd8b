/* Captures of streams, and the graphs they make. What CUDA forbids during a capture makes the capture invalid. */
#include "runtime.h"

#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

struct CUgraph_st {
    long nodes;
};

enum { MOST_CAPTURES = 32 };
static Capture *captures[MOST_CAPTURES];
static int capture_count;
static unsigned long long last_id;
static __thread enum cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

int is_capturing(cudaStream_t stream) { return stream->capture && stream->capture->status == cudaStreamCaptureStatusActive; }

/* By the rules of cudaThreadExchangeStreamCaptureMode. */
static int forbids(const Capture *capture) {
    if (thread_mode == cudaStreamCaptureModeRelaxed || capture->mode == cudaStreamCaptureModeRelaxed) return 0;
    if (capture->owner == syscall(SYS_gettid)) return 1;
    return thread_mode == cudaStreamCaptureModeGlobal && capture->mode == cudaStreamCaptureModeGlobal;
}

cudaError_t unsafe(const char *function) {
    int is_forbidden = 0;
    if (!capture_count) return cudaSuccess;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < capture_count; i++)
        if (forbids(captures[i])) captures[i]->status = cudaStreamCaptureStatusInvalidated, is_forbidden = 1;
    pthread_mutex_unlock(&lock);
    if (!is_forbidden) return cudaSuccess;
    note_violation(function);
    return cudaErrorStreamCaptureUnsupported;
}

cudaError_t invalidate(cudaStream_t stream, const char *function) {
    stream->capture->status = cudaStreamCaptureStatusInvalidated;
    note_violation(function);
    return cudaErrorStreamCaptureUnsupported;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) {
    enum cudaStreamCaptureMode before = thread_mode;
    ENTER;
    thread_mode = *mode;
    *mode = before;
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t given, enum cudaStreamCaptureMode mode) {
    ENTER;
    cudaStream_t stream = stream_of(given);
    if (is_capturing(stream) || capture_count == MOST_CAPTURES) return failed(cudaErrorIllegalState);
    Capture *made = calloc(1, sizeof *made); /* never freed: streams and events point to it */
    made->mode = mode;
    made->owner = syscall(SYS_gettid);
    made->status = cudaStreamCaptureStatusActive;
    pthread_mutex_lock(&lock);
    made->id = ++last_id;
    captures[capture_count++] = stream->capture = made;
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t given, cudaGraph_t *graph) {
    ENTER;
    Capture *capture = stream_of(given)->capture;
    *graph = NULL;
    if (!capture) return failed(cudaErrorIllegalState);
    pthread_mutex_lock(&lock);
    for (int i = 0; i < capture_count; i++)
        if (captures[i] == capture) captures[i] = captures[--capture_count];
    enum cudaStreamCaptureStatus status = capture->status;
    capture->status = cudaStreamCaptureStatusNone;
    pthread_mutex_unlock(&lock);
    stream_of(given)->capture = NULL;
    if (status != cudaStreamCaptureStatusActive) return failed(cudaErrorStreamCaptureInvalidated);
    count("captured graph");
    *graph = calloc(1, sizeof **graph);
    (*graph)->nodes = capture->nodes;
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t given, enum cudaStreamCaptureStatus *status) {
    ENTER;
    Capture *capture = stream_of(given)->capture;
    *status = capture ? capture->status : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t given, enum cudaStreamCaptureStatus *status, unsigned long long *id,
                                     cudaGraph_t *graph, const cudaGraphNode_t **dependencies,
                                     const cudaGraphEdgeData **edges, size_t *dependency_count) {
    Capture *capture = stream_of(given)->capture;
    ENTER;
    *status = capture ? capture->status : cudaStreamCaptureStatusNone;
    if (id) *id = capture ? capture->id : 0;
    if (graph) *graph = NULL;
    if (dependencies) *dependencies = NULL;
    if (edges) *edges = NULL;
    if (dependency_count) *dependency_count = 0;
    return cudaSuccess;
}

/* ---- graphs: a graph to be launched is the graph itself ---- */

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *made, cudaGraph_t graph, unsigned long long flags) {
    ENTER;
    (void)flags;
    struct CUgraph_st *copy = malloc(sizeof *copy);
    *copy = *graph;
    *made = (cudaGraphExec_t)copy;
    return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *node_count) {
    ENTER;
    (void)nodes;
    *node_count = graph->nodes;
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
    ENTER;
    work(stream_of(stream), ((struct CUgraph_st *)graph)->nodes * kernel_ns / 2);
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    ENTER;
    free(graph);
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
    ENTER;
    free(graph);
    return cudaSuccess;
}
