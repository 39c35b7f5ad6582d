#include "tests/controller/kube/kubeconfig_cases.h"

namespace lockstep::kube {
namespace {

const std::string kHead = "apiVersion: v1\nkind: Config\ncurrent-context: x\n";
const std::string kContext =
    "contexts: [{name: x, context: {cluster: c, user: u, namespace: team}}]\n";
const std::string kCluster = "clusters: [{name: c, cluster: {server: 'https://one:6443'}}]\n";
const std::string kUser = "users: [{name: u, user: {token: t}}]\n";
const std::string kPlain = kHead + kContext + kCluster + kUser;

std::string with_user(const std::string& fields) {
  return kHead + kContext + kCluster + "users:\n- name: u\n  user: {" + fields + "}\n";
}
std::string with_cluster(const std::string& fields) {
  return kHead + kContext + kUser + "clusters:\n- name: c\n  cluster: {" + fields + "}\n";
}

// A second file: the same names with other values, and some names of its own.
const std::string kOther =
    "apiVersion: v1\nkind: Config\ncurrent-context: z\n"
    "contexts: [{name: x, context: {cluster: c2, user: u2, namespace: other}},"
    " {name: z, context: {cluster: c2, user: u2}}, {name: mixed, context: {cluster: c, user: "
    "u2}}]\n"
    "clusters: [{name: c, cluster: {server: 'https://two', tls-server-name: extra}},"
    " {name: c2, cluster: {server: 'https://two'}}]\n"
    "users: [{name: u, user: {token: t2, as: somebody}}, {name: u2, user: {token: t2}}]\n";

}  // namespace

const std::vector<KubeconfigCase>& kubeconfig_cases() {
  static const std::vector<KubeconfigCase> cases = {
      {"one file", {{"a", kPlain}}},
      {"json instead of yaml", {{"a", R"({"apiVersion":"v1","kind":"Config","current-context":"x",
           "contexts":[{"name":"x","context":{"cluster":"c","user":"u"}}],
           "clusters":[{"name":"c","cluster":{"server":"https://one"}}],
           "users":[{"name":"u","user":{"token":"t"}}]})"}}},
      {"the first of two files wins, entry by entry",
       {{"a", kPlain}, {"b", kOther}},
       "{dir}/a:{dir}/b"},
      {"the other order", {{"a", kPlain}, {"b", kOther}}, "{dir}/b:{dir}/a"},
      {"an entry that the first file has is not completed from the second",
       {{"a", kPlain}, {"b", kOther}},
       "{dir}/a:{dir}/b",
       "",
       "mixed"},
      {"a context of the second file", {{"a", kPlain}, {"b", kOther}}, "{dir}/a:{dir}/b", "", "z"},
      {"a file that is not there is passed over", {{"a", kPlain}}, "{dir}/none:{dir}/a"},
      {"no file at all", {}, "{dir}/none"},
      {"empty elements and repeated files", {{"a", kPlain}}, ":{dir}/a::{dir}/a:"},
      {"an explicit file is read alone", {{"a", kPlain}, {"b", kOther}}, "{dir}/a", "{dir}/b"},
      {"an explicit file that is not there", {{"a", kPlain}}, "{dir}/a", "{dir}/none"},
      {"the file in the home folder", {{".kube/config", kPlain}}, ""},
      {"a folder instead of a file", {{"sub/a", kPlain}}, "{dir}/sub"},
      {"no current-context", {{"a", kContext + kCluster + kUser}}},
      {"current-context comes from the second file",
       {{"a", kContext + kCluster + kUser}, {"b", kOther}},
       "{dir}/a:{dir}/b"},
      {"a context that is not there", {{"a", kPlain}}, "{dir}/a", "", "none"},
      {"a cluster that is not there", {{"a", kHead + kContext + kUser}}},
      {"a user that is not there", {{"a", kHead + kContext + kCluster}}},
      {"a context without a user",
       {{"a", kHead + kCluster + "contexts: [{name: x, context: {cluster: c}}]\n"}}},
      {"a context of nothing", {{"a", kHead + "contexts: [{name: x, context: null}]\n"}}},
      {"a certificate authority beside the file",
       {{"a", with_cluster("server: 'https://one', certificate-authority: pki/ca.crt")}}},
      {"paths are relative to their own file",
       {{"sub/a", with_cluster("server: 'https://one', certificate-authority: ../ca.crt")},
        {"b", kOther}},
       "{dir}/sub/a:{dir}/b"},
      {"an absolute path",
       {{"a", with_cluster("server: 'https://one', certificate-authority: /etc/ca.crt")}}},
      {"a certificate authority as data",
       {{"a", with_cluster("server: 'https://one', certificate-authority-data: aGVsbG8=")}}},
      {"data over several lines",
       {{"a",
         with_cluster("server: 'https://one', certificate-authority-data: \"aGVs\\nbG8=\\n\"")}}},
      {"data that is not base64",
       {{"a", with_cluster("server: 'https://one', certificate-authority-data: '!!'")}}},
      {"server name, proxy, no verification",
       {{"a", with_cluster("server: 'https://one', tls-server-name: s, proxy-url: 'http://p:1', "
                           "insecure-skip-tls-verify: true")}}},
      {"a cluster without a server", {{"a", with_cluster("tls-server-name: s")}}},
      {"a token file", {{"a", with_user("tokenFile: secrets/token")}}},
      {"token and token file", {{"a", with_user("token: t, tokenFile: secrets/token")}}},
      {"user name and password", {{"a", with_user("username: me, password: 'p:w'")}}},
      {"client certificate files",
       {{"a", with_user("client-certificate: me.crt, client-key: keys/me.key")}}},
      {"client certificate data",
       {{"a", with_user("client-certificate-data: Y2VydA==, client-key-data: a2V5")}}},
      {"files and data of the same thing",
       {{"a", with_user("client-certificate: me.crt, client-certificate-data: Y2VydA==, "
                        "client-key: me.key, client-key-data: a2V5")}}},
      {"impersonation",
       {{"a", with_user("token: t, as: jane, as-groups: [a, b], as-user-extra: {k: [v, w]}")}}},
      {"an exec plugin found in PATH",
       {{"a",
         with_user("exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: plug, "
                   "args: [get, token], env: [{name: A, value: b}], provideClusterInfo: true}")}}},
      {"an exec plugin beside the file",
       {{"a", with_user("exec: {apiVersion: client.authentication.k8s.io/v1beta1, "
                        "command: ./bin/plug, args: null}")}}},
      {"an auth provider", {{"a", with_user("auth-provider: {name: oidc}")}}},
      {"fields of other programs are passed over",
       {{"a", kPlain + "preferences: {colors: true}\nextensions: []\nmore: {a: [1]}\n"}}},
      {"another kind", {{"a", "apiVersion: v1\nkind: Pod\ncurrent-context: x\n" + kContext}}},
      {"another version", {{"a", "apiVersion: v2\nkind: Config\ncurrent-context: x\n" + kContext}}},
      {"neither kind nor version", {{"a", "current-context: x\n" + kContext + kCluster + kUser}}},
      {"an empty file", {{"a", ""}, {"b", kPlain}}, "{dir}/a:{dir}/b"},
      {"comments alone", {{"a", "# nothing\n"}, {"b", kPlain}}, "{dir}/a:{dir}/b"},
      {"a broken second file", {{"a", kPlain}, {"b", "clusters: ["}}, "{dir}/a:{dir}/b"},
      {"a text instead of a document", {{"a", "foo\n"}}},
      {"a list instead of a document", {{"a", "[]\n"}}},
      {"a map where a list belongs", {{"a", kHead + "contexts: {name: x}\n"}}},
      {"a number where a text belongs", {{"a", with_user("token: 12345")}}},
      {"a text where true or false belongs",
       {{"a", with_cluster("server: 'https://one', insecure-skip-tls-verify: 'true'")}}},
      {"a name that is there twice",
       {{"a",
         kHead + kCluster + kUser +
             "contexts: [{name: x, context: {cluster: c}}, {name: x, context: {user: u}}]\n"}}},
      {"nulls are as if absent",
       {{"a", kPlain + "preferences: null\nextensions: null\n"},
        {"b",
         "current-context: null\n"
         "users: null\n"}},
       "{dir}/b:{dir}/a"},
      {"anchors and aliases",
       {{"a", kHead + kUser + "contexts: [{name: x, context: {cluster: &n c, namespace: *n}}]\n" +
                  kCluster}}},
  };
  return cases;
}

}  // namespace lockstep::kube
