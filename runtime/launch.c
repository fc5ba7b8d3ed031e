// launch.c - see launch.h.
//
// The launcher forks its ranks before anything has started a thread, waits, and passes signals on.
// A rank's error comes back over a pipe, so that it is said once. Ranks die with the launcher
// (PR_SET_PDEATHSIG) and notice each other's death over their connections.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runtime/world_link.h"

#define JOIN_SECONDS 120.0
#define NOTICE_SECONDS 30.0
#define GRACE_SECONDS 3.0 // that ranks have to end by themselves once one has failed
#define LOOK_SECONDS 0.1
#define SAME_SECONDS                                                                               \
    0.1 // timeout(1) sends to its child and to its group: one wish within that time

static const int stop_signals[] = {SIGINT, SIGTERM, SIGHUP};

static double now_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// ---- in a rank: signals -------------------------------------------------------------------------
//
// A handler knows nothing but what is static; these are the only variables of the program that are.

enum { FROM_ELSEWHERE, FROM_TERMINAL, FROM_PARENT, SENDERS };
static struct {
    _Atomic(zx_session *) session; // asked to stop
    _Atomic int watched;           // zx_launch_watch was called: there may be something to save
    _Atomic int signal;            // the first
    _Atomic double since[SENDERS]; // when a sender's first one came
    int launched;                  // the launcher counts, and kills
    int pipe;                      // to it
    pid_t parent;
} watch;

// A terminal's Ctrl-C reaches a launcher and its ranks alike, and the launcher passes it on: the
// same wish from another sender is no second one.
static void on_signal(int number, siginfo_t *info, void *context)
{
    (void)context;
    int from = FROM_ELSEWHERE;
    if (info->si_code > 0)
        from = FROM_TERMINAL; // the kernel sent it
    else if (info->si_pid == watch.parent)
        from = FROM_PARENT;
    int none = 0;
    atomic_compare_exchange_strong(&watch.signal, &none, number);
    double never = 0;
    const double now = now_seconds();
    const bool again = !atomic_compare_exchange_strong(&watch.since[from], &never, now) &&
                       now > never + SAME_SECONDS;
    if (!atomic_load(&watch.watched) || (again && !watch.launched))
        _exit(128 + atomic_load(&watch.signal));
    zx_session *s = atomic_load(&watch.session);
    if (s != NULL) zx_session_ask_stop(s);
}

// nohup's SIGHUP stays ignored. SIGINT doesn't: scripts start their background jobs with it ignored
// and mean it all the same when they send it.
static bool is_ignored(int number)
{
    struct sigaction before;
    return number == SIGHUP && sigaction(number, NULL, &before) == 0 &&
           before.sa_handler == SIG_IGN;
}

#define BUS_HINT "leave model and data files alone while they are trained on, or less memory"

// Mapped files are read where they lie: one that is cut off ends a process so. A launcher says it
// of its ranks.
static void on_bus(int number)
{
    static const char text[] = "zerox: a file that the run reads became shorter (or the host's "
                               "memory ran out)\ntry: " BUS_HINT "\n";
    (void)number;
    const ssize_t k = write(STDERR_FILENO, text, sizeof text - 1);
    (void)k;
    _exit(1); // as other files that can't be read
}

static void handle_signals(bool launched)
{
    watch.launched = launched;
    watch.parent = getppid();
    if (!launched) signal(SIGBUS, on_bus);
    struct sigaction a = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigemptyset(&a.sa_mask);
    for (size_t i = 0; i < ZX_COUNT(stop_signals); i++)
        if (!is_ignored(stop_signals[i])) sigaction(stop_signals[i], &a, NULL);
}

void zx_launch_watch(zx_session *s)
{
    atomic_store(&watch.session, s);
    atomic_store(&watch.watched, 1);
    if (s != NULL && atomic_load(&watch.signal) != 0) zx_session_ask_stop(s);
}

int zx_launch_signal(void)
{
    return atomic_load(&watch.signal);
}

// Fits in a pipe: this never waits for a reader.
static void tell_launcher(const zx_err *err)
{
    const ssize_t k = write(watch.pipe, err, sizeof *err);
    (void)k;
}

void zx_launch_give_up(const zx_err *why, void (*say)(const zx_err *why))
{
    if (watch.launched)
        tell_launcher(why);
    else
        say(why);
    _exit(zx_status_exit(why->code));
}

