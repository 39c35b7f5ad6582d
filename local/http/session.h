#pragma once

#include <utility>  // Boost 1.74's awaitable.hpp needs it and does not include it

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <memory>
#include <set>

#include "local/http/server.h"

namespace lockstep::local {

// State shared by the sessions of one server. Only the server's thread uses it.
struct SessionContext {
  Api& api;
  const ApiServerOptions& options;
  boost::asio::ssl::context* tls = nullptr;  // null: plain HTTP
  size_t connections = 0;
  std::set<boost::asio::steady_timer*> watchers;  // each wakes a stream that waits for changes
  bool stopping = false;

  void wake_watchers();
};

// Serves one connection until it ends. An exception ends only this connection.
boost::asio::awaitable<void> serve_connection(SessionContext& context,
                                              boost::beast::tcp_stream stream);

}  // namespace lockstep::local
