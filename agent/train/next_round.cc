#include "agent/train/next_round.h"

#include <unistd.h>

#include <utility>

#include "agent/train/checkpoint/file_io.h"
#include "agent/train/stop_signal.h"
#include "common/api/round_channel.h"
#include "common/base/json.h"
#include "common/base/log.h"

namespace lockstep::train {
namespace {

constexpr size_t kConfigBytesMax = 16u << 20;
constexpr int kLookForSignalMs = 100;

// Returns nothing once the process is told to stop.
Result<std::optional<NextRound>> wait_for_next(int fd) {
  std::optional<NextRound> next;
  while (!next && !StopSignal::requested()) {
    TRY_ASSIGN(next, receive_next(fd, kLookForSignalMs));
  }
  return next;
}

Result<std::optional<NextRound>> leave(const WorkerConfig& config, int exit_code) {
  const auto fd = static_cast<int>(config.rounds_fd);
  TRY(send_left(fd, {.round = config.world.round, .exit_code = exit_code}));
  return wait_for_next(fd);
}

}  // namespace

Result<WorkerConfig> read_worker_config(const std::string& path) {
  TRY_ASSIGN(const std::string text, read_small_file(path, kConfigBytesMax));
  TRY_ASSIGN(const Json document, parse_json(text, {.bytes_max = kConfigBytesMax}));
  return worker_config_from_json(document);
}

bool may_stay(const WorkerConfig& config, int exit_code, const ProgressReporter& progress) {
  const bool is_of_peer = exit_code == kExitPeerLost || exit_code == kExitPeerHung;
  const bool has_trained = progress.numbers().first_step_unix_seconds > 0;
  return is_of_peer && has_trained && !has_servers(config.world) && config.rounds_fd >= 0 &&
         config.gpu < 0 && !StopSignal::requested();
}

Result<std::optional<WorkerConfig>> await_next_round(const WorkerConfig& config, int exit_code) {
  log_info("staying for the next round", {{"rank", config.rank}, {"round", config.world.round}});
  if (config.shm_fd >= 0) close(static_cast<int>(config.shm_fd));
  const Result<std::optional<NextRound>> next = leave(config, exit_code);
  if (!next.ok()) log_warning("cannot stay", {{"error", next.error().message}});
  StopSignal::disarm();
  if (!next.ok() || !*next || StopSignal::requested()) return std::optional<WorkerConfig>();
  TRY_ASSIGN(WorkerConfig config_of_next, read_worker_config((*next)->config_path));
  config_of_next.shm_fd = (*next)->shm_fd;
  return std::optional<WorkerConfig>(std::move(config_of_next));
}

}  // namespace lockstep::train