// ---- who am I -----------------------------------------------------------------------------------

static bool number_of(const char *text, uint32_t most, uint32_t *out)
{
    char *end;
    errno = 0;
    const long n = strtol(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || n < 0 || n > (long)most) return false;
    *out = (uint32_t)n;
    return true;
}

static zx_status number_var(const char *name, const char *text, uint32_t most, uint32_t *out,
                            zx_err *err)
{
    if (number_of(text, most, out)) return ZX_OK;
    return ZX_FAIL(err, ZX_E_USAGE,
                   "%s is '%.40s' in the environment: a number from 0 to %u is due", name, text,
                   most);
}

enum { RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT, VARS };
static const char *const var_names[VARS] = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR",
                                            "MASTER_PORT"};

static zx_status several_hosts(zx_err *err, const char *why, uint32_t a, uint32_t b)
{
    zx_err_hint(err, "start all ranks on one host");
    return ZX_FAIL(err, ZX_E_UNSUPPORTED,
                   "ranks on several hosts aren't supported yet (%s: %u and %u)", why, a, b);
}

static zx_status who_by_launcher(const char *const *var, uint32_t ranks, zx_who *out, zx_err *err)
{
    uint32_t rank, size, local, port;
    ZX_TRY(number_var("WORLD_SIZE", var[WORLD_SIZE], ZX_WORLD_MOST_RANKS, &size, err));
    ZX_TRY(number_var("RANK", var[RANK], ZX_WORLD_MOST_RANKS, &rank, err));
    ZX_TRY(number_var("LOCAL_RANK", var[LOCAL_RANK], ZX_WORLD_MOST_RANKS, &local, err));
    ZX_TRY(number_var("MASTER_PORT", var[MASTER_PORT], 65535, &port, err));
    if (size == 0 || rank >= size)
        return ZX_FAIL(err, ZX_E_USAGE, "RANK is %u and WORLD_SIZE %u in the environment", rank,
                       size);
    if (ranks != 0 && ranks != size) {
        zx_err_hint(err, "leave --ranks out, or unset the launcher's variables");
        return ZX_FAIL(err, ZX_E_USAGE, "--ranks %u, but the launcher started %u (WORLD_SIZE)",
                       ranks, size);
    }
    const char *text = getenv("LOCAL_WORLD_SIZE");
    uint32_t here = size;
    if (text != NULL) ZX_TRY(number_var("LOCAL_WORLD_SIZE", text, ZX_WORLD_MOST_RANKS, &here, err));
    if (here != size) return several_hosts(err, "WORLD_SIZE and LOCAL_WORLD_SIZE", size, here);
    if (local != rank) return several_hosts(err, "RANK and LOCAL_RANK", rank, local);
    out->kind = size == 1 ? ZX_WHO_ALONE : ZX_WHO_RANK;
    out->rank = rank;
    out->ranks = size;
    snprintf(out->name, sizeof out->name, "zerox-%u-%.64s-%u", (unsigned)geteuid(),
             var[MASTER_ADDR], port);
    return ZX_OK;
}

// Which of the five are set though not all are: somebody's shell, not a launcher.
static void note_some(const char *const *var, zx_who *out)
{
    size_t at = 0;
    for (int i = 0; i < VARS; i++)
        if (var[i] != NULL)
            at += (size_t)snprintf(out->note + at, sizeof out->note - at, "%s%s",
                                   at > 0 ? ", " : "", var_names[i]);
    if (at == 0) return;
    snprintf(out->note + at, sizeof out->note - at,
             " in the environment ignored: a launcher sets all "
             "of RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, "
             "MASTER_PORT");
}

