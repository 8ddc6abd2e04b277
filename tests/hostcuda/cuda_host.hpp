// CUDA's words, given a meaning to g++. This header stands in front of every kernel text; the machinery behind
// it (fibers, shared memory, access checks) is in runtime.cpp and hooks.cpp, reached through the functions below.
//
// Dynamic shared memory is the one thing C++ cannot spell the way CUDA does. The kernels' common.cuh says
//   #ifdef HOSTCUDA
//   #define DYNAMIC_SHARED(type, name) type* name = (type*)hostcuda_dynamic_shared()
//   #else
//   #define DYNAMIC_SHARED(type, name) extern __shared__ double2 name##_raw[]; type* name = (type*)name##_raw
//   #endif
#pragma once
#define HOSTCUDA 1
#define __CUDACC__ 1
#include <limits.h>
#include <math.h>
#include <stddef.h>

namespace hostcuda {
enum Kind : int { BARRIER, BARRIER_VOTE, SYNCWARP, SHUFFLE, VOTE, MMA };  // what a thread can wait at
enum Access : int { READ = 1, WRITE = 2, VOLATILE = 4, ATOMIC = 7 };
struct Fragments { unsigned a[4], b[2]; float sum[4]; };  // of one lane in mma.sync
}
#define HOSTCUDA_UNSEEN __attribute__((noinline, no_sanitize("thread"), no_sanitize("undefined")))
#define HOSTCUDA_INLINE inline __attribute__((always_inline))  // the place of an access is in the kernel
extern "C" void hostcuda_access_at(const void* address, size_t bytes, int access, const void* place);

#ifdef __SANITIZE_THREAD__  // a checked build: a pair or four are copied by one access, not member by member
template <int bytes> HOSTCUDA_UNSEEN void hostcuda_copy(void* to, const void* from) {
    const void* place = __builtin_return_address(0);
    hostcuda_access_at(from, bytes, hostcuda::READ, place), hostcuda_access_at(to, bytes, hostcuda::WRITE, place);
    __builtin_memcpy(to, from, bytes);
}
#define HOSTCUDA_COPIED(name)                                                                                  \
    HOSTCUDA_INLINE name(const name& from) { hostcuda_copy<sizeof(name)>(this, &from); }                       \
    HOSTCUDA_INLINE name& operator=(const name& from) {                                                        \
        hostcuda_copy<sizeof(name)>(this, &from);                                                              \
        return *this;                                                                                          \
    }
#define HOSTCUDA_PAIR(T, name)                                                                                 \
    constexpr name() : x(), y() {}                                                                             \
    constexpr name(T x, T y) : x(x), y(y) {}                                                                   \
    HOSTCUDA_COPIED(name)
#define HOSTCUDA_FOUR(T, name)                                                                                 \
    constexpr name() : x(), y(), z(), w() {}                                                                   \
    constexpr name(T x, T y, T z, T w) : x(x), y(y), z(z), w(w) {}                                             \
    HOSTCUDA_COPIED(name)
#else
#define HOSTCUDA_PAIR(T, name)
#define HOSTCUDA_FOUR(T, name)
#endif

#define HOSTCUDA_VECTOR(T, name, bytes2, bytes4)                                                               \
    struct name##1 { T x; };                                                                                   \
    struct alignas(bytes2) name##2 { T x, y; HOSTCUDA_PAIR(T, name##2) };                                      \
    struct name##3 { T x, y, z; };                                                                             \
    struct alignas(bytes4) name##4 { T x, y, z, w; HOSTCUDA_FOUR(T, name##4) };                                \
    inline name##1 make_##name##1(T x) { return {x}; }                                                         \
    inline name##2 make_##name##2(T x, T y) { return {x, y}; }                                                 \
    inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }                                         \
    inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
HOSTCUDA_VECTOR(signed char, char, 2, 4)
HOSTCUDA_VECTOR(unsigned char, uchar, 2, 4)
HOSTCUDA_VECTOR(short, short, 4, 8)
HOSTCUDA_VECTOR(unsigned short, ushort, 4, 8)
HOSTCUDA_VECTOR(int, int, 8, 16)
HOSTCUDA_VECTOR(unsigned, uint, 8, 16)
HOSTCUDA_VECTOR(long long, longlong, 16, 16)
HOSTCUDA_VECTOR(unsigned long long, ulonglong, 16, 16)
HOSTCUDA_VECTOR(double, double, 16, 16)  // of float: in flush.hpp

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
};

