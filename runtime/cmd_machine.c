// cmd_machine.c - zerox machine, and which machine a command plans for.
// SPDX-License-Identifier: Apache-2.0
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "runtime/calibrate.h"
#include "runtime/cmd.h"
#include "runtime/cmd_machine.h"
#include "runtime/progress.h"

#define MOST_MACHINE_RANKS (1 << 20)
#define HOUR 3600
#define DAY (24 * HOUR)

static bool is_file(const char *name)
{
    const size_t n = strlen(name);
    struct stat info;
    return strchr(name, '/') != NULL || (n > 5 && strcmp(name + n - 5, ".json") == 0) ||
           (stat(name, &info) == 0 && S_ISREG(info.st_mode));
}

static zx_status read_machine(const char *path, uint32_t ranks, zx_machine *out, zx_err *err)
{
    ZX_TRY(zx_machine_read(path, out, err));
    if (ranks != 0 && out->ranks != 0 && out->ranks != ranks)
        return ZX_FAIL(err, ZX_E_USAGE, "machine %s is one of %u ranks, not %u", out->name,
                       out->ranks, ranks);
    return ZX_OK;
}

// Of this host. What couldn't be measured isn't worth failing for: then constants will do.
static zx_status this_host(uint32_t ranks, uint32_t threads, bool again, zx_arena *mem,
                           zx_notes *notes, zx_machine *out, zx_err *err)
{
    zx_calibrated c;
    if (getenv("ZX_NO_CALIBRATE") != NULL && !again) {
        *out = zx_machine_host(ranks, threads);
        return ZX_OK;
    }
    zx_err failed = {0};
    if (zx_calibrate_host(ranks, threads, again, mem, &c, &failed) != ZX_OK) {
        if (again) return zx_err_merge(err, &failed);
        zx_note(notes, mem, "this host could not be measured (%s): planned with constants",
                failed.cause[0]);
        *out = zx_machine_host(ranks, threads);
        return ZX_OK;
    }
    *out = c.machine;
    if (c.fresh)
        zx_note(notes, mem, "this host was measured in %.1f s for %u x %u threads, %s%s", c.seconds,
                ranks, threads,
                c.path != NULL ? "kept in " : "not kept: ", c.path != NULL ? c.path : c.why);
    return ZX_OK;
}

zx_status zx_cmd_machine_of(const zx_options *o, uint32_t ranks, uint32_t threads, zx_arena *mem,
                            zx_notes *notes, zx_machine *out, zx_err *err)
{
    const char *name = zx_given_text(o, ZX_OPT_MACHINE);
    if (name == NULL || strcmp(name, "host") == 0)
        return this_host(ranks, threads, false, mem, notes, out, err);
    if (strcmp(name, "constants") == 0) {
        *out = zx_machine_host(ranks, threads);
        return ZX_OK;
    }
    return is_file(name) ? read_machine(name, ranks, out, err)
                         : zx_machine_find(name, ranks, out, err);
}

static const char *rate_text(double rate, const char *unit,
                             char buf[ZX_BYTES_TEXT]) // "737 GFLOP/s"
{
    char text[ZX_BYTES_TEXT];
    zx_text_count(rate, text);
    const int digits = (int)strspn(text, "0123456789.");
    snprintf(buf, ZX_BYTES_TEXT, "%.*s %.2s%.8s/s", digits < 8 ? digits : 8, text, text + digits,
             unit);
    return buf;
}

// What is planned for a device, and how sure its figures are.
static zx_status machine_of_device(const zx_device *d, const zx_device_use *use, zx_arena *mem,
                                   zx_notes *notes, zx_machine *out, zx_err *err)
{
    bool known;
    char flops[ZX_BYTES_TEXT], memory[ZX_BYTES_TEXT], link[ZX_BYTES_TEXT];
    ZX_TRY(zx_machine_of_device(d, use, out, &known, err));
    const char *name = zx_text_safe(mem, d->name);
    const char *linked = "";
    if (use->ranks > 1 && out->wire > 0)
        linked = zx_arena_printf(mem, ", %s between ranks", rate_text(out->wire, "B", link));
    if (known)
        zx_note(notes, mem, "planned for %s by its row of zerox machine --list, as %s%s%s", name,
                out->name, linked[0] != '\0' ? "; assumed" : "", linked);
    else
        zx_note(notes, mem,
                "planned for %s by its own figures, assumed: %s of products, %s of "
                "memory%s; zerox machine --list has none of it",
                name, rate_text(out->flops, "FLOP", flops), rate_text(out->memory, "B", memory),
                linked);
    return ZX_OK;
}

