#pragma once

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/optional.hpp>
#include <cstdint>
#include <functional>
#include <string_view>

namespace lockstep::kube {

// A Boost.Beast body that keeps nothing: it hands each piece to a function as it is parsed,
// whatever length the head announced. If the function returns false, the reply ends as one that is
// too large.
struct ReplyBody {
  using value_type = std::function<bool(std::string_view piece)>;

  class reader {
   public:
    template <bool is_request, class Fields>
    reader(boost::beast::http::header<is_request, Fields>&, value_type& take) : take_(take) {}

    void init(const boost::optional<uint64_t>&, boost::system::error_code& error) { error = {}; }
    template <class Buffers>
    size_t put(const Buffers& buffers, boost::system::error_code& error) {
      error = {};
      size_t bytes = 0;
      for (auto at = boost::asio::buffer_sequence_begin(buffers);
           at != boost::asio::buffer_sequence_end(buffers); ++at) {
        const boost::asio::const_buffer piece = *at;
        bytes += piece.size();
        if (take_({static_cast<const char*>(piece.data()), piece.size()})) continue;
        error = boost::beast::http::error::body_limit;
        break;
      }
      return bytes;
    }
    void finish(boost::system::error_code& error) { error = {}; }

   private:
    value_type& take_;
  };
};

}  // namespace lockstep::kube
