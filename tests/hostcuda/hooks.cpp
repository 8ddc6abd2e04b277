// Device memory, and what the checks know of it. Kernels are compiled with -fsanitize=thread but not linked to
// the sanitizer: the calls that the compiler puts before every load and store end here.
//
// All device memory lies in one large reserved range, the arena, and no address is used again before the whole
// range has been: one subtraction tells device memory from the rest, and a freed array stays freed. Every byte
// has a shadow byte at the same offset; the race check has cells, stamps of who touched a byte last.
#include <cstring>
#include <map>
#include "state.hpp"

namespace hostcuda {
char* dynamic_shared;
bool global_races;
uint64_t watchdog = ~0ull;

namespace {
constexpr size_t ARENA = 256ull << 30, PAGE = 4096, LARGE = 4 << 20;
enum : uint8_t { NOTHING, FRESH, WRITTEN };  // shadow

struct Allocation { size_t bytes; int device; bool alive, sparse; };
struct Stamp { uint64_t epoch; uint32_t thread, clock : 31, atomic : 1; };
struct Cell { Stamp write, reads[2]; };

char* reserve(size_t bytes) {
    void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? nullptr : (char*)p;
}

// Words use the cell of their first byte, single bytes and halves their own. They lie in four planes, so that
// memory only ever touched as words needs a quarter of the cells.
struct Cells {
    size_t bytes;
    const char* name;
    bool shared;
    Cell* base = nullptr;
    Cell& at(size_t offset) {
        if (!base) base = (Cell*)reserve(bytes * sizeof(Cell));
        return base[(offset & 3) * (bytes / 4) + (offset >> 2)];
    }
};

char* arena;
uint8_t *shadow, shared_shadow[2][SHARED_LIMIT];  // of static and dynamic shared memory
size_t cursor = REDZONE;
std::map<size_t, Allocation> allocations;  // by offset; freed ones too, until the address is used again
Cells global_cells{ARENA, "an array", false};
Cells shared_cells[2] = {{SHARED_LIMIT, "static shared memory", true}, {SHARED_LIMIT, "dynamic shared memory", true}};

// ---- races
const BlockRecord& block_of(uint64_t epoch) {
    size_t low = 0, high = launch.blocks.size();
    while (high - low > 1) {
        const size_t middle = (low + high) / 2;
        (launch.blocks[middle].first_epoch <= epoch ? low : high) = middle;
    }
    return launch.blocks[low];
}

// Is what the stamp tells of ordered before what the current thread does now?
bool ordered(const Stamp& s, bool shared) {
    if (s.epoch < launch.first_epoch) return true;                            // an earlier launch, or never
    if (s.epoch < launch.blocks.back().first_epoch)                           // another block: by fence and atomic
        return shared || (launch.acquired && block_of(s.epoch).fenced_epoch >= s.epoch);
    if (s.epoch != launch.epoch || s.thread == current->linear) return true;  // a barrier lies between
    return s.thread / 32 == current->warp && current->clock[s.thread % 32] >= s.clock;
}

const char* verb(int access) { return access == ATOMIC ? "atomically changes" : access & WRITE ? "writes" : "reads"; }

[[noreturn]] void race(const Cells& cells, const Stamp& s, const char* done, int access, size_t byte) {
    const uint64_t n = block_of(s.epoch).number;
    const uint3 g = launch.grid, block = {unsigned(n % g.x), unsigned(n / g.x % g.y), unsigned(n / g.x / g.y)};
    fail("race on byte %zu of %s: %s by thread %s of block %s and, with no barrier between, one %s it", byte,
         cells.name, done, name_of(threads[s.thread]).c_str(), name_of(block).c_str(), verb(access));
}

// `start`: the offset from which bytes are counted in a message
void touch(Cells& cells, size_t offset, int access, size_t start) {
    Cell& cell = cells.at(offset);
    const bool atomic = access & VOLATILE;
    const Stamp now = {launch.epoch, current->linear, current->clock[current->lane], atomic};
    auto check = [&](const Stamp& s, const char* done) {
        if (!(atomic && s.atomic) && !ordered(s, cells.shared)) race(cells, s, done, access, offset - start);
    };
    check(cell.write, "written");
    if (access & WRITE) {
        for (const Stamp& read : cell.reads) check(read, "read");
        cell.write = now;
    } else {  // two readers are remembered: at least one of them is not the next writer
        cell.reads[cell.reads[0].thread != now.thread && !ordered(cell.reads[0], cells.shared)] = now;
    }
}

void touch_all(Cells& cells, size_t offset, size_t bytes, int access, size_t start) {
    const size_t step = (offset | bytes) & 3 ? 1 : 4;
    for (size_t i = 0; i < bytes; i += step) touch(cells, offset + i, access, start);
}

// ---- bounds, and memory never written
[[noreturn]] void outside(size_t offset, size_t bytes, int access) {
    if (allocations.empty()) fail("%s %zu bytes out of bounds: there is no array", verb(access), bytes);
    auto after = allocations.upper_bound(offset);
    const bool any_before = after != allocations.begin();
    auto it = any_before ? std::prev(after) : after;
    const size_t end = it->first + it->second.bytes;
    if (any_before && offset >= end && after != allocations.end() && after->first - offset < offset - end) it = after;
    const Allocation& a = it->second;
    const bool inside = offset >= it->first && offset < it->first + a.bytes;
    const size_t distance = inside ? offset - it->first : offset < it->first ? it->first - offset : offset - end;
    fail("%s %zu bytes %s: %s %zu %s %s of %zu bytes on device %d", verb(access), bytes,
         inside ? "after free" : "out of bounds", inside ? "at byte" : "by", distance,
         inside ? "of" : offset < it->first ? "bytes before" : "bytes past", a.alive ? "an array" : "a freed array",
         a.bytes, a.device);
}

const std::pair<const size_t, Allocation>& allocation_at(size_t offset) {
    return *std::prev(allocations.upper_bound(offset));
}

bool in_sparse(size_t offset, size_t bytes) {
    if (allocations.empty() || allocations.begin()->first > offset) return false;
    const auto& [start, a] = allocation_at(offset);
    return a.sparse && a.alive && offset + bytes <= start + a.bytes;
}

// Most accesses find every byte written; a comparison of whole words says so.
inline bool all_written(const uint8_t* s, size_t bytes) {
    uint64_t word = 0;
    if (bytes > 8) return all_written(s, 8) && all_written(s + 8, bytes - 8);
    if (bytes == 4) return memcpy(&word, s, 4), word == 0x02020202;
    if (bytes == 8) return memcpy(&word, s, 8), word == 0x0202020202020202;
    for (size_t i = 0; i < bytes; i++)
        if (s[i] != WRITTEN) return false;
    return true;
}

// How long a launch takes on a device: more or less by its accesses.
inline void count_access() {
    if (++launch.accesses > watchdog)
        fail("cudaErrorLaunchTimeout: the watchdog ends the launch after %llu accesses", (unsigned long long)watchdog);
}

void on_global(size_t offset, size_t bytes, int access) {
    count_access();
    const bool known = all_written(shadow + offset, bytes);
    for (size_t i = 0; i < bytes && !known; i++) {
        uint8_t& s = shadow[offset + i];
        if (s == WRITTEN) continue;
        if (s == NOTHING) {
            if (in_sparse(offset, bytes)) break;
            outside(offset + i, bytes, access);
        }
        if (access & READ)
            fail("reads memory never written: byte %zu of an array of %zu bytes",
                 offset + i - allocation_at(offset).first, allocation_at(offset).second.bytes);
        s = WRITTEN;
    }
    if (access & READ) launch.loaded += bytes;
    if (access & WRITE) launch.stored += bytes;
    if (access == ATOMIC) launch.atomics++, launch.atomic_bytes += bytes;
    launch.acquired |= (access & VOLATILE) != 0;
    if (global_races) touch_all(global_cells, offset, bytes, access, allocation_at(offset).first);
}

void on_shared(bool dynamic, size_t offset, size_t size, size_t bytes, int access) {
    count_access();
    if (offset > size || bytes > size - offset)
        fail("%s %zu bytes out of bounds: at byte %zd of %zu bytes of shared memory", verb(access), bytes,
             (ssize_t)offset, size);
    uint8_t* s = shared_shadow[dynamic] + offset;
    const bool known = all_written(s, bytes);
    for (size_t i = 0; i < bytes && !known; i++) {
        if ((access & READ) && s[i] != WRITTEN)
            fail("reads memory never written: byte %zu of shared memory", offset + i);
        s[i] = WRITTEN;
    }
    touch_all(shared_cells[dynamic], offset, bytes, access, 0);
}

// `place`: where the kernel does it
inline void on_access(const void* address, size_t bytes, int access, const void* place) {
    const size_t global = (char*)address - arena, fixed = (char*)address - launch.static_shared,
                 dynamic = (char*)address - (dynamic_shared - REDZONE);
    if (!current || !bytes) return;
    size_t offset = global;
    if (global < ARENA) on_global(global, bytes, access);
    else if ((offset = fixed) < launch.static_bytes) on_shared(false, fixed, launch.static_bytes, bytes, access);
    else if (dynamic < SHARED_LIMIT + 2 * REDZONE)
        on_shared(true, offset = dynamic - REDZONE, launch.dynamic_bytes, bytes, access);
    else return;  // a stack, a constant, or a variable of the runtime
    if (counting) count_requests(place, global >= ARENA, offset, bytes, access);
}

struct Place { const char* file; uint32_t line, column; };
void undefined(const char* what, const Place* at) {
    if (current) fail("%s at %s:%u", what, at->file, at->line);
}
}  // namespace

void forget_shared() {
    memset(shared_shadow[0], NOTHING, launch.static_bytes);
    memset(shared_shadow[1], NOTHING, launch.dynamic_bytes);
}
}  // namespace hostcuda

