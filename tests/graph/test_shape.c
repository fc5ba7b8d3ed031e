// test_shape.c - what operators refuse, in which words; what they accept is in tests/ops/cases.def.
// Shapes and attributes come from files, so that none of these may be anything but a sentence.
// SPDX-License-Identifier: Apache-2.0
#include "tests/test.h"
#include "tests/op_text.h"

#include <math.h>

#include <math.h>

#define HUGE_INT "9223372036854775807"

static const struct refusal {
    const char *name;
    zx_op_id op;
    const char *in, *attrs, *words; // words: "" where the node is fine
} rows[] = {
    {"an input too few", ZX_OP_ADD, "f32[2]", "", "inputs"},
    {"an input too many", ZX_OP_RELU, "f32[2] f32[2]", "", "inputs"},
    {"a needed input left out", ZX_OP_ADD, "- f32[2]", "", "input 0"},
    {"one of many left out", ZX_OP_CONCAT, "f32[2] - f32[2]", "AXIS=0", "input 1"},
    {"types differ", ZX_OP_ADD, "f32[2] i64[2]", "", "float32 (input 0) and int64"},
    {"no broadcast", ZX_OP_ADD, "f32[2,3] f32[2]", "", "cannot broadcast [2, 3] with [2]"},
    {"broadcast past all memory", ZX_OP_ADD, "f32[1099511627776,1] f32[1,1099511627776]", "",
     "more than any machine holds"},
    {"no sum of bools", ZX_OP_ADD, "bool[2] bool[2]", "", "numbers"},
    {"no root of integers", ZX_OP_SQRT, "i64[2]", "", "floats"},
    {"Not of floats", ZX_OP_NOT, "f32[2]", "", "bools"},
    {"And of floats", ZX_OP_AND, "f32[2] f32[2]", "", "bools or integers"},
    {"Where of floats", ZX_OP_WHERE, "f32[2] f32[2] f32[2]", "", "bools"},
    {"cast to no type", ZX_OP_CAST, "f32[2]", "TO=99", "to is 99"},
    {"clip by a vector", ZX_OP_CLIP, "f32[2] f32[2]", "", "one number"},
    {"clip without a least", ZX_OP_CLIP, "f32[2] - f32[]", "", ""},
    {"reshape loses elements", ZX_OP_RESHAPE, "f32[2,3]", "SHAPE=5", "6 elements are not 5"},
    {"reshape to a negative", ZX_OP_RESHAPE, "f32[2,3]", "SHAPE=-1", "negative"},
    {"reshape to 2^62", ZX_OP_RESHAPE, "f32[2,3]", "SHAPE=4611686018427387904", "more elements"},
    {"reshape to nine dims", ZX_OP_RESHAPE, "f32[1]", "SHAPE=1,1,1,1,1,1,1,1,1", "at most 8"},
    {"reshape without shape", ZX_OP_RESHAPE, "f32[1]", "", "no shape"},
    {"perm too short", ZX_OP_TRANSPOSE, "f32[2,3]", "PERM=0", "1 numbers where 2"},
    {"perm out of range", ZX_OP_TRANSPOSE, "f32[2,3]", "PERM=0,2", "out of range"},
    {"perm twice", ZX_OP_TRANSPOSE, "f32[2,3]", "PERM=1,1", "twice"},
    {"expand shrinks", ZX_OP_EXPAND, "f32[2,3]", "SHAPE=2,1", "[2, 3] to [2, 1]"},
    {"expand a 2", ZX_OP_EXPAND, "f32[2]", "SHAPE=4", "to [4]"},
    {"sum to more", ZX_OP_SUM_TO, "f32[3]", "SHAPE=2,3", "to [2, 3]"},
    {"slice past the end", ZX_OP_SLICE, "f32[5]", "STARTS=3 STEPS=1 SHAPE=3", "do not lie"},
    {"slice with a huge step", ZX_OP_SLICE, "f32[5]", "STARTS=3 STEPS=" HUGE_INT " SHAPE=2",
     "do not lie"},
    {"slice back past the start", ZX_OP_SLICE, "f32[5]",
     "STARTS=3 STEPS=-9223372036854775808 SHAPE=2", "do not lie"},
    {"slice with step 0", ZX_OP_SLICE, "f32[5]", "STARTS=3 STEPS=0 SHAPE=2", "step 0"},
    {"slice of no elements from anywhere", ZX_OP_SLICE, "f32[5]", "STARTS=99 STEPS=1 SHAPE=0", ""},
    {"slice of another rank", ZX_OP_SLICE, "f32[5]", "STARTS=0 STEPS=1 SHAPE=1,1", "to [1, 1]"},
    {"concat of ranks", ZX_OP_CONCAT, "f32[2,3] f32[3]", "AXIS=0", "along axis 0"},
    {"concat of widths", ZX_OP_CONCAT, "f32[2,3] f32[2,4]", "AXIS=0", "[2, 3] and [2, 4]"},
    {"concat along no axis", ZX_OP_CONCAT, "f32[2,3]", "AXIS=2", "axis 2"},
    {"concat of scalars", ZX_OP_CONCAT, "f32[] f32[]", "AXIS=0", "axis 0"},
    {"pad by less than nothing", ZX_OP_PAD, "f32[3]", "PADS=-1,0", "out of range"},
    {"pad past all memory", ZX_OP_PAD, "f32[3]", "PADS=" HUGE_INT ",0", "out of range"},
    {"reflect too far", ZX_OP_PAD, "f32[3]", "PADS=3,0 MODE=1", "cannot be reflected"},
    {"edge of nothing", ZX_OP_PAD, "f32[0]", "PADS=1,0 MODE=2", "nothing to be padded"},
    {"triangle of a vector", ZX_OP_TRILU, "f32[3]", "", "1 dimensions"},
    {"gather by floats", ZX_OP_GATHER, "f32[3] f32[2]", "AXIS=0", "int32 or int64"},
    {"gather from a scalar", ZX_OP_GATHER, "f32[] i64[2]", "AXIS=0", "axis 0"},
    {"gather makes too many dims", ZX_OP_GATHER, "f32[1,1,1,1,1] i64[1,1,1,1,1]", "AXIS=0",
     "9 dimensions"},
    {"gather elements of another rank", ZX_OP_GATHER_ELEMENTS, "f32[3] i64[3,1]", "AXIS=0",
     "do not fit"},
    {"gather elements past a side", ZX_OP_GATHER_ELEMENTS, "f32[3,2] i64[3,4]", "AXIS=0",
     "do not fit"},
    {"gather ND with too long rows", ZX_OP_GATHER_ND, "f32[3,2] i64[5,3]", "", "do not fit"},
    {"gather ND with too many batches", ZX_OP_GATHER_ND, "f32[3,2] i64[3,1]", "BATCH_DIMS=2",
     "do not fit"},
    {"gather ND by int32", ZX_OP_GATHER_ND, "f32[3,2] i32[3,1]", "", "int64 indices"},
    {"scatter ND of other updates", ZX_OP_SCATTER_ND, "f32[3,2] i64[1,1] f32[1,3]", "", "[1, 2]"},
    {"scatter by an unknown sum", ZX_OP_SCATTER_ND, "f32[3,2] i64[1,1] f32[1,2]", "REDUCTION=5",
     "reduction is 5"},
    {"one-hot without depth", ZX_OP_ONE_HOT, "i64[3] f32[2]", "AXIS=1", "depth"},
    {"top of more than there are", ZX_OP_TOP_K, "f32[3]", "AXIS=0 K=4", "k is 4"},
    {"greatest of none", ZX_OP_ARG_MAX, "f32[0]", "AXIS=0", "empty"},
    {"axis given twice", ZX_OP_REDUCE_SUM, "f32[3,3]", "AXES=1,1", "twice"},
    {"axis too great", ZX_OP_REDUCE_SUM, "f32[3]", "AXES=1", "axis 1"},
    {"greatest integer of none", ZX_OP_REDUCE_MAX, "i64[0]", "AXES=0", "no elements"},
    {"product of vectors", ZX_OP_MATMUL, "f32[3] f32[3,2]", "", "1 and 2 dimensions"},
    {"inner sizes", ZX_OP_MATMUL, "f32[2,3] f32[4,2]", "", "inner sizes 3 and 4"},
    {"inner sizes, transposed", ZX_OP_MATMUL, "f32[2,3] f32[3,4]", "TRANS_B=1", "3 and 4"},
    {"batches of a product", ZX_OP_MATMUL, "f32[2,2,3] f32[3,3,2]", "", "leading dimensions"},
    {"a slope elsewhere", ZX_OP_MATMUL_DGELU, "f32[2,3] f32[3,2] f32[2,3]", "", "wants [2, 2]"},
    {"a slope of batches", ZX_OP_MATMUL_DGELU, "f32[2,3] f32[4,2] f32[2,2]", "", "inner sizes"},
    {"sums of batches", ZX_OP_MATMUL_SUM, "f32[2,2,3] f32[3,2]", "", "not batches"},
    {"a GELU of a third kind", ZX_OP_MATMUL_GELU, "f32[2,3] f32[3,2]", "MODE=2", "mode"},
    {"bias of a product", ZX_OP_MATMUL, "f32[2,3] f32[3,2] f32[1,2]", "", "wants [2]"},
    {"convolution of groups", ZX_OP_CONV, "f32[1,4,5] f32[4,4,3]",
     "STRIDES=1 PADS=0,0 DILATIONS=1 GROUP=2", "in 2 groups"},
    {"convolution by no group", ZX_OP_CONV, "f32[1,4,5] f32[4,4,3]",
     "STRIDES=1 PADS=0,0 DILATIONS=1 GROUP=0", "group is 0"},
    {"window past the picture", ZX_OP_CONV, "f32[1,4,5] f32[4,4,3]",
     "STRIDES=1 PADS=0,0 DILATIONS=3 GROUP=1", "does not fit"},
    {"stride 0", ZX_OP_CONV, "f32[1,4,5] f32[4,4,3]", "STRIDES=0 PADS=0,0 DILATIONS=1 GROUP=1",
     "out of range"},
    {"pads of another rank", ZX_OP_CONV, "f32[1,4,5] f32[4,4,3]",
     "STRIDES=1 PADS=0,0,0,0 DILATIONS=1 GROUP=1", "4 numbers where 2"},
    {"empty window", ZX_OP_CONV, "f32[1,4,5] f32[4,4,0]", "STRIDES=1 PADS=0,0 DILATIONS=1 GROUP=1",
     "window of 0"},
    {"six dims of picture", ZX_OP_CONV, "f32[1,1,1,1,1,1] f32[1,1,1,1,1,1]", "", "3 to 5"},
    {"pool padded by a window", ZX_OP_AVG_POOL, "f32[1,1,4]",
     "KERNEL_SHAPE=2 STRIDES=1 DILATIONS=1 PADS=2,0 SHAPE=1,1,5", "do not fit"},
    {"pool beginning past the end", ZX_OP_MAX_POOL, "f32[1,1,4]",
     "KERNEL_SHAPE=2 STRIDES=2 DILATIONS=1 PADS=0,0 SHAPE=1,1,3", "do not fit"},
    {"pool of other channels", ZX_OP_MAX_POOL, "f32[1,1,4]",
     "KERNEL_SHAPE=2 STRIDES=2 DILATIONS=1 PADS=0,0 SHAPE=1,2,2", "do not fit"},
    {"resize by nothing", ZX_OP_RESIZE, "f32[1,1,4]", "SHAPE=1,1,8 SCALES=1,1,0", "scales"},
    {"resize from nothing", ZX_OP_RESIZE, "f32[1,1,0]", "SHAPE=1,1,8 SCALES=1,1,2", "scales"},
    {"scale of another shape", ZX_OP_LAYER_NORM, "f32[2,3] f32[2]", "AXIS=1", "wants [3]"},
    {"norm along no axis", ZX_OP_LAYER_NORM, "f32[2,3]", "AXIS=-1", "axis -1"},
    {"norm of integers", ZX_OP_RMS_NORM, "i64[2,3]", "AXIS=1", "floats"},
    {"batch norm of other channels", ZX_OP_BATCH_NORM, "f32[2,3] f32[3] f32[3] f32[3] f32[2]", "",
     "wants [3]"},
    {"batch norm of a vector", ZX_OP_BATCH_NORM, "f32[3] f32[3] f32[3] f32[3] f32[3]", "",
     "1 dimensions"},
    {"softmax along no axis", ZX_OP_SOFTMAX, "f32[2]", "AXIS=1", "axis 1"},
    {"softmax of a scalar", ZX_OP_SOFTMAX, "f32[]", "AXIS=0", "axis 0"},
    {"labels of another shape", ZX_OP_CROSS_ENTROPY, "f32[2,5] i64[3]", "", "wants [2]"},
    {"labels that are floats", ZX_OP_CROSS_ENTROPY, "f32[2,5] f32[2]", "", "int32 or int64"},
    {"a weight too few", ZX_OP_CROSS_ENTROPY, "f32[2,5] i64[2] f32[4]", "", "wants [5]"},
    {"smoothing past 1", ZX_OP_CROSS_ENTROPY, "f32[2,5] i64[2]", "SMOOTHING=1.5", "smoothing"},
    {"a loss of no known kind", ZX_OP_NLL_LOSS, "f32[2,5] i64[2]", "REDUCTION=3", "reduction is 3"},
    {"dropping all", ZX_OP_DROPOUT, "f32[2]", "RATIO=1", "ratio 1"},
    {"dropping not a number", ZX_OP_DROPOUT, "f32[2]", "RATIO=nan", "ratio"},
};

