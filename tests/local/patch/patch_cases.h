#pragma once

#include <gtest/gtest.h>

#include "local/patch/patch.h"

namespace lockstep::local {

inline Json json(const std::string& text) {
  Result<Json> parsed = parse_json(text);
  EXPECT_TRUE(parsed.ok()) << text << ": " << (parsed.ok() ? "" : parsed.error().message);
  return parsed.ok() ? *std::move(parsed) : Json();
}

// One row of a table. `result` is a document, or starts with `<code> <message>`.
struct PatchCase {
  const char* name;
  const char* object;
  const char* patch;
  const char* result;
};

inline std::string outcome(const PatchResult& result) {
  if (const auto* error = std::get_if<PatchError>(&result))
    return std::to_string(error->code) + " " + error->message;
  return dump_json(std::get<Json>(result));
}

inline void expect_case(const PatchCase& row, const PatchResult& result) {
  const std::string expected =
      row.result[0] == '{' || row.result[0] == '[' ? dump_json(json(row.result)) : row.result;
  EXPECT_EQ(outcome(result), expected) << row.name;
}

}  // namespace lockstep::local
