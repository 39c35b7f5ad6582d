#include "agent/train/servers/view_feed.h"

#include <optional>
#include <string>
#include <utility>

#include "common/api/round_channel.h"
#include "common/base/log.h"

namespace lockstep::train {
namespace {

constexpr int kLookForStopMs = 50;

}  // namespace

ViewFeed::ViewFeed(Options options) : options_(std::move(options)) {
  if (options_.fd < 0) return;
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

void ViewFeed::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    const Result<std::optional<std::string>> text = receive_view(options_.fd, kLookForStopMs);
    if (text.ok()) {
      if (*text) take(**text);
      continue;
    }
    log_warning("no view from the agent", {{"reason", text.error().message}});
    if (text.error().code == Code::kUnavailable) return;
  }
}

void ViewFeed::take(const std::string& text) {
  Result<ServersView> view = servers_view_from_text(text, first_servers(options_.now));
  if (!view.ok()) {
    log_warning("no view from the agent", {{"reason", view.error().message}});
    return;
  }
  if (view->number <= options_.now.number) return;
  options_.now = *std::move(view);
  options_.handler(options_.now);
}

}  // namespace lockstep::train
