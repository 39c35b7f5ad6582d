#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "common/base/check.h"

namespace lockstep {

// The code tells the caller what to do next:
// - kInvalid: correct the input.
// - kNotFound: create it or give up.
// - kConflict: read again and retry.
// - kUnavailable: retry later.
// - kTimeout: retry or abort.
// - kCorrupt: discard the data and fall back.
// - kInternal: report a bug in our code.
enum class Code { kInvalid, kNotFound, kConflict, kUnavailable, kTimeout, kCorrupt, kInternal };

// Blame says whose fault a failure is, and so who must change before another try can succeed.
// - Set by the code that creates the error, if it knows. Code that serves several purposes (such as
//   reading a file) leaves it to the component that knows the purpose.
// - Kept while the error passes up: code that adds context uses Error::with_message().
// - Read where a program ends. lockstep-worker derives its exit code from it
//   (agent/train/exit_code.h), by which the controller decides whom to restart.
enum class Blame {
  kUnknown,     // this process itself, as far as anybody knows
  kConfig,      // what the user asked for, or hardware that cannot do it
  kData,        // the training data, or the weights to start from
  kStorage,     // where checkpoints and metrics are stored
  kPeer,        // another rank left, refused, or computes something else
  kPeerHung,    // another rank is there, but did not reach a collective in time
  kDevice,      // the GPU that this rank was assigned
  kPort,        // the port to listen on is in use
  kDivergence,  // the loss or a gradient is not finite
  kLossSpike,   // the loss is far above those before
  kFenced,      // another job, or a newer round of this one, owns the checkpoint folder
};
// `message` has the form `[where] what was expected, what was found`. A user's mistake starts with
// its path in the document instead: `spec.train.batch.micro: 48 does not divide
// spec.train.batch.global: 512`.
struct Error {
  Code code = Code::kInternal;
  std::string message;
  Blame blame = Blame::kUnknown;

  // Returns this error with another message.
  Error with_message(std::string other) const { return {code, std::move(other), blame}; }
  // Returns this error with another blame.
  Error blaming(Blame other) const { return {code, message, other}; }

  bool operator==(const Error&) const = default;
};

inline Error invalid(std::string message, Blame blame = Blame::kUnknown) {
  return {Code::kInvalid, std::move(message), blame};
}
inline Error not_found(std::string message, Blame blame = Blame::kUnknown) {
  return {Code::kNotFound, std::move(message), blame};
}
inline Error conflict(std::string message, Blame blame = Blame::kUnknown) {
  return {Code::kConflict, std::move(message), blame};
}
inline Error unavailable(std::string message, Blame blame = Blame::kUnknown) {
  return {Code::kUnavailable, std::move(message), blame};
}
inline Error timed_out(std::string message, Blame blame = Blame::kUnknown) {
  return {Code::kTimeout, std::move(message), blame};
}
inline Error corrupt(std::string message, Blame blame = Blame::kUnknown) {
  return {Code::kCorrupt, std::move(message), blame};
}
inline Error internal(std::string message, Blame blame = Blame::kUnknown) {
  return {Code::kInternal, std::move(message), blame};
}

// Returns `[where] what: <strerror(error_number)>` with code kUnavailable (kNotFound for ENOENT).
Error errno_error(std::string_view what, int error_number, Blame blame = Blame::kUnknown);

// Either a value or an Error. Accessing the one it does not hold is a bug and trips CHECK.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  const T& value() const& {
    CHECK(ok());
    return *std::get_if<0>(&state_);
  }
  T& value() & {
    CHECK(ok());
    return *std::get_if<0>(&state_);
  }
  T&& value() && {
    CHECK(ok());
    return std::move(*std::get_if<0>(&state_));
  }
  const Error& error() const {
    CHECK(!ok());
    return *std::get_if<1>(&state_);
  }

  const T& operator*() const& { return value(); }
  T& operator*() & { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  const T* operator->() const { return &value(); }
  T* operator->() { return &value(); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}

  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Error& error() const {
    CHECK(!ok());
    return *error_;
  }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

}  // namespace lockstep

#define LOCKSTEP_CONCAT_(a, b) a##b
#define LOCKSTEP_CONCAT(a, b) LOCKSTEP_CONCAT_(a, b)

// TRY(expr): if the Status or Result is an error, returns that error from the enclosing function.
#define TRY(expression)                                                                 \
  do {                                                                                  \
    if (auto try_status_ = (expression); !try_status_.ok()) return try_status_.error(); \
  } while (false)

// TRY_ASSIGN(auto x, expr): assigns the value, or returns the error from the enclosing function.
#define TRY_ASSIGN(target, expression) \
  TRY_ASSIGN_(LOCKSTEP_CONCAT(try_result_, __LINE__), target, expression)
#define TRY_ASSIGN_(name, target, expression) \
  auto name = (expression);                   \
  if (!name.ok()) return name.error();        \
  target = std::move(name).value()
