// import_ops_matmul.c - lowering of matrix products: MatMul, Gemm, Einsum.
// SPDX-License-Identifier: Apache-2.0
#include "graph/import_priv.h"

#include <inttypes.h>
#include <string.h>

void zx_lower_matmul(zx_imp *c)
{
    uint32_t a = zx_in(c, 0), b = zx_in(c, 1);
    if (!zx_ok(c)) return;
    const uint32_t ra = zx_rank(c, a), rb = zx_rank(c, b);
    if (ra == 0 || rb == 0) {
        zx_fail(c, ZX_E_SHAPE, "MatMul of a scalar");
        return;
    }
    if (ra == 1) a = zx_reshape_to(c, a, 2, (int64_t[]){1, zx_dim(c, a, 0)});
    if (rb == 1) b = zx_reshape_to(c, b, 2, (int64_t[]){zx_dim(c, b, 0), 1});
    uint32_t y = zx_matmul(c, a, b, false, false, 1, ZX_NONE);
    if (!zx_ok(c)) return;
    if (ra == 1 || rb == 1) { // vectors lend a dimension and take it back
        const zx_shape s = *zx_s(c, y);
        zx_shape to = {0};
        for (uint32_t i = 0; i < s.rank; i++) {
            if ((i + 2 == s.rank && ra == 1) || (i + 1 == s.rank && rb == 1)) continue;
            to.dim[to.rank++] = s.dim[i];
        }
        y = zx_reshape(c, y, &to);
    }
    zx_out(c, 0, y);
}

// alpha * A' B' + beta * C
void zx_lower_gemm(zx_imp *c)
{
    const uint32_t a = zx_in(c, 0), b = zx_in(c, 1);
    uint32_t bias = zx_in(c, 2);
    const double alpha = zx_float(c, "alpha", 1), beta = zx_float(c, "beta", 1);
    const bool ta = zx_int(c, "transA", 0) != 0, tb = zx_int(c, "transB", 0) != 0;
    if (!zx_ok(c)) return;
    if (zx_rank(c, a) != 2 || zx_rank(c, b) != 2) {
        zx_fail(c, ZX_E_SHAPE, "Gemm wants matrices, not %u and %u dimensions", zx_rank(c, a),
                zx_rank(c, b));
        return;
    }
    if (beta == 0) bias = ZX_NONE;
    const int64_t n = zx_dim(c, b, tb ? 0 : 1);
    // One number a column is added by the product itself.
    const zx_shape *s = zx_s(c, bias);
    const bool row = bias != ZX_NONE && s->rank >= 1 && s->rank <= 2 && s->dim[s->rank - 1] == n &&
                     (s->rank == 1 || s->dim[0] == 1);
    if (row) bias = zx_scale(c, zx_reshape_to(c, bias, 1, &n), beta);
    uint32_t y = zx_matmul(c, a, b, ta, tb, alpha, row ? bias : ZX_NONE);
    if (bias != ZX_NONE && !row) {
        const zx_shape want = *zx_s(c, y);
        y = zx_e2(c, ZX_OP_ADD, ZX_NO_ATTRS, y, zx_scale(c, bias, beta));
        if (zx_ok(c) && !zx_shape_equal(zx_s(c, y), &want))
            zx_fail(c, ZX_E_SHAPE, "Gemm's third input doesn't broadcast to its result");
    }
    zx_out(c, 0, y);
}

// ---- Einsum
// ------------------------------------------------------------------------------------------

#define LABELS 64 // letters a-z, A-Z, and up to 8 for what an ellipsis stands for
#define ELLIPSIS 52

typedef struct term { // an operand with a label a dimension
    uint32_t v, rank;
    uint8_t label[ZX_MAX_RANK];
} term;

static int label_of(char ch)
{
    if (ch >= 'a' && ch <= 'z') return ch - 'a';
    if (ch >= 'A' && ch <= 'Z') return ch - 'A' + 26;
    return -1;
}

// Reads "ij...k" up to a comma, "->" or the end. `dots` is how many dims an ellipsis stands for.
static bool read_term(zx_imp *c, const char **s, uint32_t dots, uint32_t widest, term *t)
{
    t->rank = 0;
    while (**s && **s != ',' && **s != '-') {
        if (**s == ' ') {
            ++*s;
            continue;
        }
        if (**s == '.') {
            if (strncmp(*s, "...", 3) != 0) break;
            *s += 3;
            for (uint32_t i = 0; i < dots && t->rank < ZX_MAX_RANK; i++)
                t->label[t->rank++] = (uint8_t)(ELLIPSIS + (widest - dots) + i);
            continue;
        }
        const int l = label_of(**s);
        if (l < 0 || t->rank == ZX_MAX_RANK) break;
        t->label[t->rank++] = (uint8_t)l;
        ++*s;
    }
    if (**s == '\0' || **s == ',' || strncmp(*s, "->", 2) == 0) return true;
    zx_fail(c, ZX_E_FORMAT, "Einsum can't read '%s'", zx_text_safe(&c->tmp, *s));
    return false;
}

