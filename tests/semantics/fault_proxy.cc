#include "tests/semantics/fault_proxy.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

#include "common/base/check.h"

namespace lockstep::semantics {
namespace {

using conformance::Reply;
using conformance::ReplyStream;

constexpr size_t kRequestBytesMax = 16u << 20;

void send_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
}

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

std::string decoded(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size()) {
      out += static_cast<char>(std::stoi(text.substr(i + 1, 2), nullptr, 16));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, separator);)
    if (!part.empty()) parts.push_back(part);
  return parts;
}

// Parses /api/v1/namespaces/NS/pods/NAME/status and /apis/GROUP/VERSION/...
void read_path(RecordedRequest& seen) {
  std::vector<std::string> parts = split(seen.path, '/');
  size_t at = !parts.empty() && parts[0] == "apis" ? 3 : 2;
  if (at + 2 < parts.size() && parts[at] == "namespaces") at += 2;
  if (at < parts.size()) seen.resource = parts[at];
  if (at + 1 < parts.size()) seen.name = decoded(parts[at + 1]);
  if (at + 2 < parts.size()) seen.resource += "/" + parts[at + 2];
}

std::string verb_of(const RecordedRequest& seen) {
  if (seen.method == "GET") {
    if (seen.query.contains("watch")) return "watch";
    return seen.name.empty() ? "list" : "get";
  }
  if (seen.method == "POST" && seen.query.contains("dryRun")) return "check";
  return seen.method == "POST" ? "create" : seen.method == "PUT" ? "update" : lower(seen.method);
}

RecordedRequest parse_head(const std::string& head) {
  RecordedRequest seen;
  std::istringstream lines(head);
  std::string target;
  lines >> seen.method >> target;
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line) && line != "\r") {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const size_t begin = std::min(line.find_first_not_of(' ', colon + 1), line.size());
    const size_t end = line.find_last_not_of("\r ");
    seen.headers[lower(line.substr(0, colon))] =
        end < begin ? std::string() : line.substr(begin, end + 1 - begin);
  }
  const size_t question = target.find('?');
  seen.path = target.substr(0, question);
  if (question != std::string::npos) {
    for (const std::string& pair : split(target.substr(question + 1), '&')) {
      const size_t equals = std::min(pair.find('='), pair.size());
      seen.query[decoded(pair.substr(0, equals))] =
          decoded(pair.substr(std::min(equals + 1, pair.size())));
    }
  }
  read_path(seen);
  seen.verb = verb_of(seen);
  seen.at = SystemClock().now();
  return seen;
}

// Reads the next request of a connection; nullopt if the connection has ended.
std::optional<RecordedRequest> read_request(int fd, std::string& buffer) {
  std::string block(64u << 10, '\0');
  while (buffer.size() < kRequestBytesMax) {
    const size_t end = buffer.find("\r\n\r\n");
    if (end != std::string::npos) {
      RecordedRequest seen = parse_head(buffer.substr(0, end + 4));
      const auto length = seen.headers.find("content-length");
      const size_t size = length == seen.headers.end() ? 0 : std::stoul(length->second);
      if (buffer.size() >= end + 4 + size) {
        seen.body = buffer.substr(end + 4, size);
        buffer.erase(0, end + 4 + size);
        return seen;
      }
    }
    const ssize_t got = ::recv(fd, block.data(), block.size(), 0);
    if (got <= 0) return std::nullopt;
    buffer.append(block, 0, static_cast<size_t>(got));
  }
  return std::nullopt;
}

bool is_wanted(const std::string& wanted, const std::string& found) {
  return wanted.empty() || wanted == found;
}

}  // namespace

Exchange::Exchange(FaultProxy& proxy, int client, size_t number, RecordedRequest request)
    : request(std::move(request)), proxy_(proxy), client_(client), number_(number) {}

Exchange::~Exchange() {
  const std::lock_guard lock(proxy_.mutex_);
  proxy_.streams_.erase(stream_.get());
}

conformance::Request Exchange::forwarded() const {
  conformance::Request out{.method = request.method,
                           .target = proxy_.target_.path_prefix + request.path,
                           .headers = proxy_.target_.headers,
                           .body = request.body};
  char separator = '?';
  for (const auto& [key, value] : request.query) {
    out.target += std::exchange(separator, '&');
    out.target += conformance::percent_encoded(key) + "=" + conformance::percent_encoded(value);
  }
  for (const char* name : {"accept", "content-type", "user-agent"}) {
    const auto found = request.headers.find(name);
    if (found != request.headers.end()) out.headers[name] = found->second;
  }
  return out;
}

