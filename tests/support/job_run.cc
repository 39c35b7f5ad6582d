#include "tests/support/job_run.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
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

void redirect(const std::filesystem::path& path, int to) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (fd < 0 || ::dup2(fd, to) < 0) ::_exit(126);
}

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

JobRun::JobRun(const Options& options) : options_(options) {
  const std::string program = std::string(LOCKSTEP_BIN_DIR) + "/lockstep";
  pid_ = ::fork();
  CHECK(pid_ >= 0);
  if (pid_ != 0) return;
  redirect(options_.output.string() + ".stdout", STDOUT_FILENO);
  redirect(options_.log, STDERR_FILENO);
  ::execl(program.c_str(), program.c_str(), "run", options_.job.c_str(), "-o", "json", "--output",
          options_.output.c_str(), nullptr);
  ::_exit(127);
}

JobRun::~JobRun() {
  if (ended_) return;
  ::kill(pid_, SIGKILL);
  reap(true);
}

bool JobRun::reap(bool block) {
  if (ended_) return true;
  int status = 0;
  if (::waitpid(pid_, &status, block ? 0 : WNOHANG) != pid_) return false;
  ended_ = true;
  exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return true;
}

bool JobRun::running() {
  return !reap(false);
}

void JobRun::signal(int number) {
  ::kill(pid_, number);
}

int JobRun::wait(double limit_seconds) {
  if (eventually([this] { return reap(false); }, limit_seconds)) return exit_code_;
  ::kill(pid_, SIGKILL);
  reap(true);
  return -1;
}

std::string JobRun::standard_output() const {
  return read_file(options_.output.string() + ".stdout");
}

Json JobRun::result() const {
  const Result<Json> line = parse_json(standard_output());
  return line.ok() ? *line : Json();
}

}  // namespace lockstep::test
