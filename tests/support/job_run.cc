#include "tests/support/job_run.h"

#include <unistd.h>

#include <chrono>
#include <fstream>
#include <sstream>
#include <thread>

#include "common/base/check.h"
#include "common/base/random.h"

namespace lockstep::test {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr const char* kSubjects[] = {"the shepherd", "a king",         "the old prophet",
                                     "his daughter", "every stranger", "the river"};
constexpr const char* kVerbs[] = {"went unto", "spake against", "remembered",
                                  "gathered",  "answered",      "dwelt beside"};
constexpr const char* kObjects[] = {"the city",   "the mountain",  "seven lambs",
                                    "the people", "a great stone", "the house of cedar"};

}  // namespace

TemporaryFolder::TemporaryFolder() {
  std::string pattern = std::filesystem::temp_directory_path() / "lockstep-test-XXXXXX";
  CHECK(::mkdtemp(pattern.data()) != nullptr);
  path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string generated_text(size_t bytes, uint64_t seed) {
  Random random(seed);
  std::string text;
  while (text.size() < bytes) {
    text += std::string("And ") + kSubjects[random.below(6)] + " " + kVerbs[random.below(6)] + " " +
            kObjects[random.below(6)] + (random.below(4) == 0 ? ".\n" : "; ");
  }
  text.resize(bytes);
  return text;
}

void write_file(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

bool eventually(const std::function<bool()>& condition, double limit_seconds) {
  const auto deadline = SteadyClock::now() + std::chrono::duration<double>(limit_seconds);
  while (!condition()) {
    if (SteadyClock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

JobRun::JobRun(const Options& options)
    : program_({.arguments = {std::string(LOCKSTEP_BIN_DIR) + "/lockstep", "run", options.job, "-o",
                              "json", "--output", options.output},
                .errors = options.log}),
      output_(options.output) {}

std::string JobRun::standard_output() const {
  return program_.output();
}

Json JobRun::result() const {
  const Result<Json> line = parse_json(standard_output());
  return line.ok() ? *line : Json();
}

}  // namespace lockstep::test
