// test_threads.c - the same bits for any number of threads and at any address, on tensors large
// enough that the work is really cut.
// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/one_call.h"

#include "graph/op.h"
#include "tests/op_text.h"

static const struct thread_case {
    zx_op_id op;
    const char *in, *attrs, *out;
} cases[] = {
    {ZX_OP_ADD, "f32[57,1033] f32[1033]", "", "f32[57,1033]"},
    {ZX_OP_MUL, "f32[57,1033] f32[57,1]", "", "f32[57,1033]"},
    {ZX_OP_SUB, "f32[4,1,61,67] f32[4,7,61,67]", "", "f32[4,7,61,67]"},
    {ZX_OP_GELU, "f32[77777]", "", "f32[77777]"},
    {ZX_OP_GELU_GRAD, "f32[77777] f32[77777]", "MODE=1", "f32[77777]"},
    {ZX_OP_LESS, "f32[301,203] f32[203]", "", "bool[301,203]"},
    {ZX_OP_TRANSPOSE, "f32[5,61,7,41]", "PERM=0,2,3,1", "f32[5,7,41,61]"},
    {ZX_OP_TRANSPOSE, "f32[331,257]", "PERM=1,0", "f32[257,331]"},
    {ZX_OP_EXPAND, "f32[61,1]", "SHAPE=9,61,131", "f32[9,61,131]"},
    {ZX_OP_SLICE, "f32[301,203]", "STARTS=300,1 STEPS=-1,2 SHAPE=301,101", "f32[301,101]"},
    {ZX_OP_SLICE_SCATTER, "f32[301,101]", "STARTS=0,1 STEPS=1,2 SHAPE=301,203", "f32[301,203]"},
    {ZX_OP_CONCAT, "f32[301,67] f32[301,100]", "AXIS=1", "f32[301,167]"},
    {ZX_OP_GATHER, "f32[97,129] i64[7,91]:<97", "AXIS=0", "f32[7,91,129]"},
    {ZX_OP_GATHER_GRAD, "f32[7,91,129] i64[7,91]:<97", "AXIS=0 SHAPE=97,129", "f32[97,129]"},
    {ZX_OP_GATHER_GRAD, "f32[7,9100] i64[9100]:<5", "AXIS=1 SHAPE=7,5", "f32[7,5]"},
    {ZX_OP_GATHER_GRAD, "f32[7,91,129] i64[7,91]:<97 f32[97,129]", "AXIS=0 SHAPE=97,129",
     "f32[97,129]"},
    {ZX_OP_REDUCE_SUM, "f32[301,203]", "AXES=0 KEEPDIMS=0", "f32[203]"},
    {ZX_OP_REDUCE_SUM, "f32[301,203]", "AXES=1 KEEPDIMS=0", "f32[301]"},
    {ZX_OP_REDUCE_SUM, "f32[50021]", "AXES=0 KEEPDIMS=0", "f32[]"},
    {ZX_OP_REDUCE_MEAN, "f32[9,101,57]", "AXES=0,2 KEEPDIMS=0", "f32[101]"},
    {ZX_OP_REDUCE_MAX, "f32[301,203]", "AXES=0 KEEPDIMS=0", "f32[203]"},
    {ZX_OP_SUM_TO, "f32[6007,11]", "SHAPE=11", "f32[11]"},
    {ZX_OP_SUM_TO, "f32[33,1,59,61]", "SHAPE=33,1,1,61", "f32[33,1,1,61]"},
    {ZX_OP_LAYER_NORM, "f32[301,203] f32[203] f32[203]", "AXIS=1",
     "f32[301,203] f32[301,1] f32[301,1]"},
    {ZX_OP_LAYER_NORM_GRAD, "f32[301,203] f32[301,203] f32[301,1] f32[301,1] f32[203]", "AXIS=1",
     "f32[301,203] f32[203] f32[203]"},
    {ZX_OP_RMS_NORM, "f32[301,203] f32[203]", "AXIS=1", "f32[301,203] f32[301,1]"},
    {ZX_OP_BATCH_NORM, "f32[5,31,301] f32[31] f32[31] f32[31] f32[31]:pos", "",
     "f32[5,31,301] f32[31] f32[31] f32[31] f32[31]"},
    {ZX_OP_SOFTMAX, "f32[301,203]", "AXIS=1", "f32[301,203]"},
    {ZX_OP_SOFTMAX, "f32[3,101,203]", "AXIS=1", "f32[3,101,203]"},
    {ZX_OP_SOFTMAX_GRAD, "f32[301,203] f32[301,203]", "AXIS=1", "f32[301,203]"},
    {ZX_OP_CROSS_ENTROPY, "f32[301,203] i64[301]:<203", "", "f32[] f32[301]"},
    {ZX_OP_CROSS_ENTROPY, "f32[7,203,43] i64[7,43]:<203", "", "f32[] f32[7,43]"},
    {ZX_OP_CROSS_ENTROPY_GRAD, "f32[] f32[301,203] i64[301]:<203 f32[301]", "", "f32[301,203]"},
    {ZX_OP_CUM_SUM, "f32[301,203]", "AXIS=1", "f32[301,203]"},
    {ZX_OP_TOP_K, "f32[301,203]", "AXIS=1 K=5", "f32[301,5] i64[301,5]"},
    {ZX_OP_ARG_MAX, "f32[301,203]", "AXIS=1 KEEPDIMS=0", "i64[301]"},
    {ZX_OP_DROPOUT, "f32[77777]", "RATIO=0.3 KEY=5", "f32[77777]"},
    {ZX_OP_ATTENTION, "f32[2,6,97,18] f32[2,2,131,18] f32[2,2,131,35] f32[97,131]",
     "SCALE=0.3 CAUSAL=1 K=20", "f32[2,6,97,35] f32[2,6,97]"},
    {ZX_OP_ATTENTION_GRAD,
     "f32[2,97,210] f32[2,97,108] f32[2,131,36] f32[2,131,70] f32[2,97,210] f32[2,6,97]",
     "HEADS=6 KV_HEADS=2 SOFTCAP=2", "f32[2,97,108] f32[2,131,36] f32[2,131,70]"},
    {ZX_OP_PACKED_ATTENTION, "f32[3,97,90]", "HEADS=6 KV_HEADS=2 SCALE=0.3 CAUSAL=1",
     "f32[3,97,54] f32[3,6,97]"},
    {ZX_OP_PACKED_ATTENTION_GRAD, "f32[3,97,54] f32[3,97,90] f32[3,97,54] f32[3,6,97]",
     "HEADS=6 KV_HEADS=2 SCALE=0.3", "f32[3,97,90]"},
    {ZX_OP_ROTARY_EMBEDDING, "f32[2,6,97,34] f32[131,15] f32[131,15] i64[2,97]:<131", "",
     "f32[2,6,97,34]"},
    {ZX_OP_GLU, "f32[7,331] f32[7,331]", "", "f32[7,331]"},
    {ZX_OP_GLU_GRAD, "f32[7,331] f32[7,331] f32[7,331]", "MODE=1", "f32[7,331] f32[7,331]"},
};

