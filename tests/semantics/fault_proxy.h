#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "common/base/clock.h"
#include "tests/conformance/support/http.h"
#include "tests/conformance/support/target.h"

namespace lockstep::semantics {

// A request as the proxy received it, and the status of its reply.
struct RecordedRequest {
  std::string verb;      // get, list, watch, create, check (dry-run create), update, patch, delete
  std::string resource;  // "pods", "trainingjobs/status"
  std::string name;
  std::string method;
  std::string path;                            // without the query
  std::map<std::string, std::string> query;    // decoded
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
  TimePoint at{};  // arrival, on the machine's monotonic clock
  int status = 0;  // 0: not answered yet, or never
};

class FaultProxy;

// One request as a fault handles it, on the connection's thread. Writes to a client that is gone
// are lost. No call blocks beyond the proxy's end.
class Exchange {
 public:
  Exchange(FaultProxy& proxy, int client, size_t number, RecordedRequest request);
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  RecordedRequest request;  // forwarded as it is; may be changed before

  // Forwards the request and passes the reply on, a watch's events as they come.
  void pass();
  // Forwards the request and returns the whole reply.
  conformance::Reply ask();
  // Replies to the client. `fields` are whole header lines.
  void answer(int status, const std::string& body, const std::string& fields = "");
  void answer(const conformance::Reply& reply);

  // Forwards a watch. Returns false if the server refused it; the refusal is then passed on.
  bool open_watch();
  // Returns the server's next event, undecoded; nullopt if the server has ended the watch.
  std::optional<std::string> next_event();

  // Write a stream to the client, event by event or in pieces.
  void begin_stream();
  void line(const std::string& text) { chunk(text + "\n"); }
  void chunk(const std::string& bytes);
  void end_stream();
  void raw(const std::string& bytes);
  // Closes the connection when the fault returns.
  void hang_up() { hung_up_ = true; }
  // Blocks until the client has closed the connection.
  void wait_for_client_close();
  // Blocks until the test opens the gate.
  void wait(const std::string& gate);
  // Blocks for as long as a slow server would take.
  void take(Duration time);

  bool is_hung_up() const { return hung_up_; }

 private:
  conformance::Request forwarded() const;

  FaultProxy& proxy_;
  const int client_;
  const size_t number_;
  bool hung_up_ = false;
  std::unique_ptr<conformance::ReplyStream> stream_;
};

using Fault = std::function<void(Exchange&)>;

// A fault and the requests that it applies to.
struct Rule {
  std::string verb{};      // empty: any
  std::string resource{};  // empty: any
  Fault fault{};
  int skip = 0;    // lets this number of matching requests pass first
  int times = -1;  // applies to this number of them; negative: to all
  std::function<bool(const RecordedRequest&)> only{};
};

// A proxy between a client and the server of this run: plain HTTP on a free loopback port. Replaces
// the client's credentials by the run's, applies the fault of the first rule that matches or else
// forwards, and records every request. Thread-safe.
class FaultProxy {
 public:
  // Without `listening`, connections are refused until listen().
  explicit FaultProxy(const conformance::Target& target, bool listening = true);
  ~FaultProxy();
  FaultProxy(const FaultProxy&) = delete;
  FaultProxy& operator=(const FaultProxy&) = delete;

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  void listen();
  void on(Rule rule);
  void clear_rules();
  void open_gate(const std::string& gate);
  // Ends all client connections.
  void cut();

  // Returns the requests of a kind, in order of arrival. An empty string matches any.
  std::vector<RecordedRequest> seen(const std::string& verb = "",
                                    const std::string& resource = "") const;
  size_t count(const std::string& verb = "", const std::string& resource = "") const {
    return seen(verb, resource).size();
  }
  // Returns all creations, updates, patches and deletions.
  std::vector<RecordedRequest> writes() const;

 private:
  friend class Exchange;
  struct ActiveRule {
    Rule rule;
    int matched = 0;
  };

  void accept_all();
  void serve(int client);
  Fault fault_for(const RecordedRequest& request);

  const conformance::Target target_;
  int listener_ = -1;
  int port_ = 0;
  std::thread acceptor_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool is_ending_ = false;
  std::vector<ActiveRule> rules_;
  std::set<std::string> gates_;
  std::vector<RecordedRequest> seen_;
  std::set<int> clients_;
  std::set<conformance::ReplyStream*> streams_;
  std::vector<std::thread> threads_;
};

// Faults.
Fault answered(int status, std::string body, std::string fields = "");
// Replies with a metav1.Status.
Fault failed(int status, const std::string& reason, const std::string& fields = "");
// The server carries out the request, but the client never gets the reply.
Fault reply_lost();
Fault passed();
// The connection ends before a reply, and the server never gets the request.
Fault refused();
Fault held_until(std::string gate);
// The server takes so long, on the machine's clock.
Fault slow(Duration time);
Fault with_query(std::string key, std::string value);
// Replaces each event of a watch by the lines that `filter` returns for it.
Fault filtered(std::function<std::vector<std::string>(const std::string& line)> filter);
// Ends a watch cleanly after `events` events.
Fault ended_after(int events);

// Return {"type": type, "object": object} as a line of JSON, and a metav1.Status.
std::string event_line(const std::string& type, const Json& object);
Json status_of(int code, const std::string& reason);

}  // namespace lockstep::semantics
