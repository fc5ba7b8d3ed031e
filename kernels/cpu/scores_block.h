// scores_block.h - one processor's passes over a tile of scores; scores.c includes it once for
// each, with NAME(word), its functions, and TARGET, the attribute that lets the compiler use its
// instructions. Sums are kept in ZX_LANES lanes, which are added in halves.
// SPDX-License-Identifier: Apache-2.0

TARGET static void NAME(most)(int64_t m, int64_t n, const float *s, int64_t s_row, float *most)
{
    for (int64_t r = 0; r < m; r++, s += s_row) {
        float lane[ZX_LANES];
        int64_t i = 0;
        for (int j = 0; j < ZX_LANES; j++) lane[j] = -INFINITY;
        for (; i + ZX_LANES <= n; i += ZX_LANES) {
            ZX_SIMD for (int j = 0; j < ZX_LANES; j++) lane[j] =
                s[i + j] > lane[j] ? s[i + j] : lane[j];
        }
        for (int64_t k = i; k < n; k++) lane[k - i] = s[k] > lane[k - i] ? s[k] : lane[k - i];
        for (int half = ZX_LANES / 2; half > 0; half /= 2)
            for (int j = 0; j < half; j++)
                lane[j] = lane[j + half] > lane[j] ? lane[j + half] : lane[j];
        most[r] = lane[0];
    }
}

TARGET static void NAME(exp)(int64_t m, int64_t n, float *s, int64_t s_row, const float *shift,
                             float *sum)
{
    for (int64_t r = 0; r < m; r++, s += s_row) {
        float lane[ZX_LANES] = {0};
        int64_t i = 0;
        for (; i + ZX_LANES <= n; i += ZX_LANES) {
            ZX_SIMD for (int j = 0; j < ZX_LANES; j++)
            {
                const float e = exp_below(s[i + j] - shift[r]);
                s[i + j] = e;
                lane[j] += e;
            }
        }
        for (int64_t k = i; k < n; k++) lane[k - i] += s[k] = exp_below(s[k] - shift[r]);
        for (int half = ZX_LANES / 2; half > 0; half /= 2)
            for (int j = 0; j < half; j++) lane[j] += lane[j + half];
        sum[r] = lane[0];
    }
}

TARGET static void NAME(slope)(int64_t m, int64_t n, float *p, float *d, int64_t p_row,
                               const float *shift, const float *delta)
{
    for (int64_t r = 0; r < m; r++, p += p_row, d += p_row) {
        ZX_SIMD for (int64_t i = 0; i < n; i++)
        {
            const float e = exp_below(p[i] - shift[r]);
            p[i] = e;
            d[i] = e * (d[i] - delta[r]);
        }
    }
}

static const zx_scores_passes NAME(passes) = {NAME(most), NAME(exp), NAME(slope)};
#undef NAME
#undef TARGET
