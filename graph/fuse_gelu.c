// fuse_gelu.c - GELU written out: x/2 (1 + erf(x/sqrt 2)), or with tanh(sqrt(2/pi) (x + 0.044715
// x^3)). Factors may come in any order and nesting; exporters have found most of them.
// SPDX-License-Identifier: Apache-2.0
#include "graph/fuse_parts.h"

#define SQRT_HALF 0.70710678118654752440
#define SQRT_2_BY_PI 0.79788456080286535588
#define CUBIC 0.044715

// x/sqrt 2
static uint32_t scaled_down(zx_match *m, uint32_t v)
{
    uint32_t x = ZX_NONE;
    const zx_node *n = zx_m_by(m, v, ZX_OP_DIV);
    if (n != NULL) return zx_m_is(m, zx_m_in(m, n, 1), 1 / SQRT_HALF) ? zx_m_in(m, n, 0) : ZX_NONE;
    return zx_m_with(m, zx_m_by(m, v, ZX_OP_MUL), SQRT_HALF, &x) ? x : ZX_NONE;
}

// x^3, or x^2 for `power` 2.
static bool is_power(zx_match *m, uint32_t v, uint32_t x, int power)
{
    const zx_node *n = zx_m_by(m, v, ZX_OP_POW);
    uint32_t other = ZX_NONE;
    if (n != NULL) return zx_m_in(m, n, 0) == x && zx_m_is(m, zx_m_in(m, n, 1), power);
    if (!zx_m_other(m, zx_m_by(m, v, ZX_OP_MUL), x, &other)) return false;
    return power == 2 ? other == x : is_power(m, other, x, 2);
}

// sqrt(2/pi) (x + 0.044715 x^3); also with x taken out: sqrt(2/pi) x (1 + 0.044715 x^2).
static bool is_inner(zx_match *m, uint32_t v, uint32_t x)
{
    zx_factors f = {0};
    if (!zx_m_factors(m, v, &f) || f.n > 2 || !(f.number > 0)) return false;
    if (f.number < SQRT_2_BY_PI * (1 - 1e-5) || f.number > SQRT_2_BY_PI * (1 + 1e-5)) return false;
    const bool out = f.n == 2;
    const uint32_t at = out && f.of[0] == x ? 1 : 0;
    if (out && f.of[1 - at] != x) return false;
    const zx_node *sum = zx_m_by(m, f.of[at], ZX_OP_ADD);
    uint32_t rest = ZX_NONE, power = ZX_NONE;
    const bool fits = out ? zx_m_with(m, sum, 1, &rest) : zx_m_other(m, sum, x, &rest);
    if (!fits || !zx_m_with(m, zx_m_by(m, rest, ZX_OP_MUL), CUBIC, &power)) return false;
    return is_power(m, power, x, out ? 2 : 3);
}

// What is left of the product beside x/2: 1 + erf or tanh. The mode of the operator, -1: it isn't.
static int mode_of(zx_match *m, uint32_t v, uint32_t x)
{
    uint32_t f = ZX_NONE;
    if (!zx_m_with(m, zx_m_once(m, v, ZX_OP_ADD), 1, &f)) return -1;
    const zx_node *erf = zx_m_once(m, f, ZX_OP_ERF), *tanh = zx_m_once(m, f, ZX_OP_TANH);
    if (erf != NULL && scaled_down(m, zx_m_in(m, erf, 0)) == x) return 0;
    if (tanh != NULL && is_inner(m, zx_m_in(m, tanh, 0), x)) return 1;
    return -1;
}

bool zx_fuse_gelu(zx_match *m, uint32_t node, uint32_t *out)
{
    const zx_node *n = &m->g->nodes[node];
    zx_factors f = {0};
    if (n->op != ZX_OP_MUL || !zx_m_factors(m, zx_node_out(m->g, n, 0), &f)) return false;
    if (f.n != 2 || f.number != 0.5) return false;
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t x = f.of[i];
        const int mode = mode_of(m, f.of[1 - i], x);
        if (mode < 0 || !zx_shape_equal(zx_m_shape(m, x), zx_m_shape(m, zx_node_out(m->g, n, 0))))
            continue;
        out[0] = zx_build1(m->b, ZX_OP_GELU,
                           zx_attrs_int(m->b->mem, (zx_attrs){0}, ZX_A_MODE, mode), 1, x);
        return true;
    }
    return false;
}