using namespace hostcuda;

extern "C" {
// ---- for Python
int hostcuda_start(char** arena_base, uint8_t** shadow_base) {
    if (!arena) {
        arena = reserve(ARENA), shadow = (uint8_t*)reserve(ARENA);
        dynamic_shared = reserve(SHARED_LIMIT + 2 * REDZONE) + REDZONE;
    }
    *arena_base = arena, *shadow_base = shadow;
    return arena && shadow;
}

void hostcuda_check_global_races(int on) { global_races = on; }
void hostcuda_count(int on) { counting = on; }
void hostcuda_set_watchdog(uint64_t accesses) { watchdog = accesses; }

// Poisoned memory between redzones. A sparse array is neither poisoned nor shadowed, so that an array beyond
// 2^31 elements costs only the pages it touches; its bounds are still known.
char* hostcuda_allocate(size_t bytes, int device, int sparse, int shadowed) {
    const size_t room = (bytes + PAGE - 1) / PAGE * PAGE + REDZONE;
    static bool wrapped = false;
    if (cursor + room > ARENA) cursor = REDZONE, wrapped = true;
    for (auto it = allocations.begin(); wrapped && it != allocations.end(); ++it)  // step over what is still alive
        if (it->second.alive && it->first < cursor + room && cursor < it->first + it->second.bytes + REDZONE)
            cursor = (it->first + it->second.bytes + PAGE - 1) / PAGE * PAGE + REDZONE;
    if (cursor + room > ARENA) return nullptr;
    allocations.erase(allocations.lower_bound(cursor), allocations.lower_bound(cursor + room));
    allocations[cursor] = {bytes, device, true, (bool)sparse};
    char* start = arena + cursor;
    if (__asan_poison_memory_region) {
        __asan_poison_memory_region(start - REDZONE, room + REDZONE);
        __asan_unpoison_memory_region(start, bytes);
    }
    if (!sparse && bytes >= LARGE)  // fewer page faults
        for (char* p : {start, (char*)shadow + cursor}) madvise(p, room, MADV_HUGEPAGE);
    if (!sparse) memset(start, 0xFF, bytes);
    if (!sparse && shadowed) memset(shadow + cursor, FRESH, bytes);
    cursor += room;
    return start;
}

void hostcuda_free(char* start) {
    Allocation& a = allocations.at(start - arena);
    a.alive = false;
    const size_t offset = start - arena, room = (a.bytes + PAGE - 1) / PAGE * PAGE;
    madvise(start, room, MADV_DONTNEED);
    madvise(shadow + offset, room, MADV_DONTNEED);
    for (size_t plane = 0; global_cells.base && plane < 4; plane++)
        madvise(&global_cells.at(offset + plane), room / 4 * sizeof(Cell), MADV_DONTNEED);
    if (__asan_poison_memory_region) __asan_poison_memory_region(start, room);
}

// The array an address lies in: 1 if it is alive, 0 if freed, -1 if there is none.
int hostcuda_find(char* address, char** start, size_t* bytes, int* device) {
    const size_t offset = address - arena;
    if (offset >= ARENA || allocations.empty() || allocations.begin()->first > offset) return -1;
    const auto& [first, a] = allocation_at(offset);
    if (offset >= first + max((unsigned long)a.bytes, 1ul)) return -1;
    *start = arena + first, *bytes = a.bytes, *device = a.device;
    return a.alive;
}

// ---- for kernels
#define HERE __builtin_return_address(0)
void hostcuda_access(const void* address, size_t bytes, int access) { on_access(address, bytes, access, HERE); }
void hostcuda_access_at(const void* address, size_t bytes, int access, const void* place) {
    on_access(address, bytes, access, place);
}
void hostcuda_fence() { launch.blocks.back().fenced_epoch = launch.epoch; }

#define HOOKS(n)                                                                                               \
    void __tsan_read##n(void* p) { on_access(p, n, READ, HERE); }                                              \
    void __tsan_write##n(void* p) { on_access(p, n, WRITE, HERE); }                                            \
    void __tsan_unaligned_read##n(void* p) { on_access(p, n, READ, HERE); }                                    \
    void __tsan_unaligned_write##n(void* p) { on_access(p, n, WRITE, HERE); }                                  \
    void __tsan_volatile_read##n(void* p) { on_access(p, n, READ | VOLATILE, HERE); }                          \
    void __tsan_volatile_write##n(void* p) { on_access(p, n, WRITE | VOLATILE, HERE); }                        \
    void __tsan_unaligned_volatile_read##n(void* p) { on_access(p, n, READ | VOLATILE, HERE); }                \
    void __tsan_unaligned_volatile_write##n(void* p) { on_access(p, n, WRITE | VOLATILE, HERE); }
HOOKS(1) HOOKS(2) HOOKS(4) HOOKS(8) HOOKS(16)
void __tsan_read_range(void* p, size_t bytes) { on_access(p, bytes, READ, HERE); }
void __tsan_write_range(void* p, size_t bytes) { on_access(p, bytes, WRITE, HERE); }
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

// The same trick for undefined behaviour: the compiler's tests, our handlers. Each gets where it happened first.
#define UNDEFINED(name, what) void __ubsan_handle_##name(Place* at) { undefined(what, at); }
UNDEFINED(out_of_bounds, "index out of the bounds of its array")
UNDEFINED(type_mismatch_v1, "null or misaligned pointer")
UNDEFINED(add_overflow, "overflow of a signed addition")
UNDEFINED(sub_overflow, "overflow of a signed subtraction")
UNDEFINED(mul_overflow, "overflow of a signed multiplication")
UNDEFINED(negate_overflow, "overflow of a signed negation")
UNDEFINED(divrem_overflow, "division by zero")
UNDEFINED(shift_out_of_bounds, "shift by too many bits")
UNDEFINED(float_cast_overflow, "conversion of a number the integer cannot hold")
}
