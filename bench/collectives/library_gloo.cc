// Gloo as its users call it: the functions that take options, over TCP, its only transport on one
// host. Reduce-scatter uses Gloo's older interface: a class that is constructed once per buffer.
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/broadcast.h>
#include <gloo/config.h>
#include <gloo/math.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <exception>
#include <utility>

#include "bench/collectives/library.h"

namespace lockstep::bench {
namespace {

float* floats(std::byte* bytes) {
  return reinterpret_cast<float*>(bytes);
}

class Gloo final : public Library {
 public:
  explicit Gloo(std::shared_ptr<gloo::Context> context) : context_(std::move(context)) {}

  int rank() const override { return context_->rank; }
  int size() const override { return context_->size; }
  std::string describe() const override {
    return "Gloo " + std::to_string(GLOO_VERSION_MAJOR) + "." + std::to_string(GLOO_VERSION_MINOR) +
           "." + std::to_string(GLOO_VERSION_PATCH) + ", " + context_->getDevice()->str();
  }

  std::string unsupported_reason(const Turn& turn) const override {
    return turn.op == comm::ReduceOp::kLor ? "Gloo has no logical OR reduction" : "";
  }

  Status run(const Turn& turn) override {
    try {
      call(turn);
    } catch (const std::exception& error) {
      return unavailable(std::string("[gloo] ") + error.what());
    }
    return {};
  }

  const std::byte* result(const Turn& turn) const override {
    return turn.kind == comm::Collective::kReduceScatter ? turn.input : turn.output;
  }

 private:
  void call(const Turn& turn) {
    const auto block = static_cast<size_t>(turn.count);
    const size_t all = block * static_cast<size_t>(size());
    if (turn.kind == comm::Collective::kAllReduce) {
      gloo::AllreduceOptions options(context_);
      options.setOutput(floats(turn.output), block);
      options.setReduceFunction(
          static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
      gloo::allreduce(options);
    } else if (turn.kind == comm::Collective::kBroadcast) {
      gloo::BroadcastOptions options(context_);
      options.setOutput(floats(turn.output), block);
      options.setRoot(turn.root);
      gloo::broadcast(options);
    } else if (turn.kind == comm::Collective::kAllGather) {
      gloo::AllgatherOptions options(context_);
      options.setInput(floats(turn.input), block);
      options.setOutput(floats(turn.output), all);
      gloo::allgather(options);
    } else if (turn.kind == comm::Collective::kAllToAll) {
      gloo::AlltoallOptions options(context_);
      options.setInput(floats(turn.input), all);
      options.setOutput(floats(turn.output), all);
      gloo::alltoall(options);
    } else {
      reduce_scatter(turn, all);
    }
  }

  void reduce_scatter(const Turn& turn, size_t all) {
    if (scattering_ == nullptr || scattered_ != turn.input || elements_ != all) {
      scattered_ = turn.input;
      elements_ = all;
      scattering_ = std::make_unique<gloo::ReduceScatterHalvingDoubling<float>>(
          context_, std::vector<float*>{floats(turn.input)}, static_cast<int>(all),
          std::vector<int>(static_cast<size_t>(size()), static_cast<int>(turn.count)));
    }
    scattering_->run();
  }

  std::shared_ptr<gloo::Context> context_;
  std::unique_ptr<gloo::ReduceScatterHalvingDoubling<float>> scattering_;
  const std::byte* scattered_ = nullptr;
  size_t elements_ = 0;
};

}  // namespace

bool has_gloo() {
  return true;
}

Result<std::unique_ptr<Library>> join_gloo(const Joining& joining) {
  try {
    auto device = gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr("127.0.0.1"));
    auto context = std::make_shared<gloo::rendezvous::Context>(joining.rank, joining.size);
    gloo::rendezvous::FileStore store(joining.folder);
    context->connectFullMesh(store, device);
    return std::unique_ptr<Library>(new Gloo(std::move(context)));
  } catch (const std::exception& error) {
    return unavailable(std::string("[gloo] ") + error.what());
  }
}

}  // namespace lockstep::bench
