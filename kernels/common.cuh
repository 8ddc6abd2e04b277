// What all kernels share: the canonical distance, fixed-point limbs, packed keys.
//
// LIMB, NOISE, ON_CENTER and other numbers that Python knows as well are macros, given to the compiler
// (gputabu.backend.cuda.launch.MACROS), so that each is written once.
//
// `real` is the type of the points, chosen by -DREAL=float or -DREAL=double. Whatever decides or is summed is
// computed in double by the _rn intrinsics, which the compiler may not contract: the bits are those of the NumPy
// twin. Only the fast scores of `assign` are free to be computed in any way, as their error is bounded.
#ifdef HOSTCUDA
#define DYNAMIC_SHARED(type, name) type* name = (type*)hostcuda_dynamic_shared()
#else
#define DYNAMIC_SHARED(type, name) extern __shared__ double2 name##_raw[]; type* name = (type*)name##_raw
#endif

// The arrays of a kernel in dynamic shared memory are a table, NAME_SHARED(ARRAY), with a row ARRAY(type, name, count)
// for each. NAME_SHARED(CARVE) behind DYNAMIC_SHARED(char, carved) declares them; Python reads the same rows to know how
// many bytes that takes (gputabu.backend.cuda.sources.shared_bytes). Wide types come first, so that all are aligned.
// Counts are expressions in +, *, / and |, of names that both sides know.
#define CARVE(type, name, count) type* const name = (type*)carved; carved += (int)sizeof(type) * (count);

typedef REAL real;
typedef long long idx;  // all sizes and offsets: N·d and N·R pass 2^31
typedef unsigned long long word;

#define NO_KEY 0xFFFFFFFFFFFFFFFFull

// CuPy compiles with -ftz=true, under which a conversion flushes denormal floats; the CPU keeps them.
__device__ __forceinline__ double widen(double v) { return v; }
__device__ __forceinline__ double widen(float v) {
    const unsigned bits = __float_as_uint(v);
    if ((bits & 0x7F800000u) != 0u || (bits & 0x007FFFFFu) == 0u) return (double)v;  // beyond: 0
    const double magnitude = (double)(bits & 0x007FFFFFu) * 1.401298464324817e-45;  // 2^-149
    return (bits >> 31) ? -magnitude : magnitude;
}

// The bits of (float)v for v >= 0, denormal results included.
__device__ __forceinline__ unsigned float_bits(double v) {
    if (v < 1.1754943508222875e-38) return (unsigned)__double2ll_rn(__dmul_rn(v, 7.1362384635297994e44));  // 2^149
    return __float_as_uint(__double2float_rn(v));
}

// v >= 0 rounded to the type of the points, denormal results included.
__device__ __forceinline__ void narrow(double v, double* out) { *out = v; }
__device__ __forceinline__ void narrow(double v, float* out) { *out = __uint_as_float(float_bits(v)); }

// A coordinate relative to the offset, times Doubt.unit. Fast distances alone are made of it.
//
// Under -ftz=true x, the offset, their difference and a unit below 2^-126 are zero where they are denormal, and the
// unit would make that error large. So this is computed in double unless the unit is one, as it nearly always is. Then
// each coordinate errs by 3 * 2^-126: less than the relative error of distances above 1, and than the floor of others.
__device__ __forceinline__ double relative(double x, double offset, double unit) { return (x - offset) * unit; }
__device__ __forceinline__ float relative(float x, double offset, double unit) {
    if (unit == 1.0) return x - (float)offset;  // beyond: 0
    return (float)((widen(x) - offset) * unit);
}

// One term of the canonical squared distance, added to the sum so far.
__device__ __forceinline__ double add_square(double sum, double x, double c) {
    const double diff = __dsub_rn(x, c);
    return __dadd_rn(sum, __dmul_rn(diff, diff));
}

// Σ_j (x_j − c_j)², in the order of j. The first term is not added to zero in the NumPy twin; 0 + t is t.
__device__ __forceinline__ double canonical(const real* x, const double* c, int d) {
    double sum = 0.0;
#pragma unroll 1
    for (int j = 0; j < d; ++j) sum = add_square(sum, widen(x[j]), c[j]);
    return sum;
}

// Limb 0 of v·scale, leaving the rest in v, scaled for the next limb. `scale` is a power of two.
__device__ __forceinline__ idx next_limb(double& v) {
    const double whole = rint(v);
    v = __dmul_rn(__dsub_rn(v, whole), (double)(1ll << LIMB));
    return __double2ll_rn(whole);
}

// The double nearest to a sum of limbs, in the order of operations of fixed_point.from_limbs.
__device__ __forceinline__ double from_limb(idx limb, double power) {
    return __dmul_rn(__ll2double_rn(limb), power);
}

__device__ __forceinline__ real infinite() { return (real)__longlong_as_double(0x7FF0000000000000LL); }

// The two lowest scores so far, and whose the lowest is. What is not a number never leads; the norm of such a point
// is not one either, so that its bound of doubt sends it to the canonical formula.
struct Lead {
    real best, second;
    int found;
};
__device__ __forceinline__ Lead no_lead() { return Lead{infinite(), infinite(), 0}; }
__device__ __forceinline__ void consider(Lead& lead, real score, int number) {
    const bool ahead = score < lead.best;
    const real runner_up = ahead ? lead.best : score;
    lead.second = runner_up < lead.second ? runner_up : lead.second;
    lead.best = ahead ? score : lead.best;
    lead.found = ahead ? number : lead.found;
}

__device__ __forceinline__ void add_to(idx* sum, idx term) { atomicAdd((word*)sum, (word)term); }

// Columns of the totals of a cluster: d high limbs, d low limbs, [weight high, low,] count. See fixed_point.Totals.
__device__ __forceinline__ int columns_of(int d, bool weighted) { return 2 * d + 1 + (weighted ? 2 : 0); }

// Adds (sign = 1) or takes away (-1) what one point contributes to the totals of a cluster.
__device__ void contribute(idx* totals, const real* x, int d, const double* weight, idx i, const double* offset,
                           const double* scale, double weight_scale, idx sign) {
#pragma unroll 1  // seldom called: registers are worth more
    for (int j = 0; j < d; ++j) {
        double v = __dsub_rn(widen(x[j]), offset[j]);
        if (weight) v = __dmul_rn(v, weight[i]);
        v = __dmul_rn(v, scale[j]);
        const idx high = next_limb(v), low = next_limb(v);
        if (high) add_to(totals + j, sign * high);
        if (low) add_to(totals + d + j, sign * low);
    }
    idx* rest = totals + 2 * d;
    if (weight) {
        double v = __dmul_rn(weight[i], weight_scale);
        add_to(rest, sign * next_limb(v));
        add_to(rest + 1, sign * next_limb(v));
        rest += 2;
        if (weight[i] <= 0.0) return;
    }
    add_to(rest, sign);
}

// The canonical nearest centre, the lowest number on ties.
__device__ int nearest_canonical(const real* x, const double* centers, int k, int d) {
    double best = canonical(x, centers, d);
    int found = 0;
    for (int c = 1; c < k; ++c) {
        const double s = canonical(x, centers + (idx)c * d, d);
        if (s < best) { best = s; found = c; }
    }
    return found;
}