zx_status zx_cmd_machine_at(const zx_site *site, const zx_options *o, uint32_t ranks,
                            uint32_t threads, zx_arena *mem, zx_notes *notes, zx_machine *out,
                            zx_err *err)
{
    const char *comm = zx_given_text(o, ZX_OPT_COMM);
    const zx_device_use use = {ranks, site->share, comm != NULL && strcmp(comm, "shm") == 0};
    zx_device d;
    if (site->gpu == NULL) return zx_cmd_machine_of(o, ranks, threads, mem, notes, out, err);
    ZX_TRY(zx_site_look(site, &d, err));
    return machine_of_device(&d, &use, mem, notes, out, err);
}

// A GPU's kernels want another scratch, and have another memory.
zx_status zx_cmd_site_open(const zx_options *o, zx_site *site, uint64_t *ranks, zx_err *err)
{
    const zx_backend *backend;
    uint32_t devices;
    if (zx_given(o, ZX_OPT_MACHINE) && zx_given(o, ZX_OPT_BACKEND))
        return ZX_FAIL(err, ZX_E_USAGE, "--backend is of this host, --machine names another");
    if (zx_given(o, ZX_OPT_MACHINE)) return ZX_OK;
    ZX_TRY(zx_backend_choose(zx_given_text(o, ZX_OPT_BACKEND), &backend, &devices, err));
    if (devices > 0 && !zx_given(o, ZX_OPT_RANKS)) *ranks = devices;
    ZX_TRY(zx_site_open(site, backend, 0, NULL, err));
    site->devices = devices;
    return ZX_OK;
}

uint64_t zx_cmd_ranks(const zx_options *o)
{
    const char *name = zx_given_text(o, ZX_OPT_MACHINE);
    const bool host = name == NULL || strcmp(name, "host") == 0 || strcmp(name, "constants") == 0;
    zx_machine m;
    if (zx_given(o, ZX_OPT_RANKS) || host) return zx_given_number(o, ZX_OPT_RANKS, 1);
    // A wrong name is told of later, by who needs the machine.
    const zx_status st =
        is_file(name) ? zx_machine_read(name, &m, NULL) : zx_machine_find(name, 0, &m, NULL);
    return st == ZX_OK && m.ranks > 0 ? m.ranks : 1;
}

// ---- zerox machine ------------------------------------------------------------------------------

static void put_rate(zx_text *out, const char *what, double rate, const char *unit)
{
    char text[ZX_BYTES_TEXT];
    if (rate > 0) zx_text_put(out, "%-18s %s\n", what, rate_text(rate, unit, text));
}

static void put_time(zx_text *out, const char *what, double seconds)
{
    char text[ZX_BYTES_TEXT];
    if (seconds > 0) zx_text_put(out, "%-18s %s\n", what, zx_progress_time(seconds, text));
}

// What is measured in a type of 16 bits.
static void put_rates_16(zx_text *out, const char *type, const zx_rates_16 *r)
{
    const struct {
        const char *what;
        double rate;
        const char *unit;
    } rows[] = {
        {"products", r->flops, "FLOP"},
        {"b turned", r->flops_nt, "FLOP"},
        {"a turned", r->flops_tn, "FLOP"},
        {"elementwise", r->memory, "B"},
        {"adding", r->sum, "B"},
        {"updates", r->update, "B"},
        {"norm", r->norm, "B"},
    };
    for (size_t i = 0; i < ZX_COUNT(rows); i++) {
        char what[32];
        snprintf(what, sizeof what, "%s %s", type, rows[i].what);
        put_rate(out, what, rows[i].rate, rows[i].unit);
    }
}

static void put_collectives(const zx_machine *m, zx_text *out)
{
    if (m->ranks < 2) return;
    zx_text_put(out, "\n%-10s  %12s  %14s\n", "full size", "all-gather", "reduce-scatter");
    for (uint64_t bytes = 1 << 16; bytes <= UINT64_C(1) << 32; bytes *= 16) {
        char size[ZX_BYTES_TEXT], gather[ZX_BYTES_TEXT], reduce[ZX_BYTES_TEXT];
        zx_text_put(out, "%-10s  %12s  %14s\n", zx_text_size(bytes, size),
                    zx_progress_time(zx_gather_seconds(m, m->ranks, bytes), gather),
                    zx_progress_time(zx_reduce_seconds(m, m->ranks, bytes), reduce));
    }
}

