#include "cli/run/rank_lines.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <utility>

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kReadBytesMax = 256u << 10;
constexpr size_t kLineBytesMax = 64u << 10;  // agents split longer ones
constexpr size_t kRecentBytesMax = 16u << 10;
constexpr std::string_view kMark = "[rank ";
constexpr std::string_view kMarkEnd = "] ";

}  // namespace

RankLines::RankLines(std::string folder, std::string prefix)
    : folder_(std::move(folder)), prefix_(std::move(prefix)) {}

std::string RankLines::poll() {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder_, error)) {
    if (entry.path().filename().string().starts_with(prefix_)) files_[entry.path().string()];
  }
  std::string lines;
  for (auto& [path, file] : files_) read_file(path, file, lines);
  return lines;
}

void RankLines::read_file(const std::string& path, File& file, std::string& lines) {
  std::error_code error;
  const auto size = static_cast<int64_t>(fs::file_size(path, error));
  if (error) return;
  if (size < file.offset) file = {.offset = size, .partial = {}};
  std::ifstream stream(path, std::ios::binary);
  stream.seekg(static_cast<std::streamoff>(file.offset));
  std::string block(std::min(kReadBytesMax, static_cast<size_t>(size - file.offset)), '\0');
  stream.read(block.data(), static_cast<std::streamsize>(block.size()));
  block.resize(static_cast<size_t>(std::max<std::streamsize>(stream.gcount(), 0)));
  file.offset += static_cast<int64_t>(block.size());
  std::string text = std::exchange(file.partial, {}) + block;
  size_t begin = 0;
  for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string_view line = std::string_view(text).substr(begin, end + 1 - begin);
    if (!line.starts_with(kMark)) continue;
    lines += line;
    remember(line);
  }
  file.partial = text.substr(begin);
  if (file.partial.size() > kLineBytesMax) file.partial.clear();
}

void RankLines::remember(std::string_view line) {
  const size_t end = line.find(kMarkEnd);
  if (end == std::string_view::npos) return;
  const size_t begin = end + kMarkEnd.size();
  std::string& recent = recent_[std::string(line.substr(0, begin))];
  recent += line.substr(begin);
  if (recent.size() > kRecentBytesMax) recent.erase(0, recent.size() - kRecentBytesMax);
}

std::string RankLines::new_to_user(int64_t rank, std::string_view log) const {
  const auto found =
      recent_.find(std::string(kMark) + std::to_string(rank) + std::string(kMarkEnd));
  if (found == recent_.end()) return std::string(log);
  std::string lines;
  while (!log.empty()) {
    const size_t end = log.find('\n');
    const std::string_view line = log.substr(0, end == std::string_view::npos ? end : end + 1);
    if (found->second.find(line) == std::string::npos) lines += line;
    log.remove_prefix(line.size());
  }
  return lines;
}

}  // namespace lockstep::cli
