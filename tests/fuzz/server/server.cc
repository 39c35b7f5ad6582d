// Requests as a client writes them (request_text.h), through the HTTP parser to the whole API
// server except its sockets, with the watches that they open. Every reply is JSON. An error is a
// Status and changes nothing. Watches agree with lists. In the end every object is readable: alone,
// in its list and as a row.
#include <algorithm>
#include <cstring>
#include <list>
#include <memory>
#include <optional>
#include <set>
#include <variant>

#include "common/base/check.h"
#include "common/http/request_reader.h"
#include "local/http/messages.h"
#include "local/patch/field_set.h"
#include "local/store/api.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/server/followed_watch.h"
#include "tests/fuzz/server/mutator.h"

using namespace lockstep;
using local::ApiRequest;
using local::ApiResponse;

namespace {

constexpr size_t kWatchesMax = 4;
constexpr size_t kHeaderBytesMax = 4096;
constexpr size_t kBodyBytesMax = 1u << 20;
constexpr char kAsTable[] = "application/json;as=Table;v=v1;g=meta.k8s.io";
constexpr local::StorageLimits kLimits{
    .objects_max = 40, .bytes_max = 1u << 20, .history_max = 30, .history_bytes_max = 1u << 20};

// A server in the same initial state for every input: with the kinds of things.a.b and an object
// `a` of each kind.
struct Server {
  Server() {
    for (const fuzz::FuzzKind& kind : fuzz::fuzz_kinds()) create(kind);
    start = api.snapshot();
    api.on_change([this] { wrote = true; });
  }

  static Server& at_start() {
    static std::unique_ptr<Server> server;
    // restore() can't undo changed definitions.
    if (server == nullptr || !server->api.restore(*server->start))
      server = std::make_unique<Server>();
    server->clock = ManualClock();
    return *server;
  }

  void create(const fuzz::FuzzKind& kind) {
    Result<Json> object = parse_json(kind.object);
    CHECK(object.ok());
    (*object)["kind"] = kind.kind;
    (*object)["apiVersion"] = kind.api_version();
    if (!(*object)["metadata"].contains("name")) (*object)["metadata"]["name"] = "a";
    const std::string space = kind.namespaced ? "/namespaces/default" : "";
    const std::string collection = std::string(kind.prefix) + space + "/" + kind.plural;
    const ApiResponse made = api.handle({"POST", collection, "", dump_json(*object)});
    CHECK(made.code == 201 || made.code == 409);  // 409: exists in the other version
    const Json status = {{"status", (*object)["status"]}};
    (void)api.handle(
        {"PATCH", collection + "/a/status", "application/merge-patch+json", dump_json(status)});
  }

  ManualClock clock;
  local::Api api{clock, 1, kLimits};
  std::optional<local::Api::Snapshot> start;
  bool wrote = false;
};

bool is_documented(const ApiResponse& response) {
  if (response.code < 200) return false;
  if (response.code < 500 || response.code == 501 || response.code == 507) return true;
  if (response.code == 504) return response.body["reason"] == "Timeout";
  return response.body["message"] == "resourceVersion should not be set on objects to be created";
}

// Returns nullopt if the parser rejects the request.
std::optional<ApiRequest> over_the_wire(const fuzz::RequestText& request) {
  std::string wire = request.method + " " + request.target + " HTTP/1.1\r\n";
  for (const std::string& line : request.headers) wire += line + "\r\n";
  wire += "Content-Length: " + std::to_string(request.body.size()) + "\r\n\r\n" + request.body;
  http::RequestReader reader(
      {.header_bytes_max = kHeaderBytesMax, .body_bytes_max = kBodyBytesMax});
  reader.begin();
  using Progress = http::RequestReader::Progress;
  Progress progress = Progress::kNeedsMore;
  for (std::string_view rest = wire; progress == Progress::kNeedsMore && !rest.empty();) {
    const std::span<char> room = reader.prepare();
    const size_t now = std::min(room.size(), rest.size());
    std::memcpy(room.data(), rest.data(), now);
    reader.commit(now);
    rest.remove_prefix(now);
    progress = reader.read_head();
    if (progress == Progress::kComplete) progress = reader.read_body();
  }
  if (progress != Progress::kComplete) return std::nullopt;
  return local::to_api_request({reader.head(), reader.take_body()});
}

// Returns the kind in the vocabulary that a target is about, or nullptr.
const fuzz::FuzzKind* kind_of(std::string_view target) {
  for (const fuzz::FuzzKind& kind : fuzz::fuzz_kinds()) {
    if (!target.starts_with(kind.prefix)) continue;
    const std::string plural = std::string("/") + kind.plural;
    const size_t at = target.find(plural);
    const std::string_view rest = at == target.npos ? "x" : target.substr(at + plural.size());
    if (rest.empty() || rest[0] == '/' || rest[0] == '?') return &kind;
  }
  return nullptr;
}

class Run {
 public:
  explicit Run(Server& server) : clock_(server.clock), api_(server.api), wrote_(server.wrote) {}

