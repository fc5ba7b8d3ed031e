// log.c - see log.h.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/mapfile.h"
#include "runtime/rundir.h"

zx_status zx_log_open(zx_log *log, const char *path, bool keep, zx_err *err)
{
    const int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (keep ? 0 : O_TRUNC);
    *log = (zx_log){open(path, flags, 0666), path};
    if (log->fd < 0) return ZX_FAIL(err, ZX_E_IO, "cannot open %s: %s", path, strerror(errno));
    return ZX_OK;
}

static const char begin[] = "{\"step\": "; // of a row

// Whether a whole line is the row of one of the first `steps` steps.
static bool is_row_before(const char *line, size_t n, uint64_t steps)
{
    char digits[24];
    const size_t at = sizeof begin - 1;
    if (n < at || memcmp(line, begin, at) != 0) return false;
    size_t k = 0;
    while (k + 1 < sizeof digits && at + k < n && line[at + k] >= '0' && line[at + k] <= '9') k++;
    if (k == 0 || k > 19 || at + k >= n || line[at + k] != ',') return false;
    memcpy(digits, line + at, k);
    digits[k] = '\0';
    return strtoull(digits, NULL, 10) <= steps;
}

// Bytes of the rows that stay; the others stand behind them.
static uint64_t rows_before(const char *text, uint64_t bytes, uint64_t steps)
{
    uint64_t at = 0;
    while (at < bytes) {
        const char *end = memchr(text + at, '\n', (size_t)(bytes - at));
        if (end == NULL || !is_row_before(text + at, (size_t)(end - text - (ptrdiff_t)at), steps))
            break;
        at = (uint64_t)(end - text) + 1;
    }
    return at;
}

static zx_status check_rows(const zx_mapfile *m, const char *path, zx_err *err)
{
    if (m->size == 0) return ZX_OK;
    if (m->size >= sizeof begin && memcmp(m->bytes, begin, sizeof begin - 1) == 0) return ZX_OK;
    zx_err_hint(err, "--log FILE, another one");
    return ZX_FAIL(err, ZX_E_USAGE, "%s is no log of a run: it isn't written to", path);
}

zx_status zx_log_check(const char *path, zx_err *err)
{
    zx_mapfile m;
    struct stat info;
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode)) return ZX_OK;
    if (access(path, W_OK) != 0)
        return ZX_FAIL(err, ZX_E_IO, "cannot write %s: %s", path, strerror(errno));
    ZX_TRY(zx_mapfile_open(&m, path, err));
    const zx_status st = check_rows(&m, path, err);
    zx_mapfile_close(&m);
    return st;
}

static zx_status cut(const char *path, uint64_t steps, zx_arena *mem, zx_err *err)
{
    zx_mapfile m;
    struct stat info;
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode)) return ZX_OK;
    ZX_TRY(zx_mapfile_open(&m, path, err));
    const uint64_t stay = rows_before((const char *)m.bytes, m.size, steps);
    zx_status st = check_rows(&m, path, err);
    if (st == ZX_OK && stay < m.size) {
        st = zx_rundir_append(zx_arena_printf(mem, "%s.cut", path), m.bytes + stay,
                              (size_t)(m.size - stay), err);
        if (st == ZX_OK && truncate(path, (off_t)stay) != 0)
            st = ZX_FAIL(err, ZX_E_IO, "cannot shorten %s: %s", path, strerror(errno));
    }
    zx_mapfile_close(&m);
    return st;
}

zx_status zx_log_resume(zx_log *log, const char *path, uint64_t steps, zx_arena *mem, zx_err *err)
{
    ZX_TRY(cut(path, steps, mem, err));
    return zx_log_open(log, path, true, err);
}

// Of a write that failed halfway; pipes and devices keep what they have.
static void cut_back(int fd, size_t n)
{
    struct stat info;
    if (n == 0 || fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) return;
    if (info.st_size >= (off_t)n && ftruncate(fd, info.st_size - (off_t)n) != 0) return;
}

zx_status zx_log_append(zx_log *log, const void *bytes, size_t n, zx_err *err)
{
    for (size_t done = 0; done < n;) { // one write on a file; pipes may take parts
        const ssize_t k = write(log->fd, (const char *)bytes + done, n - done);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) {
            const int why = errno;
            cut_back(log->fd, done);
            return ZX_FAIL(err, ZX_E_IO, "cannot write %s: %s", log->path, strerror(why));
        }
        done += (size_t)k;
    }
    return ZX_OK;
}

void zx_log_close(zx_log *log)
{
    if (log->fd >= 0) close(log->fd);
    *log = ZX_LOG_CLOSED;
}
