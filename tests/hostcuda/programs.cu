// Correct programs for tests/test_hostcuda.py: each must give the right numbers in any order of the threads.
#ifdef HOSTCUDA
#define DYNAMIC_SHARED(type, name) type* name = (type*)hostcuda_dynamic_shared()
#else
#define DYNAMIC_SHARED(type, name) extern __shared__ double2 name##_raw[]; type* name = (type*)name##_raw
#endif

extern "C" __global__ void copy(const float* a, float* b, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) b[i] = a[i];
}

struct Task { const float* from; int n; float* to; };  // by value, as NumPy's structured arrays are
extern "C" __global__ void copy_task(Task task) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < task.n) task.to[i] = task.from[i];
}

extern "C" __global__ void block_sum(const int* a, int* out, int n) {
    __shared__ int part[256];
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    part[threadIdx.x] = i < n ? a[i] : 0;
    __syncthreads();
    for (unsigned half = blockDim.x / 2; half; half /= 2) {
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = part[0];
}

extern "C" __global__ void warp_sum(const int* a, int* out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    int sum = i < n ? a[i] : 0;
    for (int half = 16; half; half /= 2) sum += __shfl_xor_sync(0xffffffff, sum, half);
    if (threadIdx.x % 32 == 0) atomicAdd(out, sum);
}

// A warp sum through shared memory, ordered by __syncwarp alone.
extern "C" __global__ void syncwarp_sum(const int* a, int* out) {
    __shared__ int part[64];
    const int lane = threadIdx.x % 32;
    part[threadIdx.x] = a[threadIdx.x];
    __syncwarp();
    for (int half = 16; half; half /= 2) {
        if (lane < half) part[threadIdx.x] += part[threadIdx.x + half];
        __syncwarp();
    }
    if (lane == 0) out[threadIdx.x / 32] = part[threadIdx.x];
}

extern "C" __global__ void histogram(const int* a, int* bins, int n) {
    __shared__ int mine[16];
    if (threadIdx.x < 16) mine[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&mine[a[i]], 1);
    __syncthreads();
    if (threadIdx.x < 16) atomicAdd(&bins[threadIdx.x], mine[threadIdx.x]);
}

// best = (value as bits, lowest index); values are not negative, so their bits are ordered as they are
extern "C" __global__ void packed_min(const float* a, unsigned long long* best, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    atomicMin(best, (unsigned long long)__float_as_uint(a[i]) << 32 | (unsigned)i);
}

// Threads that return early neither hold up a barrier nor vote. votes: count, or, and, ballots of a partial warp
extern "C" __global__ void early(int n, int* votes) {
    const int i = threadIdx.x;
    if (i >= n) return;
    const int count = __syncthreads_count(i % 3 == 0), some = __syncthreads_or(i == n - 1);
    const int all = __syncthreads_and(i < n);
    const unsigned ballot = __ballot_sync(0xffffffff, i % 2);
    const int any = __any_sync(0xffffffff, i == n - 1), every = __all_sync(0xffffffff, i < n);
    if (i == n - 1) {
        votes[0] = count, votes[1] = some, votes[2] = all, votes[3] = __popc(ballot), votes[4] = any, votes[5] = every;
    }
}

// Half of the warp returns while the other half waits for it.
extern "C" __global__ void half_leaves(int* out) {
    if (threadIdx.x % 2) return;
    out[threadIdx.x / 2] = __popc(__ballot_sync(0xffffffff, 1)) + __shfl_sync(0xffffffff, (int)threadIdx.x, 6);
}

extern "C" __global__ void transpose(const float* a, float* b, int rows, int columns) {
    __shared__ float tile[8][9];
    int x = blockIdx.x * 8 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y;
    if (x < columns && y < rows) tile[threadIdx.y][threadIdx.x] = a[y * columns + x];
    __syncthreads();
    x = blockIdx.y * 8 + threadIdx.x, y = blockIdx.x * 8 + threadIdx.y;
    if (x < rows && y < columns) b[y * rows + x] = tile[threadIdx.x][threadIdx.y];
}

extern "C" __global__ void reverse(double* a) {
    DYNAMIC_SHARED(double, buffer);
    buffer[threadIdx.x] = a[threadIdx.x];
    __syncthreads();
    a[threadIdx.x] = buffer[blockDim.x - 1 - threadIdx.x];
}

// The last block to arrive adds up what the others wrote.
extern "C" __global__ void last_block(const int* a, int* parts, unsigned* arrived, int* out) {
    __shared__ bool last;
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = a[blockIdx.x] * 2;
        __threadfence();
        last = atomicAdd(arrived, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        int sum = 0;
        for (unsigned i = 0; i < gridDim.x; i++) sum += parts[i];
        *out = sum;
    }
}

extern "C" __global__ void add(float* a, float value, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) a[i] += value;
}

extern "C" __global__ void shuffles(int* out) {  // (4, 32): down, up, broadcast in halves, 64 bits
    const int lane = threadIdx.x;
    out[lane] = __shfl_down_sync(0xffffffff, lane, 3);
    out[32 + lane] = __shfl_up_sync(0xffffffff, lane, 3);
    out[64 + lane] = __shfl_sync(0xffffffff, lane, 2, 16);
    out[96 + lane] = (int)(__shfl_sync(0xffffffff, (long long)lane << 40, 31 - lane) >> 40);
}

extern "C" __global__ void numbers(double* out, float x) {
    int i = 0;
    out[i++] = (double)__double2ll_rn(2.5), out[i++] = __double2int_rn(1e10), out[i++] = __double2int_rn(0.0 / 0.0);
    out[i++] = (double)__umul64hi(1ull << 63, 6), out[i++] = (double)__mul64hi(-(1ll << 62), 4);
    out[i++] = __clz(1), out[i++] = __clzll(0), out[i++] = __ffs(8), out[i++] = max(-1, 2), out[i++] = min(1.5f, 0.5f);
    out[i++] = __fmaf_rn(x, x, -1.0f), out[i++] = __fsub_rn(__fmul_rn(x, x), 1.0f);
    out[i++] = __longlong_as_double(__double_as_longlong(-3.0)), out[i++] = make_float4(1, 2, 3, 4).w;
}

template <class T> __global__ void twice(T* a) { a[threadIdx.x] *= 2; }
