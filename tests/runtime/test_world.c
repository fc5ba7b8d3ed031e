// test_world.c - ranks meet, agree, exchange, share memory, and notice when one is gone. Every row
// runs with ranks as threads and as processes.
// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "runtime/stream.h"
#include "tests/runtime/ranks.h"

static int exchanges(zx_world *w, void *arg)
{
    (void)arg;
    static const size_t sizes[] = {8, 0, 100000};
    zx_err err = {0};
    const uint32_t me = zx_world_rank(w), n = zx_world_size(w);
    for (size_t k = 0; k < ZX_COUNT(sizes); k++) {
        unsigned char *mine = malloc(sizes[k] + 1), *all = malloc(n * sizes[k] + 1);
        memset(mine, (int)(me + 1), sizes[k]);
        EXPECT(zx_world_exchange(w, mine, sizes[k], all, &err) == ZX_OK);
        for (size_t i = 0; i < n * sizes[k]; i++) EXPECT(all[i] == i / sizes[k] + 1);
        free(mine);
        free(all);
    }
    return 0;
}

static int sends(zx_world *w, void *arg)
{
    (void)arg;
    zx_err err = {0};
    char text[] = "a plan";
    void *bytes = text;
    size_t n = sizeof text;
    if (zx_world_rank(w) != 0) bytes = NULL, n = 0;
    EXPECT(zx_world_send(w, &bytes, &n, &err) == ZX_OK);
    EXPECT(n == sizeof text && memcmp(bytes, text, n) == 0);
    if (zx_world_rank(w) != 0) free(bytes);
    return 0;
}

static int all_agree(zx_world *w, void *arg)
{
    (void)arg;
    zx_err err = {0};
    EXPECT(zx_world_agree(w, ZX_OK, &err) == ZX_OK);
    EXPECT(err.n_causes == 0);
    return 0;
}

static int last_rank_fails(zx_world *w, void *arg)
{
    (void)arg;
    zx_err err = {0};
    const uint32_t last = zx_world_size(w) - 1;
    zx_status st = ZX_OK;
    if (zx_world_rank(w) == last) {
        st = ZX_FAIL(&err, ZX_E_DATA, "no data");
        zx_err_hint(&err, "other data");
    }
    EXPECT(zx_world_agree(w, st, &err) == ZX_E_DATA);
    char want[64] = "no data";
    if (last != 0) snprintf(want, sizeof want, "rank %u: no data", last);
    EXPECT(strcmp(err.cause[0], want) == 0 && strcmp(err.hint, "other data") == 0);
    return 0;
}

static int all_fail(zx_world *w, void *arg)
{
    (void)arg;
    zx_err err = {0};
    ZX_FAIL(&err, ZX_E_SHAPE, "first");
    const zx_status st = ZX_FAIL(&err, ZX_E_SHAPE, "second, on rank %u", zx_world_rank(w));
    EXPECT(zx_world_agree(w, st, &err) == ZX_E_SHAPE);
    EXPECT(err.n_causes == 2 && strcmp(err.cause[0], "first") == 0);
    EXPECT(strcmp(err.cause[1], "second, on rank 0") == 0);
    return 0;
}

static int same_numbers(zx_world *w, void *arg)
{
    (void)arg;
    zx_err err = {0};
    EXPECT(zx_world_same(w, "the plan", 7, &err) == ZX_OK);
    if (zx_world_size(w) == 1) return 0;
    const zx_status st = zx_world_same(w, "the plan", zx_world_rank(w) == 0 ? 7 : 8, &err);
    EXPECT(st == ZX_E_COMM && strncmp(err.cause[0], "the plan differs", 16) == 0);
    return 0;
}

// Each writes its own reservation; after a meeting all read all.
static int reservations(zx_world *w, void *arg)
{
    (void)arg;
    zx_err err = {0};
    unsigned char *base[MOST_RANKS];
    const uint32_t me = zx_world_rank(w), n = zx_world_size(w);
    const uint64_t bytes = (uint64_t)64 << 30; // more than there is: pages are touched when written
    EXPECT(zx_world_reserve(w, bytes, base, &err) == ZX_OK);
    base[me][0] = (unsigned char)(me + 1);
    base[me][bytes - 1] = (unsigned char)(me + 101);
    EXPECT(zx_world_agree(w, ZX_OK, &err) == ZX_OK);
    for (uint32_t r = 0; r < n; r++)
        EXPECT(base[r][0] == r + 1 && base[r][4096] == 0 && base[r][bytes - 1] == r + 101);
    return zx_world_agree(w, ZX_OK, &err) != ZX_OK;
}

