// What kernels take by value: arguments that belong together. All arrays are in device memory.
//
// Python has a tuple of the same name and fields for each (gputabu.backend.cuda.structs). A launch compares their names
// with the lines here, and the arrays with the types (gputabu.backend.cuda.sources).
#pragma once
#include "common.cuh"

// Which rows of the data set X has.
struct Chunk {
    idx n;      // how many,
    idx start;  // from which one on
    idx pitch;  // rows of the data set: an (R, N) array has R · pitch elements
};

// A power p: `whole` factors x, √x if half, √√x if quarter; if whole is negative, by series (powers.Exponent). The three
// of a fuzzifier m are 1/(m - 1), m and m - 1.
struct Fuzzifier {
    const double* series;  // coefficients: powers.LOG_SERIES, then powers.EXP_SERIES
    double ratio;
    double share;
    double total;
    int ratio_whole;
    int ratio_half;
    int ratio_quarter;
    int share_whole;
    int share_half;
    int share_quarter;
    int total_whole;
    int total_half;
    int total_quarter;
};

// Sizes of the problem. The totals have C columns, see columns_of.
struct Shape {
    int r;  // restarts
    int k;  // clusters
    int d;  // features
};

// The fixed-point grid (fixed_point.Grid): powers of two to and from limbs.
struct Grid {
    const double* offset;  // (d)
    const double* scale;   // (d) to the limbs of the coordinates; null where only labels are wanted
    const double* high;    // (d) from their first limb
    const double* low;     // (d) and from the second
    double weight_scale;   // the same for weights
    double weight_high;
    double weight_low;
    double cost_scale;     // for terms of J, which have three limbs
    double cost0;
    double cost1;
    double cost2;
    double key_scale;      // brings squared distances to at most 2^KEY_BITS
};

// Centres in the type of the points, for fast distances; all null where tensor cores take HalfCenters instead.
struct FastCenters {
    real* centers;  // (R, K, d) relative to the offset, times Doubt.unit
    real* norms;    // (R, K) squared
    real* doubt;    // (R, 3) what two fast distances may err by: [0] + [1]·‖x‖ + [2]·‖x‖²
};

// Centres as halves, for products on tensor cores, in the order that halves.cuh says.
struct HalfCenters {
    unsigned* words;  // (R, W) -2 c relative to the offset, times unit
    float* norms;     // (R, P) squared norms of c, P >= K; infinite beyond K
    double unit;      // power of two that brings norms of centres to at most 2^14
    int padded;       // P
    int tile;         // centres of a stage,
    int stage_steps;  // and steps of 16 coordinates
    int stages;       // of a centre
    int parts;        // halves that a coordinate is made of
};

// What two scores on tensor cores may err by, with R the largest norm of a centre:
// product · R‖x‖ + square · R² + exact · (R + ‖x‖)² + flat · (‖x‖ + 2R + 1).
struct HalfDoubt {
    float product;  // halves of points and centres, and their sums
    float square;   // the norms of the centres
    float exact;    // the canonical formula
    float flat;     // underflow
};

// Points in doubt, of each restart.
struct DoubtList {
    int* rows;      // (R, n) of the chunk, in any order
    float* limits;  // (R, n) the score up to which centres are rivals
    unsigned* count;   // (R) how many; zero between two passes
    unsigned* seen;    // (R) how many there were in the last pass
    unsigned* tickets; // (1) blocks that have finished; zero between two passes
};

// How far fast distances can be trusted.
struct Doubt {
    double unit;   // power of two that keeps squares of coordinates within the range of real
    double fast;   // relative error of fast distances,
    double exact;  // of canonical ones,
    double floor;  // and what underflow may add
    double half;   // HalfCenters.unit
};

// The state of a search between two iterations, and where its trace goes; of R restarts, or of one (restart_of).
struct Restarts {
    idx* means;         // (R, K) M_c
    idx* rows;          // (R, K, L) tabu rows
    int* length;        // (R, K) of each
    idx* best_means;    // (R, K) M_b
    double* best_cost;  // (R) J_b
    int* stale;         // (R) iterations since J_b
    int* age;           // (R) iterations so far, plus one
    int* done;          // (R) why it has ended (STOP_…), or 0
    double* current;    // (R, T + 1)
    double* best;       // (R, T + 1)
    idx* path;          // (R, T + 1, K)
};

// When a search ends, and how its tabu list works.
struct Limits {
    double target;  // J to stop at, negative for none
    int capacity;   // L, entries that a tabu row has room for
    int max_iter;   // T
    int patience;
    int shared;     // a tabu entry forbids its point in all clusters
};

// The neighbours of M_c that R restarts look at, M each.
struct Lanes {
    idx* means;   // (R·M, K)
    int* winner;  // (R) the neighbour that becomes M_c
    int* lost;    // (R·M) flag: it is not the winner of a restart that goes on
    int* done;    // (R·M) flag: the restart has ended
    int* age;     // (R·M) that of the restart
};

