// memory.c - reads /proc and the cgroup's files; see memory.h.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/memory.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/base/text.h"

// The number behind "KEY:" in a file of such lines, in kB as /proc writes them; 0: there is none.
static uint64_t read_kb(const char *path, const char *key)
{
    FILE *f = fopen(path, "re");
    if (f == NULL) return 0;
    char line[256];
    uint64_t kb = 0;
    const size_t n = strlen(key);
    while (fgets(line, sizeof line, f) != NULL)
        if (strncmp(line, key, n) == 0 && line[n] == ':') kb = strtoull(line + n + 1, NULL, 10);
    fclose(f);
    return kb * 1024;
}

static bool read_line(const char *path, char *line, size_t n)
{
    FILE *f = fopen(path, "re");
    if (f == NULL) return false;
    const bool ok = fgets(line, (int)n, f) != NULL;
    fclose(f);
    return ok;
}

// Calls `look` with each folder from this process's cgroup up to the root of the hierarchy.
typedef void look_fn(const char *folder, void *to);

static void each_cgroup(const char *mount, const char *own, look_fn *look, void *to)
{
    char folder[PATH_MAX];
    int n = snprintf(folder, sizeof folder, "%s%s", mount, own);
    if (n <= 0 || n >= (int)sizeof folder) return;
    const size_t root = strlen(mount);
    for (;;) {
        look(folder, to);
        if (strlen(folder) <= root) return;
        char *slash = strrchr(folder, '/');
        if (slash == NULL || (size_t)(slash - folder) < root) return;
        *slash = '\0';
    }
}

static void each_own_cgroup(look_fn *v2, look_fn *v1, void *to)
{
    FILE *f = fopen("/proc/self/cgroup", "re");
    if (f == NULL) return;
    char line[PATH_MAX];
    while (fgets(line, sizeof line, f) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        char *list = strchr(line, ':'), *own = list != NULL ? strchr(list + 1, ':') : NULL;
        if (own == NULL) continue;
        *own++ = '\0';
        list++;
        if (list[0] == '\0') each_cgroup("/sys/fs/cgroup", own, v2, to);
        if (strstr(list, "memory") != NULL) each_cgroup("/sys/fs/cgroup/memory", own, v1, to);
    }
    fclose(f);
}

static void take_limit(const char *folder, const char *file, uint64_t *least)
{
    char path[PATH_MAX + 32], line[64];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    if (!read_line(path, line, sizeof line) || line[0] < '0' || line[0] > '9') return; // "max"
    const uint64_t bytes = strtoull(line, NULL, 10);
    if (bytes > 0 && bytes < *least) *least = bytes;
}

static void look_memory_v2(const char *folder, void *to)
{
    take_limit(folder, "memory.max", to);
}

static void look_memory_v1(const char *folder, void *to)
{
    take_limit(folder, "memory.limit_in_bytes", to);
}

uint64_t zx_memory_usable(void)
{
    uint64_t least = UINT64_MAX;
    each_own_cgroup(look_memory_v2, look_memory_v1, &least);
    const uint64_t available = read_kb("/proc/meminfo", "MemAvailable");
    if (available > 0 && available < least) least = available;
    return least == UINT64_MAX ? 0 : least;
}

uint64_t zx_memory_pss(void)
{
    return read_kb("/proc/self/smaps_rollup", "Pss");
}

static void look_quota_v2(const char *folder, void *to)
{
    char path[PATH_MAX + 32], line[64];
    double *least = to, quota, period;
    snprintf(path, sizeof path, "%s/cpu.max", folder);
    if (read_line(path, line, sizeof line) && sscanf(line, "%lf %lf", &quota, &period) == 2 &&
        period > 0 && quota / period < *least)
        *least = quota / period;
}

static void look_nothing(const char *folder, void *to)
{
    (void)folder;
    (void)to;
}

uint32_t zx_memory_cores(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    double cores = 1;
    if (sched_getaffinity(0, sizeof set, &set) == 0) cores = CPU_COUNT(&set);
    double quota = cores;
    each_own_cgroup(look_quota_v2, look_nothing, &quota);
    if (quota < cores) cores = quota;
    return cores < 1 ? 1 : (uint32_t)cores;
}

zx_status zx_budget_parse(const char *text, uint64_t usable, uint32_t local_ranks, zx_budget *out,
                          zx_err *err)
{
    *out = (zx_budget){.roomy = text == NULL, .bytes = UINT64_MAX};
    if (text != NULL && strcmp(text, "min") == 0) {
        out->least = true;
        return ZX_OK;
    }
    const char *size = text != NULL ? text : "80%";
    const size_t n = strlen(size);
    if (n == 0 || size[n - 1] != '%') {
        if (zx_text_parse_size(size, &out->bytes) && out->bytes > 0) return ZX_OK;
        zx_err_hint(err, "a size like 24GB, 24GiB or 80%%, or min");
        return ZX_FAIL(err, ZX_E_USAGE, "--budget: '%s' is no size", size);
    }
    char *end = NULL;
    const double percent = strtod(size, &end);
    if (end != size + n - 1 || !(percent > 0 && percent <= 100)) {
        zx_err_hint(err, "a size like 24GB, 24GiB or 80%%, or min");
        return ZX_FAIL(err, ZX_E_USAGE, "--budget: '%s' is no percentage up to 100%%", size);
    }
    if (usable > 0) out->bytes = (uint64_t)((double)usable * percent / 100) / local_ranks;
    return ZX_OK;
}
