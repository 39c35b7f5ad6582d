#include "agent/parallel/stage_links.h"

#include <utility>

#include "common/layout/pipeline_schedule.h"

namespace lockstep::parallel {
namespace {

// Makes the channels of one stage.
class Maker {
 public:
  Maker(comm::Communicator& stages, const StageLinkOptions& options, const kernels::OpTable& ops,
        kernels::Stream& compute, StageLinks& links)
      : stages_(stages), options_(options), ops_(ops), compute_(compute), links_(links) {}

  // The two stages of a link make it at the same time. Each stage makes its links in the order of
  // their first stages, so that none waits for another one in a ring, whose last link is that of
  // the last stage with the first one.
  Status make() {
    const int own = stages_.rank();
    const int before = (own + stages_.size() - 1) % stages_.size();
    for (int link = 0; link < stages_.size(); ++link) {
      if (link == before && (options_.is_ring || own > 0)) {
        TRY_ASSIGN(links_.activations_in, add(link, false));
        TRY_ASSIGN(links_.gradients_out, add(link, true));
      }
      if (link == own && (options_.is_ring || own + 1 < stages_.size())) {
        TRY_ASSIGN(links_.activations_out, add(link, true));
        TRY_ASSIGN(links_.gradients_in, add(link, false));
      }
    }
    return {};
  }

 private:
  // Makes a channel between a stage and the next one.
  Result<StageChannel*> add(int stage, bool sends) {
    TRY_ASSIGN(std::unique_ptr<comm::Communicator> pair,
               stages_.sub_group({stage, (stage + 1) % stages_.size()}));
    std::vector<kernels::Workspace> buffers;
    for (int64_t i = 0; i < kChannelSlots; ++i) {
      CHECK(used_ + options_.message_bytes <= options_.memory.bytes);
      buffers.push_back(
          {static_cast<std::byte*>(options_.memory.data) + used_, options_.message_bytes});
      used_ += options_.message_bytes;
    }
    TRY_ASSIGN(std::unique_ptr<StageChannel> channel,
               StageChannel::create({.pair = std::move(pair),
                                     .sends = sends,
                                     .travelling = options_.travelling,
                                     .buffers = std::move(buffers)},
                                    ops_, compute_));
    links_.channels.push_back(std::move(channel));
    return links_.channels.back().get();
  }

  comm::Communicator& stages_;
  const StageLinkOptions& options_;
  const kernels::OpTable& ops_;
  kernels::Stream& compute_;
  StageLinks& links_;
  size_t used_ = 0;  // bytes of the memory
};

}  // namespace

StageLinks::~StageLinks() {
  for (std::unique_ptr<StageChannel>& channel : channels) channel.reset();
}

Status StageLinks::wait() const {
  Status first;
  for (const std::unique_ptr<StageChannel>& channel : channels) {
    Status status = channel->wait();
    if (first.ok()) first = std::move(status);
  }
  return first;
}

Status make_stage_links(comm::Communicator& stages, const StageLinkOptions& options,
                        const kernels::OpTable& ops, kernels::Stream& compute, StageLinks& links) {
  return Maker(stages, options, ops, compute, links).make();
}

}  // namespace lockstep::parallel
