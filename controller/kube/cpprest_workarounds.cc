#include "controller/kube/cpprest_workarounds.h"

#include <openssl/ssl.h>

#include <map>

#include "controller/kube/socket_options.h"

namespace lockstep::kube {

void add_fields(web::http::http_headers& headers, const std::vector<HttpField>& fields) {
  std::map<std::string, std::string> values;
  for (const auto& [name, value] : fields) {
    const auto [at, is_new] = values.emplace(name, value);
    if (!is_new) at->second += "\r\n" + name + ": " + value;
  }
  for (const auto& [name, value] : values) headers.add(name, value);
}

void open_and_tune(boost::asio::ip::tcp::socket& socket,
                   const std::optional<boost::asio::ip::address>& address) {
  using boost::asio::ip::tcp;
  boost::system::error_code ignored;  // connecting reports it again
  if (!socket.is_open() && address) socket.open(address->is_v4() ? tcp::v4() : tcp::v6(), ignored);
  if (socket.is_open()) set_socket_options(socket.native_handle());
}

}  // namespace lockstep::kube

// Replaces OpenSSL's function for the whole process. cpprestsdk calls it for every connection, and
// a bundle of all public authorities takes 30 ms to read. Here it is read once, then shared.
extern "C" int SSL_CTX_set_default_verify_paths(SSL_CTX* context) {
  static X509_STORE* const system = [] {
    X509_STORE* store = X509_STORE_new();
    if (store != nullptr) X509_STORE_set_default_paths(store);
    return store;
  }();
  if (system == nullptr) return 0;
  SSL_CTX_set1_cert_store(context, system);
  return 1;
}
