// Wrong programs for tests/test_hostcuda.py: each must be caught.
extern "C" __global__ void read_past(const int* a, int* out, int n) { out[threadIdx.x] = a[threadIdx.x + n]; }
extern "C" __global__ void write_past(int* a, int n) { a[threadIdx.x * n] = 1; }
extern "C" __global__ void write_before(int* a) { a[-1 - (int)threadIdx.x] = 1; }

extern "C" __global__ void missing_barrier(const int* a, int* out) {
    __shared__ int s[64];
    s[threadIdx.x] = -1;
    __syncthreads();
    s[threadIdx.x] = a[threadIdx.x];
    out[threadIdx.x] = s[63 - threadIdx.x];
}
extern "C" __global__ void shared_race(int* out) {
    __shared__ int s;
    s = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = s;
}
// __syncwarp orders a warp, not two
extern "C" __global__ void warp_race(int* out) {
    __shared__ int s[64];
    s[threadIdx.x] = threadIdx.x;
    __syncwarp();
    out[threadIdx.x] = s[63 - threadIdx.x];
}
// a shuffle orders nothing: two lanes of one warp, a write and then a read; a read and then a write
extern "C" __global__ void lane_race(int* out) {
    __shared__ int s[32];
    s[threadIdx.x] = threadIdx.x;
    __shfl_sync(0xffffffff, 0, 0);
    out[threadIdx.x] = s[31 - threadIdx.x];
}
extern "C" __global__ void read_then_write(int* out) {
    __shared__ int s;
    if (threadIdx.x == 0) s = 1;
    __syncthreads();
    out[threadIdx.x] = s;
    __shfl_sync(0xffffffff, 0, 0);
    if (threadIdx.x == 0) s = 2;
}
extern "C" __global__ void global_race(int* a) { a[0] = blockIdx.x; }

extern "C" __global__ void divergent(int* out) {
    if (threadIdx.x < 16) __syncthreads();
    else __syncwarp();
    out[threadIdx.x] = 1;
}
extern "C" __global__ void two_barriers(int* out) {
    if (threadIdx.x < 16) {
        __syncthreads();
    } else {
        __syncthreads();
    }
    out[threadIdx.x] = 1;
}
extern "C" __global__ void outside_mask(int* out) { out[threadIdx.x] = __shfl_sync(0xffff, 1, 0); }

extern "C" __global__ void read_all(const int* a, int* out) { out[threadIdx.x] = a[threadIdx.x]; }
extern "C" __global__ void unwritten_shared(int* out) {
    __shared__ int s[32];
    if (threadIdx.x < 16) s[threadIdx.x] = 0;
    __syncthreads();
    out[threadIdx.x] = s[threadIdx.x];
}
extern "C" __global__ void shared_past(int* out, int i) {
    __shared__ int s[32];
    s[threadIdx.x + i] = 0;
    __syncthreads();
    out[threadIdx.x] = s[threadIdx.x];
}
extern "C" __global__ void dynamic_past(int* out, int i) {
    int* s = (int*)hostcuda_dynamic_shared();
    s[(int)threadIdx.x + i] = 0;
    __syncthreads();
    out[threadIdx.x] = s[threadIdx.x];
}
extern "C" __global__ void overflow(int* out, int n) { out[0] = n * n; }
extern "C" __global__ void misaligned(const float* a, float* out) { out[0] = ((const float4*)(a + 1))->x; }
extern "C" __global__ void asserts(int n) { assert(n > 0); }

// Only the sanitizers' build sees this one: a local array, written through a pointer.
__device__ __noinline__ void put(int* p, int i) { p[i] = i; }
extern "C" __global__ void local_past(int* out, int n) {
    int r[4] = {};
    for (int i = 0; i < n; i++) put(r, i);
    out[0] = r[3];
}
