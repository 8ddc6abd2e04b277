// Runs a grid: blocks one after the other, the threads of a block as fibers in an order drawn from a seed.
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <link.h>
#include <map>
#include <numeric>
#include "state.hpp"
#include "fibers.hpp"
#include "mma.hpp"

namespace hostcuda {
Launch launch;
Thread* current;
std::vector<Thread> threads;

namespace {
Context scheduler;
FiberPool pool;
std::vector<Thread*> runnable;
size_t live, at_barrier;
std::vector<unsigned> live_lanes, waiting_lanes, paused_lanes;  // per warp
uint64_t seed, launches, draws;
int mma_mode;

const char* const KINDS[] = {"__syncthreads", "__syncthreads_count/and/or", "__syncwarp", "a shuffle",
                             "a vote", "mma.sync"};

uint64_t draw() {  // splitmix64
    uint64_t z = (draws += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

void wake(Thread& t) {
    t.state = Thread::RUNNABLE;
    runnable.push_back(&t);
}

void worker();

// Choose who goes on. The scheduler does when nobody can: the block has ended, or is stuck.
Context* next() {
    if (runnable.empty()) return &scheduler;
    std::swap(runnable[draw() % runnable.size()], runnable.back());
    current = runnable.back();
    runnable.pop_back();
    if (!current->fiber) current->fiber = pool.take(worker);
    return &current->fiber->context;
}

void leave(Context& from) {
    Context* to = next();
    if (to != &from) from.switch_to(*to);
}

void complete_barrier() {  // if every thread that has not returned is there
    if (!live || at_barrier < live) return;
    const Thread* first = nullptr;
    uint64_t ayes = 0;
    for (Thread& t : threads) {
        if (t.state == Thread::DONE) continue;
        if (!first) first = &t;
        if (t.kind != first->kind || t.line != first->line)
            fail("divergent barrier: thread %s waits at %s, line %d, while thread %s waits at %s, line %d",
                 name_of(*first).c_str(), KINDS[first->kind], first->line, name_of(t).c_str(), KINDS[t.kind], t.line);
        ayes += t.value;
    }
    for (Thread& t : threads) {
        if (t.state == Thread::DONE) continue;
        t.result = (uint64_t)live << 32 | ayes;
        wake(t);
    }
    at_barrier = 0;
    launch.epoch++;
    for (unsigned warp = 0; counting && warp < live_lanes.size(); warp++) lanes_together(warp);
}

void join_clocks(unsigned warp, unsigned lanes) {
    Thread* lane = &threads[warp * 32];
    uint32_t joined[32] = {};
    for (unsigned i = 0; i < 32; i++)
        if (lanes >> i & 1)
            for (int j = 0; j < 32; j++) joined[j] = max(joined[j], lane[i].clock[j]);
    for (unsigned i = 0; i < 32; i++)
        if (lanes >> i & 1) memcpy(lane[i].clock, joined, sizeof joined), lane[i].clock[i]++;
}

void complete_warp(unsigned warp) {  // every group whose live lanes all wait at the same collective
    Thread* lane = &threads[warp * 32];
    for (unsigned left = waiting_lanes[warp]; left;) {
        const Thread& leader = lane[__builtin_ctz(left)];
        unsigned group = 0, ayes = 0;
        for (unsigned i = 0; i < 32; i++)
            if ((left >> i & 1) && lane[i].kind == leader.kind && lane[i].mask == leader.mask)
                group |= 1u << i, ayes |= (unsigned)(lane[i].value & 1) << i;
        left &= ~group;
        if (group != (leader.mask & live_lanes[warp])) continue;
        if (leader.kind == SYNCWARP) join_clocks(warp, group);
        if (counting && group == live_lanes[warp]) lanes_together(warp);
        if (leader.kind == MMA && group != ~0u) fail("mma.sync, line %d: not all lanes are there", leader.line);
        if (leader.kind == MMA) multiply(lane, mma_mode, draw);
        for (unsigned i = 0; i < 32; i++) {
            if (!(group >> i & 1)) continue;
            const unsigned source = lane[i].source;  // a lane that takes no part gives an undefined value: poison
            lane[i].result = leader.kind != SHUFFLE ? ayes : group >> source & 1 ? lane[source].value : ~0ull;
            wake(lane[i]);
        }
        waiting_lanes[warp] &= ~group;
    }
}

// Paused lanes go on when no other lane of their warp can.
void resume(unsigned warp) {
    if (!paused_lanes[warp]) return;
    unsigned passed = paused_lanes[warp];
    for (unsigned i = warp * 32; i < warp * 32 + 32 && i < threads.size(); i++) {
        const Thread& t = threads[i];
        if (t.state == Thread::RUNNABLE) return;
        const bool alone = t.state == Thread::WAITING && t.kind >= SYNCWARP && (live_lanes[warp] & ~t.mask);
        if (alone) passed |= 1u << t.lane;  // it may go on before it meets the others
    }
    lanes_passed(warp, passed);
    for (unsigned i = 0; i < 32; i++)
        if (paused_lanes[warp] >> i & 1) wake(threads[warp * 32 + i]);
    paused_lanes[warp] = 0;
}

// The body of every fiber: run the current thread, then any thread that has no fiber yet. A kernel without
// collectives is thus one fiber running all threads, with no switch at all.
void worker() {
    for (;;) {
        Fiber* self = current->fiber;
        launch.kernel->call(launch.arguments);
        current->state = Thread::DONE;
        live--;
        live_lanes[current->warp] &= ~(1u << current->lane);
        if (waiting_lanes[current->warp]) complete_warp(current->warp);
        complete_barrier();
        resume(current->warp);
        pool.idle.push_back(self);
        leave(self->context);
    }
}

std::string stuck() {
    std::map<std::string, std::vector<const Thread*>> places;
    for (const Thread& t : threads)
        if (t.state == Thread::WAITING) {
            char mask[40] = "";
            if (t.kind >= SYNCWARP) snprintf(mask, sizeof mask, " with mask 0x%08x", t.mask);
            places[std::string(KINDS[t.kind]) + ", line " + std::to_string(t.line) + mask].push_back(&t);
        }
    std::string text = "divergent barrier: no thread can go on;";
    for (auto& [place, who] : places) {
        text += " " + std::to_string(who.size()) + " wait at " + place + " (";
        for (size_t i = 0; i < who.size() && i < 4; i++) text += (i ? ", " : "") + name_of(*who[i]);
        text += who.size() > 4 ? ", ...);" : ");";
    }
    return text + " " + std::to_string(threads.size() - live) + " have returned";
}

void run_block(uint64_t number) {
    const uint3 g = launch.grid;
    launch.block_index = {(unsigned)(number % g.x), (unsigned)(number / g.x % g.y), (unsigned)(number / g.x / g.y)};
    if (!global_races) launch.blocks.clear();  // only those races are between blocks
    launch.blocks.push_back({++launch.epoch, 0, number});
    launch.acquired = false;
    forget_shared();
    memset(launch.static_shared, 0xFF, launch.static_bytes);
    memset(dynamic_shared, 0xFF, launch.dynamic_bytes);
    live = threads.size(), at_barrier = 0;
    live_lanes.assign((live + 31) / 32, 0), waiting_lanes.assign(live_lanes.size(), 0);
    paused_lanes.assign(live_lanes.size(), 0);
    runnable.clear();
    for (Thread& t : threads) {
        t.fiber = nullptr, t.steps = 0;
        live_lanes[t.warp] |= 1u << t.lane;
        wake(t);
    }
    leave(scheduler);  // comes back when no thread can go on
    if (launch.error.empty() && live) launch.error = stuck();
    for (unsigned warp = 0; counting && warp < live_lanes.size(); warp++) lanes_together(warp);
}

void set_block_size(uint3 b) {
    threads.resize((size_t)b.x * b.y * b.z);
    for (unsigned i = 0; i < threads.size(); i++) {
        Thread& t = threads[i];
        t.index = {i % b.x, i / b.x % b.y, i / b.x / b.y};
        t.linear = i, t.warp = i / 32, t.lane = i % 32;
        memset(t.clock, 0, sizeof t.clock);
        t.clock[t.lane] = 1;
    }
}
}  // namespace

std::string name_of(uint3 v) {
    return "(" + std::to_string(v.x) + "," + std::to_string(v.y) + "," + std::to_string(v.z) + ")";
}
std::string name_of(const Thread& t) { return name_of(t.index); }

void pace() {
    Thread& t = *current;
    t.state = Thread::PAUSED;
    paused_lanes[t.warp] |= 1u << t.lane;
    resume(t.warp);
    leave(t.fiber->context);
}

void fail(const char* format, ...) {
    char text[1000];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    launch.error = text;
    if (current) launch.error += "; by thread " + name_of(*current);
    Context gone;  // this fiber is never resumed
    gone.switch_to(scheduler);
    __builtin_unreachable();
}
}  // namespace hostcuda

using namespace hostcuda;

extern "C" {
uint3 hostcuda_thread_index() { return current->index; }
uint3 hostcuda_block_index() { return launch.block_index; }
uint3 hostcuda_block_size() { return launch.block; }
uint3 hostcuda_grid_size() { return launch.grid; }
unsigned hostcuda_lane() { return current->lane; }
void* hostcuda_dynamic_shared() { return dynamic_shared; }
void hostcuda_trap(const char* what, int line) { fail("%s, line %d", what, line); }

unsigned long long hostcuda_collective(int kind, unsigned mask, unsigned long long value, int source, int line) {
    Thread& t = *current;
    t.state = Thread::WAITING;
    t.kind = (Kind)kind, t.mask = mask, t.value = value, t.source = source, t.line = line;
    if (kind <= BARRIER_VOTE) {
        at_barrier++;
        complete_barrier();
    } else {
        if (!(mask >> t.lane & 1)) fail("%s, line %d: mask 0x%08x leaves out the caller", KINDS[kind], line, mask);
        waiting_lanes[t.warp] |= 1u << t.lane;
        complete_warp(t.warp);
    }
    resume(t.warp);
    leave(t.fiber->context);
    return t.result;
}

unsigned hostcuda_halves(float low, float high) { return half_bits(low) | half_bits(high) << 16; }
float hostcuda_half_value(unsigned bits) { return (float)half_value(bits); }
void hostcuda_set_mma(int mode) { mma_mode = mode; }
void hostcuda_set_seed(uint64_t value) { seed = value, launches = 0; }

// The thread-local segment of the module that `code` belongs to, for the calling system thread.
void hostcuda_thread_local_segment(const void* code, char** start, size_t* bytes) {
    struct Query { uintptr_t code; char* start; size_t bytes; } query = {(uintptr_t)code, nullptr, 0};
    dl_iterate_phdr([](dl_phdr_info* info, size_t, void* data) {
        auto* q = (Query*)data;
        bool ours = false;
        for (int i = 0; i < info->dlpi_phnum; i++) {
            const auto& h = info->dlpi_phdr[i];
            ours |= h.p_type == PT_LOAD && q->code - (info->dlpi_addr + h.p_vaddr) < h.p_memsz;
        }
        for (int i = 0; ours && i < info->dlpi_phnum; i++)
            if (info->dlpi_phdr[i].p_type == PT_TLS)
                q->start = (char*)info->dlpi_tls_data, q->bytes = info->dlpi_phdr[i].p_memsz;
        return (int)ours;
    }, &query);
    *start = query.start, *bytes = query.bytes;
}

// counts: loaded, stored, atomics, atomic_bytes, and the Counters. The message of an error, or null.
const char* hostcuda_launch(const Kernel* kernel, void** arguments, const unsigned* grid, const unsigned* block,
                            size_t dynamic_bytes, char* static_shared, size_t static_bytes, uint64_t* counts) {
    static std::string message;
    const uint64_t epoch = launch.epoch + 1;
    launch = {};
    launch.kernel = kernel, launch.arguments = arguments;
    launch.grid = {grid[0], grid[1], grid[2]}, launch.block = {block[0], block[1], block[2]};
    launch.dynamic_bytes = dynamic_bytes, launch.static_shared = static_shared, launch.static_bytes = static_bytes;
    launch.epoch = launch.first_epoch = epoch;
    draws = seed * 0xd1342543de82ef95ull + ++launches;
    set_block_size(launch.block);
    begin_requests();
    if (static_bytes > SHARED_LIMIT) launch.error = "the module has too many __shared__ variables for hostcuda";
    const uint64_t blocks = (uint64_t)grid[0] * grid[1] * grid[2];
    uint64_t step = draw() % blocks | 1, number = draw() % blocks;  // blocks in a shuffled order: by a stride
    while (std::gcd(step, blocks) != 1) step++;                     // that meets every one
    for (uint64_t i = 0; i < blocks && launch.error.empty(); i++, number = (number + step) % blocks) run_block(number);
    const uint64_t found[] = {launch.loaded, launch.stored, launch.atomics, launch.atomic_bytes};
    memcpy(counts, found, sizeof found);
    memcpy(counts + 4, &counters, sizeof counters);
    current = nullptr;
    if (launch.error.empty()) return nullptr;
    pool.abandon(worker);
    message = std::string("kernel ") + kernel->name + ", block " + name_of(launch.block_index) + ": " + launch.error;
    return message.c_str();
}
}
