// stream.c - streams of the stand-in: a queue and a thread each; events that are the states of
// streams at the time they were recorded.
// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_standin/inside.h"

#include <stdio.h>
#include <unistd.h>

#define STREAM 0x5A585354u
#define EVENT 0x5A584556u

struct CUevent_st {
    uint32_t magic;
    int device;
    bool timed;
    si_lock lock;
    si_record *record;       // of the last cudaEventRecord; NULL: none yet
    struct CUevent_st *next; // of all that there ever were: destroyed ones are told from live ones
};

static struct {
    si_lock lock;
    cudaStream_t streams; // ended ones too, until the reset
    cudaEvent_t events;
    uint32_t n_streams;
} all;

// ---- a stream's thread --------------------------------------------------------------------------

static void hold_up(cudaStream_t s, uint64_t n)
{
    const si_settings *o = si_get();
    if (o->seed == 0 || o->delay_us == 0) return;
    const uint64_t r = si_mix(o->seed ^ (uint64_t)s->serial << 40 ^ n);
    if (r & 1) usleep((useconds_t)((r >> 8) % o->delay_us));
}

static si_item *take(cudaStream_t s)
{
    for (;;) {
        const uint32_t queued = atomic_load(&s->queued);
        if (atomic_load(&s->end)) return NULL;
        si_lock_take(&s->lock);
        si_item *item = s->first;
        if (item != NULL) s->first = item->next;
        if (s->first == NULL) s->last = NULL;
        si_lock_give(&s->lock);
        if (item != NULL) return item;
        si_sleep_while(&s->queued, queued);
    }
}

static void *serve(void *arg)
{
    cudaStream_t s = arg;
    s->worker = si_worker_open();
    for (uint64_t n = 0;; n++) {
        si_item *item = take(s);
        if (item == NULL) break;
        const bool stop = item->what == SI_DO_STOP;
        bool hang = false;
        SI_ACQUIRE(item);
        hold_up(s, n);
        const cudaError_t fault = stop ? cudaSuccess : si_item_fault(s->device, &hang);
        if (fault != cudaSuccess)
            si_stick(s->device, fault, "as asked: %s from a stream", cudaGetErrorName(fault));
        while (hang && !atomic_load(&s->end)) usleep(1000);
        const uint64_t seed = si_get()->seed;
        si_item_run(s, item, seed == 0 ? 0 : si_mix(seed ^ n) | 1);
        SI_RELEASE(s);
        si_item_free(item);
        atomic_fetch_add(&s->done, 1);
        si_wake(&s->done);
        if (stop) break;
    }
    si_worker_close(s->worker);
    return NULL;
}

void si_enqueue(cudaStream_t s, si_item *item)
{
    item->next = NULL;
    SI_RELEASE(item);
    si_lock_take(&s->lock);
    if (s->last != NULL) s->last->next = item;
    if (s->first == NULL) s->first = item;
    s->last = item;
    atomic_fetch_add(&s->queued, 1);
    si_lock_give(&s->lock);
    si_wake(&s->queued);
}

cudaError_t si_wait_for(cudaStream_t s, uint32_t count)
{
    for (;;) {
        const uint32_t done = atomic_load(&s->done);
        if ((int32_t)(done - count) >= 0) break;
        if (atomic_load(&s->end)) return cudaErrorLaunchFailure;
        si_sleep_while(&s->done, done);
    }
    SI_ACQUIRE(s);
    return si_stuck(s->device);
}
void si_wait_device(int device)
{
    si_lock_take(&all.lock);
    cudaStream_t s = all.streams;
    si_lock_give(&all.lock);
    for (; s != NULL; s = s->next)
        if (s->device == device && s->magic == STREAM) si_wait_for(s, atomic_load(&s->queued));
}

// ---- streams ------------------------------------------------------------------------------------

cudaStream_t si_stream(cudaStream_t s)
{
    return s != NULL && s->magic == STREAM ? s : NULL;
}
static cudaError_t create(cudaStream_t *to)
{
    cudaStream_t s = calloc(1, sizeof *s);
    if (s == NULL) return si_return(cudaErrorMemoryAllocation);
    s->magic = STREAM;
    s->device = si_current();
    si_lock_take(&all.lock);
    s->serial = all.n_streams++;
    si_lock_give(&all.lock);
    if (pthread_create(&s->thread, NULL, serve, s) != 0) {
        free(s);
        return si_return(cudaErrorMemoryAllocation);
    }
    si_lock_take(&all.lock);
    s->next = all.streams;
    all.streams = s;
    si_lock_give(&all.lock);
    *to = s;
    return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    SI_BEGIN();
    if (stream == NULL || flags != cudaStreamNonBlocking)
        return si_wrong(cudaErrorInvalidValue, "%s: only cudaStreamNonBlocking", __func__);
    return create(stream);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
    (void)priority;
    SI_BEGIN();
    if (stream == NULL || flags != cudaStreamNonBlocking)
        return si_wrong(cudaErrorInvalidValue, "%s: only cudaStreamNonBlocking", __func__);
    return create(stream);
}