// When the figures were taken that are kept of this host.
static void put_age(const zx_machine *m, zx_text *out)
{
    zx_arena mem = {0};
    struct stat info;
    const char *path = zx_calibrate_path(m->ranks, m->threads, &mem);
    if (path != NULL && stat(path, &info) == 0) {
        const long long age = (long long)(time(NULL) - info.st_mtime);
        zx_text_put(out, "%-18s ", "measured");
        if (age < 120)
            zx_text_put(out, "just now");
        else if (age < 2 * HOUR)
            zx_text_put(out, "%lld minutes ago", age / 60);
        else if (age < 2 * DAY)
            zx_text_put(out, "%lld hours ago", age / HOUR);
        else
            zx_text_put(out, "%lld days ago", age / DAY);
        zx_text_put(out, " for %u x %u thread%s, kept in %s\n", m->ranks, m->threads,
                    m->ranks * m->threads == 1 ? "" : "s", zx_text_safe(&mem, path));
    }
    zx_arena_free(&mem);
}

static void put_text(const zx_machine *m, bool measured, zx_text *out)
{
    char size[ZX_BYTES_TEXT];
    zx_arena mem = {0};
    zx_text_put(out, "%s: %s\n", zx_text_safe(&mem, m->name),
                m->host ? "this host, as each of its ranks finds it"
                        : "each of its ranks; nothing on it is measured here");
    zx_arena_free(&mem);
    if (measured) put_age(m, out);
    if (m->ranks > 0) zx_text_put(out, "%-18s %u\n", "ranks", m->ranks);
    if (m->cores > 0) zx_text_put(out, "%-18s %u on %.3g cores\n", "threads", m->threads, m->cores);
    if (m->device_bytes > 0)
        zx_text_put(out, "%-18s %s\n", "memory", zx_text_size(m->device_bytes, size));
    put_rate(out, "products", m->flops, "FLOP");
    if (m->flops_16 != m->flops && m->bf16.flops <= 0)
        put_rate(out, "in 16 bits", m->flops_16, "FLOP");
    put_rate(out, "elementwise", m->memory, "B");
    put_rate(out, "copies", m->copy, "B");
    put_rate(out, "adding gradients", m->sum, "B");
    put_rate(out, "updates", m->update, "B");
    put_rate(out, "norm", m->norm, "B");
    put_rates_16(out, "bf16", &m->bf16);
    put_rates_16(out, "fp16", &m->fp16);
    put_time(out, "least operation", m->op_seconds);
    put_time(out, "host, a launch", m->host_seconds);
    put_time(out, "host, a hook", m->hook_seconds);
    if (m->wire > 0 && m->wire < ZX_MACHINE_NO_WIRE) put_rate(out, "link", m->wire, "B");
    put_time(out, "latency", m->latency);
    if (m->interference > 0)
        zx_text_put(out, "%-18s %.3g times as long beside a collective\n", "compute",
                    1 + m->interference);
    put_collectives(m, out);
}

static void put_devices(zx_text *out)
{
    zx_device list[64];
    char all[ZX_BYTES_TEXT], left[ZX_BYTES_TEXT], rate[ZX_BYTES_TEXT];
    zx_err err = {0};
    uint32_t n;
    bool built;
    zx_arena mem = {0};
    if (zx_backend_devices(list, ZX_COUNT(list), &n, &built, &err) != ZX_OK) n = 0;
    const char *why = built ? err.cause[0] : "this zerox was built without CUDA";
    if (n == 0)
        zx_text_put(out, "%-18s none%s%s\n", "GPUs", why[0] != '\0' ? ": " : "",
                    zx_text_safe(&mem, why));
    for (uint32_t i = 0; i < n; i++) {
        const zx_device *d = &list[i];
        zx_text_put(out, "GPU %-14u %s: memory %s, %s free", i, zx_text_safe(&mem, d->name),
                    zx_text_size(d->bytes, all), zx_text_size(d->free_bytes, left));
        if (d->bandwidth > 0) zx_text_put(out, ", %s", rate_text(d->bandwidth, "B", rate));
        zx_text_put(out, "; compute capability %u.%u, %u SMs", d->major, d->minor, d->processors);
        if (d->clock > 0) zx_text_put(out, " at %.3g GHz", d->clock * 1e-9);
        zx_text_put(out, "\n");
    }
    zx_arena_free(&mem);
}

