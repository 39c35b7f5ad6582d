#include "cli/client/log_follower.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "cli/client/command.h"
#include "common/api/round_members.h"
#include "common/api/world_assignment.h"
#include "controller/plan/names.h"

namespace lockstep::cli {
namespace {

constexpr size_t kTextBytesMax = 64u << 20;
constexpr size_t kLineBytesMax = 1u << 20;

std::string label_of(const Json& pod, const char* key) {
  const Json* meta = find_member(pod, "metadata");
  const Json* labels = meta == nullptr ? nullptr : find_member(*meta, "labels");
  return labels == nullptr ? "" : string_or(*labels, key, "");
}

int64_t number_of(const std::string& text) {
  int64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

// Returns the length of a leading "2026-01-02T03:04:05.678Z " without the space, or 0.
size_t timestamp_length(std::string_view line) {
  const size_t space = std::min(line.find(' '), line.size());
  const bool is_time = space >= 20 && space <= 40 && line[4] == '-' && line[10] == 'T' &&
                       wall_time_from_rfc3339(line.substr(0, space)).ok();
  return is_time ? space : 0;
}

std::string_view without_timestamp(std::string_view line) {
  const size_t length = timestamp_length(line);
  return length == 0 ? line : line.substr(std::min(length + 1, line.size()));
}

bool is_of_rank(std::string_view line, const std::optional<int64_t>& rank) {
  return !rank || without_timestamp(line).starts_with("[rank " + std::to_string(*rank) + "]");
}

// Follows several logs, one per pod.
class Follower {
 public:
  Follower(Connection& connection, JobName job, LogFollowOptions options)
      : connection_(connection), job_(std::move(job)), options_(options) {}

  Status run(std::optional<TimePoint> until);

 private:
  struct Stream {
    std::unique_ptr<kube::HttpHandle> handle;
    std::string prefix;
    std::string rest;  // an incomplete line
    bool is_over = false;
    bool is_refused = false;  // the container may not have started: retry
    std::string refusal;
  };

  void open(const JobPod& pod, bool with_prefix);
  void warn_about_refused_logs() const;
  void take(Stream& stream, const std::string& bytes);
  void print_line(const Stream& stream, std::string_view line) const;
  bool all_over() const {
    return std::all_of(streams_.begin(), streams_.end(),
                       [](const auto& one) { return one.second.is_over; });
  }

  Connection& connection_;
  const JobName job_;
  const LogFollowOptions options_;
  std::map<std::string, Stream> streams_;  // by the pod's UID
  size_t ends_ = 0;
};

ApiCall log_call(const JobName& job, const std::string& pod, const LogFollowOptions& options) {
  ApiCall call{.path = core_path(job.namespace_, "pods", pod) + "/log", .accept = "*/*"};
  call.query["container"] = plan::kNodeContainer;
  if (options.tail) call.query["tailLines"] = std::to_string(*options.tail);
  return call;
}

void Follower::print_line(const Stream& stream, std::string_view line) const {
  if (is_of_rank(line, options_.rank)) print(stream.prefix + std::string(line) + "\n");
}

void Follower::take(Stream& stream, const std::string& bytes) {
  stream.rest += bytes;
  size_t begin = 0;
  for (size_t end; (end = stream.rest.find('\n', begin)) != std::string::npos; begin = end + 1) {
    print_line(stream, std::string_view(stream.rest).substr(begin, end - begin));
  }
  stream.rest.erase(0, begin);
  if (stream.rest.size() > kLineBytesMax) print_line(stream, std::exchange(stream.rest, {}));
}

void Follower::open(const JobPod& pod, bool with_prefix) {
  Stream& stream = streams_[pod.uid];
  if (stream.handle && !stream.is_refused) return;
  stream.is_over = stream.is_refused = false;
  stream.prefix = with_prefix ? "[node " + std::to_string(pod.node) + "] " : "";
  ApiCall call = log_call(job_, pod.name, options_);
  call.query["follow"] = "true";
  if (options_.timestamps) call.query["timestamps"] = "true";
  stream.handle = connection_.stream(
      call, {.on_bytes = [this, &stream](std::string bytes) { take(stream, bytes); },
             .on_end =
                 [this, &stream, name = pod.name](Result<kube::HttpReply> reply) {
                   if (!stream.rest.empty()) print_line(stream, std::exchange(stream.rest, {}));
                   stream.is_over = true;
                   stream.is_refused = reply.ok() && reply->status >= 400 && reply->status < 500;
                   const Status status = connection_.end_of_stream(reply);
                   stream.refusal = status.ok() ? "" : status.error().message;
                   if (!status.ok() && !stream.is_refused) {
                     std::fprintf(stderr, "warning: the log of %s ended early: %s\n", name.c_str(),
                                  status.error().message.c_str());
                   }
                   ++ends_;
                 }});
}

void Follower::warn_about_refused_logs() const {
  for (const auto& [uid, stream] : streams_) {
    if (stream.is_refused) std::fprintf(stderr, "warning: %s\n", stream.refusal.c_str());
  }
}

Status Follower::run(std::optional<TimePoint> until) {
  std::optional<TimePoint> give_up_at;  // when to give up on open logs; set once the job has ended
  while (true) {
    const Result<Json> job = connection_.call({.path = job_path(job_.namespace_, job_.name)});
    const bool is_gone = !job.ok() && job.error().code == Code::kNotFound;
    if (!job.ok() && (!is_gone || streams_.empty())) return job.error();
    if (job.ok()) {
      const Result<TrainingJob> read = stored_training_job_from_json(*job);
      const bool with_prefix = read.ok() && read->spec.nodes > 1 && !options_.node;
      ApiCall list{.path = core_path(job_.namespace_, "pods")};
      list.query["labelSelector"] = std::string(plan::kJobNameLabel) + "=" + job_.name;
      TRY_ASSIGN(const Json pods, connection_.call(list));
      for (const JobPod& pod : chosen_pods(pods, options_)) {
        if (pod.phase != "Pending") open(pod, with_prefix);
      }
      if (read.ok() && !ending_of(read->status).empty() && !give_up_at) {
        give_up_at = connection_.clock().now() + std::chrono::seconds(15);
      }
    }
    const TimePoint now = connection_.clock().now();
    const bool is_over = (is_gone || give_up_at) && all_over();
    if (is_over || (give_up_at && now >= *give_up_at) || (until && now >= *until)) {
      warn_about_refused_logs();
      return {};
    }
    const size_t ends = ends_;
    connection_.run_until([&] { return ends_ != ends; }, now + std::chrono::seconds(1));
  }
}

// Returns a pod's log, with the time of each line if the server supports that.
Result<std::string> text_of(Connection& connection, const JobName& job, const JobPod& pod,
                            const LogFollowOptions& options) {
  ApiCall call = log_call(job, pod.name, options);
  call.query["timestamps"] = "true";
  Result<std::string> text = connection.text(call, kTextBytesMax);
  if (text.ok() || text.error().code != Code::kInvalid || options.timestamps) return text;
  call.query.erase("timestamps");
  return connection.text(call, kTextBytesMax);
}

// Prints the logs as they are now.
Status print_logs(Connection& connection, const JobName& job, const LogFollowOptions& options) {
  TRY(connection.call({.path = job_path(job.namespace_, job.name)}));
  ApiCall list{.path = core_path(job.namespace_, "pods")};
  list.query["labelSelector"] = std::string(plan::kJobNameLabel) + "=" + job.name;
  TRY_ASSIGN(const Json pods, connection.call(list));
  const std::vector<JobPod> chosen = chosen_pods(pods, options);
  if (chosen.empty()) {
    std::fprintf(stderr, "%s has no %spods%s.\n", job.name.c_str(),
                 options.previous ? "earlier " : "", options.node ? " of that node" : "");
    return {};
  }
  std::vector<PodText> texts;
  for (const JobPod& pod : chosen) {
    Result<std::string> text = text_of(connection, job, pod, options);
    if (!text.ok()) {
      if (chosen.size() == 1) return text.error();
      std::fprintf(stderr, "warning: %s: %s\n", pod.name.c_str(), text.error().message.c_str());
      continue;
    }
    const std::string prefix = chosen.size() > 1 ? "[node " + std::to_string(pod.node) + "] " : "";
    texts.push_back({prefix, ""});
    size_t begin = 0;
    while (begin < text->size()) {
      const size_t end = std::min(text->find('\n', begin), text->size());
      const std::string_view line = std::string_view(*text).substr(begin, end - begin);
      if (is_of_rank(line, options.rank)) texts.back().text.append(line).append("\n");
      begin = end + 1;
    }
  }
  print(merged_logs(texts, options.timestamps));
  return {};
}

}  // namespace

Result<int64_t> node_of_rank(const TrainingJob& job, int64_t rank) {
  const int64_t each = processes_per_node(job.spec);
  const int64_t place = place_of_rank(rank, each);
  const auto& round = job.status.rendezvous;
  const bool leaves_out = round && !round->nodeIndices.empty();
  const std::vector<int64_t> nodes =
      leaves_out ? round_members(*round, each) : std::vector<int64_t>{};
  const int64_t size = leaves_out ? std::ssize(nodes) : job.spec.nodes;
  if (place < size) return leaves_out ? nodes[static_cast<size_t>(place)] : place;
  return invalid("--rank: found " + std::to_string(rank) + ", expected less than " +
                 std::to_string(each * size) + ", the world size of " + job.metadata.name);
}

std::vector<JobPod> chosen_pods(const Json& pod_list, const LogFollowOptions& options) {
  std::map<int64_t, std::vector<JobPod>> by_node;
  const Json* items = find_member(pod_list, "items");
  if (items == nullptr || !items->is_array()) return {};
  for (const Json& item : *items) {
    const Json* status = find_member(item, "status");
    JobPod pod{.name = meta_text(item, "name"),
               .uid = meta_text(item, "uid"),
               .phase = status == nullptr ? "" : string_or(*status, "phase", ""),
               .node = number_of(label_of(item, plan::kNodeIndexLabel)),
               .incarnation = number_of(label_of(item, plan::kIncarnationLabel))};
    if (!options.node || pod.node == *options.node) by_node[pod.node].push_back(std::move(pod));
  }
  std::vector<JobPod> chosen;
  for (auto& [node, pods] : by_node) {
    std::sort(pods.begin(), pods.end(),
              [](const JobPod& a, const JobPod& b) { return a.incarnation > b.incarnation; });
    const size_t which = options.previous ? 1 : 0;
    if (which < pods.size()) chosen.push_back(pods[which]);
  }
  return chosen;
}

std::string merged_logs(const std::vector<PodText>& texts, bool keep_timestamps) {
  struct Line {
    std::string time;
    size_t pod;
    std::string_view text;
  };
  std::vector<Line> lines;
  for (size_t pod = 0; pod < texts.size(); ++pod) {
    std::string time;
    const std::string_view text = texts[pod].text;
    size_t begin = 0;
    while (begin < text.size()) {
      const size_t end = std::min(text.find('\n', begin), text.size());
      const std::string_view line = text.substr(begin, end - begin);
      const size_t length = timestamp_length(line);
      if (length > 0) {
        time = line.substr(0, length - 1);  // without the Z, so that longer fractions sort later
      }
      lines.push_back({time, pod, keep_timestamps ? line : without_timestamp(line)});
      begin = end + 1;
    }
  }
  std::stable_sort(lines.begin(), lines.end(),
                   [](const Line& a, const Line& b) { return a.time < b.time; });
  std::string out;
  for (const Line& line : lines) out.append(texts[line.pod].prefix).append(line.text).append("\n");
  return out;
}

Status follow_logs(Connection& connection, const JobName& job, const LogFollowOptions& options,
                   std::optional<TimePoint> until) {
  if (!options.follow) return print_logs(connection, job, options);
  return Follower(connection, job, options).run(until);
}

}  // namespace lockstep::cli
