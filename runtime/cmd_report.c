// cmd_report.c - zerox report: the curves of one or more runs in one page.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/cmd.h"
#include "runtime/outfile.h"
#include "runtime/report_runs.h"

static zx_status make_page(const zx_options *o, const char *path, zx_arena *mem, zx_err *err)
{
    zx_run_log *runs = ZX_NEW(mem, zx_run_log, o->n_operands);
    zx_text page = {0};
    ZX_TRY(zx_outfile_spare(path, zx_given(o, ZX_OPT_FORCE), err));
    for (uint32_t i = 0; i < o->n_operands; i++)
        ZX_TRY(zx_run_log_read(o->operands[i], mem, &runs[i], err));
    zx_report_runs_html(runs, o->n_operands, &page);
    const zx_status st = zx_outfile_put(path, page.at, page.n, mem, err);
    zx_text_free(&page);
    if (st == ZX_OK) zx_cmd_wrote(path, mem);
    return st;
}

int zx_cmd_report(const zx_options *o, zx_err *err)
{
    zx_arena mem = {0};
    const char *given = zx_given_text(o, ZX_OPT_OUTPUT);
    const zx_status st = make_page(o, given != NULL ? given : "report.html", &mem, err);
    zx_arena_free(&mem);
    return st == ZX_OK ? 0 : zx_status_exit(st);
}
