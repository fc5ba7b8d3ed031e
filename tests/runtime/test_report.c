// test_report.c - pictures of plans: what their numbers say agrees with the plan, names stay text,
// files are small. tests/report/browser opens the pages that this leaves in ZX_REPORT_KEEP.
// SPDX-License-Identifier: Apache-2.0
#include <math.h>

#include "tests/runtime/report_cases.h"

static const report_case cases[] = {
    {"one rank", 3, 1, 1, false, false, false},
    {"two ranks", 3, 3, 2, false, false, false},
    {"least memory", 6, 2, 4, false, true, false},
    {"hostile names", 8, 3, 2, true, false, false},
    {"hostile names, measured", 8, 3, 2, true, false, true},
    {"27000 steps", 110, 50, 4, false, false, false},
};

// ---- numbers ------------------------------------------------------------------------------------

static void test_lives(void **state)
{
    report_made m;
    zx_lives lives;
    report_make(*state, &m);
    zx_lives_make(&m.train, &m.plan, &m.mem, &lives);
    assert_true(lives.n > 0 && lives.held >= m.plan.held_bytes);
    assert_true(lives.most <= m.plan.arena_bytes && lives.most > lives.held);
    for (uint32_t i = 1; i < lives.n; i++) assert_true(lives.points[i - 1].at < lives.points[i].at);
    for (uint32_t k = 0; k < ZX_USE_COUNT; k++)
        assert_int_equal(lives.points[lives.n - 1].bytes[k], 0);
    zx_arena_free(&m.mem);
}

static void test_parts(void **state)
{
    report_made m;
    zx_parts parts;
    report_make(*state, &m);
    zx_parts_make(&m.plan, &m.mem, &parts);
    double sum = 0, busy = 0;
    for (uint32_t k = 0; k < ZX_PART_COUNT; k++) {
        assert_true(parts.seconds[k] >= 0);
        sum += parts.seconds[k];
    }
    assert_true(fabs(sum - m.plan.step_seconds) <= 1e-9 * m.plan.step_seconds);
    for (uint32_t i = 0; i < m.plan.n_insns; i++)
        if (m.plan.insns[i].id == ZX_I_EXEC || m.plan.insns[i].id == ZX_I_FEED)
            busy += m.plan.seconds[i];
    assert_true(fabs(parts.seconds[ZX_PART_COMPUTE] - busy) <= 1e-9 * busy);
    zx_arena_free(&m.mem);
}

// Two waits for one gather each: behind a full wire, and one that began late on a free one.
static void test_parts_of_waits(void **state ZX_UNUSED)
{
    const zx_unit unit = {.param_slot = 0, .param_bytes = 4, .numel = 1000, .shard = 500};
    const zx_member members[] = {{.unit = 0}, {.unit = 0}};
    const zx_launch launches[] = {{0, 1, ZX_NONE}, {1, 1, ZX_NONE}};
    const zx_insn insns[] = {
        {ZX_I_EXEC, ZX_S_COMPUTE, 0, 0, 0, ZX_NONE, ZX_NONE},         // 0..1
        {ZX_I_GATHER, ZX_S_GATHER, 0, 0, 0, ZX_NONE, 0},              // 0..3
        {ZX_I_WAIT, ZX_S_COMPUTE, 0, 0, 0, ZX_NONE, ZX_NONE},         // 1..3: wire
        {ZX_I_EXEC, ZX_S_COMPUTE, 0, 0, 0, ZX_NONE, ZX_NONE},         // 3..4
        {ZX_I_GATHER, ZX_S_GATHER, 0, 0, 1, ZX_NONE, 1},              // 4..7: 1 late
        {ZX_I_WAIT, ZX_S_COMPUTE, 0, 0, 1, ZX_NONE, ZX_NONE},         // 4..7
        {ZX_I_EXEC, ZX_S_COMPUTE, 0, 0, 0, ZX_NONE, ZX_NONE},         // 8..9, 1 idle before it
        {ZX_I_UPDATE, ZX_S_COMPUTE, 0, ZX_NONE, 0, ZX_NONE, ZX_NONE}, // 9..11, and a tail of 1
    };
    const double start[] = {0, 0, 1, 3, 4, 4, 8, 9}, seconds[] = {1, 3, 2, 1, 3, 3, 1, 2};
    const zx_plan p = {.ranks = 2,
                       .n_insns = 8,
                       .n_units = 1,
                       .n_launches = 2,
                       .n_members = 2,
                       .n_events = 2,
                       .insns = insns,
                       .units = &unit,
                       .launches = launches,
                       .members = members,
                       .start = start,
                       .seconds = seconds,
                       .step_seconds = 12};
    zx_arena mem = {0};
    zx_parts got;
    zx_parts_make(&p, &mem, &got);
    const double want[ZX_PART_COUNT] = {
        [ZX_PART_COMPUTE] = 3, [ZX_PART_HOST] = 1, [ZX_PART_MEMORY] = 1,
        [ZX_PART_WIRE] = 4,    [ZX_PART_TAIL] = 1, [ZX_PART_UPDATE] = 2};
    for (uint32_t k = 0; k < ZX_PART_COUNT; k++)
        if (fabs(got.seconds[k] - want[k]) > 1e-12)
            fail_msg("%s: %g, not %g", zx_part_words[k], got.seconds[k], want[k]);
    assert_true(got.wire == 6);
    zx_arena_free(&mem);
}

