// mapfile.c - weights and data are used where they lie: mapped, never copied.
// SPDX-License-Identifier: Apache-2.0
#include "proto/mapfile.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

zx_status zx_mapfile_open_fd(zx_mapfile *m, int fd, const char *path, zx_err *err)
{
    struct stat info;
    *m = (zx_mapfile){0};
    if (fstat(fd, &info) != 0)
        return ZX_FAIL(err, ZX_E_IO, "cannot stat %s: %s", path, strerror(errno));
    if (S_ISDIR(info.st_mode)) return ZX_FAIL(err, ZX_E_IO, "%s is a folder, not a file", path);
    if (!S_ISREG(info.st_mode))
        return ZX_FAIL(err, ZX_E_IO, "%s is not a regular file: it can't be mapped", path);
    if (info.st_size == 0) return ZX_OK; // mmap refuses length 0; an empty file is no error here
    if ((uint64_t)info.st_size > SIZE_MAX)
        return ZX_FAIL(err, ZX_E_IO, "%s is larger than the address space", path);
    void *at = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (at == MAP_FAILED) return ZX_FAIL(err, ZX_E_IO, "cannot map %s: %s", path, strerror(errno));
    *m = (zx_mapfile){.bytes = at, .size = (uint64_t)info.st_size};
    return ZX_OK;
}

zx_status zx_mapfile_open(zx_mapfile *m, const char *path, zx_err *err)
{
    *m = (zx_mapfile){0};
    // O_NONBLOCK: opening a pipe must not wait for a writer before it can be refused.
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return ZX_FAIL(err, ZX_E_IO, "cannot open %s: %s", path, strerror(errno));
    const zx_status st = zx_mapfile_open_fd(m, fd, path, err);
    close(fd); // the mapping outlives its descriptor
    return st;
}

void zx_mapfile_close(zx_mapfile *m)
{
    if (m->bytes) munmap((void *)(uintptr_t)m->bytes, (size_t)m->size);
    *m = (zx_mapfile){0};
}
