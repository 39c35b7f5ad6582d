#include "agent/comm/core.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "agent/comm/message_text.h"
#include "common/base/sha256.h"

namespace lockstep::comm {
namespace {

// Never returns 0, which is the world's id.
uint64_t group_id(const std::vector<int>& ranks, uint64_t made_before) {
  std::string text = std::to_string(made_before);
  for (const int rank : ranks) text += "," + std::to_string(rank);
  const Digest digest = sha256(text);
  uint64_t id = 0;
  std::memcpy(&id, digest.data(), sizeof id);
  return id | 1;
}

std::shared_ptr<Group> new_group(std::vector<int> ranks, int place, const std::vector<int>& nodes) {
  auto group = std::make_shared<Group>();
  group->sends.resize(ranks.size());
  group->receives.resize(ranks.size());
  std::vector<int> nodes_of_group;
  nodes_of_group.reserve(ranks.size());
  for (const int rank : ranks) nodes_of_group.push_back(nodes[static_cast<size_t>(rank)]);
  group->hosts = make_host_map(nodes_of_group);
  group->ranks = std::move(ranks);
  group->rank = place;
  return group;
}

std::vector<int> all_ranks(size_t size) {
  std::vector<int> ranks(size);
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

CommLimits limits_on_host(CommLimits limits, bool shares_cores) {
  if (shares_cores) limits.one_way_loans = limits.one_way_loans_sharing_cores;
  return limits;
}

}  // namespace

Core::Core(Options options)
    : options_(std::move(options)),
      world_(new_group(all_ranks(options_.links.size()), options_.rank, options_.nodes)),
      operation_limit_(options_.operation_limit),
      runner_(ports_,
              limits_on_host(options_.limits, shares_cores(ranks_of_node(), options_.cores))) {
  ports_.reserve(options_.links.size());
  const int own_node = options_.nodes[static_cast<size_t>(options_.rank)];
  for (size_t rank = 0; rank < options_.links.size(); ++rank) {
    const bool leaves_host = options_.nodes[rank] != own_node;
    ports_.emplace_back(options_.links[rank].get(),
                        Port::Options{.leaves_host = leaves_host, .limits = options_.limits});
  }
}

int Core::ranks_of_node() const {
  const std::vector<int>& nodes = options_.nodes;
  const int own = nodes[static_cast<size_t>(rank())];
  return static_cast<int>(std::count(nodes.begin(), nodes.end(), own));
}

Result<std::shared_ptr<Core>> Core::create(Options options) {
  std::shared_ptr<Core> core(new Core(std::move(options)));
  TRY_ASSIGN(core->waiter_, Waiter::create({.region = core->options_.region,
                                            .local_rank = core->options_.local_rank,
                                            .local_ranks = core->ranks_of_node(),
                                            .cores = core->options_.cores}));
  if (core->world_size() == 1) return core;
  // Often enough to find out within the limit who is stuck, rarely enough to cost nothing.
  const Duration heartbeat = std::clamp<Duration>(
      core->options_.operation_limit / 8, std::chrono::milliseconds(20), std::chrono::seconds(1));
  Core* raw = core.get();
  TRY_ASSIGN(core->control_,
             Control::create({.peers = std::move(core->options_.controls),
                              .wires = std::move(core->options_.control_wires),
                              .heartbeat = heartbeat,
                              .clock = core->options_.clock,
                              .on_fault = [raw](const Fault& fault) { raw->fail(fault); },
                              .on_wake = [raw] { raw->waiter_->wake(); },
                              .before_beat = [raw] { return raw->pulse(); }}));
  core->control_->start();
  return core;
}

Core::~Core() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  if (unfinished_ > 0)
    fail({.reason = "rank " + std::to_string(rank()) + " left", .suspect = rank()});
  changed_.notify_all();
  if (worker_.joinable()) worker_.join();
  // After a fault, its announcement may still be on its way on the control thread. The others must
  // receive it first, because it names the culprit; so the data connections are closed after it.
  if (control_ == nullptr || fault_.raised()) return;
  control_->say_bye();
  std::vector<int> fds;
  for (const auto& link : options_.links) {
    if (link != nullptr && link->fd() >= 0) fds.push_back(link->fd());
  }
  finish_sending(std::move(fds), Control::kLeavingLimit);
}

std::shared_ptr<Group> Core::make_group(std::vector<int> ranks, int place) {
  auto group = new_group(std::move(ranks), place, options_.nodes);
  const std::lock_guard lock(mutex_);
  group->id = group_id(group->ranks, groups_made_[group->ranks]++);
  return group;
}

void Core::close_group(Group& group) {
  const std::lock_guard lock(mutex_);
  if (std::erase(groups_on_board_, &group) == 0) return;
  options_.board->remove(group.board_place.exchange(CollectiveBoard::kNowhere));
}

// If the board is full, a group with nothing under way gives up its place.
void Core::assign_board_slot(Group& group) {
  CollectiveBoard* board = options_.board;
  if (board == nullptr || group.board_place.load() != CollectiveBoard::kNowhere) return;
  const GroupActivity shown{.group = group.id,
                            .size = static_cast<int64_t>(group.ranks.size()),
                            .ranks = rank_list(group.ranks),
                            .operation = "",
                            .entered = group.entered.load(),
                            .completed = group.completed.load()};
  int place = board->add(shown);
  for (size_t i = 0; place == CollectiveBoard::kNowhere && i < groups_on_board_.size(); ++i) {
    Group& other = *groups_on_board_[i];
    if (other.issued != other.completed.load()) continue;
    board->remove(other.board_place.exchange(CollectiveBoard::kNowhere));
    groups_on_board_.erase(groups_on_board_.begin() + static_cast<std::ptrdiff_t>(i));
    place = board->add(shown);
  }
  if (place == CollectiveBoard::kNowhere) return;
  group.board_place.store(place);
  groups_on_board_.push_back(&group);
}

void Core::enter_external(Group& group, Collective kind, uint64_t number) {
  {
    const std::lock_guard lock(mutex_);
    group.issued = number;  // no longer idle: it keeps its place
    assign_board_slot(group);
  }
  group.entered.store(number);
  if (options_.board == nullptr) return;
  options_.board->enter(group.board_place.load(), name_of(kind), number);
}

void Core::complete_external(Group& group, uint64_t number) {
  if (options_.board != nullptr) options_.board->complete(group.board_place.load(), number);
  group.completed.store(number);
}

void Core::add_traffic(const Traffic& moved) {
  external_bytes_sent_ += moved.bytes_sent;
  external_bytes_received_ += moved.bytes_received;
  external_bytes_sent_off_host_ += moved.bytes_sent_to_other_hosts;
}

Traffic Core::traffic() const {
  Traffic traffic = runner_.traffic();
  traffic.bytes_sent += external_bytes_sent_.load();
  traffic.bytes_received += external_bytes_received_.load();
  traffic.bytes_sent_to_other_hosts += external_bytes_sent_off_host_.load();
  return traffic;
}

Control::Pulse Core::pulse() const {
  if (options_.board != nullptr) options_.board->beat();
  const std::lock_guard lock(pulse_mutex_);
  return {.entered = world_->entered.load(), .waits_for = pulse_ranks_};
}

void Core::fail(const Fault& fault) {
  if (!fault_.raise(fault)) return;
  if (control_ != nullptr) control_->announce(fault_.get());
  waiter_->wake();
}

// A rank that has not come yet does not hang.
Error Core::error_of(const Operation& operation) const {
  const Error error = error_from(fault_.get(), operation_name(operation.header) + ": ");
  return operation.header.kind == Collective::kForm ? error.blaming(Blame::kPeer) : error;
}

void Core::admit(Operation& operation) {
  FrameHeader& header = operation.header;
  Group& group = *operation.group();
  header.round = options_.round;
  if (!operation.is_collective()) {
    auto& numbers = operation.receives ? group.receives : group.sends;
    header.sequence = ++numbers[static_cast<size_t>(operation.other_side)];
  } else if (header.kind != Collective::kForm) {
    assign_board_slot(group);
    header.sequence = ++group.issued;
  }
  submitted_.push_back(&operation);
  ++unfinished_;
}

Status Core::run(const Operation::Start& start) {
  std::unique_ptr<Operation> operation = pool_->take();
  operation->begin(start);
  operation->block();
  bool drives = false;
  {
    const std::lock_guard lock(mutex_);
    admit(*operation);
    has_submitted_.store(true);
    drives = !driving_;
    driving_ = true;
  }
  if (drives) {
    drive(operation.get());
    const std::lock_guard lock(mutex_);
    driving_ = false;
    left_over_ = !active_.empty();
    if (left_over_ || has_submitted_) need_driver();
  } else if (asleep_.load()) {
    waiter_->wake();
  }
  Status status = operation->wait(Duration::max());
  OperationPool::give_back(std::move(operation));
  return status;
}

Work Core::start(const std::vector<Operation::Start>& starts) {
  std::unique_ptr<Operation> first;
  for (auto start = starts.rbegin(); start != starts.rend(); ++start) {
    std::unique_ptr<Operation> operation = pool_->take();
    operation->begin(*start);
    operation->next = std::move(first);
    first = std::move(operation);
  }
  {
    const std::lock_guard lock(mutex_);
    for (Operation* at = first.get(); at != nullptr; at = at->next.get()) admit(*at);
    has_submitted_.store(true);
    need_driver();
  }
  if (asleep_.load()) waiter_->wake();
  return Work(std::move(first));
}

void Core::need_driver() {
  if (driving_) return;
  if (!worker_.joinable()) worker_ = std::thread([this] { work(); });
  changed_.notify_all();
}

void Core::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto pending = [this] { return left_over_ || has_submitted_; };
    changed_.wait(lock, [&] { return (stopping_ && !pending()) || (!driving_ && pending()); });
    if (!pending()) return;
    driving_ = true;
    lock.unlock();
    drive(nullptr);
    lock.lock();
    driving_ = false;
    left_over_ = false;
  }
}

