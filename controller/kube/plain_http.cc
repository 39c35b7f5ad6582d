#include "controller/kube/plain_http.h"

#include <algorithm>

#include "common/http/body_cipher.h"
#include "controller/kube/plain_connection.h"

namespace lockstep::kube {
namespace {

// Control characters would end a part of the head early and begin another.
bool has_control(const std::string& text) {
  return std::any_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

std::vector<HttpField> fields_of(const HttpRequest& request, const std::string& host,
                                 size_t sent_bytes) {
  std::vector<HttpField> fields = {
      {"Host", host}, {"User-Agent", "lockstep"}, {"Accept", request.accept}};
  if (!request.authorization.empty()) fields.push_back({"Authorization", request.authorization});
  fields.insert(fields.end(), request.fields.begin(), request.fields.end());
  if (!request.body.empty()) fields.push_back({"Content-Type", request.content_type});
  if (!request.body.empty() || request.method != "GET") {
    fields.push_back({"Content-Length", std::to_string(sent_bytes)});
  }
  return fields;
}

Result<std::string> head_of(const HttpRequest& request, const std::string& host,
                            bool is_encrypted) {
  const Error bad = invalid("[http] expected a request head without control characters");
  if (has_control(request.path_and_query)) return bad;
  std::string head = request.method + " " + request.path_and_query + " HTTP/1.1\r\n";
  const size_t bytes = request.body.size();
  const size_t sent_bytes = is_encrypted ? http::encrypted_size(bytes) : bytes;
  for (const HttpField& field : fields_of(request, host, sent_bytes)) {
    if (has_control(field.name) || has_control(field.value)) return bad;
    head += field.name + ": " + field.value + "\r\n";
  }
  return head;
}

std::string host_of(const PlainHttpClient::Server& server) {
  const bool is_ipv6 = server.address.find(':') != std::string::npos;
  const std::string host = is_ipv6 ? "[" + server.address + "]" : server.address;
  return host + ":" + std::to_string(server.port);
}

std::shared_ptr<PlainPool> pool_for(const PlainHttpClient::Server& server, PlainNetwork& network,
                                    std::optional<PlainSession> session) {
  boost::system::error_code error;
  const auto address = boost::asio::ip::make_address(server.address, error);
  if (error) return nullptr;
  return std::make_shared<PlainPool>(network, PlainPool::Options{.endpoint = {address, server.port},
                                                                 .host = host_of(server),
                                                                 .session = std::move(session)});
}

}  // namespace

PlainHttpClient::PlainHttpClient(Server server, Mailbox& mailbox, loop::Timers& timers,
                                 std::shared_ptr<PlainNetwork> network,
                                 std::optional<PlainSession> session)
    : server_(std::move(server)),
      mailbox_(mailbox),
      timers_(timers),
      network_(std::move(network)),
      has_session_(session.has_value()),
      encrypts_(session && session->encrypts),
      pool_(pool_for(server_, *network_, std::move(session))) {}

PlainHttpClient::~PlainHttpClient() {
  for (const std::weak_ptr<PlainExchange>& exchange : exchanges_) {
    if (const auto open = exchange.lock()) open->abandon();
  }
  if (pool_ == nullptr) return;
  network_->post([pool = std::move(pool_)] { pool->close(); });
}

void PlainHttpClient::send(HttpRequest request, std::function<void(Result<HttpReply>)> done) {
  if (has_session_) request.authorization.clear();
  Result<std::string> head = head_of(request, host_of(server_), encrypts_);
  if (pool_ == nullptr)
    head = invalid("[http] expected an IP address, got \"" + server_.address + "\"");
  auto exchange = std::make_shared<PlainExchange>(
      mailbox_, timers_, network_,
      PlainExchange::Request{.method = request.method,
                             .target = request.path_and_query,
                             .head = head.ok() ? *head : "",
                             .body = std::move(request.body),
                             .may_repeat = request.method == "GET",
                             .reply_bytes_max = request.reply_bytes_max},
      std::move(done));
  std::erase_if(exchanges_, [](const auto& old) { return old.expired(); });
  exchanges_.push_back(exchange);
  exchange->start(request.deadline);
  if (!head.ok()) return exchange->fail(head.error());
  network_->post([pool = pool_, exchange] { pool->run(exchange); });
}

}  // namespace lockstep::kube
