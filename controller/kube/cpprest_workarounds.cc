#include "controller/kube/cpprest_workarounds.h"

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