static void refuses(void **state)
{
    const struct refusal *row = *state;
    zx_arena mem = {0};
    zx_builder b;
    zx_builder_start(&b, &mem, "test");
    b.at_name = "n";
    op_arg args[16];
    uint32_t in[16], out[8];
    const uint32_t n = op_text_args(row->in, args, 16);
    for (uint32_t i = 0; i < n; i++)
        in[i] = args[i].omitted ? ZX_NONE : zx_build_input(&b, "x", &args[i].type);
    zx_err err = {0};
    const zx_status st =
        zx_build_node(&b, row->op, in, n, op_text_attrs(row->attrs, &mem), NULL, out, &err);
    if (row->words[0] == '\0') {
        if (st != ZX_OK) fail_msg("refused: %s", err.cause[0]);
    } else {
        assert_int_equal(st, ZX_E_SHAPE);
        assert_int_equal(err.n_causes, 1);
        if (strstr(err.cause[0], row->words) == NULL)
            fail_msg("\"%s\" does not say \"%s\"", err.cause[0], row->words);
    }
    zx_arena_free(&mem);
}

// ---- whatever a file may say -------------------------------------------------------------------

static uint64_t draw(uint64_t *state, uint64_t n) // below n
{
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (z ^ (z >> 31)) % n;
}

