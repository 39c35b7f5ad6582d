#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::fuzz {

// The parts of requests to an API server.

// A kind of object and a valid object: `object` lacks kind, apiVersion and usually the name.
struct FuzzKind {
  const char* prefix;  // of its paths
  const char* plural;
  const char* kind;
  bool namespaced;
  const char* object;
  const char* subresource_names = "status";  // separated by spaces

  std::vector<std::string> subresources() const;
  // "v1", "lockstep.dev/v1alpha1"
  const char* api_version() const;
};
// Returns the definition of things.a.b, things in both of its versions, TrainingJobs, and built-in
// kinds.
std::span<const FuzzKind> fuzz_kinds();
// Returns the kind whose collection is at `prefix`/`plural`; null if there is none.
const FuzzKind* find_fuzz_kind(std::string_view prefix, std::string_view plural);

namespace words {

const std::vector<std::string>& methods();
const std::vector<std::string>& namespaces();
const std::vector<std::string>& names();
const std::vector<std::string>& subresources();
// Paths that are not collections, and malformed ones.
const std::vector<std::string>& odd_paths();
// Parts of a query: "limit=1".
const std::vector<std::string>& options();
const std::vector<std::string>& content_types();
const std::vector<std::string>& accepted();
// Bodies of subresources and deletions.
const std::vector<std::string>& small_bodies();
// Names of fields that a server interprets, and values of some of them.
const std::vector<std::string>& keys();
const std::vector<std::string>& texts();

}  // namespace words

}  // namespace lockstep::fuzz
