#include "local/schema/format.h"

#include <arpa/inet.h>

#include <algorithm>
#include <string>

#include "common/base/base64.h"

namespace lockstep::local {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_hex(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

// Returns whether the text has the shape: 0 matches any digit, x any hexadecimal digit, and any
// other character itself.
bool is_like(std::string_view text, std::string_view shape) {
  return std::equal(text.begin(), text.end(), shape.begin(), shape.end(), [](char c, char like) {
    return like == '0' ? is_digit(c) : like == 'x' ? is_hex(c) : c == like;
  });
}

int number_at(std::string_view text, size_t begin, size_t count) {
  int number = 0;
  for (const char c : text.substr(begin, count)) number = number * 10 + (c - '0');
  return number;
}

bool is_date(std::string_view text) {
  if (!is_like(text, "0000-00-00")) return false;
  const int year = number_at(text, 0, 4), month = number_at(text, 5, 2);
  const int day = number_at(text, 8, 2);
  if (month < 1 || month > 12 || day < 1) return false;
  static constexpr int kDays[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  const bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
  return day <= kDays[month - 1] + (leap && month == 2 ? 1 : 0);
}

// RFC 3339: 2026-01-02T03:04:05Z, optionally with a fraction or another time zone.
bool is_date_time(std::string_view text) {
  if (text.size() < 20 || !is_date(text.substr(0, 10)) || (text[10] != 'T' && text[10] != 't')) {
    return false;
  }
  if (!is_like(text.substr(11, 8), "00:00:00")) return false;
  if (number_at(text, 11, 2) > 23 || number_at(text, 14, 2) > 59 || number_at(text, 17, 2) > 60) {
    return false;
  }
  text.remove_prefix(19);
  if (text.front() == '.') {
    text.remove_prefix(1);
    const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
    if (digits == 0) return false;
    text.remove_prefix(digits);
  }
  return text == "Z" || text == "z" || is_like(text, "+00:00") || is_like(text, "-00:00");
}

// Go's duration format: 1h30m, 250ms, -1.5s, 0.
bool is_duration(std::string_view text) {
  if (!text.empty() && (text.front() == '-' || text.front() == '+')) text.remove_prefix(1);
  if (text == "0") return true;
  if (text.empty()) return false;
  while (!text.empty()) {
    const size_t number = std::min(text.find_first_not_of("0123456789."), text.size());
    const std::string_view digits = text.substr(0, number);
    if (number == 0 || std::count(digits.begin(), digits.end(), '.') > 1 || digits == ".") {
      return false;
    }
    text.remove_prefix(number);
    const size_t letters = std::min(text.find_first_of("0123456789."), text.size());
    const std::string_view unit = text.substr(0, letters);
    static constexpr std::string_view kUnits[] = {"ns", "us", "µs", "ms", "s", "m", "h"};
    if (std::find(std::begin(kUnits), std::end(kUnits), unit) == std::end(kUnits)) return false;
    text.remove_prefix(letters);
  }
  return true;
}

bool is_address(int family, std::string_view text) {
  unsigned char bytes[sizeof(in6_addr)];
  if (text.find('\0') != std::string_view::npos) return false;
  return inet_pton(family, std::string(text).c_str(), bytes) == 1;
}

bool is_cidr(std::string_view text) {
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos) return false;
  const std::string_view address = text.substr(0, slash), prefix = text.substr(slash + 1);
  const int bits_max = is_address(AF_INET, address) ? 32 : is_address(AF_INET6, address) ? 128 : -1;
  return !prefix.empty() && prefix.size() <= 3 &&
         std::all_of(prefix.begin(), prefix.end(), is_digit) &&
         number_at(prefix, 0, prefix.size()) <= bits_max;
}

bool is_hostname(std::string_view text) {
  if (text.empty() || text.size() > 255) return false;
  while (true) {
    const size_t dot = std::min(text.find('.'), text.size());
    const std::string_view label = text.substr(0, dot);
    const bool fits =
        !label.empty() && label.size() <= 63 && label.front() != '-' && label.back() != '-' &&
        std::all_of(label.begin(), label.end(), [](char c) {
          return is_digit(c) || c == '-' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        });
    if (!fits) return false;
    if (dot == text.size()) return true;
    text.remove_prefix(dot + 1);
  }
}

// Accepts a text with a scheme, or an absolute path.
bool is_uri(std::string_view text) {
  if (text.empty() || text.find_first_of(" \t\r\n") != std::string_view::npos) return false;
  const size_t colon = text.find(':');
  return text.front() == '/' || (colon != std::string_view::npos && colon > 0);
}

bool is_email(std::string_view text) {
  const size_t at = text.rfind('@');
  return at != std::string_view::npos && at > 0 &&
         text.find_first_of(" \t\r\n") == std::string_view::npos &&
         is_hostname(text.substr(at + 1));
}

}  // namespace

bool has_format(std::string_view format, std::string_view text) {
  if (format == "date-time" || format == "datetime") return is_date_time(text);
  if (format == "date") return is_date(text);
  if (format == "duration") return is_duration(text);
  if (format == "byte") return base64_decode(text).ok();
  if (format == "ipv4") return is_address(AF_INET, text);
  if (format == "ipv6") return is_address(AF_INET6, text);
  if (format == "cidr") return is_cidr(text);
  if (format == "mac")
    return is_like(text, "xx:xx:xx:xx:xx:xx") || is_like(text, "xx-xx-xx-xx-xx-xx");
  if (format == "uuid") return is_like(text, "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx");
  if (format == "hostname") return is_hostname(text);
  if (format == "uri") return is_uri(text);
  if (format == "email") return is_email(text);
  return true;
}

}  // namespace lockstep::local
