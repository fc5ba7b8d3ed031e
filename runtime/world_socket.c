// world_socket.c - ranks as processes of one host. They meet at an abstract Unix socket that rank 0
// listens on, and stay connected to it: rank 0 passes messages on, and a connection that closes
// says that its rank is gone. Memory is passed as memfds, so nothing has a name that could stay.
// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "runtime/world_link.h"

#define MAGIC 0x7a780001u
#define RETRY_MS 10       // between attempts to connect before rank 0 listens
#define HELLO_SECONDS 2.0 // within which somebody who connected has to say who it is

struct hello { // from a rank to rank 0
    uint32_t magic, rank, size;
};
struct welcome { // back, with the shared page's memfd if `status` is 0
    uint32_t magic, status;
    char text[ZX_ERR_TEXT];
};
struct head { // before a rank's bytes in a collective call
    uint32_t call, rank;
    uint64_t n;
};

struct zx_socket_link {
    int *fd;       // rank 0: to each rank (its own -1); others: fd[0] to rank 0, the rest -1
    int stop;      // eventfd that ends the monitor; -1
    bool watching; // the monitor runs
    pthread_t monitor;
    void *page; // zx_world_shared
};

static double now_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// ---- bytes over a connection --------------------------------------------------------------------

// Whether the rank at the other end of fd is waited for in vain. Another than rank 0 hears only of
// rank 0, which may wait for a third one itself: it has twice the time, so that the right one is
// blamed.
static bool is_late(zx_world *w, int fd, double since)
{
    uint32_t r = 0;
    while (r < w->size && w->socket->fd[r] != fd) r++;
    if (w->rank > 0) since += w->patience;
    return r < w->size && zx_world_late(w, r, since);
}

// Waits until fd can be read or written. False: a peer is gone, or `deadline` (0: none) has passed.
static bool ready(zx_world *w, int fd, short what, double deadline)
{
    const double since = now_seconds();
    for (;;) {
        struct pollfd p = {.fd = fd, .events = what};
        const int n = poll(&p, 1, ZX_WORLD_LOOK_MS);
        if (n > 0) return true;
        if (n < 0 && errno != EINTR) return false;
        if (w != NULL && (zx_world_lost(w) || is_late(w, fd, since))) return false;
        if (deadline > 0 && now_seconds() > deadline) return false;
    }
}

// All `n` bytes, or false: the connection is closed, a peer is gone, or too late.
static bool put_all(zx_world *w, int fd, const void *bytes, uint64_t n, double deadline)
{
    const unsigned char *at = bytes;
    while (n > 0) {
        const ssize_t k =
            send(fd, at, n < (1u << 20) ? (size_t)n : 1u << 20, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (k > 0) {
            at += k;
            n -= (uint64_t)k;
        } else if (k < 0 && (errno == EAGAIN || errno == EINTR)) {
            if (!ready(w, fd, POLLOUT, deadline)) return false;
        } else {
            return false;
        }
    }
    return true;
}

static bool get_all(zx_world *w, int fd, void *bytes, uint64_t n, double deadline)
{
    unsigned char *at = bytes;
    while (n > 0) {
        const ssize_t k = recv(fd, at, n < (1u << 20) ? (size_t)n : 1u << 20, MSG_DONTWAIT);
        if (k > 0) {
            at += k;
            n -= (uint64_t)k;
        } else if (k < 0 && (errno == EAGAIN || errno == EINTR)) {
            if (!ready(w, fd, POLLIN, deadline)) return false;
        } else {
            return false;
        }
    }
    return true;
}

union fd_room {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int))];
};

// One byte with a descriptor (none if passed < 0).
static bool put_fd(zx_world *w, int fd, int passed, double deadline)
{
    char byte = 0;
    union fd_room room = {0};
    struct iovec io = {.iov_base = &byte, .iov_len = 1};
    struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1};
    if (passed >= 0) {
        m.msg_control = room.bytes;
        m.msg_controllen = sizeof room.bytes;
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(c), &passed, sizeof passed);
    }
    for (;;) {
        const ssize_t k = sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (k == 1) return true;
        if (k >= 0 || (errno != EAGAIN && errno != EINTR)) return false;
        if (!ready(w, fd, POLLOUT, deadline)) return false;
    }
}

