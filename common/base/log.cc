#include "common/base/log.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>

#include "common/base/clock.h"

namespace lockstep {
namespace {

LogOptions& options() {
  static LogOptions instance;
  return instance;
}

constexpr std::string_view kLevelNames[] = {"DEBUG", "INFO", "WARNING", "ERROR"};

void append_quoted(std::string& line, std::string_view text) {
  line += '"';
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      line += '\\';
      line += c;
    } else if (c == '\n') {
      line += "\\n";
    } else if (byte < 0x20 || byte == 0x7f) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", byte);
      line += escape;
    } else {
      line += c;
    }
  }
  line += '"';
}

bool is_plain(std::string_view text) {
  if (text.empty()) return false;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte <= ' ' || c == '"' || c == '=' || c == '\\' || byte >= 0x7f) return false;
  }
  return true;
}

void append_field(std::string& line, bool json, std::string_view key, std::string_view value) {
  if (json) {
    line += ',';
    append_quoted(line, key);
    line += ':';
    append_quoted(line, value);
    return;
  }
  line += ' ';
  line += key;
  line += '=';
  if (is_plain(value)) {
    line += value;
  } else {
    append_quoted(line, value);
  }
}

}  // namespace

std::string LogField::number(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

void set_log_options(LogOptions value) {
  options() = std::move(value);
}

void log(LogLevel level, std::string_view message, std::initializer_list<LogField> fields) {
  const LogOptions& settings = options();
  if (level < settings.minimum) return;
  const std::string time = rfc3339_micro(SystemClock().wall_now());
  const std::string_view name = kLevelNames[static_cast<size_t>(level)];
  std::string line;
  line.reserve(256);
  if (settings.json) {
    line += "{\"time\":\"" + time + "\"";
    append_field(line, true, "level", name);
    append_field(line, true, "message", message);
  } else {
    line += time;
    line += ' ';
    line += name;
    append_field(line, false, "message", message);
  }
  if (!settings.program.empty()) append_field(line, settings.json, "program", settings.program);
  for (const LogField& field : fields) append_field(line, settings.json, field.key, field.value);
  if (settings.json) line += '}';
  line += '\n';
  // If the log cannot be written, the line is dropped: there is nowhere left to report it.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace lockstep