zx_status zx_launch_who(uint32_t ranks, zx_who *out, zx_err *err)
{
    *out = (zx_who){.join_seconds = JOIN_SECONDS};
    const char *var[VARS];
    int n_set = 0;
    for (int i = 0; i < VARS; i++) {
        var[i] = getenv(var_names[i]);
        n_set += var[i] != NULL;
    }
    if (n_set == VARS) return who_by_launcher(var, ranks, out, err);
    note_some(var, out);
    out->ranks = ranks == 0 ? 1 : ranks;
    if (out->ranks > ZX_WORLD_MOST_RANKS)
        return ZX_FAIL(err, ZX_E_USAGE, "--ranks %u: 1 to %d are possible", ranks,
                       ZX_WORLD_MOST_RANKS);
    out->kind = out->ranks == 1 ? ZX_WHO_ALONE : ZX_WHO_LAUNCHER;
    uint64_t random[2] = {(uint64_t)getpid(), (uint64_t)time(NULL)}; // should the kernel have none
    const ssize_t got = getrandom(random, sizeof random, 0);
    (void)got;
    snprintf(out->name, sizeof out->name, "zerox-%u-%016llx%016llx", (unsigned)geteuid(),
             (unsigned long long)random[0], (unsigned long long)random[1]);
    return ZX_OK;
}

// ---- one rank -----------------------------------------------------------------------------------

static int run_alone(zx_rank_run *run, void *arg, zx_err *err)
{
    zx_world *w = NULL;
    handle_signals(false);
    const zx_status st = zx_world_local(1, &w, err);
    if (st != ZX_OK) return zx_status_exit(st);
    const int code = run(arg, w, err);
    zx_world_close(w);
    return code;
}

static int run_rank(const zx_who *who, uint32_t rank, bool tells_launcher, zx_rank_run *run,
                    void *arg, zx_err *err)
{
    zx_world *w = NULL;
    const double seconds = who->join_seconds > 0 ? who->join_seconds : JOIN_SECONDS;
    const zx_status st = zx_world_join(who->name, rank, who->ranks, seconds, &w, err);
    if (st != ZX_OK) return zx_status_exit(st);
    const int code = run(arg, w, err);
    // What all ranks found, or saw happen to one of them, is said by the first.
    if (err->code != ZX_OK) {
        if (!tells_launcher && !zx_world_claim(w, err->cause[0])) *err = (zx_err){0};
        zx_world_abort(w);
    }
    zx_world_close(w);
    return code;
}

// ---- the launcher -------------------------------------------------------------------------------

typedef struct child {
    pid_t pid;      // 0: has ended
    int pipe;       // its zx_err comes here; -1
    int status;     // of waitpid
    double stopped; // when it was found stopped; 0: it runs
    bool told;
} child;

typedef struct team {
    const zx_who *who;
    child *child;
    uint32_t n, n_alive;
    int signal;         // the first that the launcher got
    double since;       // when
    bool impatient;     // it got a second one: all were killed
    bool killing;       // ranks were killed from here
    bool failing;       // a rank has died or failed
    double grace_until; // then the rest is killed
    uint32_t dead;      // the first rank that somebody else killed; ZX_NONE
} team;

static void signal_all(const team *t, int number)
{
    for (uint32_t r = 0; r < t->n; r++)
        if (t->child[r].pid > 0) kill(t->child[r].pid, number);
}

// In the new process: never returns.
ZX_NORETURN static void be_rank(const zx_who *who, uint32_t rank, pid_t launcher, int pipe,
                                const sigset_t *mask, zx_rank_run *run, void *arg)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher) _exit(128 + SIGKILL); // it died before the line above
    zx_err *err = calloc(1, sizeof *err);
    ZX_ASSERT(err != NULL);
    handle_signals(true);
    watch.pipe = pipe;
    sigprocmask(SIG_SETMASK, mask, NULL); // what came since the fork comes now
    const int code = run_rank(who, rank, true, run, arg, err);
    if (err->code != ZX_OK) tell_launcher(err);
    exit(code);
}

static zx_status start_ranks(team *t, const zx_who *who, const sigset_t *mask, zx_rank_run *run,
                             void *arg, zx_err *err)
{
    const pid_t launcher = getpid();
    fflush(NULL); // or every rank would write it again
    for (uint32_t r = 0; r < t->n; r++) {
        int ends[2];
        if (pipe2(ends, O_CLOEXEC) != 0)
            return ZX_FAIL(err, ZX_E_COMM, "cannot start rank %u: pipe: %s", r, strerror(errno));
        const pid_t pid = fork();
        if (pid == 0) {
            close(ends[0]);
            for (uint32_t k = 0; k < r; k++) close(t->child[k].pipe);
            be_rank(who, r, launcher, ends[1], mask, run, arg);
        }
        close(ends[1]);
        if (pid < 0) {
            close(ends[0]);
            return ZX_FAIL(err, ZX_E_COMM, "cannot start rank %u: %s", r, strerror(errno));
        }
        t->child[r] = (child){.pid = pid, .pipe = ends[0]};
        t->n_alive++;
    }
    return ZX_OK;
}

