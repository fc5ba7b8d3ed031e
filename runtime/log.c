// log.c - see log.h.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/log.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

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
    zx_text_put(out, ", \"peak_bytes\": %llu, \"resident_bytes\": %llu}\n",
                (unsigned long long)row->peak_bytes, (unsigned long long)row->resident_bytes);
}

zx_status zx_log_open(zx_log *log, const char *path, zx_err *err)
{
    *log = (zx_log){open(path, O_WRONLY | O_CREAT | O_APPEND | O_TRUNC | O_CLOEXEC, 0666), path};
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
