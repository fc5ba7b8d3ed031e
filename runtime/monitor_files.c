// monitor_files.c - the sinks of a monitor that DeepSpeed has as well: TensorBoard and CSV. Both
// count by samples.
// SPDX-License-Identifier: Apache-2.0
#include <limits.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "runtime/monitor_sink.h"
#include "runtime/rundir.h"

// ---- TensorBoard --------------------------------------------------------------------------------

static zx_status open_tensorboard(zx_sink *s, const zx_monitor_options *o ZX_UNUSED, zx_err *err)
{
    char host[256] = "";
    const long long now = (long long)time(NULL);
    ZX_TRY(zx_rundir_folder(s->path, s->mem, err));
    if (gethostname(host, sizeof host - 1) != 0 || host[0] == '\0') memcpy(host, "host", 5);
    for (char *c = host; *c != '\0'; c++)
        if (*c == '/') *c = '-';
    // Two runs of one second and process, as tests make them, have files of their own.
    for (unsigned n = 0; n < 10000; n++) {
        const char *path = zx_arena_printf(s->mem, "%s/events.out.tfevents.%lld.%s.%ld.%u", s->path,
                                           now, host, (long)getpid(), n);
        if (access(path, F_OK) == 0) continue;
        ZX_TRY(zx_log_open(&s->logs[0], path, false, err));
        break;
    }
    s->n_logs = 1;
    zx_tfevents_begin((double)now, &s->text);
    return zx_log_append(&s->logs[0], s->text.at, s->text.n, err);
}

static zx_status write_tensorboard(zx_sink *s, const zx_moment *at, zx_err *err)
{
    s->text.n = 0;
    zx_tfevents_scalars(at->wall_seconds, at->figures->samples, at->scalars, at->n, &s->text);
    return zx_log_append(&s->logs[0], s->text.at, s->text.n, err);
}

const zx_sink_kind zx_sink_tensorboard = {open_tensorboard, write_tensorboard};

// ---- CSV: a file a tag, which runs after each other append to -----------------------------------

static zx_status open_csv(zx_sink *s, const zx_monitor_options *o ZX_UNUSED, zx_err *err)
{
    return zx_rundir_folder(s->path, s->mem, err);
}

// The tag's file name: '/' and spaces are '_'.
static const char *file_of(const zx_sink *s, const char *tag)
{
    const char *path = zx_arena_printf(s->mem, "%s/%s.csv", s->path, tag);
    for (char *c = (char *)(uintptr_t)path + strlen(s->path) + 1; *c != '\0'; c++)
        if (*c == '/' || *c == ' ') *c = '_';
    return path;
}

static zx_status log_of(zx_sink *s, const char *tag, zx_log **out, zx_err *err)
{
    const size_t folder = strlen(s->path) + 1;
    for (uint32_t i = 0; i < s->n_logs; i++) {
        const char *name = s->logs[i].path + folder;
        size_t n = 0;
        while (tag[n] != '\0' && (name[n] == tag[n] || (name[n] == '_' && strchr("/ ", tag[n]))))
            n++;
        *out = &s->logs[i];
        if (tag[n] == '\0' && strcmp(name + n, ".csv") == 0) return ZX_OK;
    }
    struct stat info;
    *out = &s->logs[s->n_logs];
    ZX_TRY(zx_log_open(*out, file_of(s, tag), true, err));
    s->n_logs++;
    if (fstat((*out)->fd, &info) != 0 || info.st_size > 0) return ZX_OK;
    s->text.n = 0;
    zx_text_put(&s->text, "step,%s\n", strrchr(tag, '/') + 1);
    return zx_log_append(*out, s->text.at, s->text.n, err);
}

static zx_status write_csv(zx_sink *s, const zx_moment *at, zx_err *err)
{
    for (uint32_t i = 0; i < at->n; i++) {
        const zx_scalar *v = &at->scalars[i];
        zx_log *log;
        ZX_TRY(log_of(s, v->tag, &log, err));
        s->text.n = 0;
        zx_text_put(&s->text, "%llu,", (unsigned long long)at->figures->samples);
        if (isnan(v->value))
            zx_text_put(&s->text, "nan\n");
        else
            zx_text_put(&s->text, "%.9g\n", v->value);
        ZX_TRY(zx_log_append(log, s->text.at, s->text.n, err));
    }
    return ZX_OK;
}

const zx_sink_kind zx_sink_csv = {open_csv, write_csv};