// K-Means of R restarts between two iterations, and where its trace goes.
struct Descents {
    double* centers;  // (R, K, d)
    double* means;    // (R, K, d) centroids, where the centres go next
    double* sums;     // (R, 2, K) of each cluster: squared shift of its centre, and what it adds to the scatter between
    word* marks;      // (R, K) fingerprints of the clusters
    word* prints;     // (R, T) of all clusters together, after each iteration
    int* done;        // (R) why it has ended (STOP_…), 0, or PAUSED where the host must make the next step
    int* age;         // (R) iterations so far
    double* current;  // (R, T + 1) J, or null
    idx* moves;       // (R, T) points that changed cluster, or null
};

// When K-Means ends.
struct DescentLimits {
    double allowed;  // squared shift of all centres together at which to stop; 0 for never
    double scatter;  // J of one cluster at the offset
    int max_iter;    // T
};

// Single moves of R restarts between two rounds.
struct SingleMoves {
    idx* totals;      // (R, K, C)
    double* centers;  // (R, K, d) their centroids
    int* labels;      // (R, N)
    double* mass;     // (R, 2, K) weights of the clusters: to leave, zero where a point would be alone; to enter
    int* targets;     // (R, N) where a point is to move, or -1
    idx* made;        // (R) moves so far
    int* done;        // (R) why it has ended (STOP_…), or 0
    int* age;         // (R) rounds so far
};

// The two nearest centres of every point.
struct NearestTwo {
    int* first;    // (R, pitch)
    int* second;   // (R, pitch)
    double* near;  // (R, pitch) canonical d² to the first
    double* far;   // (R, pitch) and to the second
};

// R relocation searches between two steps, and where their trace goes (algorithms.relocation.State).
struct Relocations {
    double* centers;        // (R, K, d)
    double* means;          // (R, K, d) scratch: centroids, where the centres go next
    double* shares;         // (R, K) scratch: by what the step of each centre lowers J
    double* best_centers;   // (R, K, d)
    double* elite_centers;  // (R, K, d)
    idx* totals;            // (R, K, C) of the labels
    double* mass;           // (R, 2, K) weights of the clusters: to leave, zero where a point would be alone; to enter
    idx* costs;             // (R, 3) limbs of J, behind `reassign` only, otherwise zero
    idx* changed;           // (R) points that changed cluster in this iteration
    double* cost;           // (R) J
    double* best_cost;      // (R) J_b
    double* elite;          // (R) J of the elite,
    double* aim;            // (R) and what it was when the iteration began
    int* stale;             // (R) iterations since J_b
    int* since_elite;       // (R) iterations since the elite
    int* news;              // (R) of this iteration: 1 for a new best + 2 for a new elite
    int* number;            // (R) steps of this iteration so far; 0 where candidates are to be drawn
    int* settled;           // (R) flag: the two nearest centres need not be looked for
    int* unmoved;           // (R) flag: no centre is relocated now
    int* idle;              // (R) flag: no step but the first of an iteration is made now
    int* done;              // (R) why it has ended (STOP_…), or 0
    int* age;               // (R) iterations so far, -1 before the start is judged
    idx* left;              // (R) passes that may still be made
    double* current;        // (R, window) J after each iteration, as a ring
    double* best;           // (R, window) J_b
    idx* moves;             // (R, window) points that changed cluster
};

// What a relocation search draws and compares in an iteration, of R restarts with T candidates each.
struct Swaps {
    const word* restarts;  // (R) their numbers
    idx* tiles;            // (R, tiles) potentials of POTENTIAL_TILE rows each
    int* shift;            // (R) the grid of the potential is 2^-shift
    idx* rows;             // (R, T) candidates
    double* candidates;    // (R, T, d)
    int* barred;           // (R, T) scratch: flag of candidates that were placed by one of the latest K moves
    idx* loss;             // (R, K, 3), see `swap_gains`
    idx* change;           // (R, T, K + 1, 3)
    int* placed;           // (R, K) the iteration that placed a centre last
    idx* used;             // (R, K) rows that the latest K moves placed, as a ring
};

// How a relocation search runs (backend.loops.RelocationSettings), and the grid of its potential.
struct RelocationRules {
    double target;
    double reach;
    word seed;
    idx give_up;  // iterations without a better solution after which the elite is given up
    int max_iter;
    int patience;
    int tenure;
    int trials;   // T, candidates
    int go_back;
    int steps;
    int more_steps;
    int calm;
    int window;   // of the trace
    int coarsest;
    int finest;
};

// Trial labellings, drawn from addressed words (contract.TrialBatch). The device may hold a part of the points.
struct TrialBatch {
    const word* restarts;  // (R) their numbers
    word seed;
    word step;
    word limit;  // a point whose word is below keeps its label
    idx first;   // row 0 of the device has the words of this row,
    idx quads;   // and a trial has so many blocks of words
    int trials;  // T
    const double* centers;  // (R, K, d) by the distance from which labels are drawn, or null
    const int* cuts;        // (R, T, 3) clusters that are joined and split, or null: nothing is drawn then
    const double* pairs;    // (R, T, 2, d) the points by which they are split
};
