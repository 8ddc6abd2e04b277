// fast_centers: given centres in the form that assign and assign_tiled compare points with.
#include "search.cuh"

// centers (R, K, d) in, fast out. One block per restart: grid = (R), block = (any).
extern "C" __global__ void fast_centers(const double* __restrict__ centers, FastCenters fast,
                                        const double* __restrict__ offset, int k, int d, Doubt doubt) {
    __shared__ word widest;
    const idx s = blockIdx.x;
    make_fast(centers + s * k * d, fast_of(fast, s, k, d), offset, k, d, doubt, &widest);
}
