#include "tests/agent/comm/gpu/fake_nccl.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <set>
#include <thread>
#include <utility>

#include "agent/comm/reduce.h"
#include "common/base/check.h"
#include "tests/agent/comm/gpu/fake_device.h"

namespace lockstep::test {

// One rank's part in the world of an id.
struct FakeNccl::Rank {
  World* world = nullptr;  // the library's; never freed
  int rank = 0;
  int busy = 0;  // number of in_progress() calls still to be answered with yes
  uint64_t collectives = 0;
  // Issued, but not on its stream yet: it gets there while the state is "in progress".
  std::vector<std::pair<void*, std::function<void()>>> kernels;
  // Work that other ranks must issue too before these kernels get there.
  bool connects_all = false;
  std::vector<std::pair<int, int>> connects;  // from, to
  bool is_finalized = false;
  bool is_aborted = false;
};

struct FakeNccl::Step {
  Rank* rank = nullptr;
  World* world = nullptr;
  int of = 0;  // number of the rank
  uint64_t number = 0;
  comm::NcclCall call;
};

struct FakeNccl::World {
  int size = 0;
  int arrived = 0;
  int left = 0;
  bool is_aborted = false;  // by any rank; the others hang until they abort too
  std::vector<std::unique_ptr<Rank>> ranks;
  struct Collective {
    std::vector<comm::NcclCall> calls;
    int here = 0;
    int gone = 0;
    bool is_done = false;
  };
  std::map<uint64_t, Collective> collectives;
  struct Message {
    std::vector<std::byte> bytes;
    bool* is_taken = nullptr;  // of the sender, who waits for it
  };
  std::map<std::pair<int, int>, std::deque<Message>> messages;  // from, to
  // Ranks that have issued the first collective, and pairs (sender, receiver) that have issued
  // their first message.
  std::set<int> in_collective;
  std::set<std::pair<int, int>> sends;
  std::set<std::pair<int, int>> receives;

