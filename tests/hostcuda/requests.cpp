// What the warps of a device would ask of memory. Here lanes run one after the other, so their accesses are put
// together afterwards: the n-th access at one place of the code, by all lanes of a warp since they were last together,
// is one request. They are together at a barrier and at a collective of all lanes that have not returned.
//
// A lane that runs ahead is stopped now and then until the others have come as far (`pace`), so that few requests are
// open at a time.
#include <algorithm>
#include <cstring>
#include <unordered_map>
#include "state.hpp"

namespace hostcuda {
bool counting;
Counters counters;
struct Place { Counters counters; uint64_t address; };  // and an address in global memory, as an offset, that it asked for
std::unordered_map<const void*, Place> places;

namespace {
constexpr unsigned STRIDE = 256;      // accesses of a lane until it waits for the others of its warp
constexpr size_t MOST_OPEN = 4096;    // requests of a warp; beyond, those that not all lanes have come to are closed
constexpr unsigned SECTOR = 32, BANKS = 32, WORD = 4;

struct Request { uint32_t lanes; uint64_t address[32]; };

// A place of the code as a warp meets it. An access at the same place of another kind is another.
struct Site {
    const void* place;
    bool shared;
    int access;
    unsigned bytes;
    uint32_t times[32] = {};      // how often each lane was here
    uint32_t first = 0;           // number of the oldest open request
    std::vector<uint32_t> open;   // requests, by their index in `requests`
};

struct Warp {
    std::unordered_map<uint64_t, uint32_t> index;  // of sites, by place and kind
    std::vector<Site> sites;
    std::vector<uint32_t> met;  // sites since the lanes were last together
    size_t open = 0;
};

std::vector<Warp> warps;
std::vector<Request> requests;
std::vector<uint32_t> idle;  // of these

// ---- what a request costs
void count_global(Counters& counters, const Site& site, uint64_t* address, unsigned lanes) {
    std::sort(address, address + lanes);
    uint64_t sectors = 0, distinct = 0, worst = 0, run = 0, next = 0;  // `next`: the first sector not yet counted
    for (unsigned i = 0; i < lanes; i++) {
        run = i && address[i] == address[i - 1] ? run + 1 : 1;
        worst = std::max(worst, run);
        if (run > 1) continue;
        const uint64_t begin = std::max(next, address[i] / SECTOR), end = (address[i] + site.bytes - 1) / SECTOR + 1;
        distinct++, sectors += end - std::min(begin, end), next = std::max(next, end);
    }
    const uint64_t least = (distinct * site.bytes + SECTOR - 1) / SECTOR;
    if (site.access == ATOMIC) {
        counters.atomic_requests++, counters.atomic_sectors += sectors, counters.atomic_least += least;
        counters.atomic_turns += worst, counters.atomic_worst = std::max(counters.atomic_worst, worst);
    } else if (site.access & WRITE) {
        counters.store_requests++, counters.store_sectors += sectors, counters.store_least += least;
    } else {
        counters.load_requests++, counters.load_sectors += sectors, counters.load_least += least;
    }
}

// Wavefronts of some lanes: the most words of one bank. Lanes share a word, but not when they change it atomically.
uint64_t wavefronts(const Site& site, const uint64_t* address, unsigned lanes) {
    std::vector<uint64_t> words;
    for (unsigned i = 0; i < lanes; i++)
        for (uint64_t w = address[i] / WORD; w <= (address[i] + site.bytes - 1) / WORD; w++) words.push_back(w);
    std::sort(words.begin(), words.end());
    if (site.access != ATOMIC) words.erase(std::unique(words.begin(), words.end()), words.end());
    unsigned in_bank[BANKS] = {}, most = 0;
    for (uint64_t w : words) most = std::max(most, ++in_bank[w % BANKS]);
    return most;
}

// Lanes are served by halves of the warp where they have 8 bytes each, by quarters where they have 16: a register of
// each lane can return in a clock. Where all neighbours, lanes i and i ^ 1 or lanes i and i ^ 2, load from the same
// address, twice as many are served at once: NVIDIA's engineers say so of 7.x, profiles of 8.6 and 9.0 agree.
bool alike(const Request& request, unsigned bit) {
    for (unsigned i = 0; i < 32; i++)
        if ((request.lanes >> i & 1) && (request.lanes >> (i ^ bit) & 1) && request.address[i] != request.address[i ^ bit])
            return false;
    return true;
}

void count_shared(Counters& counters, const Site& site, const Request& request) {
    unsigned together = site.bytes <= 4 ? 32 : site.bytes <= 8 ? 16 : 8;  // lanes served at once
    if (together < 32 && site.access == READ && (alike(request, 1) || alike(request, 2))) together *= 2;
    uint64_t address[32], total = 0, worst = 0;
    for (unsigned begin = 0; begin < 32; begin += together) {
        unsigned lanes = 0;
        for (unsigned i = begin; i < begin + together; i++)
            if (request.lanes >> i & 1) address[lanes++] = request.address[i];
        if (lanes) total += wavefronts(site, address, lanes);
    }
    counters.shared_requests++, counters.shared_wavefronts += total;
    if (site.access != ATOMIC) return;
    for (unsigned i = 0; i < 32; i++) {
        uint64_t same = 0;
        for (unsigned j = 0; j < 32 && request.lanes >> i & 1; j++)
            same += (request.lanes >> j & 1) && request.address[j] == request.address[i];
        worst = std::max(worst, same);
    }
    counters.shared_atomic_requests++, counters.shared_atomic_turns += worst;
    counters.shared_atomic_worst = std::max(counters.shared_atomic_worst, worst);
}

void add(Counters& sum, const Counters& one) {
    const uint64_t worst = std::max(sum.atomic_worst, one.atomic_worst);
    const uint64_t shared_worst = std::max(sum.shared_atomic_worst, one.shared_atomic_worst);
    for (size_t i = 0; i < sizeof sum / sizeof worst; i++) ((uint64_t*)&sum)[i] += ((const uint64_t*)&one)[i];
    sum.atomic_worst = worst, sum.shared_atomic_worst = shared_worst;
}

void count(const Site& site, const Request& request) {
    Counters one = {};
    one.requests = 1, one.active_lanes = __builtin_popcount(request.lanes);
    uint64_t address[32];
    unsigned lanes = 0;
    for (unsigned i = 0; i < 32; i++)
        if (request.lanes >> i & 1) address[lanes++] = request.address[i];
    if (site.shared) count_shared(one, site, request);
    else count_global(one, site, address, lanes);
    Place& place = places[site.place];
    add(counters, one), add(place.counters, one);
    if (!site.shared) place.address = address[0];
}

// ---- open and closed
void close(Warp& warp, Site& site, size_t number) {  // the oldest `number` requests
    for (size_t i = 0; i < number; i++) {
        count(site, requests[site.open[i]]);
        idle.push_back(site.open[i]);
    }
    site.open.erase(site.open.begin(), site.open.begin() + number);
    site.first += number, warp.open -= number;
}

uint32_t open() {
    if (idle.empty()) {
        requests.push_back({});
        return requests.size() - 1;
    }
    const uint32_t found = idle.back();
    idle.pop_back();
    requests[found].lanes = 0;
    return found;
}

void put(const void* place, bool shared, uint64_t address, unsigned bytes, int access) {
    Warp& warp = warps[current->warp];
    const uint64_t key = (uint64_t)place << 9 | bytes << 4 | access << 1 | shared;
    const auto [it, fresh] = warp.index.try_emplace(key, warp.sites.size());
    if (fresh) warp.sites.push_back({place, shared, access, bytes});
    Site& site = warp.sites[it->second];
    if (site.open.empty() && !site.first) warp.met.push_back(it->second);
    const uint32_t number = site.times[current->lane]++;
    if (number < site.first) {  // closed without this lane
        Request alone = {1u << current->lane, {}};
        alone.address[current->lane] = address;
        return count(site, alone);
    }
    for (; site.open.size() <= number - site.first; warp.open++) site.open.push_back(open());
    Request& request = requests[site.open[number - site.first]];
    request.lanes |= 1u << current->lane, request.address[current->lane] = address;
}
}  // namespace

void count_requests(const void* place, bool shared, uint64_t address, size_t bytes, int access) {
    access = access == ATOMIC ? ATOMIC : access & ~VOLATILE;
    while (bytes) {  // no access of a device has more than 16 bytes, nor lies across a multiple of its own size
        size_t piece = 16;
        while (piece > bytes || (address & (piece - 1))) piece /= 2;
        put(place, shared, address, piece, access);
        address += piece, bytes -= piece;
    }
    if (++current->steps % STRIDE == 0) pace();
}

void begin_requests() {
    counters = {}, places.clear();
    warps.clear(), requests.clear(), idle.clear();
    if (counting) warps.resize((threads.size() + 31) / 32);
}

void lanes_together(unsigned number) {
    Warp& warp = warps[number];
    for (uint32_t i : warp.met) {
        Site& site = warp.sites[i];
        close(warp, site, site.open.size());
        site.first = 0, memset(site.times, 0, sizeof site.times);
    }
    warp.met.clear();
}

void lanes_passed(unsigned number, unsigned lanes) {
    Warp& warp = warps[number];
    for (uint32_t i : warp.met) {
        Site& site = warp.sites[i];
        uint32_t passed = ~0u;
        for (unsigned lane = 0; lane < 32; lane++)
            if (lanes >> lane & 1) passed = std::min(passed, site.times[lane]);
        if (passed > site.first) close(warp, site, std::min<size_t>(passed - site.first, site.open.size()));
    }
    for (size_t i = 0; i < warp.met.size() && warp.open > MOST_OPEN; i++) {
        Site& site = warp.sites[warp.met[i]];
        if (site.open.size() > STRIDE) close(warp, site, site.open.size() - STRIDE);
    }
}
}  // namespace hostcuda

// The places of the code that the last launch asked for memory at, what there, and where last; their number.
extern "C" size_t hostcuda_places(const void** code, uint64_t* counts, uint64_t* addresses, size_t room) {
    size_t number = 0;
    for (const auto& [place, found] : hostcuda::places) {
        if (number == room) break;
        code[number] = place, addresses[number] = found.address;
        memcpy(counts + number++ * sizeof found.counters / sizeof *counts, &found.counters, sizeof found.counters);
    }
    return hostcuda::places.size();
}
