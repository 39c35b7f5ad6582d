#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace lockstep::loop {

// The keys from which the tokens of jobs derive, newest first. Secret. The first one makes the
// tokens of new jobs. The others are of jobs that were created with them and still run, so a key
// can be replaced without a change to any job.
using JobKeys = std::vector<std::string>;

inline constexpr size_t kJobKeyBytesMin = 16;
inline constexpr size_t kJobKeysMax = 8;

// Reads the content of a key file:
// - printable text: one key on each line, newest first
// - anything else: one key, which cannot be replaced while its jobs run
// kInvalid if there is no key, if the first one is shorter than kJobKeyBytesMin, or if there are
// too many. Older keys may be shorter, because their jobs run.
//
// Versions before 0.2 took the whole file, without white space at its end, for one key. If that is
// not the first key, it is the last one, so that the jobs of such a file are known.
Result<JobKeys> read_job_keys(std::string_view text);

// Returns the job's token under each key, in the same order.
std::vector<std::string> job_tokens(const JobKeys& keys, std::string_view job_uid);

}  // namespace lockstep::loop
