#include "agent/train/timeline_files.h"

#include <fcntl.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <set>
#include <string_view>
#include <vector>

#include "agent/train/checkpoint/file_io.h"

namespace lockstep::train {
namespace {

constexpr std::string_view kUnfinished = ".unfinished-";

Status failure(const std::string& what, int error) {
  return errno_error("[timeline] " + what, error, Blame::kStorage);
}

struct Found {
  std::string path;
  TimelineFileName name;
  bool is_whole = true;
};

Result<std::vector<Found>> timeline_files(const std::string& folder) {
  std::vector<Found> found;
  std::error_code error;
  std::filesystem::directory_iterator entries(folder, error);
  for (; !error && entries != std::filesystem::directory_iterator(); entries.increment(error)) {
    const std::string text = entries->path().filename().string();
    std::string_view name = text;
    const bool is_whole = !name.starts_with(kUnfinished);
    if (!is_whole) name.remove_prefix(kUnfinished.size());
    const std::optional<TimelineFileName> parsed = parse_timeline_file_name(name);
    if (parsed) found.push_back({entries->path().string(), *parsed, is_whole});
  }
  if (error) return failure("list of " + folder, error.value()).error();
  return found;
}

}  // namespace

Status write_timeline_file(const std::string& folder, const RankTimeline& timeline) {
  CHECK(!timeline.steps.empty());
  std::error_code error;
  std::filesystem::create_directory(folder, error);
  if (error) return failure("mkdir of " + folder, error.value());
  const std::string name = timeline_file_name(timeline.steps.back().step, timeline.rank);
  const std::string unfinished = folder + "/" + std::string(kUnfinished) + name;
  const std::string whole = folder + "/" + name;
  const std::string text = format_timeline(timeline);
  {
    TRY_ASSIGN(File file, File::open(unfinished, O_WRONLY | O_CREAT | O_TRUNC));
    TRY(file.write(text.data(), text.size()));
  }
  if (std::rename(unfinished.c_str(), whole.c_str()) == 0) return {};
  return failure("rename to " + whole, errno);
}

Status remove_old_timelines(const std::string& folder, const TimelineExtent& now) {
  TRY_ASSIGN(const std::vector<Found> files, timeline_files(folder));
  std::set<int64_t> steps;
  for (const Found& file : files) {
    if (file.is_whole && file.name.step <= now.step) steps.insert(file.name.step);
  }
  while (steps.size() > kTimelinesKept) steps.erase(steps.begin());
  Status first;
  for (const Found& file : files) {
    const bool is_wanted = steps.contains(file.name.step) && file.name.rank < now.ranks;
    const bool is_under_way = file.name.step == now.step;  // if it is not whole
    if (is_wanted && (file.is_whole || is_under_way)) continue;
    if (std::remove(file.path.c_str()) == 0 || errno == ENOENT || !first.ok()) continue;
    first = failure("unlink of " + file.path, errno);
  }
  return first;
}

}  // namespace lockstep::train