#define MOST 8

// The case's op on inputs that are the same every time, `skew` elements of 64 bytes further on.
static void run(const struct thread_case *row, const zx_attrs *attrs, const op_arg *args,
                uint32_t n_in, const op_arg *results, uint32_t n_out, int threads, size_t skew,
                zx_arena *mem, zx_view *out)
{
    zx_view in[MOST];
    const zx_rng rng = {.seed = 1, .step = 2, .micro = 3};
    zx_fault fault = {0};
    zx_err err = {0};
    zx_call call = {.op = row->op,
                    .n_in = n_in,
                    .n_out = n_out,
                    .in = in,
                    .out = out,
                    .attrs = attrs,
                    .threads = threads,
                    .rng = &rng,
                    .fault = &fault};
    for (uint32_t i = 0; i < n_in; i++) {
        const int64_t n = zx_shape_count(&args[i].type.shape);
        in[i].type = args[i].type;
        char *at = zx_arena_alloc(mem, (size_t)zx_type_bytes(&in[i].type) + 64 * skew, 1, 64);
        in[i].data = at + 64 * skew;
        for (int64_t k = 0; k < n; k++) {
            if (args[i].type.dtype == ZX_F32)
                ((float *)in[i].data)[k] =
                    strcmp(args[i].fill, "pos") == 0 ? 1.5f + some(i, k) : some(i, k);
            else // "<K"
                ((int64_t *)in[i].data)[k] =
                    (int64_t)((double)(some(i, k) + 1) / 2 * atof(args[i].fill + 1));
        }
    }
    for (uint32_t i = 0; i < n_out; i++) {
        out[i].type = results[i].type;
        char *at = zx_arena_alloc(mem, (size_t)zx_type_bytes(&out[i].type) + 64 * skew, 1, 64);
        out[i].data = at + 64 * skew;
    }
    const zx_kernel *k = zx_cpu_kernel(row->op);
    uint64_t work = 0;
    void *state = NULL;
    if (k->prepare) assert_zx_ok(k->prepare(&call, &work, &state, &err), &err);
    call.state = state;
    call.work = zx_arena_alloc(mem, (size_t)work + 1, 1, 64);
    assert_zx_ok(k->run(&call, &err), &err);
    assert_int_equal(fault.kind, ZX_FAULT_NONE);
    if (k->release) k->release(state);
}

static void same_bits(void **state)
{
    const struct thread_case *row = *state;
    static const struct {
        int threads;
        size_t skew;
    } ways[] = {{1, 0}, {1, 3}, {2, 0}, {3, 1}, {5, 2}};
    zx_arena mem = {0};
    op_arg args[MOST], results[MOST];
    const zx_attrs attrs = op_text_attrs(row->attrs, &mem);
    const uint32_t n_in = op_text_args(row->in, args, MOST);
    const uint32_t n_out = op_text_args(row->out, results, MOST);
    zx_view first[MOST], out[MOST];
    for (uint32_t w = 0; w < ZX_COUNT(ways); w++) {
        run(row, &attrs, args, n_in, results, n_out, ways[w].threads, ways[w].skew, &mem,
            w == 0 ? first : out);
        for (uint32_t i = 0; w > 0 && i < n_out; i++)
            if (memcmp(first[i].data, out[i].data, (size_t)zx_type_bytes(&out[i].type)) != 0)
                fail_msg("output %u differs with %d threads", i, ways[w].threads);
    }
    zx_arena_free(&mem);
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(cases)];
    for (uint32_t i = 0; i < ZX_COUNT(cases); i++)
        tests[i] = zx_case(zx_ops[cases[i].op].word, same_bits, &cases[i]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