static bool ended_badly(int status)
{
    // 128+n is a stop that somebody asked for: the others are stopping too.
    return WIFSIGNALED(status) || (WEXITSTATUS(status) != 0 && WEXITSTATUS(status) < 128);
}

static void say_moves(team *t, uint32_t r)
{
    child *c = &t->child[r];
    char text[160];
    if (c->told && t->who->say != NULL) {
        snprintf(text, sizeof text, "rank %u (pid %d) goes on", r, (int)c->pid);
        t->who->say(text);
    }
    c->told = false;
    c->stopped = 0;
}

// Whether a rank has ended; that it was stopped or goes on is kept.
static bool has_ended(team *t, uint32_t r)
{
    child *c = &t->child[r];
    while (waitpid(c->pid, &c->status, WNOHANG | WUNTRACED | WCONTINUED) == c->pid) {
        if (!WIFSTOPPED(c->status) && !WIFCONTINUED(c->status)) return true;
        if (WIFCONTINUED(c->status))
            say_moves(t, r);
        else if (c->stopped <= 0)
            c->stopped = now_seconds();
    }
    return false;
}

// The others wait for a rank that somebody stopped, for as long as that takes.
static void notice(team *t)
{
    const double patience = t->who->notice_seconds > 0 ? t->who->notice_seconds : NOTICE_SECONDS;
    for (uint32_t r = 0; r < t->n; r++) {
        child *c = &t->child[r];
        char text[160];
        if (c->pid <= 0 || c->stopped <= 0 || c->told) continue;
        if (now_seconds() < c->stopped + patience || t->who->say == NULL) continue;
        snprintf(text, sizeof text,
                 "rank %u (pid %d) has been stopped for %.0f s, the others wait for it; "
                 "kill -CONT %d lets it go on",
                 r, (int)c->pid, patience, (int)c->pid);
        t->who->say(text);
        c->told = true;
    }
}

static void reap(team *t)
{
    for (uint32_t r = 0; r < t->n; r++) {
        child *c = &t->child[r];
        if (c->pid <= 0 || !has_ended(t, r)) continue;
        c->pid = 0;
        t->n_alive--;
        // A peer that noticed may be seen to end before the rank that died: that one still counts.
        if (WIFSIGNALED(c->status) && !t->killing && t->dead == ZX_NONE) t->dead = r;
        if (!ended_badly(c->status) || t->failing) continue;
        t->failing = true;
        t->grace_until = now_seconds() + GRACE_SECONDS;
    }
}

// Nobody who is left can end by himself.
static bool all_stopped(const team *t)
{
    bool all = true;
    for (uint32_t r = 0; r < t->n; r++)
        all = all && (t->child[r].pid <= 0 || t->child[r].stopped > 0);
    return all;
}

static void kill_all(team *t)
{
    t->killing = true;
    signal_all(t, SIGKILL);
}

static void wait_for_all(team *t, const sigset_t *watched)
{
    while (t->n_alive > 0) {
        const struct timespec nap = {.tv_nsec = (long)(1e9 * LOOK_SECONDS)};
        const int got = sigtimedwait(watched, NULL, &nap);
        if (got > 0 && got != SIGCHLD) {
            if (t->signal == 0) {
                t->signal = got;
                t->since = now_seconds();
                signal_all(t, got);
            } else if (now_seconds() > t->since + SAME_SECONDS) {
                t->impatient = true;
                kill_all(t);
            }
        }
        reap(t);
        notice(t);
        if (t->failing && !t->killing && (now_seconds() > t->grace_until || all_stopped(t)))
            kill_all(t);
    }
}

// ---- what to say --------------------------------------------------------------------------------

static bool read_err(const child *c, zx_err *out)
{
    size_t n = 0;
    while (n < sizeof *out) {
        const ssize_t k = read(c->pipe, (char *)out + n, sizeof *out - n);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return false;
        n += (size_t)k;
    }
    return true;
}