// ---- what the runtime offers to kernels
extern "C" {
// "const": these do not change while one thread runs the kernel, so the compiler may ask once.
uint3 hostcuda_thread_index() __attribute__((const));
uint3 hostcuda_block_index() __attribute__((const));
uint3 hostcuda_block_size() __attribute__((const));
uint3 hostcuda_grid_size() __attribute__((const));
unsigned hostcuda_lane() __attribute__((const));
void* hostcuda_dynamic_shared() __attribute__((const));
unsigned long long hostcuda_collective(int kind, unsigned mask, unsigned long long value, int source, int line);
void hostcuda_access(const void* address, size_t bytes, int access);
void hostcuda_fence();
unsigned hostcuda_halves(float low, float high);  // cvt.rn.f16x2.f32
float hostcuda_half_value(unsigned bits);          // cvt.f32.f16
[[noreturn]] void hostcuda_trap(const char* what, int line);
int printf(const char* format, ...);
}

#define threadIdx hostcuda_thread_index()
#define blockIdx hostcuda_block_index()
#define blockDim hostcuda_block_size()
#define gridDim hostcuda_grid_size()
constexpr int warpSize = 32;

#ifdef __SANITIZE_THREAD__  // a checked build: accesses the compiler does not announce are announced here
#define HOSTCUDA_SEE(p, n, how) hostcuda_access_at(p, n, how, __builtin_return_address(0))  // in what is not inlined
#else
#define HOSTCUDA_SEE(p, n, how) ((void)0)
#endif

#define HOSTCUDA_LINE int line = __builtin_LINE()  // the caller's line: where a thread waits

// ---- barriers and warp collectives
inline void __syncthreads(HOSTCUDA_LINE) { hostcuda_collective(hostcuda::BARRIER, 0, 0, 0, line); }
inline unsigned long long hostcuda_barrier_vote(int predicate, int line) {
    return hostcuda_collective(hostcuda::BARRIER_VOTE, 0, predicate != 0, 0, line);  // voters << 32 | ayes
}
inline int __syncthreads_count(int p, HOSTCUDA_LINE) { return (int)(unsigned)hostcuda_barrier_vote(p, line); }
inline int __syncthreads_or(int p, HOSTCUDA_LINE) { return (unsigned)hostcuda_barrier_vote(p, line) != 0; }
inline int __syncthreads_and(int p, HOSTCUDA_LINE) {
    const unsigned long long votes = hostcuda_barrier_vote(p, line);
    return (unsigned)votes == (unsigned)(votes >> 32);
}
inline void __syncwarp(unsigned mask = ~0u, HOSTCUDA_LINE) {
    hostcuda_collective(hostcuda::SYNCWARP, mask, 0, 0, line);
}
inline unsigned __ballot_sync(unsigned mask, int p, HOSTCUDA_LINE) {
    return (unsigned)hostcuda_collective(hostcuda::VOTE, mask, p != 0, 0, line);  // voters << 32 | ayes
}
inline int __any_sync(unsigned mask, int p, HOSTCUDA_LINE) { return __ballot_sync(mask, p, line) != 0; }
inline int __all_sync(unsigned mask, int p, HOSTCUDA_LINE) { return __ballot_sync(mask, !p, line) == 0; }
// Without lockstep a thread alone is always a truthful answer, and the one that no program may rely on not getting.
inline unsigned __activemask() { return 1u << hostcuda_lane(); }

template <class T> T hostcuda_shuffle(unsigned mask, T value, int source, int line) {
    static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
    unsigned long long bits = 0;
    __builtin_memcpy(&bits, &value, sizeof(T));
    bits = hostcuda_collective(hostcuda::SHUFFLE, mask, bits, source, line);
    __builtin_memcpy(&value, &bits, sizeof(T));
    return value;
}
template <class T> T __shfl_sync(unsigned mask, T value, int source, int width = 32, HOSTCUDA_LINE) {
    const int lane = hostcuda_lane();
    return hostcuda_shuffle(mask, value, (lane & -width) | (source & (width - 1)), line);
}
template <class T> T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, HOSTCUDA_LINE) {
    const int lane = hostcuda_lane(), source = lane ^ bits;
    return hostcuda_shuffle(mask, value, source < (lane & -width) + width ? source : lane, line);
}
template <class T> T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, HOSTCUDA_LINE) {
    const int lane = hostcuda_lane(), source = lane + (int)delta;
    return hostcuda_shuffle(mask, value, source < (lane & -width) + width ? source : lane, line);
}
template <class T> T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, HOSTCUDA_LINE) {
    const int lane = hostcuda_lane(), source = lane - (int)delta;
    return hostcuda_shuffle(mask, value, source >= (lane & -width) ? source : lane, line);
}

// mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32, by all lanes of a warp; the sum is computed in runtime.cpp.
template <class F>
inline void hostcuda_mma(F (&sum)[4], const uint4& a, unsigned b0, unsigned b1, HOSTCUDA_LINE) {
    static_assert(sizeof(F) == 4, "sums are floats");
    hostcuda::Fragments mine = {{a.x, a.y, a.z, a.w}, {b0, b1}, {}};
    __builtin_memcpy(mine.sum, sum, sizeof sum);
    hostcuda_collective(hostcuda::MMA, ~0u, (unsigned long long)&mine, 0, line);
    __builtin_memcpy(sum, mine.sum, sizeof sum);
}

inline void __threadfence() { hostcuda_fence(); }
inline void __threadfence_system() { hostcuda_fence(); }
inline void __threadfence_block() {}
inline void __nanosleep(unsigned) {}
[[noreturn]] inline void __trap(HOSTCUDA_LINE) { hostcuda_trap("__trap()", line); }
#define assert(condition) ((condition) ? (void)0 : hostcuda_trap("assertion failed: " #condition, __LINE__))

// ---- atomics: a fiber is never interrupted inside a function, so load-change-store is already atomic
template <class T, class F> HOSTCUDA_UNSEEN T hostcuda_atomic(T* p, F change) {
    HOSTCUDA_SEE(p, sizeof(T), hostcuda::ATOMIC);
    const T old = *p;
    *p = change(old);
    return old;
}
#define HOSTCUDA_ATOMIC(T, name, expression)                                                                   \
    HOSTCUDA_INLINE T name(T* p, T v) { return hostcuda_atomic(p, [v](T old) -> T { return expression; }); }
#define HOSTCUDA_ATOMICS(T, U) /* U: where integer addition wraps */                                           \
    HOSTCUDA_ATOMIC(T, atomicAdd, (T)((U)old + (U)v))                                                          \
    HOSTCUDA_ATOMIC(T, atomicSub, (T)((U)old - (U)v))                                                          \
    HOSTCUDA_ATOMIC(T, atomicMin, old < v ? old : v)                                                           \
    HOSTCUDA_ATOMIC(T, atomicMax, old > v ? old : v)                                                           \
    HOSTCUDA_ATOMIC(T, atomicOr, old | v)                                                                      \
    HOSTCUDA_ATOMIC(T, atomicAnd, old & v)                                                                     \
    HOSTCUDA_ATOMIC(T, atomicXor, old ^ v)                                                                     \
    HOSTCUDA_ATOMIC(T, atomicExch, ((void)old, v))                                                             \
    HOSTCUDA_INLINE T atomicCAS(T* p, T expected, T v) {                                                       \
        return hostcuda_atomic(p, [expected, v](T old) { return old == expected ? v : old; });                 \
    }
HOSTCUDA_ATOMICS(int, unsigned)
HOSTCUDA_ATOMICS(unsigned, unsigned)
HOSTCUDA_ATOMICS(unsigned long long, unsigned long long)
HOSTCUDA_ATOMIC(long long, atomicMin, old < v ? old : v)  // CUDA has these two for long long, and not atomicAdd
HOSTCUDA_ATOMIC(long long, atomicMax, old > v ? old : v)
HOSTCUDA_ATOMIC(float, atomicAdd, old + v)
HOSTCUDA_ATOMIC(double, atomicAdd, old + v)
HOSTCUDA_ATOMIC(float, atomicExch, ((void)old, v))
HOSTCUDA_INLINE unsigned atomicInc(unsigned* p, unsigned v) {
    return hostcuda_atomic(p, [v](unsigned old) { return old >= v ? 0u : old + 1; });
}
template <class T> HOSTCUDA_INLINE T __ldg(const T* p) { return *p; }

// the compiler does not announce what these calls touch
#ifdef __SANITIZE_THREAD__
HOSTCUDA_INLINE void* hostcuda_memcpy(void* to, const void* from, size_t n) {
    hostcuda_access(from, n, hostcuda::READ), hostcuda_access(to, n, hostcuda::WRITE);
    return __builtin_memcpy(to, from, n);
}
HOSTCUDA_INLINE void* hostcuda_memset(void* to, int value, size_t n) {
    hostcuda_access(to, n, hostcuda::WRITE);
    return __builtin_memset(to, value, n);
}
#define memcpy hostcuda_memcpy
#define memset hostcuda_memset
#endif

