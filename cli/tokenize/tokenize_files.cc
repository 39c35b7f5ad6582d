#include "cli/tokenize/tokenize_files.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/check.h"

namespace lockstep::cli {
namespace {

constexpr size_t kCharacterBytesMax = 4;
constexpr size_t kChunksPerThread = 2;

struct Job {
  std::string text;
  bool is_first = true;  // of its file
  bool is_last = true;
  const TextFile* file = nullptr;
  // Results, valid once is_done.
  std::vector<uint32_t> ids;
  Status status;
  bool is_done = false;
};

// Returns where a text without a place to cut it is cut: before its last character.
size_t forced_cut(std::string_view text) {
  for (size_t back = 1; back <= kCharacterBytesMax && back < text.size(); ++back) {
    const size_t at = text.size() - back;
    if ((static_cast<uint8_t>(text[at]) & 0xC0) != 0x80) return at;
  }
  return text.size();
}

// Cuts files into chunks: a pure function of their bytes.
class ChunkReader {
 public:
  ChunkReader(const Tokenizer& tokenizer, const TokenizeOptions& options)
      : tokenizer_(tokenizer), options_(options) {}

  // Returns null after the last chunk.
  Result<std::unique_ptr<Job>> next() {
    if (!file_ && next_file_ == options_.files.size()) return std::unique_ptr<Job>();
    auto job = std::make_unique<Job>();
    if (!file_) {
      TRY_ASSIGN(InputFile opened, InputFile::open(options_.files[next_file_].path));
      file_.emplace(std::move(opened));
      ++next_file_;
    } else {
      job->is_first = false;
    }
    job->file = &options_.files[next_file_ - 1];
    TRY(fill(*job));
    return job;
  }

 private:
  Status fill(Job& job) {
    std::string text = std::exchange(rest_, "");
    const size_t before = text.size();
    text.resize(options_.chunk_bytes);
    TRY_ASSIGN(const size_t now, file_->read(std::span(text).subspan(before)));
    text.resize(before + now);
    job.is_last = text.size() < options_.chunk_bytes;
    if (job.is_last) {
      file_.reset();
    } else {
      const size_t found = tokenizer_.cut(text);
      const size_t cut = found > 0 ? found : forced_cut(text);
      rest_ = text.substr(cut);
      text.resize(cut);
    }
    job.text = std::move(text);
    return {};
  }

  const Tokenizer& tokenizer_;
  const TokenizeOptions& options_;
  std::optional<InputFile> file_;  // the one that is being read
  size_t next_file_ = 0;
  std::string rest_;  // of that file: read and not handed out
};

// Threads that encode jobs.
class EncoderThreads {
 public:
  EncoderThreads(const Tokenizer& tokenizer, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      threads_.emplace_back(
          [this, &tokenizer](const std::stop_token& stop) { run(tokenizer, stop); });
    }
  }

  // The job outlives this object, or wait() has returned.
  void submit(Job& job) {
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back(&job);
    }
    changed_.notify_all();
  }

  void wait(const Job& job) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return job.is_done; });
  }

 private:
  void run(const Tokenizer& tokenizer, const std::stop_token& stop) {
    const std::unique_ptr<ChunkEncoder> encoder = tokenizer.encoder();
    for (;;) {
      Job* job = nullptr;
      {
        std::unique_lock lock(mutex_);
        if (!changed_.wait(lock, stop, [&] { return !waiting_.empty(); })) return;
        job = waiting_.front();
        waiting_.pop_front();
      }
      job->status = encoder->encode({job->text, job->is_first}, job->ids);
      {
        const std::lock_guard lock(mutex_);
        job->is_done = true;
      }
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Job*> waiting_;
  std::vector<std::jthread> threads_;  // last: they use all of the above
};

}  // namespace

Result<TokenizedCounts> tokenize_files(
    const Tokenizer& tokenizer, const TokenizeOptions& options,
    const std::function<Status(std::span<const uint32_t> ids)>& sink,
    const std::function<Status(const TokenizedCounts&)>& progress) {
  CHECK(options.threads > 0 && options.chunk_bytes >= 16);
  ChunkReader reader(tokenizer, options);
  std::deque<std::unique_ptr<Job>> window;
  EncoderThreads threads(tokenizer, options.threads);
  TokenizedCounts counts;
  for (bool has_more = true;;) {
    while (has_more && window.size() < kChunksPerThread * options.threads) {
      TRY_ASSIGN(std::unique_ptr<Job> job, reader.next());
      has_more = job != nullptr;
      if (!job) break;
      threads.submit(*job);
      window.push_back(std::move(job));
    }
    if (window.empty()) return counts;
    Job& oldest = *window.front();
    threads.wait(oldest);
    if (!oldest.status.ok()) {
      const Error& error = oldest.status.error();
      return error.with_message("[tokenize] " + oldest.file->path + ": " + error.message);
    }
    if (oldest.is_last && options.end) oldest.ids.push_back(*options.end);
    TRY(sink(oldest.ids));
    counts.bytes += oldest.text.size();
    counts.tokens += oldest.ids.size();
    TRY(progress(counts));
    window.pop_front();
  }
}

}  // namespace lockstep::cli