static zx_type any_type(uint64_t *rng)
{
    static const int64_t dims[] = {0, 1, 1, 2, 2, 2, 3, 4, 6, INT32_MAX, (int64_t)1 << 40};
    for (;;) {
        zx_type t = {.dtype = draw(rng, 3) ? ZX_F32 : (zx_dtype)draw(rng, ZX_DTYPE_COUNT),
                     .shape = {.rank = (uint32_t)(draw(rng, 4) ? draw(rng, 4) : draw(rng, 9))}};
        for (uint32_t d = 0; d < t.shape.rank; d++)
            t.shape.dim[d] = dims[draw(rng, ZX_COUNT(dims))];
        if (zx_shape_check(&t.shape, NULL) == ZX_OK) return t;
    }
}

static zx_attrs any_attrs(uint64_t *rng, zx_arena *mem)
{
    static const int64_t wild[] = {INT64_MIN, INT64_MAX, -1, INT32_MAX, (int64_t)1 << 59, 99};
    zx_attrs attrs = {0};
    for (uint32_t id = 0; id < ZX_ATTR_COUNT; id++) {
        const uint32_t n = (uint32_t)(draw(rng, 3) ? draw(rng, 4) : draw(rng, 17));
        int64_t i[16];
        double f[16];
        if (draw(rng, 5) == 0) continue;
        for (uint32_t k = 0; k < n; k++) {
            i[k] = draw(rng, 12) ? (int64_t)draw(rng, 4) : wild[draw(rng, ZX_COUNT(wild))];
            f[k] = draw(rng, 9) ? (double)draw(rng, 100) / 50 : draw(rng, 2) ? 1e300 : NAN;
        }
        attrs = zx_attr_is_float((zx_attr_id)id) ? zx_attrs_floats(mem, attrs, (zx_attr_id)id, f, n)
                                                 : zx_attrs_ints(mem, attrs, (zx_attr_id)id, i, n);
    }
    return attrs;
}