// False: the connection is gone. *passed is -1 if the byte came alone.
static bool get_fd(zx_world *w, int fd, int *passed, double deadline)
{
    char byte;
    union fd_room room;
    struct iovec io = {.iov_base = &byte, .iov_len = 1};
    *passed = -1;
    for (;;) {
        struct msghdr m = {.msg_iov = &io,
                           .msg_iovlen = 1,
                           .msg_control = room.bytes,
                           .msg_controllen = sizeof room.bytes};
        const ssize_t k = recvmsg(fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (k == 1) {
            const struct cmsghdr *c = CMSG_FIRSTHDR(&m);
            if (c != NULL && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
                memcpy(passed, CMSG_DATA(c), sizeof *passed);
            return true;
        }
        if (k >= 0 || (errno != EAGAIN && errno != EINTR)) return false;
        if (!ready(w, fd, POLLIN, deadline)) return false;
    }
}

// A connection to `rank` failed: it is gone, unless somebody already is.
static zx_status gone(zx_world *w, uint32_t rank, zx_err *err)
{
    zx_world_mark(w, zx_world_left(w, rank) ? ZX_LOST_LEFT : ZX_LOST_DIED, rank);
    return zx_world_why(w, err);
}

// ---- watching -----------------------------------------------------------------------------------

// A thread that sleeps until a connection closes, so that a rank in a long kernel knows it too.
static void *watch(void *arg)
{
    zx_world *w = arg;
    struct zx_socket_link *s = w->socket;
    struct pollfd p[ZX_WORLD_MOST_RANKS + 1] = {{.fd = s->stop, .events = POLLIN}};
    for (uint32_t r = 0; r < w->size; r++)
        p[r + 1] = (struct pollfd){.fd = s->fd[r], .events = POLLRDHUP};
    for (;;) {
        const int n = poll(p, w->size + 1, -1);
        if (n < 0 && errno != EINTR) return NULL;
        if (n <= 0) continue;
        if (p[0].revents != 0) return NULL;
        for (uint32_t r = 0; r < w->size; r++) {
            if (p[r + 1].fd < 0 || p[r + 1].revents == 0) continue;
            if (!zx_world_left(w, r)) zx_world_mark(w, ZX_LOST_DIED, r);
            p[r + 1].fd = -1;
        }
    }
}

static zx_status start_watching(zx_world *w, zx_err *err)
{
    struct zx_socket_link *s = w->socket;
    s->stop = eventfd(0, EFD_CLOEXEC);
    if (s->stop < 0) return ZX_FAIL(err, ZX_E_COMM, "eventfd: %s", strerror(errno));
    sigset_t all, before; // signals are the main thread's
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int e = pthread_create(&s->monitor, NULL, watch, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (e != 0) return ZX_FAIL(err, ZX_E_COMM, "cannot start a thread: %s", strerror(e));
    s->watching = true;
    return ZX_OK;
}

// ---- collective calls ---------------------------------------------------------------------------

// Rank 0: everybody's bytes, in rank order.
static zx_status collect(zx_world *w, uint32_t call, const void *mine, uint64_t n, zx_parts *out,
                         zx_err *err)
{
    zx_status st = ZX_OK;
    uint64_t *sizes = calloc(w->size, sizeof *sizes);
    void **got = calloc(w->size, sizeof *got);
    if (sizes == NULL || got == NULL)
        st = ZX_FAIL(err, ZX_E_DEVICE, "no memory for messages between ranks");
    for (uint32_t r = 1; r < w->size && st == ZX_OK; r++) {
        struct head h;
        if (!get_all(w, w->socket->fd[r], &h, sizeof h, 0)) {
            st = gone(w, r, err);
        } else if (h.call != call || h.rank != r) {
            st = ZX_FAIL(err, ZX_E_COMM, "rank %u is in another collective call (%u, not %u)", r,
                         h.call, call);
        } else if (h.n > 0) {
            sizes[r] = h.n;
            got[r] = h.n < SIZE_MAX / 2 ? malloc((size_t)h.n) : NULL;
            if (got[r] == NULL)
                st = ZX_FAIL(err, ZX_E_DEVICE, "no memory for messages between ranks");
            else if (!get_all(w, w->socket->fd[r], got[r], h.n, 0))
                st = gone(w, r, err);
        }
    }
    if (st == ZX_OK) {
        sizes[0] = n;
        st = zx_parts_room(out, w->size, sizes, err);
    }
    for (uint32_t r = 0; r < w->size && st == ZX_OK; r++)
        if (sizes[r] > 0) memcpy(out->bytes + out->at[r], r == 0 ? mine : got[r], (size_t)sizes[r]);
    for (uint32_t r = 0; got != NULL && r < w->size; r++) free(got[r]);
    free(got);
    free(sizes);
    return st;
}

static zx_status share_root(zx_world *w, uint32_t call, const void *mine, uint64_t n, zx_parts *out,
                            zx_err *err)
{
    ZX_TRY(collect(w, call, mine, n, out, err));
    for (uint32_t r = 1; r < w->size; r++) {
        const int fd = w->socket->fd[r];
        if (!put_all(w, fd, out->at, (w->size + 1) * sizeof *out->at, 0) ||
            !put_all(w, fd, out->bytes, out->at[w->size], 0))
            return gone(w, r, err);
    }
    return ZX_OK;
}

static zx_status share_leaf(zx_world *w, uint32_t call, const void *mine, uint64_t n, zx_parts *out,
                            zx_err *err)
{
    const int fd = w->socket->fd[0];
    const struct head h = {call, w->rank, n};
    if (!put_all(w, fd, &h, sizeof h, 0) || !put_all(w, fd, mine, n, 0)) return gone(w, 0, err);
    out->at = calloc((size_t)w->size + 1, sizeof *out->at);
    if (out->at == NULL) return ZX_FAIL(err, ZX_E_DEVICE, "no memory for messages between ranks");
    if (!get_all(w, fd, out->at, (w->size + 1) * sizeof *out->at, 0)) return gone(w, 0, err);
    const uint64_t total = out->at[w->size];
    out->bytes = total < SIZE_MAX / 2 ? malloc(total > 0 ? (size_t)total : 1) : NULL;
    if (out->bytes == NULL)
        return ZX_FAIL(err, ZX_E_DEVICE, "no memory for messages between ranks");
    return get_all(w, fd, out->bytes, total, 0) ? ZX_OK : gone(w, 0, err);
}

static zx_status socket_share(zx_world *w, uint32_t call, const void *mine, uint64_t n,
                              zx_parts *out, zx_err *err)
{
    *out = (zx_parts){0};
    if (zx_world_lost(w)) return zx_world_why(w, err);
    const zx_status st = w->rank == 0 ? share_root(w, call, mine, n, out, err)
                                      : share_leaf(w, call, mine, n, out, err);
    if (st != ZX_OK) {
        zx_parts_free(out);
        zx_world_abort(w); // out of step with the others: no later call could be right
    }
    return st;
}

// ---- memory -------------------------------------------------------------------------------------

static zx_status make_memfd(uint64_t bytes, int *fd, zx_err *err)
{
    *fd = memfd_create("zerox", MFD_CLOEXEC);
    if (*fd < 0) return ZX_FAIL(err, ZX_E_DEVICE, "cannot make shared memory: %s", strerror(errno));
    if (bytes > INT64_MAX || ftruncate(*fd, (off_t)bytes) != 0) {
        close(*fd);
        *fd = -1;
        return ZX_FAIL(err, ZX_E_BUDGET, "cannot reserve %llu bytes of memory: %s",
                       (unsigned long long)bytes, strerror(errno));
    }
    return ZX_OK;
}

// All ranks' descriptors to all: fds[r] (the caller closes them), -1 where a rank has none.
static zx_status pass_fds(zx_world *w, int mine, int *fds, zx_err *err)
{
    struct zx_socket_link *s = w->socket;
    if (w->rank > 0) {
        if (!put_fd(w, s->fd[0], mine, 0)) return gone(w, 0, err);
        for (uint32_t r = 0; r < w->size; r++)
            if (!get_fd(w, s->fd[0], &fds[r], 0)) return gone(w, 0, err);
        return ZX_OK;
    }
    for (uint32_t r = 1; r < w->size; r++)
        if (!get_fd(w, s->fd[r], &fds[r], 0)) return gone(w, r, err);
    for (uint32_t to = 1; to < w->size; to++)
        for (uint32_t r = 0; r < w->size; r++)
            if (!put_fd(w, s->fd[to], r == 0 ? mine : fds[r], 0)) return gone(w, to, err);
    return ZX_OK;
}

static zx_status socket_map(zx_world *w, uint64_t bytes, unsigned char **base, zx_err *err)
{
    int mine = -1;
    int *fds = malloc(w->size * sizeof *fds);
    if (fds == NULL) return ZX_FAIL(err, ZX_E_DEVICE, "no memory for %u ranks", w->size);
    for (uint32_t r = 0; r < w->size; r++) fds[r] = -1;
    zx_status st = make_memfd(bytes, &mine, err);
    const zx_status passed = pass_fds(w, mine, fds, err); // also without one: the others wait
    if (st == ZX_OK) st = passed;
    for (uint32_t r = 0; r < w->size && st == ZX_OK; r++) {
        const int fd = r == w->rank ? mine : fds[r];
        void *at = NULL;
        if (fd < 0) continue; // that rank says why in the agreement that follows
        st = zx_world_map(fd, bytes, &at, err);
        if (st == ZX_OK) st = zx_world_keep(w, at, bytes, err);
        if (st == ZX_OK) base[r] = at;
    }
    for (uint32_t r = 0; r < w->size; r++)
        if (fds[r] >= 0) close(fds[r]);
    if (mine >= 0) close(mine);
    free(fds);
    return st;
}

static void socket_unmap(zx_world *w, uint64_t bytes ZX_UNUSED, unsigned char **base)
{
    for (uint32_t r = 0; r < w->size; r++)
        if (base[r] != NULL) zx_world_drop(w, base[r]);
}

// ---- meeting ------------------------------------------------------------------------------------

static void socket_close(zx_world *w)
{
    struct zx_socket_link *s = w->socket;
    if (s == NULL) return;
    if (s->watching) {
        const uint64_t one = 1;
        const ssize_t k = write(s->stop, &one, sizeof one);
        ZX_ASSERT(k == (ssize_t)sizeof one);
        pthread_join(s->monitor, NULL);
    }
    if (s->stop >= 0) close(s->stop);
    for (uint32_t r = 0; s->fd != NULL && r < w->size; r++)
        if (s->fd[r] >= 0) close(s->fd[r]);
    if (s->page != NULL) munmap(s->page, sizeof(zx_world_shared));
    free(s->fd);
    free(s);
}

static const zx_link socket_link = {
    .share = socket_share, .map = socket_map, .unmap = socket_unmap, .close = socket_close};

static zx_status address(const char *name, struct sockaddr_un *a, socklen_t *n, zx_err *err)
{
    *a = (struct sockaddr_un){.sun_family = AF_UNIX}; // sun_path[0] is 0: abstract
    const size_t len = strlen(name);
    if (len == 0 || len > sizeof a->sun_path - 1)
        return ZX_FAIL(err, ZX_E_COMM, "socket name '%s' is too long", name);
    memcpy(a->sun_path + 1, name, len);
    *n = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len);
    return ZX_OK;
}

static bool same_user(int fd)
{
    struct ucred who;
    socklen_t n = sizeof who;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) == 0 && who.uid == geteuid();
}

// Says who never came, e.g. "ranks 2, 3".
static void list_missing(const zx_world *w, char *text, size_t room)
{
    size_t at = 0;
    uint32_t n = 0;
    for (uint32_t r = 1; r < w->size; r++) {
        if (w->socket->fd[r] >= 0) continue;
        if (at + 8 < room)
            at += (size_t)snprintf(text + at, room - at, "%s%u", n > 0 ? ", " : "", r);
        n++;
    }
}

// Accepts one connection and finds its rank. E_COMM is for what ends the whole meeting.
static zx_status admit(zx_world *w, int listener, zx_err *err)
{
    const int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    struct hello h;
    if (fd < 0) return ZX_OK;
    if (!same_user(fd) || !get_all(NULL, fd, &h, sizeof h, now_seconds() + HELLO_SECONDS) ||
        h.magic != MAGIC) {
        close(fd); // not one of ours
        return ZX_OK;
    }
    if (h.size == w->size && h.rank > 0 && h.rank < w->size && w->socket->fd[h.rank] < 0) {
        w->socket->fd[h.rank] = fd;
        return ZX_OK;
    }
    const zx_status st =
        h.size != w->size
            ? ZX_FAIL(err, ZX_E_COMM, "rank %u was started for %u ranks, rank 0 for %u", h.rank,
                      h.size, w->size)
            : ZX_FAIL(err, ZX_E_COMM, "two processes say that they are rank %u of %u", h.rank,
                      h.size);
    struct welcome no = {.magic = MAGIC, .status = (uint32_t)st};
    snprintf(no.text, sizeof no.text, "%s", err != NULL ? err->cause[0] : zx_status_text(st));
    put_all(NULL, fd, &no, sizeof no, now_seconds() + 1);
    put_fd(NULL, fd, -1, now_seconds() + 1);
    close(fd);
    return st;
}

static zx_status admit_all(zx_world *w, int listener, double seconds, zx_err *err)
{
    const double deadline = now_seconds() + seconds;
    for (;;) {
        uint32_t missing = 0;
        for (uint32_t r = 1; r < w->size; r++) missing += w->socket->fd[r] < 0;
        if (missing == 0) return ZX_OK;
        struct pollfd p = {.fd = listener, .events = POLLIN};
        if (poll(&p, 1, ZX_WORLD_LOOK_MS) > 0) ZX_TRY(admit(w, listener, err));
        if (now_seconds() <= deadline) continue;
        char who[160] = "";
        list_missing(w, who, sizeof who);
        return ZX_FAIL(err, ZX_E_COMM, "rank%s %s never came (waited %.0f s)",
                       missing > 1 ? "s" : "", who, seconds);
    }
}

static zx_status meet_root(zx_world *w, const struct sockaddr_un *a, socklen_t n, double seconds,
                           zx_err *err)
{
    struct zx_socket_link *s = w->socket;
    int page = -1;
    const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listener < 0) return ZX_FAIL(err, ZX_E_COMM, "socket: %s", strerror(errno));
    zx_status st = ZX_OK;
    if (bind(listener, (const struct sockaddr *)a, n) != 0 || listen(listener, 128) != 0)
        st =
            errno == EADDRINUSE
                ? ZX_FAIL(err, ZX_E_COMM,
                          "another run uses the same address and port (abstract socket '%s')",
                          a->sun_path + 1)
                : ZX_FAIL(err, ZX_E_COMM, "cannot listen for the other ranks: %s", strerror(errno));
    if (st == ZX_OK) st = admit_all(w, listener, seconds, err);
    if (st == ZX_OK) st = make_memfd(sizeof(zx_world_shared), &page, err);
    if (st == ZX_OK) st = zx_world_map(page, sizeof(zx_world_shared), &s->page, err);
    w->shared = s->page;
    struct welcome yes = {.magic = MAGIC, .status = (uint32_t)st};
    if (st != ZX_OK)
        snprintf(yes.text, sizeof yes.text, "%s", err != NULL ? err->cause[0] : zx_status_text(st));
    for (uint32_t r = 1; r < w->size; r++) {
        const double deadline = now_seconds() + HELLO_SECONDS;
        if (s->fd[r] < 0) continue;
        if ((!put_all(NULL, s->fd[r], &yes, sizeof yes, deadline) ||
             !put_fd(NULL, s->fd[r], page, deadline)) &&
            st == ZX_OK)
            st = ZX_FAIL(err, ZX_E_COMM, "rank %u died (connection closed)", r);
    }
    if (page >= 0) close(page);
    close(listener);
    return st;
}

