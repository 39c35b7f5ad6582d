#include "agent/comm/group_communicator.h"

#include <algorithm>
#include <numeric>

#include "agent/comm/call_check.h"
#include "agent/comm/message_text.h"

namespace lockstep::comm {

namespace {

class GroupReport final : public ActivityReport {
 public:
  GroupReport(std::shared_ptr<Core> core, std::shared_ptr<Group> group)
      : core_(std::move(core)), group_(std::move(group)) {}
  ~GroupReport() override { core_->close_group(*group_); }

  void enter(Collective kind, uint64_t number) override {
    core_->enter_external(*group_, kind, number);
  }
  void complete(uint64_t number) override { core_->complete_external(*group_, number); }
  void add(const Traffic& moved) override { core_->add_traffic(moved); }

 private:
  std::shared_ptr<Core> core_;
  std::shared_ptr<Group> group_;
};

}  // namespace

Status Communicator::all_gather(std::span<const std::byte> mine, std::span<std::byte> all) {
  const size_t expected = mine.size() * static_cast<size_t>(size());
  if (all.size() != expected) {
    return invalid("[comm] all_gather of " + std::to_string(mine.size()) +
                   " bytes per rank: expected an output of " + std::to_string(expected) +
                   " bytes, got " + std::to_string(all.size()));
  }
  return all_gather({.data = all.data(),
                     .count = static_cast<int64_t>(mine.size()),
                     .type = DataType::kU8,
                     .input = mine.data()});
}

Result<std::unique_ptr<Communicator>> Communicator::split(int colour, int key) {
  struct Choice {
    int colour;
    int key;
  };
  TRY_ASSIGN(const std::vector<Choice> choices, all_gather_value(Choice{colour, key}));
  if (colour < 0) return std::unique_ptr<Communicator>();
  std::vector<int> ranks;
  for (int rank = 0; rank < size(); ++rank) {
    if (choices[static_cast<size_t>(rank)].colour == colour) ranks.push_back(rank);
  }
  std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) {
    return choices[static_cast<size_t>(a)].key < choices[static_cast<size_t>(b)].key;
  });
  return sub_group(ranks);
}

Result<std::unique_ptr<Communicator>> Communicator::twin() {
  std::vector<int> ranks(static_cast<size_t>(size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return sub_group(ranks);
}

Result<Operation::Start> GroupCommunicator::prepare(const Call& call) const {
  if (call.buffer.device.type != kernels::DeviceType::kCpu) {
    return invalid(std::string("[comm] ") + name_of(call.kind) +
                   ": buffer is on a GPU, but shared memory and TCP support only CPU memory");
  }
  TRY_ASSIGN(const CallMemory memory, check_call(call, rank(), size()));
  const CollectiveTraits& what = traits(call.kind);
  Operation::Start start{
      .group = group_,
      .task = {.kind = call.kind,
               .algorithm = call.algorithm,
               .rank = rank(),
               .size = size(),
               .root = what.has_root || what.is_message ? call.rank : 0,
               .count = call.buffer.count,
               .type = call.buffer.type,
               .op = what.reduces ? call.op : ReduceOp::kSum,
               .in_place = memory.in_place,
               .send_counts = call.send_counts,
               .receive_counts = call.receive_counts,
               .hosts = &group_->hosts},
      .input = memory.input,
      .output = memory.output,
      .limit = call.limit > Duration::zero() ? call.limit : core_->operation_limit(),
      .part = call.part};
  TRY_ASSIGN(start.task.algorithm, choose_algorithm(start.task));
  return start;
}

Result<std::vector<Operation::Start>> GroupCommunicator::prepare_all(
    std::span<const Call> calls) const {
  std::vector<Operation::Start> starts;
  starts.reserve(calls.size());
  for (const Call& call : calls) {
    TRY_ASSIGN(Operation::Start start, prepare(call));
    starts.push_back(std::move(start));
  }
  return starts;
}

Work GroupCommunicator::start(std::span<const Call> calls) {
  const auto starts = prepare_all(calls);
  if (starts.ok()) return core_->start(*starts);
  auto refused = std::make_unique<Operation>();
  refused->finish(starts.error());
  return Work(std::move(refused));
}

Status GroupCommunicator::run(std::span<const Call> calls) {
  if (calls.size() != 1) return start(calls).wait();
  TRY_ASSIGN(const Operation::Start start, prepare(calls.front()));
  return core_->run(start);
}

Status GroupCommunicator::form(Duration limit) {
  return run({.kind = Collective::kForm, .buffer = {}, .limit = limit});
}

Result<std::unique_ptr<Communicator>> GroupCommunicator::sub_group(const std::vector<int>& ranks) {
  std::vector<int> of_world;
  int place = -1;
  for (const int rank : ranks) {
    if (rank < 0 || rank >= size()) {
      return invalid("[comm] rank " + std::to_string(rank) +
                     " is out of range: the parent group has " + std::to_string(size()) + " ranks");
    }
    if (std::count(ranks.begin(), ranks.end(), rank) > 1) {
      return invalid("[comm] rank " + std::to_string(rank) + " appears twice in a sub-group");
    }
    if (rank == this->rank()) place = static_cast<int>(of_world.size());
    of_world.push_back(group_->ranks[static_cast<size_t>(rank)]);
  }
  if (place < 0) {
    return invalid("[comm] rank " + std::to_string(rank()) + " is not in the sub-group {" +
                   rank_list(ranks) + "}");
  }
  return std::unique_ptr<Communicator>(
      new GroupCommunicator(core_, core_->make_group(std::move(of_world), place)));
}

std::unique_ptr<ActivityReport> GroupCommunicator::make_report() {
  return std::make_unique<GroupReport>(core_, core_->make_group(group_->ranks, group_->rank));
}

void GroupCommunicator::abort(const std::string& reason) {
  core_->fail({.reason = "aborted by rank " + std::to_string(core_->rank()) + ": " + reason,
               .suspect = core_->rank()});
}

Status GroupCommunicator::health() const {
  if (!core_->fault().raised()) return {};
  return error_from(core_->fault().get());
}

int GroupCommunicator::suspect() const {
  return core_->fault().raised() ? core_->fault().get().suspect : -1;
}

CollectiveCounts GroupCommunicator::counts() const {
  return {.entered = group_->entered.load(), .completed = group_->completed.load()};
}

std::string GroupCommunicator::path_to(int rank) const {
  const int world_rank = group_->ranks[static_cast<size_t>(rank)];
  return world_rank == core_->rank() ? "itself" : core_->link(world_rank).describe();
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

}  // namespace lockstep::comm
