#include "agent/train/checkpoint/exchange.h"

#include <algorithm>
#include <utility>

#include "common/api/storage_notes.h"

namespace lockstep::train {
namespace {

comm::CommBuffer bytes_of(std::string& text) {
  return {.data = text.data(), .count = std::ssize(text), .type = comm::DataType::kU8};
}

// A Status as a plain value.
struct Outcome {
  int64_t failed = 0;
  int64_t code = 0;        // Code
  int64_t blame = 0;       // Blame
  int64_t text_bytes = 0;  // of the text that follows, if there is one
  FixedText message{};
};

Outcome outcome_of(const Status& status) {
  Outcome outcome;
  if (status.ok()) return outcome;
  outcome.failed = 1;
  outcome.code = static_cast<int64_t>(status.error().code);
  outcome.blame = static_cast<int64_t>(status.error().blame);
  outcome.message.assign(status.error().message);
  return outcome;
}

Status common_of(const std::vector<Outcome>& all) {
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].failed == 0) continue;
    const std::string who = all.size() > 1 ? "rank " + std::to_string(rank) + ": " : "";
    return Error{static_cast<Code>(all[rank].code), who + std::string(all[rank].message.text()),
                 static_cast<Blame>(all[rank].blame)};
  }
  return {};
}

}  // namespace

Result<Status> common_outcome(comm::Communicator& world, const Status& mine) {
  TRY_ASSIGN(const std::vector<Outcome> all, world.all_gather_value(outcome_of(mine)));
  return common_of(all);
}

struct OutcomeExchange::State {
  comm::Communicator& group;
  std::string text;
  Outcome mine;
  std::vector<Outcome> outcomes = {};  // of all ranks
  std::vector<std::string> texts = {};
  std::vector<comm::Work> works = {};  // the gathering of outcomes, then the messages with texts
  bool has_outcomes = false;
  Status status = {};

  bool is_over() const {
    return std::ranges::all_of(works, [](const comm::Work& work) { return work.test(); });
  }
  // Waits for the works. Returns the first error.
  Status take() {
    Status first;
    for (comm::Work& work : works) {
      Status ended = work.wait();
      if (first.ok()) first = std::move(ended);
    }
    works.clear();
    return first;
  }
  // The outcomes are known: exchanges the texts if all have succeeded.
  void go_on() {
    has_outcomes = true;
    status = take();
    if (!status.ok() || !common_of(outcomes).ok()) return;
    if (group.rank() != 0) {
      works.push_back(group.start_send(bytes_of(text), 0));
      return;
    }
    texts.resize(outcomes.size());
    for (size_t rank = 1; rank < texts.size(); ++rank) {
      texts[rank].resize(static_cast<size_t>(outcomes[rank].text_bytes));
      works.push_back(group.start_receive(bytes_of(texts[rank]), static_cast<int>(rank)));
    }
    texts[0] = std::move(text);
  }
};

OutcomeExchange::OutcomeExchange(comm::Communicator& group, const Status& mine, std::string text)
    : state_(new State{.group = group, .text = std::move(text), .mine = outcome_of(mine)}) {
  State& state = *state_;
  state.mine.text_bytes = std::ssize(state.text);
  state.outcomes.resize(static_cast<size_t>(group.size()));
  state.works.push_back(group.start_all_gather({.data = state.outcomes.data(),
                                                .count = sizeof(Outcome),
                                                .type = comm::DataType::kU8,
                                                .input = &state.mine}));
}

OutcomeExchange::~OutcomeExchange() = default;

bool OutcomeExchange::advance() {
  if (!state_->is_over()) return false;
  if (!state_->has_outcomes) state_->go_on();
  return state_->is_over();
}

lockstep::Result<OutcomeExchange::Result> OutcomeExchange::finish() {
  if (!state_->has_outcomes) state_->go_on();
  TRY(state_->status);
  TRY(state_->take());
  return Result{common_of(state_->outcomes), std::move(state_->texts)};
}

Result<std::string> share_text(comm::Communicator& world, std::string_view mine) {
  TRY_ASSIGN(const std::vector<int64_t> sizes,
             world.all_gather_value(static_cast<int64_t>(mine.size())));
  std::string text(mine);
  text.resize(static_cast<size_t>(sizes[0]));
  TRY(world.broadcast(bytes_of(text), 0));
  return text;
}

}  // namespace lockstep::train
