#pragma once

#include <string>
#include <vector>

#include "common/base/json.h"
#include "common/base/random.h"
#include "tests/fuzz/server/request_text.h"
#include "tests/fuzz/server/vocabulary.h"

namespace lockstep::fuzz {

// Mutates sequences of requests so that a server processes them far before it rejects them: changes
// a verb, a path, an option or a member of a body at a time, and sometimes bytes.
class Mutator {
 public:
  static constexpr size_t kRequestsMax = 12;

  // The same seed gives the same change. `random` outlives the object.
  explicit Mutator(Random& random) : random_(random) {}

  void change(std::vector<RequestText>& requests);
  // Returns the beginning of `a` followed by the end of `b`.
  std::vector<RequestText> cross(std::vector<RequestText> a, const std::vector<RequestText>& b);

 private:
  bool one_in(size_t count) { return random_.below(count) == 0; }
  template <class List>
  const auto& of(const List& list) {
    return list[random_.below(std::size(list))];
  }

  std::string of(std::vector<std::string>&& list) {
    return std::move(list[random_.below(list.size())]);
  }

  void change_sequence(std::vector<RequestText>& requests);
  RequestText new_request();
  std::string new_target(const FuzzKind& kind, bool names_object);
  std::string new_query();
  void change_target(RequestText& request);
  void fill_body(const FuzzKind& kind, RequestText& request);
  void fill_patch(const FuzzKind& kind, RequestText& request);
  void change_body(RequestText& request);
  void change_bytes(std::string& text);

  // Returns a document of a kind, edited or not.
  Json new_document(const FuzzKind& kind);
  Json new_value(int depth);
  Json new_patch_operation();
  void edit(Json& document);

  Random& random_;
};

}  // namespace lockstep::fuzz
