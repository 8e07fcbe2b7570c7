/* exp and log1p without branches or tables, so that `omp simd` loops over them vectorize.
 *
 * Both err by less than 2 units in the last place (tests/test_losses.py measures it). The minimax
 * coefficients come from a Remez exchange in 60 digits. Everything relies on IEEE arithmetic:
 * adding 1.5 * 2^52 rounds to an integer and leaves it in the low bits of the sum.
 */
#ifndef FP_VEXP_H
#define FP_VEXP_H

#include "isa.h"

/* The accuracy needs the fused form, so it is used where the hardware has it. */
#ifdef __FMA__
#define FP_FMA(a, b, c) __builtin_fma(a, b, c)
#else
#define FP_FMA(a, b, c) ((a) * (b) + (c))
#endif

static const double fp_round = 6755399441055744.0; /* 1.5 * 2^52 */
static const double fp_two52 = 4503599627370496.0;
/* ln 2 in two parts; the first ends in 32 zero bits, so k * fp_ln2_hi is exact. */
static const double fp_ln2_hi = 6.93147180369123816490e-01;
static const double fp_ln2_lo = 1.90821492927058770002e-10;

FP_INLINE uint64_t fp_bits(double x) {
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

FP_INLINE double fp_double(uint64_t u) {
    double x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* 2^(k + s) for rounded = fp_round + k with an integer k, -1022 <= k + s <= 1023. */
FP_INLINE double fp_pow2(double rounded, int s) {
    return fp_double((fp_bits(rounded) << 52) + ((uint64_t)(1023 + s) << 52));
}

/* exp(x) for x <= 600, with subnormal results, 0 for -infinity and NaN for NaN. (Every loss takes
 * out its maximum first, so it asks for x <= 0 only.)
 *
 * x = k ln 2 + r, |r| <= ln(2) / 2;  exp(x) = 2^-54 2^(k + 54) (1 + r + r^2 q(r)).
 * 2^(k + 54) is a normal number down to the smallest result, which 2^-54 then rounds.
 */
FP_INLINE double fp_exp(double x) {
    const double rounded = FP_FMA(x, 1.44269504088896340736, fp_round);
    const double k = rounded - fp_round;
    double r = FP_FMA(-k, fp_ln2_hi, x);
    r = FP_FMA(-k, fp_ln2_lo, r);

    double q = 2.500065130942499e-08;
    q = FP_FMA(q, r, 2.7630050743660577e-07);
    q = FP_FMA(q, r, 2.7557583735875533e-06);
    q = FP_FMA(q, r, 2.4801493768533532e-05);
    q = FP_FMA(q, r, 1.9841269510943136e-04);
    q = FP_FMA(q, r, 1.3888888942842766e-03);
    q = FP_FMA(q, r, 8.3333333334914000e-03);
    q = FP_FMA(q, r, 4.1666666666533875e-02);
    q = FP_FMA(q, r, 1.6666666666666420e-01);
    q = FP_FMA(q, r, 5.0000000000000100e-01);
    q = FP_FMA(q * r, r, r) + 1.0;

    q = q * fp_pow2(rounded, 54) * 0x1p-54;
    /* Selected last, because after clamping x first, compilers treat clamped values separately. */
    return x < -746.0 ? 0.0 : q;
}

/* log(v + err) for a normal v > 0 and a correction |err| far below v; NaN for NaN.
 *
 * v = 2^k (1 + f), 1 + f in [sqrt(1/2), sqrt(2)); the correction goes into f.
 * With s = f / (2 + f):  log(1 + f) = 2 atanh(s) = f - (f^2 / 2 - s (f^2 / 2 + R(s^2))).
 */
FP_INLINE double fp_log_of_sum(double v, double err) {
    const uint64_t sqrt_half = 0x3fe6a09e667f3bcd, one = (uint64_t)1023 << 52;
    const uint64_t biased = (fp_bits(v) - sqrt_half + one) >> 52; /* k + 1023 */
    const double k = fp_double(biased | fp_bits(fp_two52)) - (fp_two52 + 1023.0);
    const double mantissa = fp_double(fp_bits(v) - (biased << 52) + one);
    const double f = (mantissa - 1.0) + err * fp_pow2(fp_round - k, 0);

    const double s = f / (2.0 + f), z = s * s, half_square = 0.5 * f * f;
    double p = 0.14793507804214565;
    p = FP_FMA(p, z, 0.15314331814715892);
    p = FP_FMA(p, z, 0.18183551569106945);
    p = FP_FMA(p, z, 0.22222198861454176);
    p = FP_FMA(p, z, 0.28571428739022187);
    p = FP_FMA(p, z, 0.39999999999433433);
    p = FP_FMA(p, z, 0.66666666666667310);
    const double tail = FP_FMA(s, FP_FMA(p, z, half_square), k * fp_ln2_lo);
    return FP_FMA(k, fp_ln2_hi, f - (half_square - tail));
}

/* log(1 + u) for finite u >= 0, accurate for tiny u; NaN for NaN. */
FP_INLINE double fp_log1p(double u) {
    const double v = 1.0 + u, b = v - 1.0;
    return fp_log_of_sum(v, (1.0 - (v - b)) + (u - b));
}

/* x log x, 0 for x <= 0; for subnormal x it is almost 0, and not accurate. */
FP_INLINE double fp_x_log_x(double x) {
    const double product = x * fp_log_of_sum(x, 0.0);
    return x > 0.0 ? product : 0.0;
}

#endif
