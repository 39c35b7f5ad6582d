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

// A request as it came to the proxy, and how it was answered.
struct Seen {
  std::string verb;      // get, list, watch, create, check (a dry run of it), update, patch, delete
  std::string resource;  // "pods", "trainingjobs/status"
  std::string name;
  std::string method;
  std::string path;                            // without the query
  std::map<std::string, std::string> query;    // decoded
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
  TimePoint at{};  // the machine's monotonic clock
  int status = 0;  // 0: not answered, or never
};

class FaultProxy;

// One request in a fault's hands, on a thread of its own. What is written to a client that has gone
// is lost; nothing blocks beyond the proxy's end.
class Exchange {
 public:
  Exchange(FaultProxy& proxy, int client, size_t number, Seen request);
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  Seen request;  // what is forwarded: it may be changed before

  // Forwards it and hands the answer on, a watch's events as they come.
  void pass();
  // Forwards it and keeps the whole answer.
  conformance::Reply ask();
  // `fields`: whole header lines.
  void answer(int status, const std::string& body, const std::string& fields = "");
  void answer(const conformance::Reply& reply);

  // Forwards a watch. False: the server refused, which was handed on.
  bool open_watch();
  // The server's next event, undecoded; nullopt: it has ended the watch.
  std::optional<std::string> next_event();

  // A stream to the client, event by event or in pieces.
  void begin_stream();
  void line(const std::string& text) { chunk(text + "\n"); }
  void chunk(const std::string& bytes);
  void end_stream();
  void raw(const std::string& bytes);
  // Closes the connection when the fault returns.
  void hang_up() { hung_up_ = true; }
  // Until the client has closed the connection.
  void stay_silent();
  // Until the test opens the gate.
  void wait(const std::string& gate);

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

// Which requests a fault is done to.
struct Rule {
  std::string verb{};      // empty: any
  std::string resource{};  // empty: any
  Fault fault{};
  int skip = 0;    // so many that match are let pass first
  int times = -1;  // to so many; negative: all
  std::function<bool(const Seen&)> only{};
};

// Between a client and the server of this run: plain HTTP on a loopback port that the system chose.
// It puts the run's credentials in place of the client's, does what the first rule that applies
// says, else forwards, and remembers every request. Thread-safe.
class FaultProxy {
 public:
  // Not listening: connections are refused until listen().
  explicit FaultProxy(const conformance::Target& target, bool listening = true);
  ~FaultProxy();
  FaultProxy(const FaultProxy&) = delete;
  FaultProxy& operator=(const FaultProxy&) = delete;

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  void listen();
  void on(Rule rule);
  void clear_rules();
  void open_gate(const std::string& gate);
  // Ends all connections of clients.
  void cut();

  // Of a kind, in the order in which they came; an empty string stands for any.
  std::vector<Seen> seen(const std::string& verb = "", const std::string& resource = "") const;
  size_t count(const std::string& verb = "", const std::string& resource = "") const {
    return seen(verb, resource).size();
  }
  // Of all creations, updates, patches and deletions.
  std::vector<Seen> writes() const;

 private:
  friend class Exchange;
  struct Held {
    Rule rule;
    int matched = 0;
  };

  void accept_all();
  void serve(int client);
  Fault fault_for(const Seen& request);

  const conformance::Target target_;
  int listener_ = -1;
  int port_ = 0;
  std::thread acceptor_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool is_ending_ = false;
  std::vector<Held> rules_;
  std::set<std::string> gates_;
  std::vector<Seen> seen_;
  std::set<int> clients_;
  std::set<conformance::ReplyStream*> streams_;
  std::vector<std::thread> threads_;
};

// Faults.
Fault answered(int status, std::string body, std::string fields = "");
// As a metav1.Status.
Fault failed(int status, const std::string& reason, const std::string& fields = "");
// The server did it; the client never hears.
Fault reply_lost();
Fault passed();
// The connection ends before an answer; the server never hears.
Fault refused();
Fault held_until(std::string gate);
Fault with_query(std::string key, std::string value);
// A watch's events, each handed to a function that says which lines are sent in its place.
Fault filtered(std::function<std::vector<std::string>(const std::string& line)> filter);
// A watch that ends cleanly after so many events.
Fault ended_after(int events);

// {"type": type, "object": object} and metav1.Status, as lines of JSON.
std::string event_line(const std::string& type, const Json& object);
Json status_of(int code, const std::string& reason);

}  // namespace lockstep::semantics
