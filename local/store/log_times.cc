#include "local/store/log_times.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace lockstep::local {
namespace {

constexpr int64_t kRecordBytes = sizeof(LogTimeRecord);
static_assert(kRecordBytes == 16);
constexpr size_t kBlockRecords = 256;

int open_to_append(const std::string& file) {
  return open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

}  // namespace

std::string times_file_of(const std::string& log) {
  const size_t name = log.rfind('/') + 1;  // 0 if there is no slash
  return log.substr(0, name) + "." + log.substr(name) + ".times";
}

void begin_times(const std::string& times_file) {
  const int fd = open_to_append(times_file);
  if (fd >= 0) close(fd);
}

void append_time_record(const std::string& times_file, const LogTimeRecord& record) {
  const int fd = open_to_append(times_file);
  if (fd < 0) return;
  // Undo a partial write: it would misalign all later records.
  const off_t before = lseek(fd, 0, SEEK_END);
  if (write(fd, &record, sizeof record) != kRecordBytes && before >= 0)
    (void)!ftruncate(fd, before);
  close(fd);
}

Result<LogTimes> LogTimes::open(const std::string& times_file) {
  const int fd = ::open(times_file.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno_error("[log] " + times_file, errno);
  return LogTimes(fd);
}

LogTimes::LogTimes(LogTimes&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), block_(std::move(other.block_)), from_(other.from_) {}

LogTimes::~LogTimes() {
  if (fd_ >= 0) close(fd_);
}

int64_t LogTimes::first_index() const {
  const off_t data = lseek(fd_, 0, SEEK_DATA);
  if (data < 0) return errno == ENXIO ? end_index() : 0;  // all hole, or holes are unsupported
  return (data + kRecordBytes - 1) / kRecordBytes;
}

int64_t LogTimes::end_index() const {
  struct stat info {};
  return fstat(fd_, &info) == 0 ? info.st_size / kRecordBytes : 0;
}

LogTimeRecord LogTimes::at(int64_t index) const {
  LogTimeRecord record;
  if (pread(fd_, &record, sizeof record, index * kRecordBytes) != kRecordBytes) return {};
  return record;
}

template <class Predicate>
int64_t LogTimes::first_where(Predicate holds) const {
  int64_t low = first_index();
  for (int64_t high = end_index(); low < high;) {
    const int64_t middle = low + (high - low) / 2;
    if (holds(at(middle)))
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

int64_t LogTimes::bytes_known() const {
  const int64_t end = end_index();
  return end == 0 ? 0 : at(end - 1).bytes;
}

int64_t LogTimes::bytes_before(int64_t nanoseconds) const {
  const int64_t index =
      first_where([&](const LogTimeRecord& record) { return record.nanoseconds >= nanoseconds; });
  return index == first_index() ? 0 : at(index - 1).bytes;
}

int64_t LogTimes::index_after(int64_t bytes) const {
  return first_where([&](const LogTimeRecord& record) { return record.bytes > bytes; });
}

int64_t LogTimes::seen(int64_t offset) {
  if (block_.empty() || offset < from_ || offset >= block_.back().bytes) {
    from_ = offset;
    block_.resize(kBlockRecords);
    const ssize_t read = pread(fd_, block_.data(), kBlockRecords * sizeof(LogTimeRecord),
                               index_after(offset) * kRecordBytes);
    block_.resize(static_cast<size_t>(std::max<ssize_t>(read, 0) / kRecordBytes));
    if (block_.empty()) return 0;
  }
  const auto found =
      std::upper_bound(block_.begin(), block_.end(), offset,
                       [](int64_t at, const LogTimeRecord& record) { return at < record.bytes; });
  return found == block_.end() ? block_.back().nanoseconds : found->nanoseconds;
}

}  // namespace lockstep::local
