#include "cli/timeline/show_timeline.h"

#include <cerrno>
#include <fstream>
#include <iostream>

#include "cli/run/run_job.h"
#include "cli/timeline/chrome_trace.h"
#include "cli/timeline/recording.h"
#include "cli/timeline/timeline_svg.h"
#include "cli/timeline/timeline_table.h"

namespace lockstep::cli {
namespace {

Status write_text(const std::string& path, const std::string& text) {
  errno = 0;
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  if (file << text << std::flush) return {};
  return errno_error(path, errno);
}

}  // namespace

int show_timeline(const TimelineOptions& options) {
  const Result<Recording> recording = read_recording(options.folder, options.step);
  if (!recording.ok()) {
    std::cerr << recording.error().message << "\n";
    return kExitBadInput;
  }
  for (const std::string& note : recording->notes) std::cerr << "warning: " << note << "\n";
  const int64_t step = options.step ? *options.step : recording->steps().back();
  std::cout << timeline_table(*recording, step);
  Status written;
  if (!options.trace.empty()) written = write_text(options.trace, chrome_trace(*recording));
  if (written.ok() && !options.svg.empty()) {
    written = write_text(options.svg, timeline_svg(*recording, step));
  }
  if (written.ok()) return 0;
  std::cerr << written.error().message << "\n";
  return kExitFailed;
}

}  // namespace lockstep::cli
