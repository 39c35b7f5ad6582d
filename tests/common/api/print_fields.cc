// Prints what tools/fields writes: the schema of both definitions, and the rows of
// docs/trainingjob.md in the order of the list of fields.
#include <cstdio>

#include "common/api/cel_rules.h"
#include "common/api/schema.h"
#include "tests/common/api/field_row.h"

int main() {
  using namespace lockstep;
  Json rows = Json::array();
  for (const FieldInfo& field : training_job_fields()) {
    rows.push_back({{"path", field.path}, {"row", field_row(field)}});
  }
  const Json schema = training_job_schema();
  const Json printed = {
      {"rows", rows}, {"schema", schema}, {"schemaWithRules", with_cel_rules(schema)}};
  return std::puts(dump_json(printed).c_str()) < 0 ? 1 : 0;
}
