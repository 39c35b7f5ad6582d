#include "agent/train/convolution_choice.h"

#include <algorithm>
#include <string>
#include <vector>

#include "common/base/log.h"

namespace lockstep::train {

namespace {

using kernels::Conv2dBy;

void tell_choice(Conv2dBy by, const std::string& reason) {
  log_info("convolutions", {{"by", name_of(by)}, {"reason", reason}});
}

void warn_of_lost_choice() {
  log_warning(
      "this run began with cuDNN's convolutions and goes on with own ones, which round "
      "differently");
}

// Tells which passes of this rank cuDNN leaves to own kernels.
void tell_own_passes(const model::ConvolutionChoice& prepared) {
  if (prepared.own_passes == 0 && prepared.dropped_passes == 0) return;
  log_info("own kernels compute passes of convolutions",
           {{"passes", prepared.own_passes},
            {"reason", prepared.reason},
            {"passesWithoutWorkspace", prepared.dropped_passes}});
}

// Returns rank 0's choice where every rank can use cuDNN's, and logs it.
Conv2dBy chosen(const model::ConvolutionChoice& prepared, std::optional<Conv2dBy> kept) {
  const Conv2dBy by = kept.value_or(Conv2dBy::kCudnn);
  if (by == Conv2dBy::kOwn) {
    tell_choice(by, "chosen when this run began");
    return by;
  }
  const std::string why = kept ? "chosen when this run began" : "every rank has cuDNN";
  log_info("convolutions",
           {{"by", name_of(by)}, {"reason", why}, {"workspaceBytes", prepared.workspace_bytes}});
  return by;
}

}  // namespace

const char* name_of(Conv2dBy by) {
  return by == Conv2dBy::kCudnn ? "cudnn" : "own";
}

std::optional<Conv2dBy> convolutions_named(std::string_view name) {
  for (const Conv2dBy by : {Conv2dBy::kOwn, Conv2dBy::kCudnn}) {
    if (name == name_of(by)) return by;
  }
  return {};
}

Result<Conv2dBy> choose_convolutions(comm::Communicator& world,
                                     const Result<model::ConvolutionChoice>& mine,
                                     std::optional<Conv2dBy> kept) {
  if (!mine.ok()) {
    log_info("cuDNN convolutions are not available", {{"reason", mine.error().message}});
  }
  const int64_t can = mine.ok() ? 1 : 0;
  TRY_ASSIGN(const std::vector<int64_t> able, world.all_gather_value(can));
  const auto lacks = std::ranges::find(able, 0);
  if (lacks != able.end()) {
    if (world.rank() == 0) {
      tell_choice(Conv2dBy::kOwn, "rank " + std::to_string(lacks - able.begin()) +
                                      " cannot use cuDNN's (its log has the reason)");
      if (kept == Conv2dBy::kCudnn) warn_of_lost_choice();
    }
    return Conv2dBy::kOwn;
  }
  const Conv2dBy first = world.rank() == 0 ? chosen(*mine, kept) : Conv2dBy::kOwn;
  TRY_ASSIGN(const std::vector<Conv2dBy> all, world.all_gather_value(first));
  if (all.front() == Conv2dBy::kCudnn) tell_own_passes(*mine);
  return all.front();
}

}  // namespace lockstep::train
