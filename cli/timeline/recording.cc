#include "cli/timeline/recording.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <utility>

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

struct NamedFile {
  std::string path;
  int64_t rank = 0;
};
using FilesByStep = std::map<int64_t, std::vector<NamedFile>>;

Result<FilesByStep> list_files(const std::string& folder) {
  std::error_code error;
  const fs::path inner = fs::path(folder) / "timeline";
  const fs::path place = fs::is_directory(inner, error) ? inner : fs::path(folder);
  fs::directory_iterator entries(place, error);
  FilesByStep files;
  for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
    const auto name = parse_timeline_file_name(entries->path().filename().string());
    if (name) files[name->step].push_back({entries->path().string(), name->rank});
  }
  if (error) return errno_error(place.string(), error.value());
  if (!files.empty()) return files;
  return not_found(folder + ": expected files such as " + timeline_file_name(1000, 0) +
                   ", found none (spec.train.timeline.everySteps says which steps are recorded)");
}

Result<std::string> read_text(const std::string& path) {
  std::error_code error;
  const uint64_t bytes = fs::is_regular_file(path, error) ? fs::file_size(path, error) : 0;
  if (error) return errno_error("open", error.value());
  if (bytes > kTimelineBytesMax) {
    return invalid("expected at most " + std::to_string(kTimelineBytesMax) + " bytes, found " +
                   std::to_string(bytes));
  }
  std::ifstream file(path, std::ios::binary);
  std::string text(bytes, '\0');
  if (file.read(text.data(), std::ssize(text))) return text;
  return unavailable("cannot be read");
}

Result<RankTimeline> read_file(const NamedFile& file) {
  TRY_ASSIGN(const std::string text, read_text(file.path));
  TRY_ASSIGN(RankTimeline timeline, parse_timeline(text));
  if (timeline.rank == file.rank) return timeline;
  return invalid("expected rank " + std::to_string(file.rank) + " as in its name, found " +
                 std::to_string(timeline.rank));
}

Status check_size(const std::vector<NamedFile>& files) {
  if (files.size() > kRecordedRanksMax) {
    return invalid("expected files of at most " + std::to_string(kRecordedRanksMax) +
                   " ranks, found " + std::to_string(files.size()));
  }
  uint64_t bytes = 0;
  for (const NamedFile& file : files) {
    std::error_code error;
    const uint64_t size = fs::file_size(file.path, error);
    bytes += error ? 0 : std::min<uint64_t>(size, kRecordingBytesMax + 1);
  }
  if (bytes <= kRecordingBytesMax) return {};
  return invalid("expected a recording of at most " + std::to_string(kRecordingBytesMax) +
                 " bytes, found " + std::to_string(bytes));
}

bool are_of_one_world(const RankTimeline& a, const RankTimeline& b) {
  return a.round == b.round && a.ranks == b.ranks && a.stages == b.stages;
}

// Leaves the ranks of the newest round, and notes what is missing.
void keep_newest_round(Recording& recording) {
  const RankTimeline newest = *std::ranges::max_element(recording.ranks, {}, &RankTimeline::round);
  const size_t others = std::erase_if(
      recording.ranks, [&](const RankTimeline& rank) { return !are_of_one_world(rank, newest); });
  const auto note = [&](size_t count, const std::string& what) {
    if (count > 0) recording.notes.push_back(std::to_string(count) + what);
  };
  note(others, " files are of another round than " + std::to_string(newest.round));
  note(static_cast<size_t>(newest.ranks) - recording.ranks.size(),
       " of " + std::to_string(newest.ranks) + " ranks have no file");
  std::ranges::sort(recording.ranks, {}, &RankTimeline::rank);
}

Error no_such_step(int64_t step, const FilesByStep& files) {
  std::string newest = std::to_string(files.rbegin()->first);
  return not_found("step " + std::to_string(step) + " is not recorded, expected one such as " +
                   newest);
}

}  // namespace

std::vector<int64_t> Recording::steps() const {
  std::set<int64_t> steps;
  for (const RankTimeline& rank : ranks) {
    for (const TimelineStep& step : rank.steps) steps.insert(step.step);
  }
  return {steps.begin(), steps.end()};
}

Result<Recording> read_recording(const std::string& folder, std::optional<int64_t> step) {
  TRY_ASSIGN(const FilesByStep files, list_files(folder));
  // A recording's name has its last step.
  const auto found = step ? files.lower_bound(*step) : std::prev(files.end());
  if (found == files.end()) return no_such_step(*step, files);
  TRY(check_size(found->second));
  Recording recording;
  std::string problem;
  for (const NamedFile& file : found->second) {
    Result<RankTimeline> timeline = read_file(file);
    if (timeline.ok()) {
      recording.ranks.push_back(std::move(*timeline));
    } else {
      problem = file.path + ": " + timeline.error().message;
      recording.notes.push_back(problem);
    }
  }
  if (recording.ranks.empty()) return invalid(problem);
  keep_newest_round(recording);
  const std::vector<int64_t> steps = recording.steps();
  if (step && !std::ranges::binary_search(steps, *step)) return no_such_step(*step, files);
  return recording;
}

}  // namespace lockstep::cli
