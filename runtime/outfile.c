// outfile.c - see outfile.h.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/outfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "graph/base/text.h"

// What can be made again from the command that made it: how such a file begins, and what else
// stands in its first bytes.
static const struct {
    const char *begins, *holds;
} predictions[] = {
    {"zxplanf", ""},                             // plan -o
    {"{\"graph\":\"", ",\"optimizer_states\":"}, // --format json
    {"{\"simulated\":true,\"model\":", ""},
    {"[{\"simulated\":true,\"model\":", ""},
    {"{\"model\": \"", ", \"train_batch_size\": "},                                    // --auto
    {"{\"displayTimeUnit\":\"ms\",\"otherData\":{\"simulated\":true,\"policy\":", ""}, // trace
    {"<!doctype html>\n", "<meta name=\"generator\" content=\"zerox, predicted\">"},   // --report
    {"<!doctype html>\n", "<meta name=\"generator\" content=\"zerox, curves\">"},      // report
    {"first: step of the first use, F forward", ""},                                   // text
    {"no gathers before a use: every rank holds", ""},
    {"at: place in the plan; ms: when it is", ""},
    {"SIMULATED, not measured: ", ""},
    {"", " samples a step, budget "},
    {"", "  AVAILABLE      steps "}, // states
    {"== MICRO 0\n", ""},            // decisions
};

static bool is_prediction(const char *path)
{
    char bytes[4096];
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd >= 0 ? read(fd, bytes, sizeof bytes) : -1;
    if (fd >= 0) close(fd);
    for (size_t i = 0; i < ZX_COUNT(predictions) && n > 0; i++) {
        const char *begins = predictions[i].begins, *holds = predictions[i].holds;
        if ((size_t)n >= strlen(begins) && memcmp(bytes, begins, strlen(begins)) == 0 &&
            memmem(bytes, (size_t)n, holds, strlen(holds)) != NULL)
            return true;
    }
    return false;
}

zx_status zx_outfile_spare(const char *path, bool force, zx_err *err)
{
    struct stat info;
    if (force || path == NULL || stat(path, &info) != 0) return ZX_OK;
    if (!S_ISREG(info.st_mode) || info.st_size == 0 || is_prediction(path)) return ZX_OK;
    zx_err_hint(err, "another name, or --force to overwrite");
    return ZX_FAIL(err, ZX_E_USAGE, "%s exists already", path);
}

zx_status zx_outfile_open(zx_outfile *f, const char *path, zx_arena *mem, zx_err *err)
{
    struct stat info;
    *f = (zx_outfile){.fd = -1, .path = path};
    const bool special = stat(path, &info) == 0 && !S_ISREG(info.st_mode);
    if (special && S_ISDIR(info.st_mode))
        return ZX_FAIL(err, ZX_E_IO, "cannot write %s: it is a folder", path);
    const char *to = path;
    if (!special) {
        f->temporary = zx_arena_printf(mem, "%s.tmp-%ld", path, (long)getpid());
        to = f->temporary;
    }
    f->fd = open(to, O_WRONLY | O_CREAT | O_CLOEXEC | (special ? 0 : O_TRUNC), 0666);
    if (f->fd < 0) return ZX_FAIL(err, ZX_E_IO, "cannot write %s: %s", path, strerror(errno));
    f->open = true;
    return ZX_OK;
}

static zx_status failed(const zx_outfile *f, const char *what, zx_err *err)
{
    const int why = errno;
    struct statvfs disk;
    char buf[ZX_BYTES_TEXT];
    if ((why == ENOSPC || why == EFBIG || why == EDQUOT) && fstatvfs(f->fd, &disk) == 0)
        return ZX_FAIL(err, ZX_E_IO, "cannot %s %s: %s (%s free)", what, f->path, strerror(why),
                       zx_text_size((uint64_t)disk.f_bavail * disk.f_frsize, buf));
    return ZX_FAIL(err, ZX_E_IO, "cannot %s %s: %s", what, f->path, strerror(why));
}

zx_status zx_outfile_write(zx_outfile *f, const void *bytes, size_t n, zx_err *err)
{
    for (const char *at = bytes; n > 0;) {
        const ssize_t done = write(f->fd, at, n);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return failed(f, "write", err);
        at += done;
        n -= (size_t)done;
    }
    return ZX_OK;
}

// A rename lasts once its folder is on disk as well.
static void sync_folder(const char *path)
{
    char folder[4096];
    const char *slash = strrchr(path, '/');
    const size_t n = slash != NULL ? (size_t)(slash - path) : 0;
    if (n >= sizeof folder) return;
    memcpy(folder, path, n);
    folder[n] = '\0';
    const int fd = open(slash == NULL ? "."
                        : n == 0      ? "/"
                                      : folder,
                        O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    fsync(fd);
    close(fd);
}

zx_status zx_outfile_commit(zx_outfile *f, zx_err *err)
{
    zx_status st = ZX_OK;
    if (f->temporary != NULL && fsync(f->fd) != 0) st = failed(f, "write", err);
    if (close(f->fd) != 0 && st == ZX_OK)
        st = ZX_FAIL(err, ZX_E_IO, "cannot write %s: %s", f->path, strerror(errno));
    f->open = false;
    if (f->temporary == NULL) return st;
    if (st == ZX_OK && rename(f->temporary, f->path) != 0)
        st = ZX_FAIL(err, ZX_E_IO, "cannot rename %s to %s: %s", f->temporary, f->path,
                     strerror(errno));
    if (st != ZX_OK)
        unlink(f->temporary);
    else
        sync_folder(f->path);
    return st;
}

void zx_outfile_drop(zx_outfile *f)
{
    if (!f->open) return;
    close(f->fd);
    if (f->temporary != NULL) unlink(f->temporary);
    f->open = false;
}

zx_status zx_outfile_put(const char *path, const void *bytes, size_t n, zx_arena *mem, zx_err *err)
{
    zx_outfile f;
    ZX_TRY(zx_outfile_open(&f, path, mem, err));
    const zx_status st = zx_outfile_write(&f, bytes, n, err);
    if (st == ZX_OK) return zx_outfile_commit(&f, err);
    zx_outfile_drop(&f);
    return st;
}
