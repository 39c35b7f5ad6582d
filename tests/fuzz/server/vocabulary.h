#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// What requests to an API server are made of.

// A kind of object, and one that is valid: `object` lacks kind, apiVersion and mostly the name.
struct FuzzKind {
  const char* prefix;  // of its paths
  const char* plural;
  const char* kind;
  bool namespaced;
  const char* object;
  const char* subresource_names = "status";  // with blanks between

  std::vector<std::string> subresources() const;
  // "v1", "lockstep.dev/v1alpha1"
  const char* api_version() const;
};
// The definition of things.a.b, things in both of its versions, TrainingJobs, the built-in ones.
std::span<const FuzzKind> fuzz_kinds();
// The kind whose collection is at `prefix`/`plural`; null if there is none.
const FuzzKind* find_fuzz_kind(std::string_view prefix, std::string_view plural);

namespace words {

const std::vector<std::string>& methods();
const std::vector<std::string>& namespaces();
const std::vector<std::string>& names();
const std::vector<std::string>& subresources();
// Paths that are no collection's, and broken ones.
const std::vector<std::string>& odd_paths();
// Parts of a query: "limit=1".
const std::vector<std::string>& options();
const std::vector<std::string>& content_types();
const std::vector<std::string>& accepted();
// Bodies of subresources and deletions.
const std::vector<std::string>& small_bodies();
// Names of fields that mean something to a server, and values of some of them.
const std::vector<std::string>& keys();
const std::vector<std::string>& texts();

}  // namespace words

}  // namespace lockstep
