#include "agent/train/checkpoint/exchange.h"

#include "common/api/storage_notes.h"

namespace lockstep::train {
namespace {

comm::CommBuffer bytes_of(std::string& text) {
  return {.data = text.data(), .count = std::ssize(text), .type = comm::DataType::kU8};
}

// A Status as a plain value.
struct Outcome {
  int64_t failed = 0;
  int64_t code = 0;   // Code
  int64_t blame = 0;  // Blame
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

}  // namespace

Result<Status> common_outcome(comm::Communicator& world, const Status& mine) {
  TRY_ASSIGN(const std::vector<Outcome> all, world.all_gather_value(outcome_of(mine)));
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].failed == 0) continue;
    const std::string who = all.size() > 1 ? "rank " + std::to_string(rank) + ": " : "";
    return Status(Error{static_cast<Code>(all[rank].code),
                        who + std::string(all[rank].message.text()),
                        static_cast<Blame>(all[rank].blame)});
  }
  return Status();
}

Result<std::string> share_text(comm::Communicator& world, std::string_view mine) {
  TRY_ASSIGN(const std::vector<int64_t> sizes,
             world.all_gather_value(static_cast<int64_t>(mine.size())));
  std::string text(mine);
  text.resize(static_cast<size_t>(sizes[0]));
  TRY(world.broadcast(bytes_of(text), 0));
  return text;
}

Result<std::vector<std::string>> gather_texts(comm::Communicator& world, std::string_view mine) {
  TRY_ASSIGN(const std::vector<int64_t> sizes,
             world.all_gather_value(static_cast<int64_t>(mine.size())));
  std::string text(mine);
  if (world.rank() != 0) {
    TRY(world.send(bytes_of(text), 0));
    return std::vector<std::string>();
  }
  std::vector<std::string> texts(sizes.size());
  std::vector<comm::Work> works;
  for (size_t rank = 1; rank < texts.size(); ++rank) {
    texts[rank].resize(static_cast<size_t>(sizes[rank]));
    works.push_back(world.start_receive(bytes_of(texts[rank]), static_cast<int>(rank)));
  }
  for (comm::Work& work : works) TRY(work.wait());
  texts[0] = std::move(text);
  return texts;
}

}  // namespace lockstep::train
