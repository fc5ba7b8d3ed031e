// log.c - see log.h.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/log.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/mapfile.h"
#include "runtime/rundir.h"

static void put_number(zx_text *out, const char *key, double v)
{
    if (isfinite(v))
        zx_text_put(out, ", \"%s\": %.9g", key, v);
    else
        zx_text_put(out, ", \"%s\": null", key);
}

void zx_log_line(const zx_log_row *row, zx_text *out)
{
    zx_text_put(out, "{\"step\": %llu", (unsigned long long)row->step);
    put_number(out, "loss", row->loss);
    put_number(out, "grad_norm", row->grad_norm);
    put_number(out, "lr", row->lr);
    put_number(out, "step_seconds", row->step_seconds);
    put_number(out, "compute_seconds", row->compute_seconds);
    put_number(out, "exposed_comm_seconds", row->exposed_comm_seconds);
    zx_text_put(out, ", \"peak_bytes\": %llu, \"resident_bytes\": %llu",
                (unsigned long long)row->peak_bytes, (unsigned long long)row->resident_bytes);
    if (row->loss_scale > 0) put_number(out, "loss_scale", row->loss_scale);
    if (row->loss_scale > 0 || row->skipped > 0)
        zx_text_put(out, ", \"skipped\": %llu", (unsigned long long)row->skipped);
    zx_text_put(out, "}\n");
}

zx_status zx_log_open(zx_log *log, const char *path, zx_err *err)
{
    *log = (zx_log){open(path, O_WRONLY | O_CREAT | O_APPEND | O_TRUNC | O_CLOEXEC, 0666), path};
    if (log->fd < 0) return ZX_FAIL(err, ZX_E_IO, "cannot open %s: %s", path, strerror(errno));
    return ZX_OK;
}

// Whether a whole line is the row of one of the first `steps` steps.
static bool is_row_before(const char *line, size_t n, uint64_t steps)
{
    static const char begin[] = "{\"step\": ";
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

static zx_status cut(const char *path, uint64_t steps, zx_arena *mem, zx_err *err)
{
    zx_mapfile m;
    struct stat info;
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode)) return ZX_OK;
    ZX_TRY(zx_mapfile_open(&m, path, err));
    const uint64_t stay = rows_before((const char *)m.bytes, m.size, steps);
    zx_status st = ZX_OK;
    if (stay < m.size) {
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
    *log = (zx_log){open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666), path};
    if (log->fd < 0) return ZX_FAIL(err, ZX_E_IO, "cannot open %s: %s", path, strerror(errno));
    return ZX_OK;
}

zx_status zx_log_write(zx_log *log, const zx_log_row *row, zx_err *err)
{
    zx_text line = {0};
    zx_status st = ZX_OK;
    zx_log_line(row, &line);
    for (size_t done = 0; done < line.n;) { // one write on a file; pipes may take parts
        const ssize_t n = write(log->fd, line.at + done, line.n - done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            st = ZX_FAIL(err, ZX_E_IO, "cannot write %s: %s", log->path, strerror(errno));
            break;
        }
        done += (size_t)n;
    }
    zx_text_free(&line);
    return st;
}

void zx_log_close(zx_log *log)
{
    if (log->fd >= 0) close(log->fd);
    *log = ZX_LOG_CLOSED;
}
