// Powers with the bits of gputabu.backend.arithmetic.powers, line by line.
#pragma once
#include "structs.cuh"

__device__ __forceinline__ double two_to(int e) { return __longlong_as_double((idx)(e + 1023) << 52); }  // a normal number

// 2^(p log2 x), 0 where x or the result is below 2^LEAST.
__device__ double by_series(double x, double p, const double* __restrict__ series) {
    if (!(x >= two_to(LEAST))) return 0.0;
    const idx bits = __double_as_longlong(x);
    int exponent = (int)(bits >> 52) - 1022;
    double fraction = __longlong_as_double((bits & 0x000FFFFFFFFFFFFFLL) | 0x3FE0000000000000LL);  // from 1/2 to 1
    if (fraction < 0.70703125) { fraction = __dmul_rn(fraction, 2.0); exponent -= 1; }
    const double t = __ddiv_rn(__dsub_rn(fraction, 1.0), __dadd_rn(fraction, 1.0)), square = __dmul_rn(t, t);
    double sum = series[0];
#pragma unroll 1
    for (int i = 1; i < LOG_TERMS; ++i) sum = __dadd_rn(__dmul_rn(sum, square), series[i]);
    const double y = __dmul_rn(__dadd_rn(__dmul_rn(sum, t), (double)exponent), p), whole = rint(y);
    if (whole < (double)LEAST) return 0.0;
    const double rest = __dsub_rn(y, whole);
    sum = series[LOG_TERMS];
#pragma unroll 1
    for (int i = 1; i < EXP_TERMS; ++i) sum = __dadd_rn(__dmul_rn(sum, rest), series[LOG_TERMS + i]);
    return __dmul_rn(sum, two_to((int)whole));
}

__device__ double raised(double x, double p, int whole, int half, int quarter, const double* series) {
    if (whole < 0) return by_series(x, p, series);
    double result = 1.0;
#pragma unroll 1
    for (int i = 0; i < whole; ++i) result = __dmul_rn(result, x);
    if (half) result = __dmul_rn(result, __dsqrt_rn(x));
    if (quarter) result = __dmul_rn(result, __dsqrt_rn(__dsqrt_rn(x)));
    return result;
}

// (least / square)^(1 / (m - 1)), 1 where they are equal.
__device__ double closeness(double least, double square, const Fuzzifier& m) {
    if (square == least) return 1.0;
    return raised(__ddiv_rn(least, square), m.ratio, m.ratio_whole, m.ratio_half, m.ratio_quarter, m.series);
}

// The least squared distance of a point to k centres, and the sum of its closeness to them, in their order.
__device__ void member(const real* x, const double* centers, int k, int d, const Fuzzifier& m, double& least,
                       double& total) {
    least = canonical(x, centers, d);
#pragma unroll 1
    for (int a = 1; a < k; ++a) least = fmin(least, canonical(x, centers + (idx)a * d, d));
    total = 0.0;
#pragma unroll 1
    for (int a = 0; a < k; ++a) total = __dadd_rn(total, closeness(least, canonical(x, centers + (idx)a * d, d), m));
}