  void serve(fuzz::RequestText request) {
    fill_in(request.target);
    fill_in(request.body);
    // Generated again for every set of types, at great cost; the target `schema` covers these.
    if (request.target.starts_with("/openapi")) return;
    const std::optional<ApiRequest> read = over_the_wire(request);
    if (!read) return;
    if (local::Api::is_watch(*read)) {
      follow(*read);
    } else if (local::Api::is_log(*read)) {
      open_log(*read);
    } else {
      ask(*read);
    }
    for (fuzz::FollowedWatch& watch : watches_) watch.read(3);
    // So that the oldest changes are forgotten within an input.
    clock_.advance(std::chrono::minutes(1));
    api_.compact();
  }

  void finish() {
    for (fuzz::FollowedWatch& watch : watches_) watch.finish();
    for (const fuzz::FuzzKind* kind : written_) check_collection(*kind);
  }

 private:
  // Replaces {{name}}, {{uid}}, {{version}} with those of the last object in a reply, {{continue}}
  // with that of the last list.
  void fill_in(std::string& text) const {
    for (const auto& [name, value] : known_) {
      for (size_t at = text.find(name); at != text.npos; at = text.find(name, at + value.size()))
        text.replace(at, name.size(), value);
    }
  }

  void remember(const Json& answer) {
    const Json& metadata = local::metadata_of(answer);
    for (const auto& [name, member] : {std::pair{"{{name}}", "name"},
                                       {"{{uid}}", "uid"},
                                       {"{{version}}", "resourceVersion"},
                                       {"{{continue}}", "continue"}}) {
      const std::string value = string_or(metadata, member, "");
      if (!value.empty()) known_[name] = value;
    }
  }

  void follow(const ApiRequest& request) {
    auto opened = api_.open_watch(request);
    if (const auto* refused = std::get_if<ApiResponse>(&opened)) return check(*refused);
    if (watches_.size() == kWatchesMax) watches_.pop_front();
    watches_.emplace_back(api_, std::get<local::Watch>(std::move(opened)), request.target);
  }

  void open_log(const ApiRequest& request) {
    const auto opened = api_.open_log(request);
    if (const auto* refused = std::get_if<ApiResponse>(&opened)) return check(*refused);
    (void)api_.is_running(std::get<local::LogRequest>(opened));
  }

  ApiResponse ask(const ApiRequest& request) {
    wrote_ = false;
    ApiResponse response = api_.handle(request);
    check(response);
    remember(response.body);
    CHECK(!wrote_ || (response.ok() && request.method != "GET"));
    CHECK(!wrote_ || !request.target.ends_with("?dryRun=All"));
    if (const fuzz::FuzzKind* kind = kind_of(request.target); kind != nullptr && wrote_)
      written_.insert(kind);
    return response;
  }

  static void check(const ApiResponse& response) {
    CHECK(is_documented(response));
    CHECK(!response.raw_type.empty() || !dump_json(response.body).empty());
    if (response.ok()) return;
    const Json& status = response.body;
    CHECK(status["kind"] == "Status" && status["status"] == "Failure");
    CHECK(status["code"] == response.code && status["message"].is_string());
  }

  void check_collection(const fuzz::FuzzKind& kind) {
    const std::string collection = std::string(kind.prefix) + "/" + kind.plural;
    const ApiResponse list = ask({"GET", collection, "", ""});
    if (!list.ok()) return;
    const Json& items = list.body["items"];
    CHECK(items.size() <= kLimits.objects_max);
    const ApiResponse table = ask({"GET", collection, "", "", kAsTable});
    CHECK(table.ok() && table.body["rows"].size() == items.size());
    for (const Json& item : items) check_object(kind, item);
  }

  void check_object(const fuzz::FuzzKind& kind, const Json& object) {
    const Json& metadata = object["metadata"];
    const std::string space = string_or(metadata, "namespace", "");
    const ApiResponse alone =
        ask({"GET",
             std::string(kind.prefix) + (space.empty() ? "" : "/namespaces/" + space) + "/" +
                 kind.plural + "/" + string_or(metadata, "name", ""),
             "", ""});
    CHECK(alone.ok() && alone.body == object);
    CHECK(!string_or(metadata, "uid", "").empty() && local::version_of(object) > 0);
    const Json* managers = find_member(metadata, "managedFields");
    if (managers == nullptr) return;
    for (const Json& entry : *managers) CHECK(local::read_field_set(entry["fieldsV1"]).ok());
  }

  ManualClock& clock_;
  local::Api& api_;
  bool& wrote_;
  std::map<std::string, std::string> known_;
  std::list<fuzz::FollowedWatch> watches_;
  std::set<const fuzz::FuzzKind*> written_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Run run(Server::at_start());
  for (fuzz::RequestText& request :
       fuzz::split_requests(fuzz::fuzz_text(data, size), fuzz::Mutator::kRequestsMax))
    run.serve(std::move(request));
  run.finish();
  return 0;
}
