// test_ckpt.c - checkpoints: what is saved is what is read on any ranks and in any stage; a save
// that fails or is killed at any call of the system leaves the one before; files that were spoilt
// are found out.
// SPDX-License-Identifier: Apache-2.0
#include <jansson.h>

#include "graph/base/hash.h"
#include "runtime/ckpt_folder.h"
#include "tests/runtime/ckpt_runs.h"

// ---- every call of the system -------------------------------------------------------------------

static const struct fault_row {
    const char *name;
    fault how;
    bool beside;
    bool again; // steps 2 and 3 are there, of a run that isn't gone on with
} fault_rows[] = {{"each call fails", FAIL, false, false},
                  {"the disk is full", FULL, false, false},
                  {"killed", KILL, false, false},
                  {"each call fails beside a step", FAIL, true, false},
                  {"the disk is full beside a step", FULL, true, false},
                  {"killed beside a step", KILL, true, false},
                  {"each call fails where others are set aside", FAIL, false, true},
                  {"killed where others are set aside", KILL, false, true}};

// Saves step 2 behind step 1 in a process of its own; false: the k-th call didn't come to be.
static bool save_with_fault(fault how, bool beside, int k, bool *saved)
{
    const pid_t pid = wait_fork();
    if (pid == 0) {
        saver c = {.o = {.ranks = 2, .graph = {.buffer = true}},
                   .as = 2,
                   .keep = 1,
                   .arm = true,
                   .beside = beside};
        faults.how = how;
        faults.left = k;
        save(&c);
        _exit(faults.left > 0 ? 100 : c.saved == ZX_OK ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    *saved = WIFEXITED(status) && WEXITSTATUS(status) % 100 == 0;
    if (how == KILL && WIFSIGNALED(status)) return true;
    assert_true(WIFEXITED(status) && (WEXITSTATUS(status) <= 1 || WEXITSTATUS(status) == 100));
    return WEXITSTATUS(status) != 100;
}

static void test_fault(void **state)
{
    const struct fault_row *row = *state;
    bool saved, struck = true;
    int k = 1;
    for (; struck; k += !test_few() ? 1 : row->how == KILL ? 3 : 5) {
        empty_folder();
        saver one = {.o = {.ranks = 2, .graph = {.buffer = true}, .steps = 1}, .as = 1};
        save_fine(&one);
        for (uint64_t as = 2; as <= 3 && row->again; as++) {
            saver later = {.o = {.ranks = 1, .untrained = true}, .as = as};
            save_fine(&later);
        }
        struck = save_with_fault(row->how, row->beside, k, &saved);
        const uint64_t is = newest_whole(folder), was = row->again ? 3 : 1;
        if (is != 2 && (saved || is != was))
            fail_msg("call %d: the newest whole one is of step %lld", k, (long long)is);
        if (row->how != KILL && !saved && is == 1 && access(path_of(folder, "step-2"), F_OK) == 0)
            fail_msg("call %d: a checkpoint that nothing names stays", k);
        if (!struck && row->again && (!there("step-2.aside") || !there("step-3.aside")))
            fail_msg("what was set aside isn't there");
        // What is left doesn't keep the next one from being saved.
        saver three = {
            .o = {.ranks = 1, .graph = {.buffer = true}, .steps = 1}, .as = 3, .keep = 1};
        if (k % 7 != 1 || row->again) continue;
        save_fine(&three);
        assert_int_equal(newest_whole(folder), 3);
    }
    assert_true(k > 20); // there were calls
}

// ---- a rank is killed ---------------------------------------------------------------------------

static int save_and_die(zx_world *w, void *arg)
{
    saver *c = arg;
    if (zx_world_rank(w) != c->dies) c->arm = false;
    return saver_rank(w, c);
}

// The others see it and give up, at any call.
static void test_rank_dies(void **state)
{
    const uint32_t who = (uint32_t)(uintptr_t)*state;
    bool struck = true;
    for (int k = 1; struck; k += test_few() ? 6 : 2) {
        char name[64];
        pid_t pid[2];
        int status[2];
        empty_folder();
        saver one = {.o = {.ranks = 2, .steps = 1}, .as = 1};
        save_fine(&one);
        saver c = {.o = {.ranks = 2}, .dies = who, .as = 2, .keep = 1, .to = folder};
        c.o = filled(&c.o);
        c.arm = true;
        faults.how = KILL;
        faults.left = k;
        socket_name(name);
        for (uint32_t r = 0; r < 2; r++) pid[r] = start_process(name, r, 2, save_and_die, &c);
        for (uint32_t r = 0; r < 2; r++) waitpid(pid[r], &status[r], 0);
        struck = WIFSIGNALED(status[who]);
        const uint64_t is = newest_whole(folder);
        if (is != 2 && (!struck || is != 1))
            fail_msg("call %d: the newest whole one is of step %lld", k, (long long)is);
    }
}

// ---- what is saved is what is read --------------------------------------------------------------

static uint64_t hash_all(const char *dir)
{
    zx_arena mem = {0};
    zx_ckpt c;
    zx_err err = {0};
    zx_hash h;
    static unsigned char bytes[MOST_WEIGHTS * 8];
    assert_zx_ok(zx_ckpt_open(dir, &mem, &c, &err), &err);
    assert_zx_ok(zx_ckpt_verify(&c, 0, 1, &err), &err);
    zx_hash_start(&h);
    for (uint32_t i = 0; i < c.n; i++) {
        const int64_t n = zx_shape_count(&c.tensors[i].type.shape), cut = n / 3;
        const uint32_t width = zx_dtype_bytes(c.tensors[i].type.dtype);
        assert_zx_ok(zx_ckpt_read(&c, i, 0, cut, bytes, &err), &err);
        assert_zx_ok(zx_ckpt_read(&c, i, cut, n - cut, bytes + (size_t)cut * width, &err), &err);
        zx_hash_bytes(&h, bytes, (size_t)n * width);
        zx_hash_bytes(&h, c.tensors[i].name, strlen(c.tensors[i].name));
    }
    zx_ckpt_close(&c);
    zx_arena_free(&mem);
    return zx_hash_end(&h);
}

static const zx_optim momentum = {.kind = ZX_OPTIM_SGD, .momentum = 0.9};
static const struct cut_row {
    const char *name;
    uint32_t ranks, stage, to_ranks, to_stage;
    const zx_optim *optim;
} cut_rows[] = {
    {"2 ranks to 3, stage 3 to 1", 2, STAGE_3, 3, STAGE_1, NULL},
    {"3 ranks to 1, stage 2 to 0", 3, STAGE_2, 1, STAGE_0, NULL},
    {"1 rank to 4, stage 0 to 3, momentum", 1, STAGE_0, 4, STAGE_3, &momentum},
    {"8 ranks, of which some have nothing of small tensors", 8, STAGE_3, 2, STAGE_2, NULL},
};

static void test_cut(void **state)
{
    const struct cut_row *row = *state;
    empty_folder();
    saver first = {.o = {.ranks = row->ranks,
                         .stage = row->stage,
                         .optim = row->optim,
                         .graph = {.buffer = true, .dropout = 0.2}},
                   .as = 3};
    save_fine(&first);
    saver again = {.o = {.ranks = row->to_ranks,
                         .stage = row->to_stage,
                         .optim = row->optim,
                         .graph = first.o.graph,
                         .untrained = true},
                   .from = path_of(folder, "step-3"),
                   .as = 4};
    save_fine(&again);
    assert_true(hash_all(path_of(folder, "step-3")) == hash_all(path_of(folder, "step-4")));
    // On the same ranks it goes on bit for bit, in any stage.
    saver on = {.o = {.ranks = row->ranks,
                      .stage = row->to_stage,
                      .optim = row->optim,
                      .graph = first.o.graph,
                      .steps = 2},
                .from = path_of(folder, "step-3"),
                .as = 5};
    save_fine(&on);
    saver whole = {.o = first.o, .as = 6, .beside = true};
    whole.o.steps = 5;
    save_fine(&whole);
    assert_true(hash_all(path_of(folder, "step-5")) == hash_all(path_of(folder, "step-6")));
}

// Each rank reads what it will hold and nothing else: of all that is cut every byte is read once,
// of buffers twice by each: them and a step's copies of them.
static void test_reads(void **state)
{
    (void)state;
    empty_folder();
    saver first = {.o = {.ranks = 2, .graph = {.buffer = true}}, .as = 1};
    save_fine(&first);
    zx_arena mem = {0};
    zx_ckpt c;
    zx_err err = {0};
    uint64_t want = 0;
    assert_zx_ok(zx_ckpt_open(path_of(folder, "step-1"), &mem, &c, &err), &err);
    for (uint32_t i = 0; i < c.n; i++)
        want += zx_type_bytes(&c.tensors[i].type) *
                (strcmp(c.tensors[i].part, "buffer") == 0 ? 2 * 3 : 1);
    zx_ckpt_close(&c);
    zx_arena_free(&mem);
    saver again = {.o = {.ranks = 3, .stage = STAGE_3, .graph = first.o.graph, .untrained = true},
                   .from = path_of(folder, "step-1"),
                   .as = 2};
    bytes_read = 0;
    save_fine(&again);
    assert_int_equal(bytes_read, want);
}

static void test_pieces(void **state)
{
    static const int64_t counts[] = {0, 1, 3, 7, 10, 104, 767, 1000, INT64_C(1) << 61};
    static const uint32_t ranks[] = {1, 2, 3, 4, 768, 65536};
    (void)state;
    for (size_t i = 0; i < ZX_COUNT(counts); i++)
        for (size_t k = 0; k < ZX_COUNT(ranks); k++) {
            int64_t at = 0, from;
            for (uint32_t r = 0; r < ranks[k]; r++) {
                const int64_t n = zx_ckpt_piece(counts[i], ranks[k], r, &from);
                assert_true(from == at && n >= 0);
                at += n;
            }
            assert_true(at == counts[i]);
        }
}

static void test_hash(void **state)
{
    unsigned char bytes[300];
    (void)state;
    for (int i = 0; i < 300; i++) bytes[i] = (unsigned char)(i * 7);
    assert_true(zx_hash_of("", 0) == UINT64_C(0xef46db3751d8e999));
    assert_true(zx_hash_of("abc", 3) == UINT64_C(0x44bc2cf5ad770999));
    for (size_t n = 0; n <= 300; n++) {
        zx_hash h;
        zx_hash_start(&h);
        for (size_t at = 0, part; at < n; at += part) {
            part = 1 + at * 5 % 40;
            if (part > n - at) part = n - at;
            zx_hash_bytes(&h, bytes + at, part);
        }
        assert_true(zx_hash_end(&h) == zx_hash_of(bytes, n));
    }
}

// ---- which of several ---------------------------------------------------------------------------

static void save_as(uint64_t step, uint64_t keep)
{
    saver c = {.o = {.ranks = 1, .untrained = true}, .as = step, .keep = keep};
    save_fine(&c);
}

static void test_keep(void **state)
{
    (void)state;
    empty_folder();
    for (uint64_t step = 2; step <= 12; step += 2) save_as(step, 2);
    assert_true(!there("step-8") && there("step-10") && there("step-12"));
    // Gone on from 10: what the run had later is nobody's any more, but it isn't removed.
    save_as(11, 2);
    assert_true(there("step-10") && there("step-11") && there("step-12.aside"));
    save_as(11, 2);
    assert_true(there("step-11.aside") && there("step-10"));
    assert_int_equal(newest_whole(folder), 11);
    save_as(12, 1);
    assert_true(!there("step-11") && there("step-11.aside") && there("step-12.aside"));
    // What `latest` doesn't name yet was never finished.
    assert_int_equal(rename(path_of(folder, "step-12"), path_of(folder, "step-13")), 0);
    assert_true(newest_whole(folder) == UINT64_MAX);
    unlink(path_of(folder, "latest"));
    rename(path_of(folder, "step-13"), path_of(folder, "step-12"));
    assert_int_equal(newest_whole(folder), 12);
    zx_arena mem = {0};
    save_as(14, 0);
    mkdir(path_of(folder, "step-20.tmp"), 0777);
    zx_ckpt_folder_clear(folder, &mem);
    assert_true(!there("step-14") && !there("step-20.tmp") && !there("latest"));
    zx_arena_free(&mem);
}

// ---- spoilt files -------------------------------------------------------------------------------

typedef struct bytes {
    unsigned char *at;
    size_t n;
} bytes;

static bytes slurp(const char *path)
{
    bytes b = {malloc(1 << 20), 0};
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    b.n = fread(b.at, 1, 1 << 20, f);
    fclose(f);
    return b;
}

static void spit(const char *path, const void *at, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(at, 1, n, f), n);
    fclose(f);
}

// A status with a sentence, whatever the files are.
static zx_status look(const char *dir)
{
    zx_arena mem = {0};
    zx_ckpt c;
    zx_err err = {0};
    unsigned char some[64];
    zx_status st = zx_ckpt_open(dir, &mem, &c, &err);
    if (st == ZX_OK) st = zx_ckpt_verify(&c, 0, 1, &err);
    if (st == ZX_OK)
        for (uint32_t i = 0; i < c.n; i++)
            if (zx_shape_count(&c.tensors[i].type.shape) > 0)
                assert_int_equal(zx_ckpt_read(&c, i, 0, 1, some, &err), ZX_OK);
    if (st != ZX_OK) assert_true(err.n_causes > 0 && strstr(err.cause[0], "step-1") != NULL);
    zx_ckpt_close(&c);
    zx_arena_free(&mem);
    return st;
}

static const char *const files[] = {"manifest.json", "rank-00000-of-00002.safetensors",
                                    "rank-00001-of-00002.safetensors"};

static void test_spoilt(void **state)
{
    (void)state;
    empty_folder();
    saver c = {.o = {.ranks = 2, .graph = {.buffer = true}}, .as = 1};
    save_fine(&c);
    char dir[100];
    snprintf(dir, sizeof dir, "%s/step-1", folder);
    assert_int_equal(look(dir), ZX_OK);
    const size_t step = test_few() ? 61 : 17;
    for (size_t i = 0; i < ZX_COUNT(files); i++) {
        const char *path = path_of(dir, files[i]);
        char file[200];
        snprintf(file, sizeof file, "%s", path);
        bytes b = slurp(file);
        for (size_t at = 0; at < b.n; at += step) {
            b.at[at] ^= (unsigned char)(1u << at % 8);
            spit(file, b.at, b.n);
            // Blanks that pad a header say nothing, and may be any blanks.
            if (look(dir) == ZX_OK) fail_msg("%s: byte %zu was changed, nobody saw", files[i], at);
            b.at[at] ^= (unsigned char)(1u << at % 8);
        }
        for (size_t n = 0; n < b.n; n += 3 * step + 1) {
            spit(file, b.at, n);
            assert_int_not_equal(look(dir), ZX_OK);
        }
        unlink(file);
        assert_int_not_equal(look(dir), ZX_OK);
        spit(file, b.at, b.n);
        free(b.at);
    }
    assert_int_equal(look(dir), ZX_OK);
}

// A manifest with something changed that has the checksum of what it says now.
static void sum_again(const char *path, json_t *root)
{
    zx_text t = {0};
    json_object_del(root, "checksum");
    char *text = json_dumps(root, JSON_INDENT(2));
    assert_non_null(text);
    text[strlen(text) - 2] = '\0'; // "\n}"
    zx_text_put(&t, "%s,\n", text);
    free(text);
    const uint64_t sum = zx_hash_of(t.at, t.n);
    zx_text_put(&t, "  \"checksum\": \"%016llx\"\n}\n", (unsigned long long)sum);
    spit(path, t.at, t.n);
    zx_text_free(&t);
}

static json_t *odd(unsigned k)
{
    switch (k) {
    case 0:
        return json_null();
    case 1:
        return json_integer(-1);
    case 2:
        return json_integer(INT64_MAX);
    case 3:
        return json_real(1e300);
    case 4:
        return json_string("\x01");
    case 5:
        return json_array();
    case 6:
        return json_object();
    case 7:
        return json_pack("[I, I, I]", INT64_MAX, INT64_MAX, (json_int_t)2);
    default:
        return json_integer(0);
    }
}

// Each value in turn becomes each of the odd ones.
static void change_all(const char *path, const char *dir, json_t *root, json_t *at)
{
    const char *key;
    json_t *value;
    void *next;
    json_object_foreach_safe(at, next, key, value)
    {
        for (unsigned k = 0; k < 9; k++) {
            json_t *was = json_incref(value);
            char name[64];
            snprintf(name, sizeof name, "%s", key);
            json_object_set_new(at, name, odd(k));
            sum_again(path, root);
            look(dir); // may be fine: another number of steps, say
            json_object_set_new(at, name, was);
        }
        json_t *inner = json_is_array(value) ? json_array_get(value, 1) : value;
        if (json_is_object(inner)) change_all(path, dir, root, inner);
    }
}

static void test_odd_manifest(void **state)
{
    (void)state;
    empty_folder();
    saver c = {.o = {.ranks = 2, .graph = {.buffer = true}}, .as = 1};
    save_fine(&c);
    char dir[100], path[140];
    snprintf(dir, sizeof dir, "%s/step-1", folder);
    snprintf(path, sizeof path, "%s/manifest.json", dir);
    json_t *root = json_load_file(path, 0, NULL);
    assert_non_null(root);
    sum_again(path, root);
    assert_int_equal(look(dir), ZX_OK);
    change_all(path, dir, root, root);
    json_object_set_new(root, "format_version", json_integer(ZX_CKPT_VERSION + 1));
    sum_again(path, root);
    assert_int_equal(look(dir), ZX_E_UNSUPPORTED);
    json_decref(root);
}

// ---- tensors that don't fit ---------------------------------------------------------------------

static const struct misfit_row {
    const char *name;
    const char *at, *was, *is; // in the manifest
    const char *says;
} misfit_rows[] = {
    {"a name", "w1", "w1", "w3", "it has no parameter 'w1'; the nearest is 'w3'"},
    {"left over", "b1", "b1", "b9", "'b1'"},
};

static int match_rank(zx_world *w, void *arg)
{
    const struct misfit_row *row = arg;
    zx_arena mem = {0};
    zx_graph forward, train;
    zx_plan plan;
    zx_err err = {0};
    run_options o = {0};
    o = filled(&o);
    char dir[100];
    zx_ckpt want = {0}, c;
    zx_ckpt_values v;
    (void)w;
    snprintf(dir, sizeof dir, "%s/step-1", folder);
    build_small(&mem, &o.graph, &forward);
    EXPECT(zx_autodiff(&forward, 1, &mem, &train, &err) == ZX_OK);
    EXPECT(small_plan(&train, &o, &mem, &plan, &err) == ZX_OK);
    zx_ckpt_list(&train, &plan, o.optim, &mem, &want);
    EXPECT(zx_ckpt_open(dir, &mem, &c, &err) == ZX_OK);
    zx_ckpt_tensor *t = (zx_ckpt_tensor *)(uintptr_t)c.tensors;
    for (uint32_t i = 0; i < c.n; i++)
        if (strcmp(t[i].name, row->was) == 0) t[i].name = row->is;
    EXPECT(zx_ckpt_match(&c, &want, &plan, &mem, &v, &err) == ZX_E_DATA);
    if (strstr(err.cause[0], row->says) == NULL) fprintf(stderr, "%s\n", err.cause[0]);
    EXPECT(strstr(err.cause[0], row->says) != NULL);
    // Another order is no difference.
    zx_err none = {0};
    for (uint32_t i = 0; i < c.n; i++)
        if (strcmp(t[i].name, row->is) == 0) t[i].name = row->was;
    for (uint32_t i = 0; i < c.n / 2; i++) {
        const zx_ckpt_tensor x = t[i];
        t[i] = t[c.n - 1 - i];
        t[c.n - 1 - i] = x;
    }
    EXPECT(zx_ckpt_match(&c, &want, &plan, &mem, &v, &none) == ZX_OK);
    t[0].type.shape.dim[0]++;
    EXPECT(zx_ckpt_match(&c, &want, &plan, &mem, &v, &none) == ZX_E_DATA);
    zx_ckpt_close(&c);
    zx_arena_free(&mem);
    return 0;
}

static void test_misfit(void **state)
{
    empty_folder();
    saver c = {.o = {.ranks = 2}, .as = 1};
    save_fine(&c);
    run_threads(1, match_rank, *state);
}

int main(void)
{
    struct CMUnitTest tests[32] = {
        cmocka_unit_test(test_pieces),       cmocka_unit_test(test_hash),
        cmocka_unit_test(test_keep),         cmocka_unit_test(test_spoilt),
        cmocka_unit_test(test_odd_manifest), cmocka_unit_test(test_reads)};
    size_t n = 6;
    for (size_t i = 0; i < ZX_COUNT(fault_rows); i++)
        tests[n++] = (struct CMUnitTest){fault_rows[i].name, test_fault, NULL, NULL,
                                         (void *)(uintptr_t)&fault_rows[i]};
    tests[n++] = (struct CMUnitTest){"rank 0 is killed", test_rank_dies, NULL, NULL, (void *)0};
    tests[n++] = (struct CMUnitTest){"rank 1 is killed", test_rank_dies, NULL, NULL, (void *)1};
    for (size_t i = 0; i < ZX_COUNT(cut_rows); i++)
        tests[n++] = (struct CMUnitTest){cut_rows[i].name, test_cut, NULL, NULL,
                                         (void *)(uintptr_t)&cut_rows[i]};
    for (size_t i = 0; i < ZX_COUNT(misfit_rows); i++)
        tests[n++] = (struct CMUnitTest){misfit_rows[i].name, test_misfit, NULL, NULL,
                                         (void *)(uintptr_t)&misfit_rows[i]};
    return _cmocka_run_group_tests("ckpt", tests, n, make_folder, remove_folder);
}