static zx_status meet_leaf(zx_world *w, const struct sockaddr_un *a, socklen_t n, double seconds,
                           zx_err *err)
{
    struct zx_socket_link *s = w->socket;
    const double deadline = now_seconds() + seconds;
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return ZX_FAIL(err, ZX_E_COMM, "socket: %s", strerror(errno));
    s->fd[0] = fd;
    while (connect(fd, (const struct sockaddr *)a, n) != 0) {
        if (errno != ECONNREFUSED && errno != EAGAIN && errno != EINTR)
            return ZX_FAIL(err, ZX_E_COMM, "cannot connect to rank 0: %s", strerror(errno));
        if (now_seconds() > deadline)
            return ZX_FAIL(err, ZX_E_COMM, "rank 0 never came (waited %.0f s)", seconds);
        const struct timespec nap = {.tv_nsec = RETRY_MS * 1000000L};
        nanosleep(&nap, NULL);
    }
    if (!same_user(fd)) return ZX_FAIL(err, ZX_E_COMM, "the socket belongs to another user");
    const struct hello h = {MAGIC, w->rank, w->size};
    struct welcome back;
    int page = -1;
    // Rank 0 gives up first and says who is missing.
    const double patience = deadline + HELLO_SECONDS * (double)w->size + 1;
    if (!put_all(NULL, fd, &h, sizeof h, patience) ||
        !get_all(NULL, fd, &back, sizeof back, patience) || back.magic != MAGIC ||
        !get_fd(NULL, fd, &page, patience))
        return ZX_FAIL(err, ZX_E_COMM, "rank 0 died (connection closed)");
    back.text[sizeof back.text - 1] = '\0';
    zx_status st = ZX_OK;
    if (back.status != ZX_OK)
        st = ZX_FAIL(err, ZX_E_COMM, "%s", back.text);
    else
        st = zx_world_map(page, sizeof(zx_world_shared), &s->page, err);
    w->shared = s->page;
    if (page >= 0) close(page);
    return st;
}

