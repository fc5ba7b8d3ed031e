// hooks_text.c - a hook-driven micro-batch in the words of DeepSpeed's instrumented logs, line for
// line, so that the two can be compared.
// SPDX-License-Identifier: Apache-2.0
#include "sched/hooks.h"

static void put_list(const zx_decision *d, const uint32_t *lists, const char *const *safe,
                     const char *head, const char *unit, zx_text *out)
{
    zx_text_put(out, "   %s [", head);
    for (uint32_t i = 0; i < d->n; i++)
        zx_text_put(out, "%s'%s'", i > 0 ? ", " : "", safe[lists[d->first + i]]);
    zx_text_put(out, "] %s=%lld\n", unit, (long long)d->elements);
}

void zx_hooks_put(const zx_hooks *h, const zx_coordinator *c, uint32_t micro, zx_text *out)
{
    static const char *const modes[] = {"INVALID", "RECORD", "COMPLETE"};
    zx_arena mem = {0};
    const char **params = ZX_NEW(&mem, const char *, h->n_params + 1);
    const char **modules = ZX_NEW(&mem, const char *, h->n_modules + 1);
    for (uint32_t i = 0; i < h->n_params; i++) params[i] = zx_text_safe(&mem, h->params[i]);
    for (uint32_t i = 0; i < h->n_modules; i++)
        modules[i] = h->modules[i].path[0] ? zx_text_safe(&mem, h->modules[i].path) : "<root>";
    uint32_t n;
    const uint32_t *lists;
    const zx_decision *d = zx_coordinator_decided(c, &n, &lists);
    zx_text_put(out, "== MICRO %u\n", micro);
    for (uint32_t i = 0; i < n; i++, d++) {
        const char way = d->phase == ZX_FORWARD ? 'F' : 'B';
        switch ((zx_decision_kind)d->kind) {
        case ZX_DECIDED_FETCH:
            zx_text_put(out, "FETCH step=%u %c %s mode=%s avail=%lld\n", d->step, way,
                        modules[d->id], modes[d->mode], (long long)d->elements);
            break;
        case ZX_DECIDED_RELEASE:
            zx_text_put(out, "RELEASE step=%u %c %s\n", d->step, way, modules[d->id]);
            break;
        case ZX_DECIDED_GATHER:
            put_list(d, lists, params, "AG", "numel", out);
            break;
        case ZX_DECIDED_REDUCE:
            put_list(d, lists, params, "RS", "elems", out);
            break;
        case ZX_DECIDED_FREE:
            zx_text_put(out, "   FREE %s\n", params[d->id]);
            break;
        case ZX_DECIDED_GRAD:
            zx_text_put(out, "   GRAD %s\n", params[d->id]);
            break;
        case ZX_DECIDED_WAIT:
        case ZX_DECIDED_REGATHER:
            break;
        }
    }
    zx_arena_free(&mem);
}
