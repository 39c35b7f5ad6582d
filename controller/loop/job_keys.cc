#include "controller/loop/job_keys.h"

#include <algorithm>

#include "common/base/sha256.h"

namespace lockstep::loop {
namespace {

bool is_text(char c) {
  return (c >= ' ' && c <= '~') || c == '\n' || c == '\r' || c == '\t';
}

constexpr std::string_view kSpace = " \t\r\n";

std::string_view trimmed(std::string_view line) {
  const size_t begin = std::min(line.find_first_not_of(kSpace), line.size());
  return line.substr(begin, line.find_last_not_of(kSpace) + 1 - begin);
}

JobKeys lines_of(std::string_view text) {
  JobKeys keys;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (const std::string_view key = trimmed(line); !key.empty()) keys.emplace_back(key);
  }
  return keys;
}

}  // namespace

Result<JobKeys> read_job_keys(std::string_view text) {
  const bool has_lines = std::ranges::all_of(text, is_text);
  JobKeys keys = has_lines ? lines_of(text) : JobKeys{std::string(text)};
  if (keys.empty()) return invalid("[key] expected a key, found an empty file");
  if (keys.front().size() < kJobKeyBytesMin) {
    return invalid("[key] the key has " + std::to_string(keys.front().size()) +
                   " bytes, expected at least " + std::to_string(kJobKeyBytesMin) +
                   (has_lines
                        ? ". To keep the tokens of running jobs, put a new key on a line before it"
                        : ". It is not text, so no other key can be put before it"));
  }
  if (keys.size() > kJobKeysMax) {
    return invalid("[key] found " + std::to_string(keys.size()) + " keys, expected at most " +
                   std::to_string(kJobKeysMax));
  }
  const std::string_view whole = text.substr(0, text.find_last_not_of(kSpace) + 1);
  if (keys.front() != whole) keys.emplace_back(whole);
  return keys;
}

std::vector<std::string> job_tokens(const JobKeys& keys, std::string_view job_uid) {
  std::vector<std::string> tokens;
  for (const std::string& key : keys) tokens.push_back(hex(hmac_sha256(key, job_uid)));
  return tokens;
}

}  // namespace lockstep::loop