zx_status zx_world_join(const char *name, uint32_t rank, uint32_t size, double timeout_seconds,
                        zx_world **out, zx_err *err)
{
    *out = NULL;
    if (size == 0 || size > ZX_WORLD_MOST_RANKS || rank >= size)
        return ZX_FAIL(err, ZX_E_USAGE, "rank %u of %u: up to %d ranks are possible", rank, size,
                       ZX_WORLD_MOST_RANKS);
    struct sockaddr_un a;
    socklen_t n = 0;
    ZX_TRY(address(name, &a, &n, err));
    zx_world *w = zx_world_new(&socket_link, rank, size);
    struct zx_socket_link *s = w != NULL ? calloc(1, sizeof *s) : NULL;
    int *fd = s != NULL ? malloc(size * sizeof *fd) : NULL;
    if (fd == NULL) {
        free(s);
        free(w);
        return ZX_FAIL(err, ZX_E_DEVICE, "no memory for %u ranks", size);
    }
    for (uint32_t r = 0; r < size; r++) fd[r] = -1;
    s->fd = fd;
    s->stop = -1;
    w->socket = s;
    zx_status st = rank == 0 ? meet_root(w, &a, n, timeout_seconds, err)
                             : meet_leaf(w, &a, n, timeout_seconds, err);
    if (st == ZX_OK) st = start_watching(w, err);
    if (st == ZX_OK)
        *out = w;
    else
        zx_world_close(w);
    return st;
}
