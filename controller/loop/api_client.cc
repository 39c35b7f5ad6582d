#include "controller/loop/api_client.h"

namespace lockstep::loop {

std::string_view outcome_name(ApiOutcome outcome) {
  switch (outcome) {
    case ApiOutcome::kOk:
      return "Ok";
    case ApiOutcome::kNotFound:
      return "NotFound";
    case ApiOutcome::kAlreadyExists:
      return "AlreadyExists";
    case ApiOutcome::kConflict:
      return "Conflict";
    case ApiOutcome::kExpired:
      return "Expired";
    case ApiOutcome::kTooLarge:
      return "ResourceVersionTooLarge";
    case ApiOutcome::kInvalid:
      return "Invalid";
    case ApiOutcome::kUnauthorized:
      return "Unauthorized";
    case ApiOutcome::kForbidden:
      return "Forbidden";
    case ApiOutcome::kThrottled:
      return "TooManyRequests";
    case ApiOutcome::kUnavailable:
      return "Unavailable";
    case ApiOutcome::kUnreadable:
      return "Unreadable";
    case ApiOutcome::kTimeout:
      return "Timeout";
  }
  return "Unknown";
}

ApiReply not_sent() {
  return {.outcome = ApiOutcome::kUnavailable,
          .message = "not sent: the lease may be another's by now"};
}

}  // namespace lockstep::loop