// Mappings of this process that are shared memory of ours.
static int n_mappings(void)
{
    char line[512];
    int n = 0;
    FILE *f = fopen("/proc/self/maps", "r");
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        n += strstr(line, "memfd:zerox") != NULL || strstr(line, "/dev/zero") != NULL;
    if (f != NULL) fclose(f);
    return n;
}

// Two reservations, given back in another order by each rank; a peer may read on meanwhile.
static int given_back(zx_world *w, void *arg)
{
    (void)arg;
    zx_err err = {0};
    unsigned char *a[MOST_RANKS], *b[MOST_RANKS];
    const uint32_t me = zx_world_rank(w), n = zx_world_size(w);
    EXPECT(zx_world_agree(w, ZX_OK, &err) == ZX_OK);
    const int before = n_mappings();
    EXPECT(zx_world_agree(w, ZX_OK, &err) == ZX_OK);
    for (int i = 0; i < 3; i++) {
        EXPECT(zx_world_reserve(w, 5000, a, &err) == ZX_OK);
        EXPECT(zx_world_reserve(w, 9000, b, &err) == ZX_OK);
        a[me][4999] = b[me][8999] = (unsigned char)(me + 1);
        EXPECT(zx_world_agree(w, ZX_OK, &err) == ZX_OK);
        EXPECT(n_mappings() >= before + 2);
        unsigned char **first = me % 2 ? a : b, **second = me % 2 ? b : a;
        zx_world_release(w, me % 2 ? 5000 : 9000, first);
        for (uint32_t r = 0; r < n; r++)
            EXPECT(first[r] == NULL && second[r][me % 2 ? 8999 : 4999] == r + 1);
        zx_world_release(w, me % 2 ? 9000 : 5000, second);
        EXPECT(zx_world_agree(w, ZX_OK, &err) == ZX_OK);
        EXPECT(n_mappings() == before);
        EXPECT(zx_world_agree(w, ZX_OK, &err) == ZX_OK);
    }
    return 0;
}

static int sizes_differ(zx_world *w, void *arg)
{
    (void)arg;
    zx_err err = {0};
    unsigned char *base[MOST_RANKS];
    if (zx_world_size(w) == 1) return 0;
    EXPECT(zx_world_reserve(w, 4096u << zx_world_rank(w), base, &err) == ZX_E_COMM);
    return 0;
}

static int too_much(zx_world *w, void *arg)
{
    (void)arg;
    zx_err err = {0};
    unsigned char *base[MOST_RANKS];
    EXPECT(zx_world_reserve(w, UINT64_MAX - 5, base, &err) == ZX_E_BUDGET);
    EXPECT(zx_world_reserve(w, (uint64_t)1 << 62, base, &err) == ZX_E_BUDGET);
    EXPECT(strstr(err.cause[0], "reserve") != NULL || strstr(err.cause[0], "no machine") != NULL);
    return zx_world_agree(w, ZX_OK, &err) != ZX_OK;
}

// One gives up, the others stop waiting and say who.
static int one_gives_up(zx_world *w, void *arg)
{
    (void)arg;
    zx_err err = {0};
    if (zx_world_size(w) == 1) return 0;
    if (zx_world_rank(w) == 1) {
        zx_world_abort(w);
        return 0;
    }
    EXPECT(zx_world_agree(w, ZX_OK, &err) == ZX_E_COMM && zx_world_lost(w));
    EXPECT(strcmp(err.cause[0], "rank 1 failed and gave up") == 0);
    return 0;
}

static int one_leaves(zx_world *w, void *arg)
{
    (void)arg;
    zx_err err = {0};
    if (zx_world_size(w) == 1 || zx_world_rank(w) == 1) return 0;
    EXPECT(zx_world_agree(w, ZX_OK, &err) == ZX_E_COMM);
    EXPECT(strcmp(err.cause[0], "rank 1 ended before the others") == 0);
    return 0;
}

