#include "cli/timeline/chrome_trace.h"

#include <algorithm>
#include <cstdio>
#include <limits>

#include "cli/timeline/rank_actions.h"

namespace lockstep::cli {
namespace {

constexpr int kComputing = 0;  // threads
constexpr int kCommunicating = 1;

int64_t first_begin(const Recording& recording) {
  int64_t first = std::numeric_limits<int64_t>::max();
  for (const RankTimeline& rank : recording.ranks) {
    first = std::min(first, rank.begin_ns + rank.clock.offset_ns);
  }
  return first;
}

// Collects events. No text in them needs to be escaped: all are our own names.
class Events {
 public:
  explicit Events(int64_t origin_ns) : origin_ns_(origin_ns) {}

  void name_process(const RankTimeline& rank) {
    std::string name = "rank " + std::to_string(rank.rank);
    if (rank.stages > 1) name += ", stage " + std::to_string(rank.stage);
    add_name("process_name", rank.rank, 0, name);
    add_name("thread_name", rank.rank, kComputing, "computing");
    add_name("thread_name", rank.rank, kCommunicating, "communicating");
  }

  void add(int64_t rank, const ActionSpan& span) {
    add_event(rank, span.computes ? kComputing : kCommunicating, span, span.name(),
              {span.begin_ns, span.end_ns});
    for (const ActionSpan::Wait& wait : span.waits) {
      add_event(rank, kCommunicating, span, span.name() + ": wait", wait);
    }
  }

  std::string text() const {
    return "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n" + events_ + "\n]}\n";
  }

 private:
  void add_name(const char* what, int64_t rank, int thread, const std::string& name) {
    begin();
    events_ += "{\"ph\":\"M\",\"name\":\"" + std::string(what) +
               "\",\"pid\":" + std::to_string(rank) + ",\"tid\":" + std::to_string(thread) +
               ",\"args\":{\"name\":\"" + name + "\"}}";
  }

  void add_event(int64_t rank, int thread, const ActionSpan& span, const std::string& name,
                 const ActionSpan::Wait& time) {
    begin();
    events_ += "{\"ph\":\"X\",\"name\":\"" + name + "\",\"pid\":" + std::to_string(rank) +
               ",\"tid\":" + std::to_string(thread) +
               ",\"ts\":" + microseconds(time.begin_ns - origin_ns_) +
               ",\"dur\":" + microseconds(time.end_ns - time.begin_ns) +
               ",\"args\":{\"step\":" + std::to_string(span.step);
    if (span.micro_batch >= 0) events_ += ",\"microBatch\":" + std::to_string(span.micro_batch);
    events_ += ",\"chunk\":" + std::to_string(span.chunk) +
               ",\"version\":" + std::to_string(span.version) + "}}";
  }

  void begin() {
    if (!events_.empty()) events_ += ",\n";
  }

  static std::string microseconds(int64_t nanoseconds) {
    char text[48];
    std::snprintf(text, sizeof text, "%lld.%03lld", static_cast<long long>(nanoseconds / 1000),
                  static_cast<long long>(nanoseconds % 1000));
    return text;
  }

  int64_t origin_ns_;
  std::string events_;
};

}  // namespace

std::string chrome_trace(const Recording& recording) {
  Events events(first_begin(recording));
  for (const RankTimeline& rank : recording.ranks) {
    events.name_process(rank);
    for (const ActionSpan& span : action_spans(rank)) events.add(rank.rank, span);
  }
  return events.text();
}

}  // namespace lockstep::cli