// ---- the trace ----------------------------------------------------------------------------------

static json_t *read_trace(const report_made *m, const char *title, bool measured)
{
    zx_text t = {0};
    json_error_t why;
    zx_trace_json(&m->train, &m->plan, title, measured, &t);
    json_t *all = json_loadb(t.at, t.n, JSON_REJECT_DUPLICATES, &why);
    if (all == NULL) fail_msg("line %d: %s", why.line, why.text);
    zx_text_free(&t);
    return all;
}

static void test_trace(void **state)
{
    report_made m;
    report_make(*state, &m);
    json_t *all = read_trace(&m, hostile[0], false), *e;
    double done[ZX_STREAM_COUNT] = {0};
    size_t i, n_begun = 0, n_arrived = 0, n_counters = 0, n_kernels = 0;
    json_array_foreach(json_object_get(all, "traceEvents"), i, e)
    {
        const char *ph = json_string_value(json_object_get(e, "ph"));
        const double ts = json_number_value(json_object_get(e, "ts"));
        const json_int_t tid = json_integer_value(json_object_get(e, "tid"));
        if (strcmp(ph, "M") == 0 && i == 0) {
            const char *name =
                json_string_value(json_object_get(json_object_get(e, "args"), "name"));
            assert_string_equal(json_string_value(json_object_get(e, "name")), "process_name");
            assert_memory_equal(name, "SIMULATED: ", 11);
        }
        n_begun += ph[0] == 's';
        n_arrived += ph[0] == 'f';
        n_counters += ph[0] == 'C';
        if (ph[0] != 'X') continue;
        assert_true(ts >= done[tid]); // of one track, one after the other
        done[tid] = ts + json_number_value(json_object_get(e, "dur")) - 1e-6;
        n_kernels += strcmp(json_string_value(json_object_get(e, "cat")), "exec") == 0;
        assert_non_null(json_object_get(json_object_get(e, "args"), "why"));
    }
    assert_int_equal(n_kernels, m.plan.n_steps);
    assert_int_equal(n_begun, n_arrived);
    assert_true(n_counters > 0 && (n_begun > 0) == (m.plan.ranks > 1));
    json_decref(all);
    all = read_trace(&m, "x", true);
    e = json_array_get(json_object_get(all, "traceEvents"), 0);
    assert_string_equal(json_string_value(json_object_get(json_object_get(e, "args"), "name")),
                        "x, measured on rank 0");
    json_decref(all);
    zx_arena_free(&m.mem);
}

// ---- the page -----------------------------------------------------------------------------------

static size_t times_in(const char *text, const char *what)
{
    size_t n = 0;
    for (; (text = strstr(text, what)) != NULL; text += strlen(what)) n++;
    return n;
}

static void keep(const report_case *c, const zx_text *html)
{
    const char *folder = getenv("ZX_REPORT_KEEP");
    if (folder == NULL || c->least) return;
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.html", folder, c->name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(html->at, 1, html->n, f), html->n);
    assert_int_equal(fclose(f), 0);
}