void Core::adopt() {
  const std::lock_guard lock(mutex_);
  has_submitted_.store(false);
  active_.insert(active_.end(), submitted_.begin(), submitted_.end());
  submitted_.clear();
}

void Core::drive(const Operation* until) {
  for (;;) {
    if (has_submitted_.load(std::memory_order_relaxed)) adopt();
    if (until != nullptr ? until->done() : active_.empty()) break;
    if (fault_.raised()) {
      fail_all();
    } else if (step_all()) {
      if (paused_) waiter_->moved();
      paused_ = false;
      rechecked_after_goodbye_ = false;
    } else if (!fault_.raised() && !buffer_blocking_frames()) {
      wait();
    }
  }
  if (paused_) waiter_->moved();
  paused_ = false;
}

// Returns whether its turn has come: no earlier operation of its group is still under way.
bool Core::may_run(Operation& operation) {
  if (!operation.is_collective()) return true;
  Group& group = *operation.group();
  if (group.running == &operation) return true;
  if (group.running != nullptr) return false;
  group.running = &operation;
  group.entered.store(operation.header.sequence);
  if (options_.board != nullptr) {
    options_.board->enter(group.board_place.load(std::memory_order_relaxed),
                          name_of(operation.header.kind), operation.header.sequence);
  }
  return true;
}