static uint32_t letters(const char *s)
{
    uint32_t n = 0;
    for (; *s && *s != ',' && *s != '-'; s++) n += label_of(*s) >= 0;
    return n;
}

static bool has(const term *t, uint8_t label)
{
    for (uint32_t i = 0; i < t->rank; i++)
        if (t->label[i] == label) return true;
    return false;
}

// Sums away labels of t that nobody else wants.
static void drop_labels(zx_imp *c, term *t, const bool *wanted)
{
    int64_t axes[ZX_MAX_RANK];
    uint32_t n = 0, rank = 0;
    term left = *t;
    for (uint32_t i = 0; i < t->rank; i++) {
        if (wanted[t->label[i]])
            left.label[rank++] = t->label[i];
        else
            axes[n++] = i;
    }
    if (n == 0) return;
    left.rank = rank;
    left.v = zx_reduce(c, ZX_OP_REDUCE_SUM, t->v, axes, n, false);
    *t = left;
}

// t with its dims in the order of `label`; those that t hasn't are left out.
static uint32_t arrange(zx_imp *c, const term *t, const uint8_t *label, uint32_t n)
{
    int64_t perm[ZX_MAX_RANK];
    uint32_t k = 0;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < t->rank; j++)
            if (t->label[j] == label[i]) perm[k++] = j;
    return k == t->rank ? zx_transpose(c, t->v, perm) : ZX_NONE;
}

// The product of a and b, summed over labels that nobody else wants, as one batched product.
static term contract(zx_imp *c, const term *a, const term *b, const bool *wanted)
{
    uint8_t group[4][ZX_MAX_RANK], order_a[ZX_MAX_RANK], order_b[ZX_MAX_RANK];
    uint32_t n[4] = {0}, na = 0, nb = 0; // both and wanted; a's; b's; both and summed
    int64_t size[4] = {1, 1, 1, 1}, dim[LABELS];
    for (uint32_t i = 0; i < LABELS; i++) dim[i] = 1;
    for (uint32_t i = 0; i < a->rank; i++) dim[a->label[i]] = zx_dim(c, a->v, i);
    for (uint32_t i = 0; i < b->rank; i++) dim[b->label[i]] = zx_dim(c, b->v, i);
    for (uint32_t i = 0; i < a->rank; i++) {
        const uint8_t l = a->label[i];
        const int g = !has(b, l) ? 1 : wanted[l] ? 0 : 3;
        group[g][n[g]++] = l;
        size[g] *= dim[l];
    }
    for (uint32_t i = 0; i < b->rank; i++)
        if (!has(a, b->label[i])) {
            group[2][n[2]++] = b->label[i];
            size[2] *= dim[b->label[i]];
        }
    for (int g = 0; g < 4; g++)
        for (uint32_t i = 0; i < n[g]; i++) {
            if (g != 2) order_a[na++] = group[g][i];
            if (g != 1 && g != 2) order_b[nb++] = group[g][i];
        }
    // a as [batch, a, sum], b as [batch, sum, b]
    for (uint32_t i = 0; i < n[2]; i++) order_b[nb++] = group[2][i];
    uint32_t x = arrange(c, a, order_a, na), y = arrange(c, b, order_b, nb);
    term out = {0};
    x = zx_reshape_to(c, x, 3, (int64_t[]){size[0], size[1], size[3]});
    y = zx_reshape_to(c, y, 3, (int64_t[]){size[0], size[3], size[2]});
    out.v = zx_matmul(c, x, y, false, false, 1, ZX_NONE);
    int64_t to[3 * ZX_MAX_RANK];
    for (int g = 0; g < 3; g++)
        for (uint32_t i = 0; i < n[g]; i++) {
            if (out.rank == ZX_MAX_RANK) {
                zx_fail(c, ZX_E_UNSUPPORTED, "Einsum through more than %d dimensions", ZX_MAX_RANK);
                return out;
            }
            to[out.rank] = dim[group[g][i]];
            out.label[out.rank++] = group[g][i];
        }
    out.v = zx_reshape_to(c, out.v, out.rank, to);
    return out;
}