// --backend: the machine of this host's GPUs, in place of its cores. *gpus: it is that.
static zx_status choose_gpus(const zx_options *o, zx_arena *mem, zx_notes *notes, zx_machine *m,
                             bool *gpus, zx_err *err)
{
    const char *word = zx_given_text(o, ZX_OPT_BACKEND);
    const zx_backend *backend;
    uint32_t n;
    zx_device first;
    *gpus = false;
    if (word == NULL) return ZX_OK;
    if (o->operand != NULL || zx_given(o, ZX_OPT_MACHINE))
        return ZX_FAIL(err, ZX_E_USAGE, "--backend is of this host, --machine names another");
    ZX_TRY(zx_backend_choose(word, &backend, &n, err));
    if (backend == &zx_backend_cpu) return ZX_OK;
    if (zx_given(o, ZX_OPT_CALIBRATE)) {
        zx_err_hint(err, "--backend cpu");
        return ZX_FAIL(err, ZX_E_UNSUPPORTED,
                       "--calibrate: GPUs aren't measured, plans are made by the rows of zerox "
                       "machine --list or by what a device says of itself");
    }
    const uint64_t ranks = zx_given_number(o, ZX_OPT_RANKS, n);
    ZX_TRY(zx_backend_devices(&first, 1, &n, gpus, err));
    if (n == 0) return ZX_FAIL(err, ZX_E_DEVICE, "the devices are gone");
    ZX_TRY(zx_cmd_check_ranks(ranks, MOST_MACHINE_RANKS, err));
    const zx_device_use use = {.ranks = (uint32_t)ranks};
    ZX_TRY(machine_of_device(&first, &use, mem, notes, m, err));
    m->host = false; // as a file for --machine, its memory is the device's
    return ZX_OK;
}

static zx_status choose(const zx_options *o, zx_arena *mem, zx_notes *notes, zx_machine *m,
                        zx_err *err)
{
    zx_options as = *o; // the operand is a --machine
    const bool again = zx_given(o, ZX_OPT_CALIBRATE);
    if (o->operand != NULL && (again || zx_given(o, ZX_OPT_MACHINE)))
        return ZX_FAIL(err, ZX_E_USAGE, "machine %s: %s goes with no name", o->operand,
                       again ? "--calibrate" : "--machine");
    if (o->operand != NULL) as.value[ZX_OPT_MACHINE] = (zx_option_value){1, 1, &as.operand, 0};
    const uint64_t ranks = zx_cmd_ranks(&as);
    const uint32_t cores = zx_memory_cores();
    ZX_TRY(zx_cmd_check_ranks(ranks, MOST_MACHINE_RANKS, err));
    const uint64_t each = cores / (uint32_t)ranks > 0 ? cores / (uint32_t)ranks : 1;
    const uint64_t threads = zx_given_number(o, ZX_OPT_THREADS, each);
    if (threads > 1024)
        return ZX_FAIL(err, ZX_E_USAGE, "--threads %" PRIu64 " is too many", threads);
    if (again) return this_host((uint32_t)ranks, (uint32_t)threads, true, mem, notes, m, err);
    return zx_cmd_machine_of(&as, (uint32_t)ranks, (uint32_t)threads, mem, notes, m, err);
}

// Neither another machine nor constants are shown.
static bool is_measured(const zx_options *o)
{
    const char *given = zx_given_text(o, ZX_OPT_MACHINE);
    const char *name = o->operand != NULL ? o->operand : given;
    if (name != NULL && strcmp(name, "host") != 0) return false;
    return getenv("ZX_NO_CALIBRATE") == NULL || zx_given(o, ZX_OPT_CALIBRATE);
}

int zx_cmd_machine(const zx_options *o, zx_err *err)
{
    zx_arena mem = {0};
    zx_text out = {0};
    zx_notes notes = {0};
    zx_machine m;
    zx_status st = ZX_OK;
    bool gpus = false;
    const char *format = zx_given_text(o, ZX_OPT_FORMAT);
    const bool json = format != NULL && strcmp(format, "json") == 0;
    if (format != NULL && !json && strcmp(format, "text") != 0)
        st = ZX_FAIL(err, ZX_E_USAGE, "--format of machine is text or json, not '%s'",
                     zx_text_safe(&mem, format));
    else if (zx_given(o, ZX_OPT_LIST_PRESETS))
        zx_machine_list(&out);
    else
        st = choose_gpus(o, &mem, &notes, &m, &gpus, err);
    if (st == ZX_OK && out.n == 0 && !gpus) st = choose(o, &mem, &notes, &m, err);
    for (uint32_t i = 0; i < notes.n; i++)
        zx_cmd_say("note: %s", zx_text_safe(&mem, notes.text[i]));
    if (st == ZX_OK && out.n == 0 && json) zx_machine_put(&m, &out);
    if (st == ZX_OK && out.n == 0) {
        put_text(&m, !gpus && is_measured(o), &out);
        if (gpus || m.host) put_devices(&out);
    }
    if (st == ZX_OK) zx_cmd_put(&out);
    zx_text_free(&out);
    zx_arena_free(&mem);
    return zx_status_exit(st);
}