// ---- integers and bits
inline int __popc(unsigned v) { return __builtin_popcount(v); }
inline int __popcll(unsigned long long v) { return __builtin_popcountll(v); }
inline int __ffs(int v) { return __builtin_ffs(v); }
inline int __ffsll(long long v) { return __builtin_ffsll(v); }
inline int __clz(int v) { return v ? __builtin_clz((unsigned)v) : 32; }
inline int __clzll(long long v) { return v ? __builtin_clzll((unsigned long long)v) : 64; }
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
inline int __mulhi(int a, int b) { return (int)((long long)a * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
inline long long __mul64hi(long long a, long long b) { return (long long)((__int128)a * b >> 64); }

template <class To, class From> inline To hostcuda_bits(From v) {
    static_assert(sizeof(To) == sizeof(From), "");
    To out;
    __builtin_memcpy(&out, &v, sizeof(To));
    return out;
}
inline unsigned __float_as_uint(float v) { return hostcuda_bits<unsigned>(v); }
inline int __float_as_int(float v) { return hostcuda_bits<int>(v); }
inline float __uint_as_float(unsigned v) { return hostcuda_bits<float>(v); }
inline float __int_as_float(int v) { return hostcuda_bits<float>(v); }
inline long long __double_as_longlong(double v) { return hostcuda_bits<long long>(v); }
inline double __longlong_as_double(long long v) { return hostcuda_bits<double>(v); }
inline int __double2hiint(double v) { return (int)(hostcuda_bits<unsigned long long>(v) >> 32); }
inline int __double2loint(double v) { return (int)hostcuda_bits<unsigned long long>(v); }

// ---- floating point, rounded to nearest; -ffp-contract=off keeps g++ from fusing them
#define HOSTCUDA_RN(T, prefix, fma_name)                                                                       \
    inline T prefix##add_rn(T a, T b) { return a + b; }                                                        \
    inline T prefix##sub_rn(T a, T b) { return a - b; }                                                        \
    inline T prefix##mul_rn(T a, T b) { return a * b; }                                                        \
    inline T prefix##div_rn(T a, T b) { return a / b; }                                                        \
    inline T prefix##rcp_rn(T a) { return 1 / a; }                                                             \
    inline T fma_name(T a, T b, T c) { return fma(a, b, c); }
using std::fma;
using std::isfinite;
using std::isinf;
using std::isnan;
HOSTCUDA_RN(float, __f, __fmaf_rn)
HOSTCUDA_RN(double, __d, __fma_rn)
inline float __fsqrt_rn(float v) { return sqrtf(v); }
inline double __dsqrt_rn(double v) { return sqrt(v); }
inline float __saturatef(float v) { return v > 0 ? (v < 1 ? v : 1) : 0; }
inline float rsqrtf(float v) { return 1 / sqrtf(v); }
inline double rsqrt(double v) { return 1 / sqrt(v); }

// CUDA's conversions to integers saturate; a NaN gives 0 in 32 bits and the top bit alone in 64.
template <class To> inline To hostcuda_convert(double v) {
    const bool wide = sizeof(To) == 8, is_signed = (To)-1 < 0;
    const To low = is_signed ? (To)(1ull << (sizeof(To) * 8 - 1)) : 0;
    if (v != v) return wide ? (To)(1ull << 63) : 0;
    if (v >= ldexp(1.0, sizeof(To) * 8 - is_signed)) return (To)~low;
    return v <= (double)low ? low : (To)v;
}
#define HOSTCUDA_CONVERT(suffix, To)                                                                           \
    inline To __double2##suffix##_rn(double v) { return hostcuda_convert<To>(rint(v)); }                       \
    inline To __double2##suffix##_rz(double v) { return hostcuda_convert<To>(trunc(v)); }                      \
    inline To __double2##suffix##_rd(double v) { return hostcuda_convert<To>(floor(v)); }                      \
    inline To __double2##suffix##_ru(double v) { return hostcuda_convert<To>(ceil(v)); }                       \
    inline To __float2##suffix##_rn(float v) { return hostcuda_convert<To>(rint((double)v)); }                 \
    inline To __float2##suffix##_rz(float v) { return hostcuda_convert<To>(trunc((double)v)); }                \
    inline To __float2##suffix##_rd(float v) { return hostcuda_convert<To>(floor((double)v)); }                \
    inline To __float2##suffix##_ru(float v) { return hostcuda_convert<To>(ceil((double)v)); }                 \
    inline float __##suffix##2float_rn(To v) { return (float)v; }
HOSTCUDA_CONVERT(int, int)
HOSTCUDA_CONVERT(uint, unsigned)
HOSTCUDA_CONVERT(ll, long long)
HOSTCUDA_CONVERT(ull, unsigned long long)
inline double __int2double_rn(int v) { return v; }
inline double __uint2double_rn(unsigned v) { return v; }
inline double __ll2double_rn(long long v) { return (double)v; }
inline double __ull2double_rn(unsigned long long v) { return (double)v; }
inline float __double2float_rn(double v) { return (float)v; }

#define HOSTCUDA_MINMAX(A, B, R)                                                                               \
    inline R min(A a, B b) { return (R)a < (R)b ? (R)a : (R)b; }                                               \
    inline R max(A a, B b) { return (R)a > (R)b ? (R)a : (R)b; }
HOSTCUDA_MINMAX(int, int, int)
HOSTCUDA_MINMAX(unsigned, unsigned, unsigned)
HOSTCUDA_MINMAX(int, unsigned, unsigned)
HOSTCUDA_MINMAX(unsigned, int, unsigned)
HOSTCUDA_MINMAX(long, long, long)
HOSTCUDA_MINMAX(unsigned long, unsigned long, unsigned long)
HOSTCUDA_MINMAX(long long, long long, long long)
HOSTCUDA_MINMAX(unsigned long long, unsigned long long, unsigned long long)
#define HOSTCUDA_FMINMAX(A, B, R)                                                                              \
    inline R min(A a, B b) { return fmin((R)a, (R)b); }                                                        \
    inline R max(A a, B b) { return fmax((R)a, (R)b); }
using std::fmax;
using std::fmin;
HOSTCUDA_FMINMAX(float, float, float)
HOSTCUDA_FMINMAX(double, double, double)
HOSTCUDA_FMINMAX(float, double, double)
HOSTCUDA_FMINMAX(double, float, double)

// ---- a kernel as the runtime sees it: a table at the end of each module, written by compile.py
namespace hostcuda {
struct Argument { char kind; int bytes; bool constant; };  // 'p'ointer, 'i'nteger, 'f'loat, 's'truct; to constants
struct Kernel {
    const char* name;
    void (*call)(void**);
    const Argument* arguments;
    int count;
};
template <class T> struct describe { static constexpr char kind = __is_enum(T) ? 'i' : 's'; };
template <class T> struct to_constants { static constexpr bool value = false; };
template <class T> struct to_constants<const T*> { static constexpr bool value = true; };
template <class T> struct describe<T*> { static constexpr char kind = 'p'; };
#define HOSTCUDA_KIND(T, k) template <> struct describe<T> { static constexpr char kind = k; };
HOSTCUDA_KIND(bool, 'i') HOSTCUDA_KIND(char, 'i') HOSTCUDA_KIND(signed char, 'i') HOSTCUDA_KIND(unsigned char, 'i')
HOSTCUDA_KIND(short, 'i') HOSTCUDA_KIND(unsigned short, 'i') HOSTCUDA_KIND(int, 'i') HOSTCUDA_KIND(unsigned, 'i')
HOSTCUDA_KIND(long, 'i') HOSTCUDA_KIND(unsigned long, 'i') HOSTCUDA_KIND(long long, 'i')
HOSTCUDA_KIND(unsigned long long, 'i') HOSTCUDA_KIND(float, 'f') HOSTCUDA_KIND(double, 'f')

template <int... I> struct indices {};
template <auto function> struct entry;
template <class... A, void (*function)(A...)> struct entry<function> {
    static constexpr Argument arguments[sizeof...(A) + 1] = {
        {describe<A>::kind, (int)sizeof(A), to_constants<A>::value}..., {}};
    template <int... I> static void unpack(void** a, indices<I...>) { function(*(A*)a[I]...); }
    static void call(void** a) { unpack(a, indices<__integer_pack((int)sizeof...(A))...>()); }
    static constexpr int count = sizeof...(A);
};
template <auto function> constexpr Kernel kernel(const char* name) {
    return {name, entry<function>::call, entry<function>::arguments, entry<function>::count};
}
}  // namespace hostcuda

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __shared__ static thread_local
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
#define __grid_constant__
