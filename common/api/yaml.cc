#include "common/api/yaml.h"

#include <fcntl.h>
#include <unistd.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <sstream>
#include <vector>

#include "common/api/problems.h"
#include "common/api/yaml_scalar.h"

namespace lockstep {
namespace {

// Thrown by the event handler to stop the parser; never leaves this file.
struct Refusal {
  YAML::Mark mark;
  std::string message;
};

std::string at(const YAML::Mark& mark) {
  if (mark.is_null()) return "";
  return "line " + std::to_string(mark.line + 1) + ", column " + std::to_string(mark.column + 1) +
         ": ";
}

// Repairs yaml-cpp's output: it emits the escapes \N and \_ (U+0085 and U+00A0) as one Latin-1
// byte, and everything else as UTF-8. So a continuation byte without a lead byte is one of these.
std::string as_utf8(const std::string& text) {
  std::string mended;
  size_t continuations = 0;
  for (const char letter : text) {
    const auto byte = static_cast<unsigned char>(letter);
    const bool continues = (byte & 0xC0) == 0x80;
    if (continues && continuations == 0) mended += '\xC2';
    if (continues) {
      continuations -= continuations > 0 ? 1 : 0;
    } else {
      continuations = byte >= 0xF0 ? 3 : byte >= 0xE0 ? 2 : byte >= 0xC0 ? 1 : 0;
    }
    mended += letter;
  }
  return mended;
}

// Builds the document event by event, so that limits apply before memory is allocated. Aliases
// become copies that count towards the limits, so there are no cycles. (YAML::Load checks none of
// this, reads `&x [*x]` as a cyclic graph and accepts duplicate keys.)
class Builder : public YAML::EventHandler {
 public:
  explicit Builder(const YamlLimits& limits) : limits_(limits) {}

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (begun_) throw Refusal{mark, "found more text after the document, expected one document"};
    begun_ = true;
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    if (expects_key()) throw Refusal{mark, "found an empty key, expected a name"};
    add(mark, anchor, nullptr, {.values = 1});
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& given) override {
    const std::string text = as_utf8(given);
    if (expects_key()) return set_key(mark, text, anchor);
    Result<Json> value = yaml_scalar(tag, text);
    if (!value.ok()) throw Refusal{mark, value.error().message};
    add(mark, anchor, std::move(value).value(), {.values = 1, .bytes = text.size()});
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    if (++aliases_ > limits_.aliases_max) {
      throw Refusal{mark, "more than " + std::to_string(limits_.aliases_max) + " aliases"};
    }
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end()) {
      throw Refusal{mark, "the alias refers to a value that contains it, expected no cycle"};
    }
    if (expects_key()) throw Refusal{mark, "found an alias as a key, expected a name"};
    const Anchored& anchored = found->second;
    if (open_.size() + anchored.depth > static_cast<size_t>(limits_.depth_max)) refuse_depth(mark);
    count(mark, anchored.size);
    place(anchored.value);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, Json::array());
  }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, Json::object());
  }
  void OnSequenceEnd() override { close(); }
  void OnMapEnd() override { close(); }

  Json take() { return std::move(root_); }

 private:
  struct Size {
    size_t values = 0;
    size_t bytes = 0;  // of strings and keys
  };
  struct Anchored {
    Json value;
    Size size;
    size_t depth = 0;  // levels of nesting inside
  };
  struct Open {
    YAML::anchor_t anchor = 0;
    Json value;
    Size before;       // total_ when it was opened
    size_t depth = 1;  // levels of nesting, itself included
    std::string key{};
    bool has_key = false;
  };

  bool expects_key() const {
    return !open_.empty() && open_.back().value.is_object() && !open_.back().has_key;
  }

  void set_key(const YAML::Mark& mark, const std::string& key, YAML::anchor_t anchor) {
    if (anchor != 0) throw Refusal{mark, "found an anchor on a key, expected it on a value"};
    if (key == "<<") {
      throw Refusal{mark, "found the merge key <<, which YAML 1.2 does not have"};
    }
    Open& map = open_.back();
    if (map.value.contains(key)) throw Refusal{mark, "duplicate key " + in_quotes(key)};
    count(mark, {.bytes = key.size()});
    map.key = key;
    map.has_key = true;
  }

  void count(const YAML::Mark& mark, const Size& more) {
    total_.values += more.values;
    total_.bytes += more.bytes;
    if (total_.values > limits_.values_max) {
      throw Refusal{mark, "more than " + std::to_string(limits_.values_max) +
                              " values (each alias counts as the value it refers to)"};
    }
    if (total_.bytes > limits_.bytes_max) {
      throw Refusal{mark, "more than " + std::to_string(limits_.bytes_max) +
                              " bytes of text (each alias counts as the value it refers to)"};
    }
  }

  void place(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return;
    }
    Open& parent = open_.back();
    if (parent.value.is_array()) {
      parent.value.push_back(std::move(value));
      return;
    }
    parent.value[parent.key] = std::move(value);
    parent.has_key = false;
  }

  void add(const YAML::Mark& mark, YAML::anchor_t anchor, Json value, const Size& size) {
    count(mark, size);
    if (anchor != 0) anchors_[anchor] = {value, size, 0};
    place(std::move(value));
  }

  void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, Json value) {
    if (expects_key()) {
      throw Refusal{mark, "found a list or map as a key, expected a name (is a bracket open?)"};
    }
    if (!yaml_collection_tag_is_known(tag)) {
      throw Refusal{mark, "found the tag " + in_quotes(tag) + ", expected none"};
    }
    if (open_.size() >= static_cast<size_t>(limits_.depth_max)) refuse_depth(mark);
    const Size before = total_;
    count(mark, {.values = 1});
    open_.push_back({.anchor = anchor, .value = std::move(value), .before = before});
  }

  void close() {
    Open done = std::move(open_.back());
    open_.pop_back();
    if (!open_.empty()) open_.back().depth = std::max(open_.back().depth, done.depth + 1);
    if (done.anchor != 0) {
      const Size size{.values = total_.values - done.before.values,
                      .bytes = total_.bytes - done.before.bytes};
      anchors_[done.anchor] = {done.value, size, done.depth};
    }
    place(std::move(done.value));
  }

  [[noreturn]] void refuse_depth(const YAML::Mark& mark) const {
    throw Refusal{mark, "nested deeper than " + std::to_string(limits_.depth_max) + " levels"};
  }

  const YamlLimits limits_;
  Json root_;
  std::vector<Open> open_;
  std::map<YAML::anchor_t, Anchored> anchors_;
  Size total_;
  size_t aliases_ = 0;
  bool begun_ = false;
};

}  // namespace

