#include <utility>

#include "bench/collectives/library.h"

namespace lockstep::bench {
namespace {

class Lockstep final : public Library {
 public:
  explicit Lockstep(std::unique_ptr<comm::Communicator> comm) : comm_(std::move(comm)) {}

  int rank() const override { return comm_->rank(); }
  int size() const override { return comm_->size(); }
  std::string describe() const override { return "Lockstep, " + comm_->describe(); }
  std::string unsupported_reason(const Turn&) const override { return ""; }

  Status run(const Turn& turn) override {
    const bool in_place =
        turn.kind == comm::Collective::kAllReduce || turn.kind == comm::Collective::kBroadcast;
    return comm_->run({.kind = turn.kind,
                       .buffer = {.data = turn.output,
                                  .count = turn.count,
                                  .type = turn.op == comm::ReduceOp::kLor ? comm::DataType::kI32
                                                                          : comm::DataType::kF32,
                                  .input = in_place ? nullptr : turn.input},
                       .op = turn.op,
                       .rank = turn.root});
  }

 private:
  std::unique_ptr<comm::Communicator> comm_;
};

}  // namespace

std::unique_ptr<Library> use_lockstep(std::unique_ptr<comm::Communicator> comm) {
  return std::make_unique<Lockstep>(std::move(comm));
}

}  // namespace lockstep::bench
