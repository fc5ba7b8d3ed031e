// test_nodes.c - models whose nodes ask for nonsense: each is refused with the node named, by one
// rank and by three, and neither `plan` nor `check` stumbles over it.
//
// Most take logits [2,3] and make h, which the loss compares with the labels.
// SPDX-License-Identifier: Apache-2.0
#include "tests/bad/bad.h"
#include "tests/bad/models.h"

static const struct op_row {
    const char *name, *text;
    const char *says[3];
} ops[] = {
    {"reshape to other sizes", "s:i64[2]=5,7; h=Reshape(logits,s)", {"node 'h'"}},
    {"reshape with two unknown sizes", "s:i64[2]=-1; h=Reshape(logits,s)", {"node 'h'"}},
    {"reshape to a negative size", "s:i64[2]=-2,3; h=Reshape(logits,s)", {"node 'h'"}},
    {"reshape of nothing to an unknown size",
     "s:i64[2]=0,-1; h=Reshape(logits,s){allowzero=1}",
     {"node 'h'"}},
    {"reshape to 2^62 and some",
     "s:i64[2]=0x4000000000000000,4; h=Reshape(logits,s)",
     {"node 'h'"}},
    {"a size of 2^64 - 1", "s:u64[2]=0xffffffffffffffff,3; h=Expand(logits,s)", {"node 'h'"}},
    {"a size from data", "s=Cast(labels){to=7}; h=Reshape(logits,s)", {"node 'h'"}},
    {"expand to 2^62", "s:i64[2]=0x4000000000000000,3; h=Expand(logits,s)", {"node 'h'"}},
    {"expand to a negative size", "s:i64[2]=-4,3; h=Expand(logits,s)", {"node 'h'"}},
    {"a constant of terabytes",
     "s:i64[2]=1099511627776,3; c=ConstantOfShape(s); h=Add(logits,c)",
     {"node 'c'"}},
    {"a constant of a negative size",
     "s:i64[2]=-3,3; c=ConstantOfShape(s); h=Add(logits,c)",
     {"node 'c'"}},
    {"a range of 2^60 numbers",
     "a:i64[]=0; z:i64[]=0x1000000000000000; d:i64[]=1; r=Range(a,z,d); c=Cast(r){to=1}; "
     "h=Add(logits,c)",
     {"node 'r'"}},
    {"a range that goes nowhere",
     "a:i64[]=0; z:i64[]=9; d:i64[]=0; r=Range(a,z,d); c=Cast(r){to=1}; h=Add(logits,c)",
     {"node 'r'"}},
    {"tile 2^40 times", "s:i64[2]=1099511627776,1099511627776; h=Tile(logits,s)", {"node 'h'"}},
    {"tile fewer than none", "s:i64[2]=-1,1; h=Tile(logits,s)", {"node 'h'"}},
    {"pad by 2^62", "s:i64[4]=0x4000000000000000; h=Pad(logits,s)", {"node 'h'"}},
    {"cut more than there is", "s:i64[4]=-3,-3,-3,-3; h=Pad(logits,s)", {"node 'h'"}},
    {"pad with too few numbers", "s:i64[3]=1; h=Pad(logits,s)", {"node 'h'"}},
    {"one-hot of 2^40 classes",
     "d:i64[]=1099511627776; v:f32[2]=0,1; o=OneHot(labels,d,v); h=MatMul(o,o)",
     {"node 'o'"}},
    {"one-hot of no classes",
     "d:i64[]=-1; v:f32[2]=0,1; o=OneHot(labels,d,v); h=MatMul(o,o)",
     {"node 'o'"}},
    {"slice with step 0",
     "a:i64[1]=0; z:i64[1]=2; d:i64[1]=0; h=Slice(logits,a,z,a,d)",
     {"node 'h'"}},
    {"slice the same axis twice",
     "a:i64[2]=0; z:i64[2]=1; k:i64[2]=1; h=Slice(logits,a,z,k)",
     {"node 'h'"}},
    {"slice axis 5", "a:i64[1]=0; z:i64[1]=1; k:i64[1]=5; h=Slice(logits,a,z,k)", {"node 'h'"}},
    {"split into parts that don't add up",
     "s:i64[2]=1,1; h,h2=Split(logits,s){axis=1}",
     {"node 'h'"}},
    {"split with a negative part", "s:i64[2]=-1,4; h,h2=Split(logits,s){axis=1}", {"node 'h'"}},
    {"split along axis 9", "h,h2=Split(logits){axis=9,num_outputs=2}", {"node 'h'"}},
    {"concat of sizes that differ", "h=Concat(logits,x){axis=0}", {"node 'h'"}},
    {"concat along axis -9", "h=Concat(logits,logits){axis=-9}", {"node 'h'"}},
    {"concat without an axis", "h=Concat(logits,logits)", {"node 'h'", "axis"}},
    {"transpose by no permutation", "h=Transpose(logits){perm=[0 0]}", {"node 'h'"}},
    {"transpose by too many axes", "h=Transpose(logits){perm=[0 1 2]}", {"node 'h'"}},
    {"transpose by huge axes",
     "h=Transpose(logits){perm=[9223372036854775807 -9223372036854775808]}",
     {"node 'h'"}},
    {"gather a row that isn't there", "i:i64[2]=0,2; h=Gather(logits,i)", {"node 'h'", "2"}},
    {"gather row -3 of 2", "i:i64[2]=0,-3; h=Gather(logits,i)", {"node 'h'", "-3"}},
    {"gather along axis 2^40", "i:i64[2]=0; h=Gather(logits,i){axis=1099511627776}", {"node 'h'"}},
    {"gather elements outside",
     "i:i64[2,3]=0,1,2,3,0,0; h=GatherElements(logits,i){axis=1}",
     {"node 'h'"}},
    {"gather by too long tuples", "i:i64[2,3]=0; h=GatherND(logits,i)", {"node 'h'"}},
    {"gather by floats", "i:f32[2]=0; h=Gather(logits,i)", {"node 'h'"}},
    {"squeeze what isn't 1", "a:i64[1]=1; h=Squeeze(logits,a)", {"node 'h'"}},
    {"unsqueeze twice at one place", "a:i64[2]=0,0; h=Unsqueeze(logits,a)", {"node 'h'"}},
    {"unsqueeze beyond the end", "a:i64[1]=7; h=Unsqueeze(logits,a)", {"node 'h'"}},
    {"more than 8 dimensions", "a:i64[7]=0,1,2,3,4,5,6; h=Unsqueeze(logits,a)", {"node 'h'"}},
    {"sizes that don't broadcast", "c:f32[7]=1; h=Add(logits,c)", {"node 'h'"}},
    {"matrices that don't fit", "h=MatMul(logits,logits)", {"node 'h'"}},
    {"a product with a number", "c:f32[]=1; h=MatMul(logits,c)", {"node 'h'"}},
    {"gemm with three dimensions", "c:f32[1,3,3]=1; h=Gemm(logits,c)", {"node 'h'"}},
    {"einsum with a typo", "h=Einsum(logits,w){equation=ij,jk->}", {"node 'h'"}},
    {"softmax along axis 2", "h=Softmax(logits){axis=2}", {"node 'h'"}},
    {"reduce along axis -3", "a:i64[1]=-3; r=ReduceSum(logits,a); h=Add(r,logits)", {"node 'r'"}},
    {"reduce along axes from data",
     "a=Cast(labels){to=7}; r=ReduceSum(logits,a); h=Add(r,logits)",
     {"node 'r'"}},
    {"the 9 largest of 3", "k:i64[1]=9; h,i=TopK(logits,k)", {"node 'h'"}},
    {"the -1 largest", "k:i64[1]=-1; h,i=TopK(logits,k)", {"node 'h'"}},
    {"running sum along axis 4", "a:i64[]=4; h=CumSum(logits,a)", {"node 'h'"}},
    {"normalise along axis 3", "g:f32[3]=1; h=LayerNormalization(logits,g){axis=3}", {"node 'h'"}},
    {"normalise with a scale that doesn't fit",
     "g:f32[5]=1; h=LayerNormalization(logits,g)",
     {"node 'h'"}},
    {"normalise with epsilon below 0",
     "g:f32[3]=1; h=LayerNormalization(logits,g){epsilon=-1.0}",
     {"node 'h'", "epsilon"}},
    {"normalise in no type",
     "g:f32[3]=1; h=LayerNormalization(logits,g){stash_type=-940}",
     {"node 'h'", "stash_type"}},
    {"batch norm with too few statistics",
     "g:f32[2]=1; h=BatchNormalization(logits,g,g,g,g)",
     {"node 'h'"}},
    {"group norm with 2^40 groups",
     "g:f32[3]=1; h=GroupNormalization(logits,g,g){num_groups=1099511627776}",
     {"node 'h'"}},
    {"group norm with no groups",
     "g:f32[3]=1; h=GroupNormalization(logits,g,g){num_groups=0}",
     {"node 'h'"}},
    {"dropout of all", "r:f32[]=1; t:bool[]=1; h=Dropout(logits,r,t)", {"node 'h'"}},
    {"dropout of more than all", "r:f32[]=2; t:bool[]=1; h=Dropout(logits,r,t)", {"node 'h'"}},
    {"dropout of NaN", "r:f32[]=nan; t:bool[]=1; h=Dropout(logits,r,t)", {"node 'h'"}},
    {"cast to no type", "h=Cast(logits){to=99}", {"node 'h'", "99"}},
    {"cast to nothing", "h=Cast(logits)", {"node 'h'", "to"}},
    {"cast to text", "h=Cast(logits){to=8}", {"node 'h'"}},
    {"an attribute of another type", "h=Softmax(logits){axis=1.5}", {"node 'h'", "axis"}},
    {"an attribute that is text", "h=Softmax(logits){axis=last}", {"node 'h'", "axis"}},
    {"convolve two dimensions", "c:f32[3,3,3,3]=1; h=Conv(logits,c)", {"node 'h'"}},
    {"convolve with a kernel of -1",
     "s:i64[4]=1,1,2,3; i=Reshape(logits,s); c:f32[1,1,1,1]=1; "
     "o=Conv(i,c){kernel_shape=[-1 1]}; z:i64[2]=2,3; h=Reshape(o,z)",
     {"node 'o'"}},
    {"convolve with strides of 0",
     "s:i64[4]=1,1,2,3; i=Reshape(logits,s); c:f32[1,1,1,1]=1; "
     "o=Conv(i,c){strides=[0 1]}; z:i64[2]=2,3; h=Reshape(o,z)",
     {"node 'o'"}},
    {"convolve with dilations of 2^62",
     "s:i64[4]=1,1,2,3; i=Reshape(logits,s); c:f32[1,1,2,2]=1; "
     "o=Conv(i,c){dilations=[0x4000000000000000 1]}; z:i64[2]=2,3; h=Reshape(o,z)",
     {"node 'o'"}},
    {"convolve with padding of 2^62",
     "s:i64[4]=1,1,2,3; i=Reshape(logits,s); c:f32[1,1,1,1]=1; "
     "o=Conv(i,c){pads=[0x4000000000000000 0 0x4000000000000000 0]}; z:i64[2]=2,3; h=Reshape(o,z)",
     {"node 'o'"}},
    {"convolve with a kernel larger than the picture",
     "s:i64[4]=1,1,2,3; i=Reshape(logits,s); c:f32[1,1,5,5]=1; "
     "o=Conv(i,c); z:i64[2]=2,3; h=Reshape(o,z)",
     {"node 'o'"}},
    {"convolve in 0 groups",
     "s:i64[4]=1,1,2,3; i=Reshape(logits,s); c:f32[1,1,1,1]=1; "
     "o=Conv(i,c){group=0}; z:i64[2]=2,3; h=Reshape(o,z)",
     {"node 'o'"}},
    {"convolve in 7 groups",
     "s:i64[4]=1,1,2,3; i=Reshape(logits,s); c:f32[1,1,1,1]=1; "
     "o=Conv(i,c){group=7}; z:i64[2]=2,3; h=Reshape(o,z)",
     {"node 'o'"}},
    {"pool with a kernel of 0",
     "s:i64[4]=1,1,2,3; i=Reshape(logits,s); o=MaxPool(i){kernel_shape=[0 0]}; "
     "z:i64[2]=2,3; h=Reshape(o,z)",
     {"node 'o'"}},
    {"pool with more padding than kernel",
     "s:i64[4]=1,1,2,3; i=Reshape(logits,s); "
     "o=AveragePool(i){kernel_shape=[1 1],pads=[5 5 5 5]}; z:i64[2]=2,3; h=Reshape(o,z)",
     {"node 'o'"}},
    {"resize 10^30 times",
     "s:i64[4]=1,1,2,3; i=Reshape(logits,s); c:f32[4]=1,1,1e30,1e30; o=Resize(i,,c); "
     "z:i64[2]=2,3; h=Reshape(o,z)",
     {"node 'o'"}},
    {"resize by NaN",
     "s:i64[4]=1,1,2,3; i=Reshape(logits,s); c:f32[4]=1,1,nan,1; o=Resize(i,,c); "
     "z:i64[2]=2,3; h=Reshape(o,z)",
     {"node 'o'"}},
    {"a loss of the wrong rank", "s:i64[3]=2,3,1; h=Reshape(logits,s)", {"node 'ce'"}},
    {"too few inputs", "h=Add(logits)", {"node 'h'", "input 1"}},
    {"too many inputs", "h=Relu(logits,logits,logits)", {"node 'h'", "3 inputs"}},
    {"no inputs", "h=Add()", {"node 'h'"}},
    {"an output that isn't made", "a,h=Relu(logits)", {"node 'a'", "outputs"}},
    {"integer division by 0",
     "a:i64[2]=3,3; z:i64[2]=0,1; s=Div(a,z); h=Reshape(logits,s)",
     {"node 's'"}},
    {"least integer by -1",
     "a:i64[2]=-9223372036854775808,3; z:i64[2]=-1,1; s=Div(a,z); h=Reshape(logits,s)",
     {"node '"}},
    {"remainder of a division by 0",
     "a:i64[2]=3,3; z:i64[2]=0,1; s=Mod(a,z); h=Reshape(logits,s)",
     {"node 's'"}},
    {"sequences have no such element",
     "i:i64[]=9; q=SplitToSequence(logits); h=SequenceAt(q,i)",
     {"node 'h'"}},
    {"attention of heads that don't divide",
     "s:i64[3]=1,2,3; q=Reshape(logits,s); a=Attention(q,q,q){q_num_heads=2,kv_num_heads=2}; "
     "z:i64[2]=2,3; h=Reshape(a,z)",
     {"node 'a'"}},
    {"attention of 0 heads",
     "s:i64[3]=1,2,3; q=Reshape(logits,s); a=Attention(q,q,q){q_num_heads=0,kv_num_heads=0}; "
     "z:i64[2]=2,3; h=Reshape(a,z)",
     {"node 'a'"}},
    {"no gradient of a rounding", "r=Round(logits); h=Mul(r,r)", {NULL}},
};

static void op_test(void **state)
{
    const struct op_row *row = *state;
    model_write("model.onnx", row->text, NULL);
    const char *const *says = row->says;
    const bad_row bad = {row->name, 3, "train $IN/model.onnx", NULL, {says[0], says[1], says[2]},
                         BAD_MODEL};
    bad_row_test(&(void *){(void *)(uintptr_t)&bad});
}

static int setup(void **state)
{
    if (bad_setup(state) != 0) return 1;
    model_data();
    return 0;
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(ops)];
    for (size_t i = 0; i < ZX_COUNT(ops); i++) tests[i] = zx_case(ops[i].name, op_test, &ops[i]);
    return cmocka_run_group_tests(tests, setup, bad_teardown);
}