static int say_killed(const team *t, uint32_t r, zx_err *err)
{
    const int number = WTERMSIG(t->child[r].status);
    *err = (zx_err){0};
    if (number == SIGKILL)
        zx_err_hint(err, "a smaller --budget or fewer --ranks, if memory ran out (see dmesg)");
    if (number == SIGBUS) zx_err_hint(err, BUS_HINT);
    return zx_status_exit(ZX_FAIL(err, ZX_E_COMM, "rank %u was killed by signal %d (%s)", r, number,
                                  strsignal(number)));
}

// The exit code, and the one error that explains it: a rank's own failure before what its end meant
// to the others, a killed rank before those who only noticed, and all of these before ranks that
// ended as they were asked to.
static int outcome(const team *t, zx_err *err)
{
    zx_err *got = calloc(t->n, sizeof *got);
    ZX_ASSERT(got != NULL);
    uint32_t own = ZX_NONE, noticed = ZX_NONE, asked = ZX_NONE;
    for (uint32_t r = 0; r < t->n; r++) {
        const int status = t->child[r].status;
        const bool has = read_err(&t->child[r], &got[r]);
        if (!WIFEXITED(status) || WEXITSTATUS(status) == 0) continue;
        uint32_t *to = has && got[r].code == ZX_E_COMM ? &noticed : &own;
        if (!has && t->signal != 0 && WEXITSTATUS(status) == 128 + t->signal) to = &asked;
        if (*to == ZX_NONE || (has && got[*to].code == ZX_OK)) *to = r;
    }
    int code = 0;
    const uint32_t teller = own != ZX_NONE ? own : noticed;
    if (t->impatient) {
        code = 128 + t->signal;
    } else if (own == ZX_NONE && t->dead != ZX_NONE) {
        code = say_killed(t, t->dead, err);
        // Where the others were, if they know more than that: "rank 0: step 2: ...".
        if (noticed != ZX_NONE && strstr(got[noticed].cause[0], ": ") != NULL)
            zx_err_merge(err, &got[noticed]);
    } else if (teller != ZX_NONE) {
        code = WEXITSTATUS(t->child[teller].status);
        if (got[teller].code != ZX_OK) *err = got[teller];
    } else if (asked != ZX_NONE) {
        code = WEXITSTATUS(t->child[asked].status);
    }
    free(got);
    return code;
}

static int run_team(const zx_who *who, zx_rank_run *run, void *arg, zx_err *err)
{
    team t = {
        .who = who, .child = calloc(who->ranks, sizeof *t.child), .n = who->ranks, .dead = ZX_NONE};
    if (t.child == NULL)
        return zx_status_exit(ZX_FAIL(err, ZX_E_DEVICE, "no memory for %u ranks", who->ranks));
    for (uint32_t r = 0; r < t.n; r++) t.child[r].pipe = -1;
    sigset_t watched, before;
    struct sigaction child_before, child_default = {.sa_handler = SIG_DFL};
    sigemptyset(&watched);
    sigaddset(&watched, SIGCHLD);
    for (size_t i = 0; i < ZX_COUNT(stop_signals);
         i++) // one that is ignored but blocked would come
        if (!is_ignored(stop_signals[i])) sigaddset(&watched, stop_signals[i]);
    sigprocmask(SIG_BLOCK, &watched, &before);
    sigaction(SIGCHLD, &child_default, &child_before); // ignored, a child would leave no status
    zx_status st = start_ranks(&t, who, &before, run, arg, err);
    if (st != ZX_OK) kill_all(&t);
    wait_for_all(&t, &watched);
    const int code = st != ZX_OK ? zx_status_exit(st) : outcome(&t, err);
    for (uint32_t r = 0; r < t.n; r++)
        if (t.child[r].pipe >= 0) close(t.child[r].pipe);
    free(t.child);
    sigaction(SIGCHLD, &child_before, NULL);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return code;
}

int zx_launch_run(const zx_who *who, zx_rank_run *run, void *arg, zx_err *err)
{
    switch (who->kind) {
    case ZX_WHO_LAUNCHER:
        return run_team(who, run, arg, err);
    case ZX_WHO_RANK:
        handle_signals(false);
        return run_rank(who, who->rank, false, run, arg, err);
    case ZX_WHO_ALONE:
        break;
    }
    return run_alone(run, arg, err);
}