  bool is_connected(const Rank& rank) const {
    if (rank.connects_all && static_cast<int>(in_collective.size()) < size) return false;
    return std::all_of(rank.connects.begin(), rank.connects.end(), [this](const auto& pair) {
      return sends.count(pair) > 0 && receives.count(pair) > 0;
    });
  }
};

namespace {

struct Group {
  int depth = 0;
  std::vector<std::pair<void*, std::function<void()>>> tasks;  // with their streams
  std::vector<void*> comms;
};
thread_local Group group;

size_t bytes_of(const comm::NcclStep& step) {
  return static_cast<size_t>(step.count) * comm::data_type_bytes(step.type);
}

}  // namespace

FakeNccl::FakeNccl()
    : FakeNccl([](void* stream, std::function<void()> kernel) {
        fake_stream(stream).issue(std::move(kernel));
      }) {}
FakeNccl::FakeNccl(Issue issue) : issue_(std::move(issue)) {}
FakeNccl::~FakeNccl() = default;

Result<comm::NcclId> FakeNccl::make_id() {
  const std::lock_guard lock(mutex_);
  comm::NcclId id{};
  const uint64_t number = ++ids_;
  std::memcpy(id.data(), &number, sizeof number);
  return id;
}

Result<comm::NcclApi::Comm> FakeNccl::init(const Init& init) {
  const std::lock_guard lock(mutex_);
  uint64_t number = 0;
  std::memcpy(&number, init.id.data(), sizeof number);
  std::shared_ptr<World>& world = worlds_[number];
  if (world == nullptr) {
    world = std::make_shared<World>();
    world->size = init.size;
    world->ranks.resize(static_cast<size_t>(init.size));
  }
  CHECK(world->size == init.size);
  auto& rank = world->ranks[static_cast<size_t>(init.rank)];
  CHECK(rank == nullptr);
  rank = std::make_unique<Rank>();
  rank->world = world.get();
  rank->rank = init.rank;
  rank->busy = 2;
  ++world->arrived;
  ++made_;
  ++alive_;
  return static_cast<Comm>(rank.get());
}

Result<bool> FakeNccl::in_progress(Comm comm) {
  const std::lock_guard lock(mutex_);
  auto& rank = *static_cast<Rank*>(comm);
  CHECK(!rank.is_aborted);
  if (!broken_.empty()) return unavailable("[nccl] " + broken_, Blame::kPeer);
  if (rank.busy > 0) {
    --rank.busy;
    return true;
  }
  if (!rank.world->is_connected(rank)) return true;
  rank.connects_all = false;
  rank.connects.clear();
  for (auto& [stream, kernel] : rank.kernels) issue_(stream, std::move(kernel));
  rank.kernels.clear();
  if (rank.is_finalized) return rank.world->left < rank.world->size;
  return rank.world->arrived < rank.world->size;
}

Status FakeNccl::begin_group() {
  ++group.depth;
  return {};
}

Status FakeNccl::issue(Comm comm, const comm::NcclCall& call) {
  CHECK(group.depth == 1);
  const std::lock_guard lock(mutex_);
  auto& rank = *static_cast<Rank*>(comm);
  CHECK(!rank.is_aborted && !rank.is_finalized && rank.busy == 0);
  CHECK(rank.world->arrived == rank.world->size);
  CHECK(call.step.count > 0);
  CHECK(call.step.op != comm::ReduceOp::kAvg && call.step.op != comm::ReduceOp::kLor);
  if (refuses_) {
    return unavailable("[nccl] ncclAllReduce: success expected, got invalid usage", Blame::kPeer);
  }
  const bool is_message = call.step.kind == comm::NcclStep::Kind::kSend ||
                          call.step.kind == comm::NcclStep::Kind::kReceive;
  const Step step{.rank = &rank,
                  .world = rank.world,
                  .of = rank.rank,
                  .number = is_message ? 0 : ++rank.collectives,
                  .call = call};
  if (call.step.kind == comm::NcclStep::Kind::kSend) {
    rank.connects.emplace_back(rank.rank, call.step.peer);
    rank.world->sends.insert(rank.connects.back());
  } else if (is_message) {
    rank.connects.emplace_back(call.step.peer, rank.rank);
    rank.world->receives.insert(rank.connects.back());
  } else {
    rank.connects_all = true;
    rank.world->in_collective.insert(rank.rank);
  }
  group.tasks.emplace_back(call.stream, [this, step] { carry_out(step); });
  group.comms.push_back(comm);
  return {};
}

// A group issues one kernel, so that its sends and receives do not wait for each other.
Status FakeNccl::end_group() {
  CHECK(group.depth == 1);
  group.depth = 0;
  std::map<void*, std::vector<std::function<void()>>> kernels;
  for (auto& [stream, task] : group.tasks) kernels[stream].push_back(std::move(task));
  group.tasks.clear();
  const std::lock_guard lock(mutex_);
  if (group.comms.empty()) return {};
  auto& rank = *static_cast<Rank*>(group.comms.front());
  rank.busy = 2;
  CHECK(std::all_of(group.comms.begin(), group.comms.end(),
                    [&](void* comm) { return comm == group.comms.front(); }));
  group.comms.clear();
  for (auto& [stream, tasks] : kernels) {
    rank.kernels.emplace_back(stream, [tasks = std::move(tasks)] {
      std::vector<std::thread> blocks;
      for (const auto& task : tasks) blocks.emplace_back(task);
      for (std::thread& block : blocks) block.join();
    });
  }
  return {};
}

void FakeNccl::carry_out(const Step& step) {
  std::unique_lock lock(mutex_);
  World& world = *step.world;
  const comm::NcclStep& what = step.call.step;
  const auto is_over = [&] { return step.rank->is_aborted; };
  if (what.kind == comm::NcclStep::Kind::kSend) {
    World::Message message;
    const auto* from = static_cast<const std::byte*>(step.call.from);
    message.bytes.assign(from, from + bytes_of(what));
    // As in NCCL, a send need not end before it is received.
    bool is_taken = false;
    message.is_taken = &is_taken;
    world.messages[{step.of, what.peer}].push_back(std::move(message));
    changed_.notify_all();
    changed_.wait(lock, [&] { return is_over() || is_taken; });
    // Nothing more is received from a rank that has aborted.
    if (!is_taken) world.messages[{step.of, what.peer}].clear();
    return;
  }
  if (what.kind == comm::NcclStep::Kind::kReceive) {
    auto& box = world.messages[{what.peer, step.of}];
    changed_.wait(lock, [&] { return is_over() || !box.empty(); });
    if (is_over()) return;
    CHECK(box.front().bytes.size() == bytes_of(what));
    std::memcpy(step.call.to, box.front().bytes.data(), bytes_of(what));
    *box.front().is_taken = true;
    box.pop_front();
    changed_.notify_all();
    return;
  }
  World::Collective& collective = world.collectives[step.number];
  collective.calls.resize(static_cast<size_t>(world.size));
  collective.calls[static_cast<size_t>(step.of)] = step.call;
  if (++collective.here == world.size) {
    const auto differs = [&](const comm::NcclCall& call) {
      return call.step.kind != what.kind || call.step.count != what.count;
    };
    const auto& calls = collective.calls;
    // Calls that do not match never end.
    if (std::none_of(calls.begin(), calls.end(), differs)) {
      run_collective(world, step.number);
      collective.is_done = true;
      changed_.notify_all();
    }
  }
  changed_.wait(lock, [&] { return is_over() || collective.is_done; });
  if (++collective.gone == world.size) world.collectives.erase(step.number);
}

// Reads all inputs before writing, as outputs may be inputs.
void FakeNccl::run_collective(World& world, uint64_t number) {
  const std::vector<comm::NcclCall>& calls = world.collectives[number].calls;
  const comm::NcclStep& step = calls.front().step;
  const size_t block = bytes_of(step);
  const auto n = static_cast<size_t>(world.size);
  const bool takes_all = step.kind == comm::NcclStep::Kind::kReduceScatter;
  std::vector<std::vector<std::byte>> given;
  for (const comm::NcclCall& call : calls) {
    const auto* from = static_cast<const std::byte*>(call.from);
    given.emplace_back(from, from + block * (takes_all ? n : 1));
  }
  const auto root = static_cast<size_t>(step.peer);
  if (step.kind == comm::NcclStep::Kind::kBroadcast) {
    for (const comm::NcclCall& call : calls) std::memcpy(call.to, given[root].data(), block);
    return;
  }
  if (step.kind == comm::NcclStep::Kind::kAllGather) {
    for (const comm::NcclCall& call : calls) {
      for (size_t rank = 0; rank < n; ++rank) {
        std::memcpy(static_cast<std::byte*>(call.to) + rank * block, given[rank].data(), block);
      }
    }
    return;
  }
  std::vector<std::byte> sum = given.front();
  for (size_t rank = 1; rank < n; ++rank) {
    comm::reduce(step.type, step.op,
                 {.into = sum.data(),
                  .a = sum.data(),
                  .b = given[rank].data(),
                  .count = sum.size() / comm::data_type_bytes(step.type)});
  }
  for (size_t rank = 0; rank < n; ++rank) {
    if (step.kind == comm::NcclStep::Kind::kReduce && rank != root) continue;
    std::memcpy(calls[rank].to, sum.data() + (takes_all ? rank * block : 0), block);
  }
}

Status FakeNccl::finalize(Comm comm) {
  const std::lock_guard lock(mutex_);
  auto& rank = *static_cast<Rank*>(comm);
  CHECK(!rank.is_aborted && !rank.is_finalized);
  rank.is_finalized = true;
  rank.busy = 2;
  ++rank.world->left;
  return {};
}

void FakeNccl::destroy(Comm comm) {
  const std::lock_guard lock(mutex_);
  auto& rank = *static_cast<Rank*>(comm);
  CHECK(rank.is_finalized && rank.world->left == rank.world->size);
  --alive_;
}

void FakeNccl::abort(Comm comm) {
  const std::lock_guard lock(mutex_);
  auto& rank = *static_cast<Rank*>(comm);
  CHECK(!rank.is_aborted);
  rank.is_aborted = true;
  --alive_;
  ++aborted_;
  changed_.notify_all();
}

void FakeNccl::break_links(const std::string& words) {
  const std::lock_guard lock(mutex_);
  broken_ = words;
}

void FakeNccl::refuse_calls() {
  const std::lock_guard lock(mutex_);
  refuses_ = true;
}

int FakeNccl::made() const {
  const std::lock_guard lock(mutex_);
  return made_;
}

int FakeNccl::alive() const {
  const std::lock_guard lock(mutex_);
  return alive_;
}

int FakeNccl::aborted() const {
  const std::lock_guard lock(mutex_);
  return aborted_;
}

}  // namespace lockstep::test
