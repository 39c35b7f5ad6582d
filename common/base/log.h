#pragma once

#include <concepts>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>

namespace lockstep {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// One key=value pair of a log line. Numbers and booleans are written plainly; text is quoted if
// needed.
struct LogField {
  LogField(std::string_view key, std::string_view value) : key(key), value(value) {}
  LogField(std::string_view key, const char* value) : key(key), value(value) {}
  LogField(std::string_view key, const std::string& value) : key(key), value(value) {}
  LogField(std::string_view key, bool value) : key(key), value(value ? "true" : "false") {}
  template <class T>
  requires(std::is_arithmetic_v<T> && !std::same_as<T, bool>)
      LogField(std::string_view key, T value)
      : key(key), value(number(value)) {}

  std::string_view key;
  std::string value;

 private:
  static std::string number(double value);
  template <std::integral T>
  static std::string number(T value) {
    return std::to_string(value);
  }
};

// Writes one line to stderr in a single write(2): `<RFC 3339 time> <LEVEL> message="..." key=value
// ...`, or the same content as a JSON object. `message` is constant text; variable parts go into
// fields. Thread-safe; never fails.
void log(LogLevel level, std::string_view message, std::initializer_list<LogField> fields = {});

inline void log_debug(std::string_view message, std::initializer_list<LogField> fields = {}) {
  log(LogLevel::kDebug, message, fields);
}
inline void log_info(std::string_view message, std::initializer_list<LogField> fields = {}) {
  log(LogLevel::kInfo, message, fields);
}
inline void log_warning(std::string_view message, std::initializer_list<LogField> fields = {}) {
  log(LogLevel::kWarning, message, fields);
}
inline void log_error(std::string_view message, std::initializer_list<LogField> fields = {}) {
  log(LogLevel::kError, message, fields);
}

struct LogOptions {
  LogLevel minimum = LogLevel::kInfo;
  bool json = false;
  std::string program;  // added to every line as a field, if not empty
};

// Sets the options for all later lines. Call once from main, before starting threads.
void set_log_options(LogOptions options);

}  // namespace lockstep
