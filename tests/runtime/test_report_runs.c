// test_report_runs.c - the curves of runs as a page: what it holds is what the logs say; logs that
// are cut, of a run that goes on, and none at all. tests/report/browser opens the page that this
// leaves.
// SPDX-License-Identifier: Apache-2.0
#include "tests/runtime/cli.h"

#include <jansson.h>

#include "runtime/report_runs.h"

static int make_files(void **state)
{
    if (cli_setup(state) != 0) return 1;
    FILE *f;
    if (mkdir("a", 0777) != 0) return 1;
    f = fopen("a/log.jsonl", "w");
    if (f == NULL) return 1;
    for (int i = 1; i <= 30; i++)
        fprintf(f,
                "{\"step\": %d, \"loss\": %g, \"grad_norm\": 2, \"clip_factor\": 0.5, \"lr\": 0.1, "
                "\"tokens_per_second\": 1000%s}\n",
                i, 3.0 / i, i % 10 == 0 ? ", \"eval_loss\": 2.5" : "");
    fprintf(f, "{\"step\": 31, \"lo"); // a run that goes on
    fclose(f);
    f = fopen("long<img src=x onerror=alert(1)>.jsonl", "w");
    if (f == NULL) return 1;
    for (int i = 1; i <= 10000; i++)
        fprintf(f, "{\"step\": %d, \"loss\": %s, \"samples_per_second\": 7%s}\n", i,
                i == 5 ? "null" : "1.5", i == 4444 ? ", \"eval_loss\": 1" : "");
    fclose(f);
    cli_write("broken.jsonl", "{\"step\": 1}\n{\"step\": }\n");
    cli_write("empty.jsonl", "");
    return 0;
}

static json_t *data_of(const char *html)
{
    json_error_t e;
    const char *from = strstr(html, "<script type=\"application/json\" id=\"data\">");
    assert_non_null(from);
    from = strchr(from, '>') + 1;
    const char *to = strstr(from, "</script>");
    assert_non_null(to);
    json_t *all = json_loadb(from, (size_t)(to - from), 0, &e);
    if (all == NULL) fail_msg("%s", e.text);
    return all;
}

static void keep(const zx_text *html)
{
    char path[4096];
    const char *folder = getenv("ZX_REPORT_KEEP");
    if (folder == NULL) return;
    snprintf(path, sizeof path, "%s/3 runs.html", folder);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(html->at, 1, html->n, f), html->n);
    assert_int_equal(fclose(f), 0);
}

static void the_page_holds_what_logs_say(void **state)
{
    (void)state;
    static const char *const paths[] = {"a", "long<img src=x onerror=alert(1)>.jsonl",
                                        "empty.jsonl"};
    zx_arena mem = {0};
    zx_err err = {0};
    zx_run_log runs[3];
    zx_text html = {0};
    for (size_t i = 0; i < 3; i++)
        assert_zx_ok(zx_run_log_read(paths[i], &mem, &runs[i], &err), &err);
    zx_report_runs_html(runs, 3, &html);
    assert_null(strstr(html.at, "{{"));
    assert_null(strstr(html.at, "<img"));
    assert_null(strstr(html.at, "src=\"")); // nothing from outside
    assert_null(strstr(html.at, "<link"));
    json_t *all = data_of(html.at), *a = json_array_get(all, 0), *b = json_array_get(all, 1);
    assert_int_equal(json_array_size(all), 3);
    assert_int_equal(json_array_size(json_object_get(a, "step")), 30);
    assert_int_equal(json_integer_value(json_object_get(a, "steps")), 30);
    assert_true(json_number_value(json_array_get(json_object_get(a, "loss"), 2)) == 1);
    assert_true(json_number_value(json_array_get(json_object_get(a, "eval_loss"), 9)) == 2.5);
    assert_true(json_is_null(json_array_get(json_object_get(a, "eval_loss"), 8)));
    assert_string_equal(json_string_value(json_object_get(a, "unit")), "tokens/s");
    assert_string_equal(json_string_value(json_object_get(b, "name")), paths[1]);
    assert_int_equal(json_integer_value(json_object_get(b, "steps")), 10000);
    const size_t n = json_array_size(json_object_get(b, "step"));
    assert_in_range(n, 1000, 2100);
    bool found = false; // evaluations are never left out
    for (size_t i = 0; i < n; i++)
        found |= json_number_value(json_array_get(json_object_get(b, "step"), i)) == 4444;
    assert_true(found);
    keep(&html);
    json_decref(all);
    zx_text_free(&html);
    zx_arena_free(&mem);
}

static const cli_row rows[] = {
    {"a run and a log",
     {"report", "a", "empty.jsonl", "-o", "page.html"},
     0,
     "",
     "written: page.html"},
    {"a page is made again", {"report", "a", "-o", "page.html"}, 0, "", "written: page.html"},
    {"anything else is kept",
     {"report", "a", "-o", "broken.jsonl"},
     2,
     "",
     "broken.jsonl exists already"},
    {"no run", {"report"}, 2, "", "report needs a RUN..."},
    {"no such run", {"report", "gone"}, 1, "", "gone"},
    {"a broken log", {"report", "broken.jsonl"}, 3, "", "line 2 is no row of a run's log"},
};

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(rows) + 1];
    size_t n = 0;
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(the_page_holds_what_logs_say);
    for (size_t i = 0; i < ZX_COUNT(rows); i++)
        tests[n++] = zx_case(rows[i].name, cli_test_row, &rows[i]);
    return cmocka_run_group_tests(tests, make_files, cli_teardown);
}