Result<Json> json_from_yaml(std::string_view text, const YamlLimits& limits) {
  if (text.size() > limits.bytes_max) {
    return invalid("a document of " + std::to_string(text.size()) + " bytes, expected at most " +
                   std::to_string(limits.bytes_max));
  }
  TRY(check_yaml_text(text));
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    Builder builder(limits);
    if (!parser.HandleNextDocument(builder)) return invalid("an empty document");
    // Detects a second document, or leftovers of the first one such as a lone `,`: the handler
    // refuses their start, where YAML::LoadAll would never return.
    parser.HandleNextDocument(builder);
    return builder.take();
  } catch (const Refusal& refusal) {
    return invalid(at(refusal.mark) + refusal.message);
  } catch (const YAML::Exception& exception) {
    return invalid(at(exception.mark) + exception.msg);
  } catch (const std::exception& exception) {
    return invalid(std::string("not a YAML document: ") + exception.what());
  }
}

Result<Json> read_document(const std::string& file, const YamlLimits& limits) {
  const int fd = open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno_error(file, errno);
  std::string text(limits.bytes_max + 1, '\0');
  size_t bytes = 0;
  ssize_t got = 0;
  do {
    got = read(fd, text.data() + bytes, text.size() - bytes);
    if (got > 0) bytes += static_cast<size_t>(got);
  } while (bytes < text.size() && (got > 0 || (got < 0 && errno == EINTR)));
  const int error = errno;
  close(fd);
  if (got < 0) return errno_error(file, error);
  if (bytes > limits.bytes_max) {
    return invalid(file + ": larger than the limit of " + std::to_string(limits.bytes_max) +
                   " bytes");
  }
  text.resize(bytes);
  const size_t begin = text.find_first_not_of(" \t\r\n");
  const bool is_json = begin != std::string::npos && text[begin] == '{';
  const JsonLimits json_limits{.bytes_max = limits.bytes_max,
                               .depth_max = limits.depth_max,
                               .values_max = limits.values_max};
  Result<Json> document = is_json ? parse_json(text, json_limits) : json_from_yaml(text, limits);
  // `{a: 1}` is YAML although it begins like JSON.
  if (is_json && !document.ok()) {
    Result<Json> flow = json_from_yaml(text, limits);
    if (flow.ok() || text.find('"') == std::string::npos) document = std::move(flow);
  }
  if (!document.ok()) return invalid(file + ": " + document.error().message);
  return document;
}

}  // namespace lockstep
