#include "agent/node/program_progress.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>

#include "agent/node/files.h"
#include "common/api/step_number_table.h"
#include "common/base/json.h"

namespace lockstep::node {
namespace {

constexpr size_t kReadBytes = 64 * 1024;
constexpr int64_t kPollBytesMax = 1 << 20;
constexpr int64_t kBacklogBytesMax = 8 << 20;
constexpr double kCountMax = 9007199254740992.0;  // 2^53, like every integer of the API
constexpr Duration kRateWindow = std::chrono::seconds(10);
constexpr size_t kRatePointsMax = 64;

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

// Replaces NaN, Infinity and -Infinity outside of strings by null, which is valid JSON.
std::string with_null_for_not_finite(std::string_view line) {
  constexpr std::string_view kWords[] = {"NaN", "-Infinity", "Infinity", "-NaN"};
  std::string text;
  bool in_string = false;
  for (size_t i = 0; i < line.size(); ++i) {
    const bool is_escaped = in_string && line[i] == '\\' && i + 1 < line.size();
    if (is_escaped) text += line[i++];
    if (line[i] == '"' && !is_escaped) in_string = !in_string;
    const std::string_view rest = line.substr(i);
    const auto* word = std::find_if(std::begin(kWords), std::end(kWords), [&](auto candidate) {
      return !in_string && rest.starts_with(candidate) &&
             (rest.size() == candidate.size() || !is_word(rest[candidate.size()]));
    });
    if (word == std::end(kWords)) {
      text += line[i];
    } else {
      text += "null";
      i += word->size() - 1;
    }
  }
  return text;
}

// Returns false if the member exists and is not a count. 12.0 is a count, since numpy and
// JavaScript write integers this way.
bool read_number(const Json& object, std::string_view name, std::optional<int64_t>& count) {
  const Json* member = find_member(object, name);
  if (member == nullptr || member->is_null()) return true;
  if (!member->is_number()) return false;
  const auto value = member->get<double>();
  if (!(value >= 0 && value <= kCountMax) || value != std::floor(value)) return false;
  count = static_cast<int64_t>(value);
  return true;
}

// Returns false if the member exists and is neither a number nor null.
bool read_number(const Json& object, std::string_view name, std::optional<double>& value) {
  const Json* member = find_member(object, name);
  if (member == nullptr) return true;
  if (!member->is_number() && !member->is_null()) return false;
  value.reset();
  if (member->is_number() && std::isfinite(member->get<double>())) value = member->get<double>();
  return true;
}

}  // namespace

void ProgressLines::append(std::string_view chunk) {
  while (!chunk.empty()) {
    const size_t end = std::min(chunk.find('\n'), chunk.size());
    if (!skipping_line_) partial_ += chunk.substr(0, std::min(end, kLineBytesMax + 1));
    if (partial_.size() > kLineBytesMax) {
      ++rejected_;
      restart(true);
    }
    if (end == chunk.size()) return;
    end_line();
    chunk.remove_prefix(end + 1);
  }
}

void ProgressLines::restart(bool is_inside_line) {
  partial_.clear();
  skipping_line_ = is_inside_line;
}

void ProgressLines::end_line() {
  if (!skipping_line_ && partial_.find_first_not_of(" \t\r") != std::string::npos) {
    if (parse_line(partial_)) {
      ++accepted_;
    } else {
      ++rejected_;
    }
  }
  restart(false);
}

bool ProgressLines::parse_line(std::string_view line) {
  const Result<Json> object =
      parse_json(with_null_for_not_finite(line), {.bytes_max = 2 * kLineBytesMax, .depth_max = 16});
  if (!object.ok() || !object->is_object()) return false;
  StepNumbers next = last_;
  for (const StepNumber& number : step_number_table()) {
    if (!number.from_command) continue;
    const auto read = [&](auto member) {
      return read_number(*object, number.status.name, next.*member);
    };
    if (!std::visit(read, number.member)) return false;
  }
  last_ = next;
  return true;
}

Status ProgressFile::reset() {
  TRY(make_folders(path_.substr(0, path_.rfind('/'))));
  inode_ = 0;
  offset_ = 0;
  lines_ = ProgressLines();
  return write_file_atomically(path_, "");
}

bool ProgressFile::poll() {
  struct stat status = {};
  if (stat(path_.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return false;
  if (status.st_ino == inode_ && status.st_size == offset_) return false;
  const int fd = open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return false;
  if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
    close(fd);
    return false;
  }
  if (status.st_ino != inode_ || status.st_size < offset_) {
    inode_ = status.st_ino;
    offset_ = 0;
    lines_.restart(false);
  }
  if (status.st_size - offset_ > kBacklogBytesMax) {
    offset_ = status.st_size - kPollBytesMax;
    lines_.restart(true);
  }
  const int64_t until = std::min<int64_t>(status.st_size, offset_ + kPollBytesMax);
  std::string buffer(kReadBytes, '\0');
  bool any = false;
  while (offset_ < until) {
    const auto room = std::min<int64_t>(kReadBytes, until - offset_);
    const ssize_t bytes = pread(fd, buffer.data(), static_cast<size_t>(room), offset_);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) break;
    lines_.append(std::string_view(buffer).substr(0, static_cast<size_t>(bytes)));
    offset_ += bytes;
    any = true;
  }
  close(fd);
  return any;
}

void GrowthRate::add(int64_t count, TimePoint now) {
  if (!points_.empty() && count < points_.back().count) points_.clear();
  if (!points_.empty() && count == points_.back().count) return;
  points_.push_back({now, count});
  while (points_.size() > 2 &&
         (points_.size() > kRatePointsMax || now - points_[1].at > kRateWindow)) {
    points_.pop_front();
  }
}

std::optional<double> GrowthRate::per_second() const {
  if (points_.size() < 2 || points_.back().at <= points_.front().at) return std::nullopt;
  return static_cast<double>(points_.back().count - points_.front().count) /
         to_seconds(points_.back().at - points_.front().at);
}

ProgressStatus progress_of_node(const std::vector<StepNumbers>& ranks, WallTime wall) {
  const auto lowest = std::find_if(ranks.begin(), ranks.end(),
                                   [](const StepNumbers& rank) { return rank.step || rank.loss; });
  StepNumbers node = lowest == ranks.end() ? StepNumbers{} : *lowest;
  for (auto rank = ranks.begin(); rank != ranks.end(); ++rank) {
    if (rank != lowest) add_counts(*rank, node);
  }
  ProgressStatus status{numbers_in_status(node)};
  status.updatedAt = rfc3339(wall);
  return status;
}

}  // namespace lockstep::node