void Core::complete(Operation& operation) {
  if (operation.is_collective()) {
    Group& group = *operation.group();
    group.running = nullptr;
    // The board comes first: once its counter makes it idle, the group may lose its place there.
    if (options_.board != nullptr) {
      options_.board->complete(group.board_place.load(std::memory_order_relaxed),
                               operation.header.sequence);
    }
    group.completed.store(operation.header.sequence);
  }
  if (reported_ == &operation) report_wait(nullptr);
  --unfinished_;
  operation.finish({});
}

// Returns whether anything moved. An error breaks the communicator.
bool Core::step_all() {
  wait_reasons_.clear();
  bool any = false;
  size_t kept = 0;
  for (size_t i = 0; i < active_.size(); ++i) {
    Operation& operation = *active_[i];
    active_[kept++] = &operation;
    if (fault_.raised() || !may_run(operation)) continue;
    const Result<bool> moved = runner_.step(operation, wait_reasons_);
    if (!moved.ok()) {
      blame(operation, moved.error());
      continue;
    }
    any = any || *moved;
    if (*moved) {
      operation.waiting = false;
      if (reported_ == &operation) report_wait(nullptr);
    }
    if (!operation.plan().finished()) continue;
    --kept;
    any = true;
    complete(operation);
  }
  active_.resize(kept);
  return any;
}

void Core::fail_all() {
  report_wait(nullptr);
  // Take loans back before their owners may touch the memory again.
  for (const auto& link : options_.links) {
    if (link != nullptr && link->loans() != nullptr) link->loans()->revoke_all();
  }
  for (Operation* operation : active_) {
    if (operation->is_collective()) operation->group()->running = nullptr;
    --unfinished_;
    operation->finish(error_of(*operation));
  }
  active_.clear();
}

// Buffers frames that are in front of what operations wait for, on links where nothing else
// moves.
bool Core::buffer_blocking_frames() {
  bool any = false;
  for (const WaitReason& reason : wait_reasons_) {
    if (!reason.input) continue;
    Port& port = ports_[static_cast<size_t>(reason.link->peer())];
    if (!port.in_the_way()) continue;
    const Result<bool> moved = port.buffer_frame();
    if (!moved.ok()) {
      Operation* waiting = active_.front();
      waiting->current_peer = reason.link->peer();
      blame(*waiting, moved.error());
      return true;
    }
    any = any || *moved;
  }
  return any;
}

}  // namespace lockstep::comm
