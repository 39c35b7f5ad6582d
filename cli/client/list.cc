#include "cli/client/aligned.h"
#include "cli/client/command.h"

namespace lockstep::cli {
namespace {

constexpr char kTableAccept[] =
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;"
    "g=meta.k8s.io,application/json";

struct ListOptions {
  ConnectionFlags flags;
  bool all_namespaces = false;
  std::string selector;
  std::string format;
  bool watch = false;
  bool no_headers = false;
};

ApiCall call_for(const Connection& connection, const ListOptions& options, bool as_table) {
  ApiCall call{.path = jobs_path(options.all_namespaces ? "" : connection.namespace_())};
  if (!options.selector.empty()) call.query["labelSelector"] = options.selector;
  if (as_table) call.accept = kTableAccept;
  return call;
}

std::vector<std::vector<std::string>> rows_of(const Json& answer, const TableView& view,
                                              WallTime now) {
  return string_or(answer, "kind", "") == "Table" ? table_rows(answer, view)
                                                  : list_rows(answer, view, now);
}

// Prints the list, then a row for each change, forever.
Result<int> watch_rows(Connection& connection, const ListOptions& options, TableView view) {
  std::vector<size_t> widths;
  TRY_ASSIGN(const bool is_stopped,
             connection.watch(call_for(connection, options, true),
                              [&](const std::string&, const Json& table) {
                                if (string_or(table, "kind", "") != "Table") return true;
                                print(aligned(table_rows(table, view), &widths));
                                view.with_header = false;
                                return true;
                              }));
  return is_stopped ? 0 : 1;
}

Result<int> watch_documents(Connection& connection, const ListOptions& options,
                            OutputFormat format) {
  TRY_ASSIGN(const bool is_stopped,
             connection.watch(call_for(connection, options, false),
                              [&](const std::string& type, const Json& object) {
                                if (type == "LISTED") return true;
                                const bool is_yaml = format == OutputFormat::kYaml;
                                print((is_yaml ? "---\n" : "") + document_text(object, format));
                                return true;
                              }));
  return is_stopped ? 0 : 1;
}

Result<int> list(Connection& connection, const ListOptions& options) {
  TRY_ASSIGN(const OutputFormat format, output_format(options.format));
  const bool as_table = format == OutputFormat::kTable || format == OutputFormat::kWide;
  const TableView view{.is_wide = format == OutputFormat::kWide,
                       .with_namespace = options.all_namespaces,
                       .with_header = !options.no_headers};
  if (options.watch && as_table) return watch_rows(connection, options, view);
  if (options.watch) return watch_documents(connection, options, format);
  TRY_ASSIGN(const Json answer, connection.call(call_for(connection, options, as_table)));
  if (!as_table) {
    print(document_text(answer, format));
    return 0;
  }
  const auto rows = rows_of(answer, view, connection.clock().wall_now());
  if (rows.size() <= (options.no_headers ? 0u : 1u)) {
    const std::string where =
        options.all_namespaces ? "" : " in " + connection.namespace_() + " namespace";
    std::fprintf(stderr, "No resources found%s.\n", where.c_str());
    return 0;
  }
  print(aligned(rows));
  return 0;
}

}  // namespace

void add_list(CLI::App& app, ClientContext context) {
  const auto options = std::make_shared<ListOptions>();
  CLI::App* command =
      app.add_subcommand("list", "List jobs, in the columns that the server defines");
  command->add_flag("-A,--all-namespaces", options->all_namespaces,
                    "List the jobs of all namespaces");
  command->add_option("-l,--selector", options->selector, "Label selector, such as team=a,tier!=b");
  command->add_option("-o,--output", options->format, "Output format: json, yaml, wide or name");
  command->add_flag("-w,--watch", options->watch,
                    "After the list, print a line for each change, until Ctrl-C");
  command->add_flag("--no-headers", options->no_headers, "Do not print the header line");
  add_connection_flags(*command, options->flags);
  command->callback([options, context] {
    run_client(context, options->flags,
               [options](Connection& connection) { return list(connection, *options); });
  });
}

}  // namespace lockstep::cli
