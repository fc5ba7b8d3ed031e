// planfile.c - see planfile.h.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/planfile.h"

#include <inttypes.h>
#include <string.h>

#include "proto/mapfile.h"
#include "runtime/outfile.h"
#include "sched/check.h"

#define VERSION 2

static const char magic[8] = "zxplanf";

typedef struct file_head {
    char magic[8];
    uint64_t version, checksum; // FNV-1a 64 of all that follows the head
    uint64_t plan_bytes, name_bytes;
} file_head;
static_assert(sizeof(file_head) == 40, "no padding");

static uint64_t checksum_of(const unsigned char *at, uint64_t n)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (uint64_t i = 0; i < n; i++) h = (h ^ at[i]) * UINT64_C(0x100000001b3);
    return h;
}

zx_status zx_plan_save(const zx_plan *p, const zx_graph *train, const char *recompute,
                       const char *path, zx_arena *mem, zx_err *err)
{
    zx_text file = {0};
    file_head h = {.version = VERSION};
    memcpy(h.magic, magic, sizeof magic);
    zx_text_bytes(&file, &h, sizeof h);
    zx_plan_pack(p, &file);
    h.plan_bytes = file.n - sizeof h;
    zx_text_bytes(&file, train->name, strlen(train->name) + 1);
    zx_text_bytes(&file, recompute, strlen(recompute) + 1);
    for (uint32_t i = 0; i < p->n_units; i++)
        zx_text_bytes(&file, train->params[i].name, strlen(train->params[i].name) + 1);
    h.name_bytes = file.n - sizeof h - h.plan_bytes;
    h.checksum = checksum_of((const unsigned char *)file.at + sizeof h, file.n - sizeof h);
    memcpy(file.at, &h, sizeof h);
    const zx_status st = zx_outfile_put(path, file.at, file.n, mem, err);
    zx_text_free(&file);
    return st;
}

// n + 2 texts, each with its end, one after the other and nothing else.
static zx_status read_names(const char *at, uint64_t bytes, zx_arena *mem, zx_planfile *out,
                            zx_err *err)
{
    const uint32_t n = out->plan.n_units;
    uint64_t ends = 0;
    for (uint64_t i = 0; i < bytes; i++) ends += at[i] == '\0';
    if (ends != (uint64_t)n + 2 || at[bytes - 1] != '\0')
        return ZX_FAIL(err, ZX_E_FORMAT, "the plan has %u parameters and %" PRIu64 " names", n,
                       ends);
    const char *text = zx_arena_copy(mem, at, (size_t)bytes);
    const char **units = ZX_NEW(mem, const char *, n);
    out->graph = text;
    out->recompute = text += strlen(text) + 1;
    for (uint32_t i = 0; i < n; i++) units[i] = text += strlen(text) + 1;
    out->units = units;
    return ZX_OK;
}

static zx_status read_file(const zx_mapfile *m, zx_arena *mem, zx_planfile *out, zx_err *err)
{
    file_head h;
    if (m->size < sizeof h || memcmp(m->bytes, magic, sizeof magic) != 0)
        return ZX_FAIL(err, ZX_E_FORMAT, "not a plan");
    memcpy(&h, m->bytes, sizeof h);
    if (h.version != VERSION)
        return ZX_FAIL(err, ZX_E_FORMAT,
                       "a plan file of version %" PRIu64 ", this zerox reads version %d", h.version,
                       VERSION);
    const uint64_t rest = m->size - sizeof h;
    if (h.plan_bytes > rest || h.name_bytes != rest - h.plan_bytes || h.name_bytes == 0)
        return ZX_FAIL(err, ZX_E_FORMAT,
                       "%" PRIu64 " bytes, a plan of %" PRIu64 " and names of %" PRIu64
                       " were written: cut short or added to",
                       m->size, h.plan_bytes, h.name_bytes);
    const unsigned char *at = m->bytes + sizeof h;
    if (checksum_of(at, rest) != h.checksum)
        return ZX_FAIL(err, ZX_E_FORMAT, "its bytes aren't those that were written (checksum)");
    ZX_TRY(zx_plan_unpack(at, (size_t)h.plan_bytes, mem, &out->plan, err));
    ZX_TRY(zx_plan_bounds(&out->plan, err));
    return read_names((const char *)at + h.plan_bytes, h.name_bytes, mem, out, err);
}

zx_status zx_plan_load(const char *path, zx_arena *mem, zx_planfile *out, zx_err *err)
{
    zx_mapfile m;
    *out = (zx_planfile){0};
    ZX_TRY(zx_mapfile_open(&m, path, err));
    const zx_status st = read_file(&m, mem, out, err);
    if (st != ZX_OK) {
        zx_err_in(err, "%s", zx_text_safe(mem, path));
        zx_err_hint(err, "zerox plan MODEL -o FILE writes a plan");
    }
    zx_mapfile_close(&m);
    return st;
}
