// fuzz_files.c - any bytes as a .safetensors, .npy or JSON file; the first byte says which.
// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "proto/json.h"
#include "proto/npy.h"
#include "proto/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    zx_arena mem = {0};
    zx_err err = {0};
    zx_safe_file safe;
    zx_npy npy;
    json_t *json;
    char path[64];
    if (n == 0) return 0;
    const int kind = bytes[0] % 3;
    if (kind == 2) {
        if (zx_json_parse("fuzz.json", (const char *)bytes + 1, n - 1, &json, &err) == ZX_OK)
            json_decref(json);
        return 0;
    }
    const int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || write(fd, bytes + 1, n - 1) != (ssize_t)(n - 1)) return 0;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (kind == 0) {
        zx_safe_open(&safe, path, &mem, &err);
        zx_safe_close(&safe);
    } else {
        zx_npy_open(&npy, path, &err);
        zx_npy_close(&npy);
    }
    close(fd);
    zx_arena_free(&mem);
    return 0;
}