// Numbers in a column: bytes without the bit that says that more follow.
static size_t column_n(const json_t *x)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t n = 0;
    uint32_t bits = 0, have = 0;
    for (const char *s = json_string_value(x); *s != '\0' && *s != '='; s++) {
        bits = bits << 6 | (uint32_t)(strchr(digits, *s) - digits);
        have += 6;
        if (have < 8) continue;
        have -= 8;
        n += (bits >> have & 128) == 0;
    }
    return n;
}

static void expect_data(const report_case *c, const report_made *m, const char *html)
{
    const char *from = strstr(html, "id=\"data\">") + 10, *to = strstr(from, "</script>");
    json_error_t why;
    json_t *d = json_loadb(from, (size_t)(to - from), JSON_REJECT_DUPLICATES, &why);
    if (d == NULL) fail_msg("line %d: %s", why.line, why.text);
    const json_t *items = json_object_get(d, "items"), *times = json_object_get(d, "times");
    const size_t n = (size_t)json_integer_value(json_object_get(items, "n"));
    assert_true(n >= m->plan.n_steps && n <= m->plan.n_insns);
    assert_int_equal(column_n(json_object_get(items, "what")), n);
    assert_int_equal(json_array_size(times), c->measured ? 2 : 1);
    for (size_t i = 0; i < json_array_size(times); i++) {
        assert_int_equal(column_n(json_object_get(json_array_get(times, i), "start")), n);
        assert_int_equal(column_n(json_object_get(json_array_get(times, i), "takes")), n);
    }
    assert_int_equal(json_array_size(json_object_get(d, "nodes")), m->train.n_nodes);
    json_decref(d);
}

static void test_page(void **state)
{
    static const char *const order[] = {"id=\"verdict\"",  "above the bound", "id=\"budget\"",
                                        "id=\"timeline\"", "id=\"chart\"",    "id=\"waterfall\"",
                                        "id=\"errors\"",   "id=\"data\""};
    const report_case *c = *state;
    report_made m;
    report_make(c, &m);
    const zx_report r = report_of(c, &m);
    zx_text html = {0};
    zx_report_html(&r, &html);
    assert_true(html.n < 3000000);
    const char *at = html.at;
    for (size_t i = 0; i < ZX_COUNT(order); i++) {
        if (i == 1 && c->measured) continue;
        at = strstr(at, order[i]);
        if (at == NULL) fail_msg("no %s where it is due", order[i]);
    }
    assert_int_equal(times_in(html.at, "<script"), 3);
    assert_int_equal(times_in(html.at, "</script"), 3);
    assert_int_equal(
        times_in(html.at, "<img") + times_in(html.at, "<svg") + times_in(html.at, "<b>x"), 0);
    assert_int_equal(times_in(html.at, "<!--"), 1);
    assert_int_equal(times_in(html.at, "\xE2\x80\xA8"), 0);
    assert_int_equal(times_in(html.at, "SIMULATED") > 0, 1);
    assert_int_equal(times_in(html.at, "MEASURED on rank 0"), c->measured);
    assert_int_equal(times_in(html.at, "OVER by 512 KiB"), c->hostile);
    assert_int_equal(times_in(html.at, "http:") + times_in(html.at, "https:"), 1); // SVG's name
    expect_data(c, &m, html.at);
    keep(c, &html);
    zx_text_free(&html);
    zx_arena_free(&m.mem);
}

// ---- what is said of what was measured ----------------------------------------------------------

typedef struct words_row {
    const char *name;
    double median, bound, mine; // mine: measured, of the policy that is shown; 0: it wasn't run
    const char *has, *hasnt;
} words_row;

// Policies p0 to p5 are predicted at 4 s to 9 s, and measured at as many tenths.
static const words_row words[] = {
    {"the median, not a step", 0.5, 0.4, 0.5, "<b>500&nbsp;ms</b>, 25&nbsp;% above the bound",
     "9 s"},
    {"and in its tile", 0.5, 0.4, 0.5, "measured, the median", "busier"},
    {"below the bound", 0.5, 0.6, 0.5, "<b>500&nbsp;ms</b>, less than its bound",
     "above the bound"},
    {"why", 0.5, 0.6, 0.5, "measure again on a quiet one", "no schedule takes less"},
    {"one step alone", 0, 0.4, 0.5, "<b>90.0&nbsp;s</b>", "the median"},
    {"three policies at most", 0.5, 0.4, 0.5,
     "is <b>0.80&times;</b> as fast as p0; <b>1.20&times;</b> as fast as p2; <b>1.40&times;</b> as "
     "fast as p3; "
     "the table below has all 6.",
     "as fast as p4"},
    {"not run: predictions", 0.5, 0.4, 0, "<b>1.20&times;</b> as fast as p2", "as fast as p4"},
};

