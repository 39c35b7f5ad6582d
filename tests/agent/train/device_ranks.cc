#include "tests/agent/train/device_ranks.h"

namespace lockstep::train {

std::vector<Trained> train_ranks(const TrainingSetup& setup, GradientPath path, int64_t steps) {
  std::vector<Trained> trained(static_cast<size_t>(setup.ranks));
  on_device_ranks(setup.ranks, path, [&](comm::Communicator& world, kernels::Device device) {
    TrainingSetup own = setup;
    own.device = device;
    Training training(own, world);
    training.train(steps);
    trained[static_cast<size_t>(world.rank())] = {training.losses, training.norms,
                                                  training.state()};
  });
  return trained;
}

}  // namespace lockstep::train
