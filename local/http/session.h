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

// What the sessions of one server share; all of it belongs to the server's thread.
struct SessionContext {
  Api& api;
  const ApiServerOptions& options;
  boost::asio::ssl::context* tls = nullptr;  // null: plain HTTP
  size_t connections = 0;
  std::set<boost::asio::steady_timer*> watchers;  // each wakes a watch that waits for changes
  bool stopping = false;

  void wake_watchers();
};

// Serves one connection until it ends; exceptions stay inside.
boost::asio::awaitable<void> serve_connection(SessionContext& context,
                                              boost::beast::tcp_stream stream);

}  // namespace lockstep::local