// A wait on a word that rank 1 will never set.
static int word_of_the_gone(zx_world *w, void *arg)
{
    (void)arg;
    zx_err err = {0};
    unsigned char *base[MOST_RANKS];
    if (zx_world_size(w) == 1) return 0;
    EXPECT(zx_world_reserve(w, 4096, base, &err) == ZX_OK);
    if (zx_world_rank(w) == 1) return 0;
    zx_word *word = (zx_word *)(void *)base[1];
    const zx_patience p = {.world = w};
    EXPECT(!zx_word_wait(word, 1, &p, 1));
    EXPECT(zx_world_lost(w));
    return 0;
}

// Ranks take turns over words in shared memory.
static int words_take_turns(zx_world *w, void *arg)
{
    (void)arg;
    zx_err err = {0};
    unsigned char *base[MOST_RANKS];
    const uint32_t me = zx_world_rank(w), n = zx_world_size(w);
    EXPECT(zx_world_reserve(w, 4096, base, &err) == ZX_OK);
    const uint32_t before = (me + n - 1) % n;
    const zx_patience p = {.world = w, .spins = me % 2 * 100};
    for (uint32_t k = 1; k <= 200; k++) {
        if (me != 0) EXPECT(zx_word_wait((zx_word *)(void *)base[before], k, &p, before));
        zx_word_set((zx_word *)(void *)base[me], k);
        if (me == 0) EXPECT(zx_word_wait((zx_word *)(void *)base[before], k, &p, before));
    }
    return zx_world_agree(w, ZX_OK, &err) != ZX_OK;
}

static int one_claims(zx_world *w, void *arg)
{
    (void)arg;
    zx_err err = {0};
    uint32_t said[MOST_RANKS];
    const uint32_t mine = zx_world_claim(w, "the same sentence");
    EXPECT(zx_world_exchange(w, &mine, sizeof mine, said, &err) == ZX_OK);
    uint32_t n = 0;
    for (uint32_t r = 0; r < zx_world_size(w); r++) n += said[r];
    EXPECT(n == 1);
    char own[32];
    snprintf(own, sizeof own, "rank %u's own", zx_world_rank(w));
    EXPECT(zx_world_claim(w, own));
    return zx_world_agree(w, ZX_OK, &err) != ZX_OK;
}

static const struct world_case {
    const char *name;
    rank_fn *run;
} cases[] = {
    {"bytes of several sizes go round", exchanges},
    {"rank 0's bytes reach all", sends},
    {"all well", all_agree},
    {"one failure is everybody's, with the rank named", last_rank_fails},
    {"where all fail rank 0's words are kept", all_fail},
    {"numbers that differ are named", same_numbers},
    {"reservations are mapped by all, pages come when written", reservations},
    {"reservations given back", given_back},
    {"reservations of different sizes are refused", sizes_differ},
    {"a reservation that no machine has is refused", too_much},
    {"a rank that gives up is named", one_gives_up},
    {"a rank that leaves is named", one_leaves},
    {"a word that a rank left unset isn't waited for", word_of_the_gone},
    {"words take turns", words_take_turns},
    {"one rank says what all found", one_claims},
};

static void as_threads(void **state)
{
    const struct world_case *c = *state;
    for (uint32_t n = 1; n <= 4; n++) run_threads(n, c->run, NULL);
}

static void as_processes(void **state)
{
    const struct world_case *c = *state;
    for (uint32_t n = 1; n <= 4; n++) run_processes(n, c->run, NULL);
}

// ---- processes only -----------------------------------------------------------------------------

static int sleeps_until_lost(zx_world *w, void *arg)
{
    zx_err err = {0};
    const uint32_t victim = *(const uint32_t *)arg;
    char want[64];
    zx_world_agree(w, ZX_OK, &err); // all are there; who is late may see it in here
    err = (zx_err){0};
    if (zx_world_rank(w) == victim) {
        usleep(100000);
        raise(SIGKILL);
    }
    for (wait_limit t = {0}; !zx_world_lost(w);) // not in any call: the monitor sees it
        EXPECT(wait_again(&t));
    zx_world_why(w, &err);
    snprintf(want, sizeof want, "rank %u died (connection closed)", victim);
    EXPECT(strcmp(err.cause[0], want) == 0);
    return 0;
}