Reply Exchange::ask() {
  Result<Reply> reply = conformance::exchange(proxy_.target_.endpoint, forwarded());
  if (reply.ok()) return *std::move(reply);
  Reply none;
  none.code = 502;
  none.text = reply.error().message;
  return none;
}

void Exchange::pass() {
  if (request.verb != "watch") {
    answer(ask());
    return;
  }
  if (!open_watch()) return;
  begin_stream();
  while (std::optional<std::string> event = next_event()) line(*event);
  end_stream();
}

void Exchange::answer(int status, const std::string& body, const std::string& fields) {
  {
    const std::lock_guard lock(proxy_.mutex_);
    proxy_.seen_[number_].status = status;
  }
  const bool has_type = fields.find("Content-Type:") != std::string::npos;
  raw("HTTP/1.1 " + std::to_string(status) + " Proxied\r\n" +
      (has_type ? "" : "Content-Type: application/json\r\n") + fields +
      "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
}

void Exchange::answer(const Reply& reply) {
  std::string fields;
  for (const char* name : {"Retry-After", "Warning", "Content-Type"})
    if (const std::string value = reply.header(lower(name)); !value.empty())
      fields += std::string(name) + ": " + value + "\r\n";
  answer(reply.code, reply.text, fields);
}

bool Exchange::open_watch() {
  Result<std::unique_ptr<ReplyStream>> opened =
      ReplyStream::open(proxy_.target_.endpoint, forwarded());
  if (!opened.ok()) {
    answer(502, opened.error().message, "Content-Type: text/plain\r\n");
    return false;
  }
  if ((*opened)->code() != 200) {
    Reply reply = (*opened)->head();
    for (Result<std::string> more = (*opened)->read(); more.ok() && !more->empty();
         more = (*opened)->read())
      reply.text += *more;
    answer(reply);
    return false;
  }
  stream_ = *std::move(opened);
  const std::lock_guard lock(proxy_.mutex_);
  proxy_.streams_.insert(stream_.get());
  if (proxy_.is_ending_) stream_->abort();
  return true;
}

std::optional<std::string> Exchange::next_event() {
  Result<std::optional<std::string>> line = stream_->read_line();
  if (line.ok()) return *std::move(line);
  hang_up();
  return std::nullopt;
}

void Exchange::begin_stream() {
  {
    const std::lock_guard lock(proxy_.mutex_);
    proxy_.seen_[number_].status = 200;
  }
  raw("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n");
}

void Exchange::chunk(const std::string& bytes) {
  if (bytes.empty()) return;
  std::ostringstream size;
  size << std::hex << bytes.size();
  raw(size.str() + "\r\n" + bytes + "\r\n");
}

void Exchange::end_stream() {
  if (!hung_up_) raw("0\r\n\r\n");
}

void Exchange::raw(const std::string& bytes) {
  send_all(client_, bytes);
}

void Exchange::wait_for_client_close() {
  char bytes[1024];
  while (::recv(client_, bytes, sizeof bytes, 0) > 0) {
  }
  hang_up();
}

void Exchange::wait(const std::string& gate) {
  std::unique_lock lock(proxy_.mutex_);
  proxy_.changed_.wait(lock, [&] { return proxy_.is_ending_ || proxy_.gates_.contains(gate); });
}

void Exchange::take(Duration time) {
  std::unique_lock lock(proxy_.mutex_);
  proxy_.changed_.wait_for(lock, time, [&] { return proxy_.is_ending_; });
}

FaultProxy::FaultProxy(const conformance::Target& target, bool listening) : target_(target) {
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  CHECK(::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) == 0);
  CHECK(::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  port_ = ntohs(address.sin_port);
  if (listening) listen();
}

FaultProxy::~FaultProxy() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
    for (ReplyStream* stream : streams_) stream->abort();
  }
  changed_.notify_all();
  ::shutdown(listener_, SHUT_RDWR);
  if (acceptor_.joinable()) acceptor_.join();
  cut();
  for (std::thread& thread : threads_) thread.join();
  ::close(listener_);
}

void FaultProxy::listen() {
  CHECK(::listen(listener_, 64) == 0);
  acceptor_ = std::thread([this] { accept_all(); });
}

void FaultProxy::on(Rule rule) {
  const std::lock_guard lock(mutex_);
  rules_.push_back({.rule = std::move(rule)});
}

void FaultProxy::clear_rules() {
  const std::lock_guard lock(mutex_);
  rules_.clear();
}

