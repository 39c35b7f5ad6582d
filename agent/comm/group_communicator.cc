#include "agent/comm/group_communicator.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "agent/comm/reduce.h"
#include "common/base/sha256.h"

namespace lockstep {
namespace {

Status check_buffer(const CommBuffer& buffer) {
  if (buffer.count < 0 || buffer.count > std::numeric_limits<int64_t>::max() / int64_t{16} / 4096) {
    return invalid("[comm] a buffer of " + std::to_string(buffer.count) + " elements");
  }
  if (buffer.count > 0 && buffer.data == nullptr) return invalid("[comm] a buffer without memory");
  if (reinterpret_cast<uintptr_t>(buffer.data) % data_type_bytes(buffer.type) != 0) {
    return invalid("[comm] a buffer that is not aligned to its type");
  }
  if (buffer.device.type != DeviceType::kCpu) {
    return invalid("[comm] shared memory and TCP serve memory of the CPU, not of a GPU");
  }
  return {};
}

// Never 0, which is the world's.
uint64_t group_id(const std::vector<int>& ranks) {
  const Digest digest =
      sha256({reinterpret_cast<const char*>(ranks.data()), ranks.size() * sizeof(int)});
  uint64_t id = 0;
  std::memcpy(&id, digest.data(), sizeof id);
  return id | 1;
}

// "1, 4-7"
std::string rank_list(const std::vector<int>& ranks) {
  std::string text;
  for (size_t i = 0; i < ranks.size();) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (!text.empty()) text += ", ";
    text += std::to_string(ranks[i]);
    if (last > i) text += "-" + std::to_string(ranks[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace

Work::Work(std::shared_ptr<Operation> operation) : operation_(std::move(operation)) {}
Work::Work(Work&& other) noexcept = default;

Work& Work::operator=(Work&& other) noexcept {
  if (this != &other) {
    if (operation_) static_cast<void>(operation_->wait(Duration::max()));
    operation_ = std::move(other.operation_);
  }
  return *this;
}

Work::~Work() {
  if (operation_) static_cast<void>(operation_->wait(Duration::max()));
}

bool Work::test() const {
  return !operation_ || operation_->done();
}

Status Work::wait(Duration timeout) {
  if (!operation_) return {};
  return operation_->wait(timeout);
}

std::shared_ptr<Operation> GroupCommunicator::operation(CollectiveKind kind) const {
  auto operation = std::make_shared<Operation>();
  operation->group = group_;
  operation->header.kind = kind;
  operation->limit = core_->operation_limit();
  return operation;
}

Result<std::shared_ptr<Operation>> GroupCommunicator::all_reduce_operation(const CommBuffer& buffer,
                                                                           ReduceOp op) {
  TRY(check_buffer(buffer));
  TRY(check_reduction(buffer.type, op));
  auto made = operation(CollectiveKind::kAllReduce);
  made->header.type = buffer.type;
  made->header.op = op;
  made->header.count = static_cast<uint64_t>(buffer.count);
  made->buffer = buffer;
  return made;
}

Result<std::shared_ptr<Operation>> GroupCommunicator::broadcast_operation(const CommBuffer& buffer,
                                                                          int root) {
  TRY(check_buffer(buffer));
  if (root < 0 || root >= size()) {
    return invalid("[comm] root " + std::to_string(root) + " is none of the " +
                   std::to_string(size()) + " ranks");
  }
  auto made = operation(CollectiveKind::kBroadcast);
  made->header.type = buffer.type;
  made->header.root = static_cast<uint32_t>(root);
  made->header.count = static_cast<uint64_t>(buffer.count);
  made->buffer = buffer;
  return made;
}

Work GroupCommunicator::start(Result<std::shared_ptr<Operation>> operation) {
  if (!operation.ok()) {
    auto refused = std::make_shared<Operation>();
    refused->finish(operation.error());
    return Work(std::move(refused));
  }
  core_->start(*operation);
  return Work(std::move(*operation));
}

Status GroupCommunicator::run(Result<std::shared_ptr<Operation>> operation) {
  if (!operation.ok()) return operation.error();
  return core_->run(std::move(*operation));
}

Work GroupCommunicator::start_all_reduce(const CommBuffer& buffer, ReduceOp op) {
  return start(all_reduce_operation(buffer, op));
}

Work GroupCommunicator::start_broadcast(const CommBuffer& buffer, int root) {
  return start(broadcast_operation(buffer, root));
}

Status GroupCommunicator::all_reduce(const CommBuffer& buffer, ReduceOp op) {
  return run(all_reduce_operation(buffer, op));
}

Status GroupCommunicator::broadcast(const CommBuffer& buffer, int root) {
  return run(broadcast_operation(buffer, root));
}

Status GroupCommunicator::barrier() {
  return core_->run(operation(CollectiveKind::kBarrier));
}

Status GroupCommunicator::form(Duration limit) {
  auto first = operation(CollectiveKind::kForm);
  first->limit = limit;
  return core_->run(std::move(first));
}

Status GroupCommunicator::all_gather(std::span<const std::byte> mine, std::span<std::byte> all) {
  const size_t expected = mine.size() * group_->ranks.size();
  if (mine.size() > kGatherBytesMax || all.size() != expected) {
    return invalid("[comm] all_gather of " + std::to_string(mine.size()) + " bytes (at most " +
                   std::to_string(kGatherBytesMax) + ") into " + std::to_string(all.size()) +
                   ", not " + std::to_string(expected));
  }
  auto gathering = operation(CollectiveKind::kAllGather);
  gathering->header.count = mine.size();
  gathering->mine = mine;
  gathering->all = all;
  return core_->run(std::move(gathering));
}

Result<std::unique_ptr<Communicator>> GroupCommunicator::sub_group(const std::vector<int>& ranks) {
  auto group = std::make_shared<Group>();
  group->rank = -1;
  for (const int rank : ranks) {
    if (rank < 0 || rank >= size()) {
      return invalid("[comm] rank " + std::to_string(rank) + " is none of the " +
                     std::to_string(size()) + " that the sub-group is taken from");
    }
    if (std::count(ranks.begin(), ranks.end(), rank) > 1) {
      return invalid("[comm] rank " + std::to_string(rank) + " is named twice in a sub-group");
    }
    if (rank == this->rank()) group->rank = static_cast<int>(group->ranks.size());
    group->ranks.push_back(group_->ranks[static_cast<size_t>(rank)]);
  }
  if (group->rank < 0) {
    return invalid("[comm] rank " + std::to_string(rank()) + " is not in the sub-group {" +
                   rank_list(ranks) + "}");
  }
  group->id = group_id(group->ranks);
  return std::unique_ptr<Communicator>(new GroupCommunicator(core_, std::move(group)));
}

void GroupCommunicator::abort(const std::string& reason) {
  core_->fail({.reason = "aborted by rank " + std::to_string(core_->rank()) + ": " + reason,
               .suspect = core_->rank()});
}

int GroupCommunicator::suspect() const {
  return core_->fault().raised() ? core_->fault().get().suspect : -1;
}

CollectiveCounts GroupCommunicator::counts() const {
  return {.entered = group_->entered.load(), .completed = group_->completed.load()};
}

std::string GroupCommunicator::describe() const {
  std::vector<int> memory;
  std::vector<int> tcp;
  for (const int rank : group_->ranks) {
    if (rank == core_->rank()) continue;
    (core_->link(rank).fd() < 0 ? memory : tcp).push_back(rank);
  }
  std::sort(memory.begin(), memory.end());
  std::sort(tcp.begin(), tcp.end());
  std::string text =
      "rank " + std::to_string(core_->rank()) + " of " + std::to_string(core_->world_size()) + ":";
  if (!memory.empty()) text += " shared memory " + rank_list(memory);
  if (!tcp.empty()) text += std::string(memory.empty() ? "" : ";") + " tcp " + rank_list(tcp);
  if (memory.empty() && tcp.empty()) text += " alone";
  return text;
}

}  // namespace lockstep
