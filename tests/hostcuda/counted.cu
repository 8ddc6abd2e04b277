// Programs whose requests are easily counted by hand, for tests/backend/test_hostcuda_counters.py.
#define LANE (threadIdx.x % 32)
#define I (blockIdx.x * blockDim.x + threadIdx.x)

extern "C" __global__ void strided(const int* a, int* out, int stride, int shift) { out[I] = a[I * stride + shift]; }
template <class T> __global__ void wide(const T* a, T* out) { out[I] = a[I]; }
extern "C" __global__ void member(const int4* a, int* out) { out[I] = a[I].y; }

// written word by word by each lane; then read `stride` words apart
extern "C" __global__ void banks(int* out, int stride) {
    __shared__ int s[32 * 33];
    for (int i = LANE; i < 32 * 33; i += 32) s[i] = i;
    __syncwarp();
    out[I] = s[LANE * stride];
}
template <class T> __global__ void wide_banks(T* out, int stride) {
    T* s = (T*)hostcuda_dynamic_shared();
    s[LANE] = out[LANE], s[LANE + 32] = out[LANE];
    __syncwarp();
    out[LANE] = s[LANE * stride];
}

extern "C" __global__ void branch(int* out) {
    if (LANE % 2) out[I] = 1;
}
extern "C" __global__ void triangle(const int* a, int* out) {
    int sum = 0;
    for (int j = 0; j < LANE; j++) sum += a[j];
    out[I] = sum;
}
extern "C" __global__ void turns(const int* a, int* out) {
    int sum = 0;
    for (int turn = 0; turn < 2; turn++) {
        if (LANE % 2 == turn) sum += a[I];
        __syncwarp();
    }
    out[I] = sum;
}
extern "C" __global__ void leave(const int* a, int* out) {
    if (LANE < 8) return;
    out[I] = a[I];
}
extern "C" __global__ void far(const int* a, int* out, int n) {
    int sum = 0;
    for (int j = 0; j < n; j++) sum += a[j * 32 + LANE];
    out[I] = sum;
}
// each half of a warp has a loop of its own, and the second half runs longer
extern "C" __global__ void halves(const int* a, int* out, int n) {
    int sum = 0;
    if (LANE < 16)
        for (int j = 0; j < n; j++) sum += a[j * 32 + LANE];
    else
        for (int j = 0; j < 2 * n; j++) sum ^= a[j * 16 + LANE];
    out[I] = sum;
}

extern "C" __global__ void add(int* out, int share) { atomicAdd(&out[LANE / share], 1); }
extern "C" __global__ void add_shared(int* out, int share) {
    __shared__ int s[32];
    s[LANE] = 0;
    __syncwarp();
    atomicAdd(&s[LANE / share], 1);
    __syncwarp();
    out[LANE] = s[LANE];
}