// Thousands of nodes that make no sense, and some that do by chance: a sentence or sound types.
static void nonsense(void **state ZX_UNUSED)
{
    uint64_t rng = 1;
    uint32_t fine = 0, seen_fine[ZX_OP_COUNT] = {0};
    for (uint32_t round = 0; round < 400 * ZX_OP_COUNT; round++) {
        zx_arena mem = {0};
        const zx_op_id op = (zx_op_id)(round % ZX_OP_COUNT);
        zx_type types[6], out[8];
        const zx_type *in[6];
        const zx_type first = any_type(&rng);
        const uint32_t n_in = (uint32_t)draw(&rng, 7);
        for (uint32_t i = 0; i < n_in; i++) {
            types[i] = draw(&rng, 2) ? first : any_type(&rng);
            in[i] = draw(&rng, 12) ? &types[i] : NULL;
        }
        const zx_attrs attrs = any_attrs(&rng, &mem);
        const zx_op_args args = {op, &attrs, n_in, zx_ops[op].n_out, in, out};
        zx_err err = {0};
        const zx_status st = zx_ops[op].infer(&args, out, &err);
        if (st == ZX_OK) {
            for (uint32_t i = 0; i < args.n_out; i++) {
                assert_true(out[i].shape.rank <= ZX_MAX_RANK);
                assert_true((uint32_t)out[i].dtype < ZX_DTYPE_COUNT);
                if (zx_shape_check(&out[i].shape, &err) != ZX_OK)
                    fail_msg("%s makes a bad shape: %s", zx_ops[op].word, err.cause[0]);
            }
            const zx_cost cost = zx_ops[op].cost(&args);
            assert_true(cost.flops >= 0 && cost.bytes >= 0);
            fine += seen_fine[op]++ == 0;
        } else {
            assert_int_equal(st, ZX_E_SHAPE);
            assert_true(err.n_causes == 1 && err.cause[0][0] != '\0');
        }
        zx_arena_free(&mem);
    }
    assert_true(fine > ZX_OP_COUNT / 2); // it isn't all noise
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(rows) + 1];
    for (size_t i = 0; i < ZX_COUNT(rows); i++) tests[i] = zx_case(rows[i].name, refuses, &rows[i]);
    tests[ZX_COUNT(rows)] = zx_case("nonsense", nonsense, NULL);
    return cmocka_run_group_tests_name("graph.shape", tests, NULL, NULL);
}