// Gives every dim that broadcasts (1 where others are larger) its full size.
static void even_out(zx_imp *c, term *t, uint32_t n)
{
    int64_t full[LABELS];
    for (uint32_t i = 0; i < LABELS; i++) full[i] = 1;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < t[i].rank; k++) {
            const int64_t d = zx_dim(c, t[i].v, k);
            int64_t *f = &full[t[i].label[k]];
            if (*f != d && *f != 1 && d != 1) {
                zx_fail(c, ZX_E_SHAPE, "Einsum with one letter for sizes %" PRId64 " and %" PRId64,
                        *f, d);
                return;
            }
            if (d != 1) *f = d;
        }
    for (uint32_t i = 0; i < n; i++) {
        zx_shape s = *zx_s(c, t[i].v);
        for (uint32_t k = 0; k < t[i].rank; k++) s.dim[k] = full[t[i].label[k]];
        t[i].v = zx_expand(c, t[i].v, &s);
    }
}

void zx_lower_einsum(zx_imp *c)
{
    if (!zx_need(c, "equation")) return;
    const char *eq = zx_string(c, "equation", ""), *s = eq;
    const uint32_t n = c->node->n_in;
    term *t = ZX_NEW(&c->tmp, term, n + 1), out = {0};
    uint32_t widest = 0, count[LABELS] = {0};
    const char *p = eq;
    for (uint32_t i = 0; i < n && zx_ok(c); i++) {
        const uint32_t rank = zx_rank(c, zx_in(c, i)), l = letters(p);
        if (!zx_given(c, i) || l > rank) {
            zx_fail(c, ZX_E_SHAPE, "Einsum '%s' doesn't fit its inputs", zx_text_safe(&c->tmp, eq));
            return;
        }
        widest = rank - l > widest ? rank - l : widest;
        p = strchr(p, ',') ? strchr(p, ',') + 1 : p + strlen(p);
    }
    for (uint32_t i = 0; i < n && zx_ok(c); i++) {
        t[i].v = zx_in(c, i);
        const uint32_t rank = zx_rank(c, t[i].v);
        if (!zx_ok(c) || !read_term(c, &s, rank - letters(s), widest, &t[i])) return;
        const bool more = *s == ',';
        if (t[i].rank != rank || more != (i + 1 < n)) {
            zx_fail(c, ZX_E_SHAPE, "Einsum '%s' doesn't fit its inputs", zx_text_safe(&c->tmp, eq));
            return;
        }
        if (more) s++;
        bool twice[LABELS] = {0};
        for (uint32_t k = 0; k < rank; k++) {
            if (twice[t[i].label[k]]) {
                zx_fail(c, ZX_E_UNSUPPORTED, "Einsum of a diagonal ('%s')",
                        zx_text_safe(&c->tmp, eq));
                return;
            }
            twice[t[i].label[k]] = true;
            count[t[i].label[k]]++;
        }
    }
    if (!zx_ok(c)) return;
    if (strncmp(s, "->", 2) == 0) {
        s += 2;
        if (!read_term(c, &s, widest, widest, &out)) return;
    } else { // the ellipsis, then the letters that stand once, in order of the alphabet
        for (uint32_t i = 0; i < widest && out.rank < ZX_MAX_RANK; i++)
            out.label[out.rank++] = (uint8_t)(ELLIPSIS + i);
        for (uint32_t i = 0; i < ELLIPSIS && out.rank < ZX_MAX_RANK; i++) {
            const uint32_t l = (i + 26) % ELLIPSIS; // capitals come first
            if (count[l] == 1) out.label[out.rank++] = (uint8_t)l;
        }
    }
    even_out(c, t, n);
    term y = t[0];
    for (uint32_t i = 0; i < n && zx_ok(c); i++) {
        bool wanted[LABELS] = {0};
        for (uint32_t k = 0; k < out.rank; k++) wanted[out.label[k]] = true;
        for (uint32_t j = i + 1; j < n; j++)
            for (uint32_t k = 0; k < t[j].rank; k++) wanted[t[j].label[k]] = true;
        if (i > 0) {
            bool later[LABELS]; // what only one of the two has is summed first
            memcpy(later, wanted, sizeof later);
            for (uint32_t k = 0; k < y.rank; k++)
                later[y.label[k]] = later[y.label[k]] || has(&t[i], y.label[k]);
            drop_labels(c, &y, later);
            memcpy(later, wanted, sizeof later);
            for (uint32_t k = 0; k < t[i].rank; k++)
                later[t[i].label[k]] = later[t[i].label[k]] || has(&y, t[i].label[k]);
            drop_labels(c, &t[i], later);
            y = contract(c, &y, &t[i], wanted);
        } else {
            drop_labels(c, &y, wanted);
        }
    }
    if (!zx_ok(c)) return;
    const uint32_t v = y.rank == out.rank ? arrange(c, &y, out.label, out.rank) : ZX_NONE;
    if (!zx_ok(c)) return;
    if (v == ZX_NONE)
        zx_fail(c, ZX_E_FORMAT, "Einsum '%s' names a letter in its result only",
                zx_text_safe(&c->tmp, eq));
    else
        zx_out(c, 0, v);
}