void FaultProxy::open_gate(const std::string& gate) {
  {
    const std::lock_guard lock(mutex_);
    gates_.insert(gate);
  }
  changed_.notify_all();
}

void FaultProxy::cut() {
  const std::lock_guard lock(mutex_);
  for (const int client : clients_) ::shutdown(client, SHUT_RDWR);
}

std::vector<RecordedRequest> FaultProxy::seen(const std::string& verb,
                                              const std::string& resource) const {
  const std::lock_guard lock(mutex_);
  std::vector<RecordedRequest> found;
  for (const RecordedRequest& one : seen_)
    if (is_wanted(verb, one.verb) && is_wanted(resource, one.resource)) found.push_back(one);
  return found;
}

std::vector<RecordedRequest> FaultProxy::writes() const {
  std::vector<RecordedRequest> found = seen();
  std::erase_if(found, [](const RecordedRequest& one) { return one.method == "GET"; });
  return found;
}

void FaultProxy::accept_all() {
  while (true) {
    const int client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) return;
    const int no_delay = 1;
    ::setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &no_delay, sizeof no_delay);
    const std::lock_guard lock(mutex_);
    clients_.insert(client);
    threads_.emplace_back([this, client] { serve(client); });
  }
}

void FaultProxy::serve(int client) {
  std::string buffer;
  bool is_open = true;
  while (is_open) {
    std::optional<RecordedRequest> request = read_request(client, buffer);
    if (!request) break;
    size_t number = 0;
    {
      const std::lock_guard lock(mutex_);
      number = seen_.size();
      seen_.push_back(*request);
    }
    const Fault fault = fault_for(*request);
    Exchange exchange(*this, client, number, *std::move(request));
    if (fault) {
      fault(exchange);
    } else {
      exchange.pass();
    }
    is_open = !exchange.is_hung_up();
  }
  const std::lock_guard lock(mutex_);
  clients_.erase(client);
  ::close(client);
}

Fault FaultProxy::fault_for(const RecordedRequest& request) {
  const std::lock_guard lock(mutex_);
  for (ActiveRule& active : rules_) {
    const Rule& rule = active.rule;
    if (!is_wanted(rule.verb, request.verb) || !is_wanted(rule.resource, request.resource) ||
        (rule.only && !rule.only(request)))
      continue;
    const int number = active.matched++;
    if (number < rule.skip) continue;
    if (rule.times >= 0 && number >= rule.skip + rule.times) continue;
    return rule.fault;
  }
  return {};
}

Fault answered(int status, std::string body, std::string fields) {
  return [=](Exchange& exchange) { exchange.answer(status, body, fields); };
}

Fault failed(int status, const std::string& reason, const std::string& fields) {
  return answered(status, dump_json(status_of(status, reason)), fields);
}

Fault reply_lost() {
  return [](Exchange& exchange) {
    (void)exchange.ask();
    exchange.hang_up();
  };
}

Fault passed() {
  return [](Exchange& exchange) { exchange.pass(); };
}

Fault refused() {
  return [](Exchange& exchange) { exchange.hang_up(); };
}

Fault held_until(std::string gate) {
  return [=](Exchange& exchange) {
    exchange.wait(gate);
    exchange.pass();
  };
}

Fault slow(Duration time) {
  return [=](Exchange& exchange) {
    exchange.take(time);
    exchange.pass();
  };
}

Fault with_query(std::string key, std::string value) {
  return [=](Exchange& exchange) {
    exchange.request.query[key] = value;
    exchange.pass();
  };
}

Fault filtered(std::function<std::vector<std::string>(const std::string& line)> filter) {
  return [=](Exchange& exchange) {
    if (!exchange.open_watch()) return;
    exchange.begin_stream();
    while (std::optional<std::string> event = exchange.next_event())
      for (const std::string& line : filter(*event)) exchange.line(line);
    exchange.end_stream();
  };
}

Fault ended_after(int events) {
  return [=](Exchange& exchange) {
    if (!exchange.open_watch()) return;
    exchange.begin_stream();
    for (int i = 0; i < events; ++i) {
      std::optional<std::string> event = exchange.next_event();
      if (!event) break;
      exchange.line(*event);
    }
    exchange.end_stream();
  };
}

std::string event_line(const std::string& type, const Json& object) {
  return dump_json({{"type", type}, {"object", object}});
}

Json status_of(int code, const std::string& reason) {
  return {{"kind", "Status"},    {"apiVersion", "v1"}, {"metadata", Json::object()},
          {"status", "Failure"}, {"message", reason},  {"reason", reason},
          {"code", code}};
}

}  // namespace lockstep::semantics
