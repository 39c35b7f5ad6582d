#include "bench/comm/settings.h"

#include <algorithm>
#include <charconv>
#include <sstream>

namespace lockstep::bench {
namespace {

std::string with_dashes(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

std::string lower(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return name;
}

std::vector<std::string> parts(const std::string& text, char separator) {
  std::vector<std::string> found;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) found.push_back(part);
  return found;
}

Result<int64_t> number(const std::string& flag, const std::string& text, int64_t least,
                       int64_t most) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  int64_t unit = 1;
  if (at + 1 == end && *at == 'K') unit = int64_t{1} << 10;
  if (at + 1 == end && *at == 'M') unit = int64_t{1} << 20;
  if (at + 1 == end && *at == 'G') unit = int64_t{1} << 30;
  const bool whole = error == std::errc() && (at == end || unit > 1);
  if (!whole || value < 0 || value > most / unit || value * unit < least) {
    return invalid(flag + ": '" + text + "' is not a number from " + std::to_string(least) +
                   " to " + std::to_string(most));
  }
  return value * unit;
}

// Returns the index whose name is `text`.
template <class NameOf>
Result<int> choice(const std::string& flag, const std::string& text, int count, NameOf name) {
  std::string known;
  for (int i = 0; i < count; ++i) {
    const std::string candidate = name(i);
    if (candidate.empty()) continue;
    if (candidate == text) return i;
    known += (known.empty() ? "" : ", ") + candidate;
  }
  return invalid(flag + ": '" + text + "' is not one of " + known);
}

std::string operation_choice(int kind) {
  const auto collective = static_cast<comm::Collective>(kind);
  if (kind == 0 || collective == comm::Collective::kForm ||
      collective == comm::Collective::kReceive)
    return "";
  if (collective == comm::Collective::kSend) return "send-receive";
  return with_dashes(name_of(collective));
}

Status take_operations(BenchSettings& settings, const std::string& text) {
  for (const std::string& name : parts(text, ',')) {
    TRY_ASSIGN(const int kind, choice("operation", name, comm::kCollectives + 1, operation_choice));
    settings.operations.push_back(static_cast<comm::Collective>(kind));
  }
  return {};
}

Status take_backends(BenchSettings& settings, const std::string& text) {
  for (const std::string& name : parts(text, ',')) {
    TRY_ASSIGN(const int backend, choice("--backend", name, kBackends, [](int i) {
                 return std::string(name_of(static_cast<Backend>(i)));
               }));
    settings.backends.push_back(static_cast<Backend>(backend));
  }
  return {};
}

Status take_sizes(BenchSettings& settings, const std::string& text) {
  constexpr int64_t kBytesMax = int64_t{16} << 30;
  const auto sizes = parts(text, ':');
  if (sizes.empty() || sizes.size() > 3)
    return invalid("--sizes: expected FROM:TO[:FACTOR], got " + text);
  TRY_ASSIGN(settings.bytes_min, number("--sizes", sizes[0], 1, kBytesMax));
  settings.bytes_max = settings.bytes_min;
  if (sizes.size() > 1) {
    TRY_ASSIGN(settings.bytes_max, number("--sizes", sizes[1], settings.bytes_min, kBytesMax));
  }
  if (sizes.size() > 2) {
    TRY_ASSIGN(settings.factor, number("--sizes", sizes[2], 2, 1024));
  }
  return {};
}

Status take(BenchSettings& settings, const std::string& flag, const std::string& text) {
  if (flag == "--sizes") return take_sizes(settings, text);
  if (flag == "--backend") return take_backends(settings, text);
  if (flag == "--json") {
    settings.json = text;
  } else if (flag == "--ranks") {
    TRY_ASSIGN(const int64_t ranks, number(flag, text, 1, 64));
    settings.ranks = static_cast<int>(ranks);
  } else if (flag == "--root") {
    TRY_ASSIGN(const int64_t root, number(flag, text, 0, 63));
    settings.root = static_cast<int>(root);
  } else if (flag == "--iterations") {
    TRY_ASSIGN(const int64_t iterations, number(flag, text, 1, 10'000'000));
    settings.iterations = static_cast<int>(iterations);
  } else if (flag == "--type") {
    TRY_ASSIGN(const int type, choice(flag, text, comm::kDataTypes, [](int i) {
                 return std::string(name_of(static_cast<comm::DataType>(i)));
               }));
    settings.type = static_cast<comm::DataType>(type);
  } else if (flag == "--op") {
    TRY_ASSIGN(const int op, choice(flag, text, comm::kReduceOps, [](int i) {
                 return lower(name_of(static_cast<comm::ReduceOp>(i)));
               }));
    settings.op = static_cast<comm::ReduceOp>(op);
  } else if (flag == "--algorithm") {
    TRY_ASSIGN(const int algorithm, choice(flag, text, comm::kAlgorithms, [](int i) {
                 return std::string(name_of(static_cast<comm::Algorithm>(i)));
               }));
    settings.algorithm = static_cast<comm::Algorithm>(algorithm);
  } else {
    return invalid("unknown argument " + flag);
  }
  return {};
}

}  // namespace

const char* name_of(Backend backend) {
  switch (backend) {
    case Backend::kThreads:
      return "threads";
    case Backend::kSharedMemory:
      return "shm";
    case Backend::kTcp:
      return "tcp";
    case Backend::kEncryptedTcp:
      return "tcp-encrypted";
    case Backend::kMixed:
      return "mixed";
    case Backend::kNccl:
      return "nccl";
    case Backend::kStaged:
      return "staged";
  }
  return "";
}

Result<BenchSettings> parse_settings(const std::vector<std::string>& arguments) {
  BenchSettings settings;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--pin") {
      settings.pin = true;
    } else if (argument == "topology") {
      settings.topology = true;
    } else if (argument.rfind("--", 0) != 0) {
      TRY(take_operations(settings, argument));
    } else if (i + 1 == arguments.size()) {
      return invalid(argument + " needs a value");
    } else {
      TRY(take(settings, argument, arguments[++i]));
    }
  }
  if (settings.operations.empty() == !settings.topology) {
    return invalid(settings.topology ? "topology does not take an operation"
                                     : "expected an operation or topology");
  }
  if (settings.backends.empty()) settings.backends = {Backend::kSharedMemory};
  if (settings.root >= settings.ranks) {
    return invalid("--root: " + std::to_string(settings.root) + " is out of range (" +
                   std::to_string(settings.ranks) + " ranks)");
  }
  return settings;
}

}  // namespace lockstep::bench