static void a_killed_rank_is_named(void **state)
{
    (void)state;
    for (uint32_t victim = 0; victim < 3; victim++) {
        char name[64];
        pid_t pid[3];
        socket_name(name);
        for (uint32_t r = 0; r < 3; r++)
            pid[r] = start_process(name, r, 3, sleeps_until_lost, &victim);
        for (uint32_t r = 0; r < 3; r++)
            assert_int_equal(wait_end(pid[r]), r == victim ? 1000 + SIGKILL : 0);
    }
}

static void those_who_never_come_are_named(void **state)
{
    (void)state;
    char name[64];
    zx_world *w = NULL;
    zx_err err = {0};
    socket_name(name);
    assert_int_equal(zx_world_join(name, 0, 3, 0.2, &w, &err), ZX_E_COMM);
    assert_string_equal(err.cause[0], "ranks 1, 2 never came (waited 0 s)");
    err = (zx_err){0};
    assert_int_equal(zx_world_join(name, 1, 3, 0.2, &w, &err), ZX_E_COMM);
    assert_string_equal(err.cause[0], "rank 0 never came (waited 0 s)");
    assert_null(w);
}

static int never(zx_world *w, void *arg)
{
    (void)w;
    (void)arg;
    return 0;
}

static void a_wrong_size_is_refused(void **state)
{
    (void)state;
    char name[64];
    zx_world *w = NULL;
    zx_err err = {0};
    socket_name(name);
    const pid_t pid = start_process(name, 1, 3, never, NULL);
    assert_int_equal(zx_world_join(name, 0, 2, HANG_SECONDS, &w, &err), ZX_E_COMM);
    assert_string_equal(err.cause[0], "rank 1 was started for 3 ranks, rank 0 for 2");
    assert_int_equal(wait_end(pid), 99);
}

// Whether somebody is there under an abstract name.
static bool is_taken(const char *name)
{
    char line[256];
    bool taken = false;
    FILE *f = fopen("/proc/net/unix", "r");
    assert_non_null(f);
    while (!taken && fgets(line, sizeof line, f) != NULL) taken = strstr(line, name) != NULL;
    fclose(f);
    return taken;
}

static void a_taken_name_is_refused(void **state)
{
    (void)state;
    char name[64];
    zx_world *w = NULL;
    zx_err err = {0};
    socket_name(name);
    const pid_t pid = start_process(name, 0, 2, never, NULL);
    for (wait_limit t = {0}; !is_taken(name);) wait_more(&t, "the name is taken");
    assert_int_equal(zx_world_join(name, 0, 2, HANG_SECONDS, &w, &err), ZX_E_COMM);
    assert_non_null(strstr(err.cause[0], "another run uses"));
    kill(pid, SIGKILL);
    assert_int_equal(wait_end(pid), 1000 + SIGKILL);
}

static int limited(zx_world *w, void *arg)
{
    (void)arg;
    zx_err err = {0};
    unsigned char *base[MOST_RANKS];
    const struct rlimit most = {(rlim_t)1 << 30, (rlim_t)1 << 30};
    EXPECT(setrlimit(RLIMIT_AS, &most) == 0);
    EXPECT(zx_world_reserve(w, (uint64_t)2 << 30, base, &err) == ZX_E_BUDGET);
    EXPECT(strstr(err.cause[0], "cannot reserve 2") != NULL);
    EXPECT(strstr(err.hint, "budget") != NULL);
    return zx_world_agree(w, ZX_OK, &err) != ZX_OK;
}

static void a_limit_on_memory_is_a_refusal(void **state)
{
    (void)state;
    if (TEST_SANITIZED) skip(); // sanitizers take terabytes of address space themselves
    run_processes(2, limited, NULL);
}

int main(void)
{
    struct CMUnitTest tests[2 * ZX_COUNT(cases) + 5];
    size_t n = 0;
    for (size_t i = 0; i < ZX_COUNT(cases); i++)
        tests[n++] = zx_case(cases[i].name, as_threads, &cases[i]);
    for (size_t i = 0; i < ZX_COUNT(cases); i++)
        tests[n++] = zx_case(cases[i].name, as_processes, &cases[i]);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(a_killed_rank_is_named);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(those_who_never_come_are_named);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(a_wrong_size_is_refused);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(a_taken_name_is_refused);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(a_limit_on_memory_is_a_refusal);
    return cmocka_run_group_tests_name("world", tests, NULL, NULL);
}
