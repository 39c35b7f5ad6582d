// Phase 1: this rank finds its device and the other ranks.
#include "agent/train/device_choice.h"
#include "agent/train/worker.h"
#include "kernels/device/parallel.h"

namespace lockstep::train {

Status Worker::choose_device() {
  TRY_ASSIGN(device_, rank_device_here(config_.gpu));
  if (device_.type == kernels::DeviceType::kCpu) return {};
  TRY_ASSIGN(device_info_, kernels::describe(device_));
  if (const auto board = progress_.gpu_board()) {
    monitor_ = std::make_unique<GpuMonitor>(GpuMonitor::Options{.gpu = device_info_}, *board);
  }
  return {};
}

Status Worker::form() {
  progress_.enter(WorkerPhase::kForming);
  TRY(check_world(config_.world));
  design_ = model_design(config_.train);
  TRY(validate(design_, config_.world.tensor, "spec.train.model"));
  TRY_ASSIGN(batch_, batch_shape(config_.train.batch, mesh_of(config_.world)));
  TRY_ASSIGN(world_, form_world(config_, progress_.board()));
  if (world_->size() > 1) {
    TRY_ASSIGN(world_, serve_device(std::move(world_), device_, config_.world));
  }
  progress_.follow(world_.get());
  const RankTraits traits = traits_of_this_machine(config_, device_info_);
  TRY_ASSIGN(agreement_, agree(*world_, traits, config_.train.precision == "bf16"));
  TRY_ASSIGN(losses_, agree_on_losses(*world_, config_.losses));
  ProgressNumbers& numbers = progress_.numbers();
  numbers.lacks_bf16 = traits.native_bf16 == 0 ? 1 : 0;
  numbers.precision = agreement_.precision == kernels::Precision::kBf16 ? PrecisionInUse::kBf16
                                                                        : PrecisionInUse::kFp32;
  kernels::set_threads(agreement_.threads);
  return {};
}

}  // namespace lockstep::train