static void test_words(void **state)
{
    static const char *const names[] = {"p0", "p1", "p2", "p3", "p4", "p5"};
    const words_row *row = *state;
    const report_case c = {"chain", 2, 1, 2, true, false, true};
    const zx_bound bound = {.seconds = row->bound, .compute = row->bound, .wire = 0.1};
    zx_report_policy policies[6];
    report_made m;
    zx_text out = {0};
    report_make(&c, &m);
    for (uint32_t i = 0; i < 6; i++)
        policies[5 - i] = (zx_report_policy){
            names[i], "", 4 + i, i == 1 ? row->mine : 0.4 + 0.1 * i, 1, 0, i == 1};
    zx_report r = report_of(&c, &m);
    r.bound = &bound;
    r.n_policies = 6;
    r.policies = policies;
    r.measured_step_seconds = 90;
    r.measured_median_seconds = row->median;
    zx_report_verdict(&r, &m.mem, &out);
    if (strstr(out.at, row->has) == NULL) fail_msg("no '%s' in\n%s", row->has, out.at);
    if (strstr(out.at, row->hasnt) != NULL) fail_msg("'%s' in\n%s", row->hasnt, out.at);
    // The curve's points are of one kind.
    zx_text_free(&out);
    r.n_points = 0;
    zx_report_data(&r, &m.mem, &out);
    const char *want = row->mine > 0 ? "\"seconds\":0.5,\"kind\":\"measured, the median\""
                                     : "\"kind\":\"predicted\"";
    if (strstr(out.at, want) == NULL) fail_msg("no %s in %.300s", want, out.at);
    const char *peak = row->mine > 0 ? "\"seconds\":0.9,\"here\":false,\"policy\":\"p5\""
                                     : "\"seconds\":9,\"here\":false,\"policy\":\"p5\"";
    if (strstr(out.at, peak) == NULL) fail_msg("no %s in %.900s", peak, out.at);
    zx_text_free(&out);
    zx_arena_free(&m.mem);
}

static void test_json_safe(void **state ZX_UNUSED)
{
    zx_text t = {0};
    zx_report_json_safe(&t, "\"</script>&\xE2\x80\xA8\xE2\x80\xA9\xE2\x82\xAC\"");
    assert_string_equal(t.at, "\"\\u003c/script\\u003e\\u0026\\u2028\\u2029\xE2\x82\xAC\"");
    zx_text_free(&t);
    zx_report_escape(&t, "<a href='x' b=\"y\">&");
    assert_string_equal(t.at, "&lt;a href=&#39;x&#39; b=&quot;y&quot;&gt;&amp;");
    zx_text_free(&t);
}

int main(void)
{
    struct CMUnitTest tests[4 * ZX_COUNT(cases) + ZX_COUNT(words) + 2];
    char names[4][ZX_COUNT(cases)][64];
    static const struct {
        const char *name;
        CMUnitTestFunction run;
    } kinds[] = {
        {"lives", test_lives}, {"parts", test_parts}, {"trace", test_trace}, {"page", test_page}};
    size_t n = 0;
    for (size_t k = 0; k < ZX_COUNT(kinds); k++)
        for (size_t i = 0; i < ZX_COUNT(cases); i++) {
            snprintf(names[k][i], sizeof names[k][i], "%s: %s", kinds[k].name, cases[i].name);
            tests[n++] = zx_case(names[k][i], kinds[k].run, &cases[i]);
        }
    for (size_t i = 0; i < ZX_COUNT(words); i++)
        tests[n++] = zx_case(words[i].name, test_words, &words[i]);
    tests[n++] = zx_case("parts of waits", test_parts_of_waits, NULL);
    tests[n++] = zx_case("text in scripts", test_json_safe, NULL);
    return _cmocka_run_group_tests("report", tests, n, NULL, NULL);
}
