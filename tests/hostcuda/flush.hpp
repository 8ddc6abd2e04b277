// float as a device has it under -ftz=true, which CuPy always gives: denormals that enter an operation or come out of
// one are zero, of the same sign. Copies, loads, stores and bit casts keep them; double keeps them everywhere.
//
// The CPU's own flag (MXCSR) would flush double as well, so `float` in the text of a kernel is this type instead. What
// the compiler of a device may do, fuse a product and a sum, it may not do here.
#pragma once

namespace hostcuda {
inline float flushed(float v) { return __builtin_fabsf(v) < 0x1p-126f ? __builtin_copysignf(0.0f, v) : v; }

struct Float {
    float raw;  // as it is in memory
    constexpr Float() : raw() {}
    template <class T> Float(T v) : raw(flushed((float)v)) {}
    operator float() const { return flushed(raw); }
    static Float of_bits(float v) {
        Float f;
        f.raw = v;
        return f;
    }
    Float operator-() const { return of_bits(-flushed(raw)); }
    template <class T> Float& operator+=(T v) { return *this = *this + v; }
    template <class T> Float& operator-=(T v) { return *this = *this - v; }
    template <class T> Float& operator*=(T v) { return *this = *this * v; }
    template <class T> Float& operator/=(T v) { return *this = *this / v; }
};

// An operation of a Float and another number: in float, unless the other is a double.
template <class T> struct With { typedef Float type; typedef float plain; };
template <> struct With<double> { typedef double type; typedef double plain; };
#define HOSTCUDA_FLUSHED(op)                                                                                   \
    inline Float operator op(Float a, Float b) { return (float)a op (float)b; }                                \
    template <class T> inline typename With<T>::type operator op(Float a, T b) {                               \
        return (float)a op (typename With<T>::plain)b;                                                         \
    }                                                                                                          \
    template <class T> inline typename With<T>::type operator op(T a, Float b) {                               \
        return (typename With<T>::plain)a op (float)b;                                                         \
    }
HOSTCUDA_FLUSHED(+)
HOSTCUDA_FLUSHED(-)
HOSTCUDA_FLUSHED(*)
HOSTCUDA_FLUSHED(/)
inline Float sqrt(Float v) { return __builtin_sqrtf(v); }
}  // namespace hostcuda

inline unsigned __float_as_uint(hostcuda::Float v) { return hostcuda_bits<unsigned>(v); }
inline int __float_as_int(hostcuda::Float v) { return hostcuda_bits<int>(v); }
inline hostcuda::Float hostcuda_uint_as_float(unsigned v) { return hostcuda_bits<hostcuda::Float>(v); }
inline hostcuda::Float hostcuda_int_as_float(int v) { return hostcuda_bits<hostcuda::Float>(v); }
HOSTCUDA_ATOMIC(hostcuda::Float, atomicAdd, old + v)  // on global memory; in shared memory a device keeps denormals
HOSTCUDA_ATOMIC(hostcuda::Float, atomicExch, ((void)old, v))
namespace hostcuda {
HOSTCUDA_KIND(Float, 'f')
}
// These return what is flushed only when it is used.
#define __uint_as_float hostcuda_uint_as_float
#define __int_as_float hostcuda_int_as_float
// A cast from double is cvt.rn.ftz.f32.f64, one to double cvt.ftz.f64.f32; both are Float's constructor and operator.
#define __double2float_rn(v) hostcuda::Float(v)
#define float hostcuda::Float
HOSTCUDA_VECTOR(float, float, 8, 16)