static void end(cudaStream_t s, bool at_once)
{
    s->magic = 0;
    if (at_once) {
        atomic_store(&s->end, 1);
        si_wake(&s->queued);
    } else {
        si_item *stop = calloc(1, sizeof *stop);
        if (stop == NULL) abort();
        stop->what = SI_DO_STOP;
        si_enqueue(s, stop);
    }
    pthread_join(s->thread, NULL);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) // waits, where CUDA's returns at once
{
    const cudaError_t before = si_begin(__func__);
    SI_STREAM(stream);
    end(stream, false);
    return before;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    SI_BEGIN();
    SI_STREAM(stream);
    return si_return(si_wait_for(stream, atomic_load(&stream->queued)));
}
cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    SI_BEGIN();
    SI_STREAM(stream);
    if (atomic_load(&stream->done) != atomic_load(&stream->queued))
        return si_return(cudaErrorNotReady);
    SI_ACQUIRE(stream);
    return si_return(si_stuck(stream->device));
}

uint32_t si_stream_reset(void)
{
    uint32_t left = 0;
    for (cudaStream_t s = all.streams; s != NULL; s = s->next) atomic_store(&s->end, 1);
    while (all.streams != NULL) {
        cudaStream_t s = all.streams;
        all.streams = s->next;
        if (s->magic == STREAM) {
            left++;
            end(s, true);
        }
        while (s->first != NULL) {
            si_item *item = s->first;
            s->first = item->next;
            si_item_free(item);
        }
        free(s);
    }
    all.n_streams = 0;
    return left;
}

// ---- events -------------------------------------------------------------------------------------

#define SI_EVENT(e)                                                                                \
    do {                                                                                           \
        if ((e) == NULL || (e)->magic != EVENT)                                                    \
            return si_wrong(cudaErrorInvalidResourceHandle, "%s: no such event", __func__);        \
    } while (0)

void si_record_drop(si_record *r)
{
    if (r != NULL && atomic_fetch_sub(&r->refs, 1) == 1) free(r);
}
static si_record *hold(cudaEvent_t e) // its record with a reference for the caller, or NULL
{
    si_lock_take(&e->lock);
    si_record *r = e->record;
    if (r != NULL) atomic_fetch_add(&r->refs, 1);
    si_lock_give(&e->lock);
    return r;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    SI_BEGIN();
    cudaEvent_t e = calloc(1, sizeof *e);
    if (e == NULL) return si_return(cudaErrorMemoryAllocation);
    e->magic = EVENT;
    e->device = si_current();
    e->timed = (flags & cudaEventDisableTiming) == 0;
    si_lock_take(&all.lock);
    e->next = all.events;
    all.events = e;
    si_lock_give(&all.lock);
    *event = e;
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    const cudaError_t before = si_begin(__func__);
    SI_EVENT(event);
    event->magic = 0;
    si_record_drop(event->record);
    event->record = NULL;
    return before;
}

static si_item *record_item(si_record *r, bool wait)
{
    si_item *item = calloc(1, sizeof *item);
    if (item == NULL) abort();
    item->what = wait ? SI_DO_WAIT : SI_DO_RECORD;
    item->record = r;
    return item;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    SI_BEGIN();
    SI_EVENT(event);
    SI_STREAM(stream);
    if (event->device != stream->device)
        return si_wrong(cudaErrorInvalidResourceHandle,
                        "cudaEventRecord: the event is of device %d, the stream of %d",
                        event->device, stream->device);
    si_record *r = calloc(1, sizeof *r);
    if (r == NULL) return si_return(cudaErrorMemoryAllocation);
    atomic_store(&r->refs, 2); // the event's and the item's
    si_lock_take(&event->lock);
    si_record *old = event->record;
    event->record = r;
    si_lock_give(&event->lock);
    si_record_drop(old);
    si_enqueue(stream, record_item(r, false));
    return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    SI_BEGIN();
    SI_EVENT(event);
    SI_STREAM(stream);
    if (flags != 0) return si_wrong(cudaErrorInvalidValue, "cudaStreamWaitEvent: flags");
    si_record *r = hold(event);
    if (r != NULL) si_enqueue(stream, record_item(r, true)); // never recorded: no wait, as in CUDA
    return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event)
{
    SI_BEGIN();
    SI_EVENT(event);
    si_record *r = hold(event);
    const bool done = r == NULL || atomic_load(&r->done) != 0;
    if (done && r != NULL) SI_ACQUIRE(r);
    si_record_drop(r);
    return si_return(done ? si_stuck(event->device) : cudaErrorNotReady);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    SI_BEGIN();
    SI_EVENT(event);
    si_record *r = hold(event);
    while (r != NULL && atomic_load(&r->done) == 0) si_sleep_while(&r->done, 0);
    if (r != NULL) SI_ACQUIRE(r);
    si_record_drop(r);
    return si_return(si_stuck(event->device));
}
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to)
{
    SI_BEGIN();
    SI_EVENT(from);
    SI_EVENT(to);
    si_record *a = hold(from), *b = hold(to);
    cudaError_t e = cudaSuccess;
    if (a == NULL || b == NULL || !from->timed || !to->timed)
        e = si_wrong(cudaErrorInvalidResourceHandle, "cudaEventElapsedTime: not %s",
                     a == NULL || b == NULL ? "recorded" : "timed");
    else if (atomic_load(&a->done) == 0 || atomic_load(&b->done) == 0)
        e = si_return(cudaErrorNotReady);
    else
        *milliseconds = (float)(1e3 * (b->at - a->at));
    si_record_drop(a);
    si_record_drop(b);
    return e;
}

uint32_t si_event_reset(void)
{
    uint32_t left = 0;
    while (all.events != NULL) {
        cudaEvent_t e = all.events;
        all.events = e->next;
        if (e->magic == EVENT) left++;
        si_record_drop(e->record);
        free(e);
    }
    return left;
}
