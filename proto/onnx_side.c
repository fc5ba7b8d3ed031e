// onnx_side.c - the files with external data beside a model.
//
// A model names them, so a model could name any file of the machine. Only plain names below the
// model's own folder are followed: no absolute path, no "..", no symbolic link on the way.
// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "graph/base/text.h"
#include "proto/onnx_inner.h"

#define LOCATION_MOST 4096
#define SIDES_MOST 4096 // files of one model

static zx_status refuse(const char *name, const char *why, zx_err *err)
{
    zx_err_hint(err, "keep external data as plain files in the model's own folder");
    return ZX_FAIL(err, ZX_E_FORMAT, "its external data lies in '%s': %s", name, why);
}

// The next part of a path, "." and empty ones skipped, into `part`; false at its end.
static bool next_part(const char **at, char part[LOCATION_MOST])
{
    for (;;) {
        *at += strspn(*at, "/");
        const size_t n = strcspn(*at, "/");
        if (n == 0) return false;
        memcpy(part, *at, n);
        part[n] = '\0';
        *at += n;
        if (strcmp(part, ".") != 0) return true;
    }
}

static zx_status cannot_open(int folder, const char *part, const char *name, const char *where,
                             zx_err *err)
{
    const int why = errno;
    struct stat info;
    if (fstatat(folder, part, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(info.st_mode))
        return refuse(name, "that is, or goes through, a symbolic link", err);
    if (why == ENOENT) zx_err_hint(err, "copy the file with external data along with the model");
    return ZX_FAIL(err, ZX_E_IO, "its external data '%s' can't be opened in %s: %s", name, where,
                   strerror(why));
}

// Opens `location` part by part, so that nothing on the way can be a link.
static zx_status open_below(const char *folder, const char *location, const char *name,
                            zx_mapfile *m, zx_err *err)
{
    zx_status st = ZX_OK;
    char part[LOCATION_MOST], next[LOCATION_MOST];
    int at = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (at < 0) return ZX_FAIL(err, ZX_E_IO, "cannot open %s: %s", folder, strerror(errno));
    bool more = next_part(&location, part);
    if (!more) st = refuse(name, "that is no file", err);
    while (st == ZX_OK && more) {
        more = next_part(&location, next);
        const int flags = more ? O_PATH | O_DIRECTORY : O_RDONLY | O_NONBLOCK;
        const int fd = openat(at, part, flags | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0) {
            st = cannot_open(at, part, name, folder, err);
            break;
        }
        close(at);
        at = fd;
        memcpy(part, next, more ? strlen(next) + 1 : 0);
        if (!more) st = zx_mapfile_open_fd(m, fd, name, err);
    }
    close(at);
    return st;
}

zx_status zx_onnx_side_open(struct zx_onnx_inner *inner, const char *location,
                            const zx_mapfile **out, zx_err *err)
{
    for (uint32_t i = 0; i < inner->n_sides; i++) {
        if (strcmp(inner->sides[i].location, location) != 0) continue;
        *out = &inner->sides[i].file;
        return ZX_OK;
    }
    const char *name = zx_text_safe(inner->mem, location);
    char part[LOCATION_MOST];
    if (inner->folder == NULL) return refuse(name, "the model isn't a file itself", err);
    if (strlen(location) >= LOCATION_MOST) return refuse("...", "the name is too long", err);
    if (location[0] == '/') return refuse(name, "absolute paths are not followed", err);
    for (const char *at = location; next_part(&at, part);)
        if (strcmp(part, "..") == 0) return refuse(name, "paths with '..' are not followed", err);

    if (inner->n_sides == SIDES_MOST) return refuse(name, "the model names too many files", err);
    ZX_GROW(inner->mem, inner->sides, inner->n_sides, inner->cap_sides);
    zx_onnx_side *side = &inner->sides[inner->n_sides];
    *side = (zx_onnx_side){.location = zx_arena_str(inner->mem, location)};
    ZX_TRY(open_below(inner->folder, side->location, name, &side->file, err));
    inner->n_sides++;
    *out = &side->file;
    return ZX_OK;
}
