// Access to a server by a kubeconfig, over real sockets: TLS, certificates, credentials, plugins.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <stop_token>
#include <thread>

#include "common/base/base64.h"
#include "controller/kube/kube_access.h"
#include "controller/kube/kube_client.h"
#include "tests/controller/kube/tls_server.h"

namespace lockstep::kube {
namespace {

using test::Certificates;
using test::TlsServer;

// The event loop of the clients, run by the test's thread.
class Loop {
 public:
  Loop() {
    [[maybe_unused]] static const bool started = [] {
      start_http_threads(2);
      return true;
    }();
  }
  Result<HttpReply> get(const KubeAccess& access, const std::string& path = "/x") {
    Credentials credentials(access.credentials, clock);
    HttpClient client(access.server, mailbox, timers);
    return get(client, {.path_and_query = path,
                        .authorization = credentials.authorization(),
                        .fields = credentials.fields()});
  }
  Result<HttpReply> get(HttpClient& client, HttpRequest request = {}) {
    std::optional<Result<HttpReply>> reply;
    client.send(std::move(request), [&](Result<HttpReply> answer) { reply = std::move(answer); });
    while (!reply) {
      timers.run_due();
      mailbox.run();
      if (!reply) mailbox.wait(timers.next());
    }
    return *reply;
  }

  SystemClock clock;
  loop::Timers timers{clock};
  Mailbox mailbox;
};

const Certificates& certificates() {
  static const Certificates all;
  return all;
}

class Access : public testing::Test {
 protected:
  Access()
      : server_({.certificate = certificates().path("server.crt"),
                 .key = certificates().path("server.key"),
                 .client_ca = certificates().path("ca.crt")}) {
    cluster_.server = server_.url();
    cluster_.certificate_authority = certificates().path("ca.crt");
  }

  Result<KubeAccess> access() const {
    Kubeconfig config;
    config.current_context = "x";
    config.contexts["x"] = {.cluster = "c", .user = "u", .namespace_ = "team"};
    config.clusters["c"] = cluster_;
    config.users["u"] = user_;
    return kube_access(config, {});
  }
  // Returns the message with which the kubeconfig is refused.
  std::string refusal() const {
    const Result<KubeAccess> result = access();
    return result.ok() ? "accepted" : result.error().message;
  }
  // Returns the message with which a request fails.
  std::string failure() {
    const Result<KubeAccess> result = access();
    if (!result.ok()) return "refused: " + result.error().message;
    const Result<HttpReply> reply = loop_.get(*result);
    return reply.ok() ? "answered" : reply.error().message;
  }
  test::TlsRequest request() {
    EXPECT_EQ(failure(), "answered");
    const std::vector<test::TlsRequest> all = server_.requests();
    return all.empty() ? test::TlsRequest{} : all.back();
  }
  std::string plugin(const std::string& script) {
    const std::filesystem::path file = folder_.path() / "plugin";
    test::write_file(file, "#!/bin/sh\n" + script + "\n");
    ::chmod(file.c_str(), 0755);
    return file.string();
  }

  Loop loop_;
  TlsServer server_;
  test::TemporaryFolder folder_;
  KubeconfigCluster cluster_;
  KubeconfigUser user_;
};

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_F(Access, TrustsTheAuthorityOfTheKubeconfigAndSendsTheToken) {
  user_.token = "t0ken";
  const test::TlsRequest got = request();
  EXPECT_TRUE(has(got.head, "GET /x HTTP/1.1\r\n")) << got.head;
  EXPECT_TRUE(has(got.head, "Authorization: Bearer t0ken\r\n")) << got.head;
  EXPECT_EQ(got.client_name, "");
  EXPECT_EQ(got.server_name, "") << "an address is no name to ask for";
}

TEST_F(Access, TakesTheAuthorityFromData) {
  cluster_.certificate_authority.clear();
  cluster_.certificate_authority_data = certificates().text("ca.crt");
  EXPECT_EQ(failure(), "answered");
}

TEST_F(Access, TrustsTheServersOwnCertificateWhereItIsTheAuthority) {
  cluster_.certificate_authority = certificates().path("server.crt");
  EXPECT_EQ(failure(), "answered");
}

TEST_F(Access, ReadsTheAuthorityAnewForEachConnection) {
  const std::filesystem::path authority = folder_.path() / "rotated.crt";
  test::write_file(authority, certificates().text("stranger.crt"));
  const HttpServer server{.url = server_.url(), .tls = {.ca_file = authority.string()}};
  HttpClient client(server, loop_.mailbox, loop_.timers);
  EXPECT_FALSE(loop_.get(client).ok());
  test::write_file(authority, certificates().text("ca.crt"));
  EXPECT_TRUE(loop_.get(client).ok());
}

TEST_F(Access, ReadsTheAuthorityOfTheKubeconfigAnewForEachConnection) {
  const std::filesystem::path authority = folder_.path() / "rotated.crt";
  test::write_file(authority, certificates().text("stranger.crt"));
  cluster_.certificate_authority = authority.string();
  const Result<KubeAccess> found = access();
  ASSERT_TRUE(found.ok()) << found.error().message;
  HttpClient client(found->server, loop_.mailbox, loop_.timers);
  EXPECT_FALSE(loop_.get(client).ok());
  test::write_file(authority, certificates().text("ca.crt"));
  EXPECT_TRUE(loop_.get(client).ok());
}

TEST_F(Access, ResumesTheSessionOfAnEarlierConnection) {
  user_.client_certificate = certificates().path("client.crt");
  user_.client_key_data = certificates().text("client.key");
  const Result<KubeAccess> found = access();
  ASSERT_TRUE(found.ok()) << found.error().message;
  HttpClient client(found->server, loop_.mailbox, loop_.timers);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(loop_.get(client).ok());
  const std::vector<test::TlsRequest> got = server_.requests();
  ASSERT_EQ(got.size(), 3u);
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].resumed, i > 0) << i;
    EXPECT_EQ(got[i].client_name, "jane") << i;
  }
}

TEST_F(Access, ResumesNoSessionOfAServerThatItNoLongerTrusts) {
  const std::filesystem::path authority = folder_.path() / "rotated.crt";
  test::write_file(authority, certificates().text("ca.crt"));
  const HttpServer server{.url = server_.url(), .tls = {.ca_file = authority.string()}};
  HttpClient client(server, loop_.mailbox, loop_.timers);
  EXPECT_TRUE(loop_.get(client).ok());
  test::write_file(authority, certificates().text("stranger.crt"));
  EXPECT_FALSE(loop_.get(client).ok());
}

TEST_F(Access, BeginsAnewAfterASessionThatTheServerRefuses) {
  TlsServer server({.certificate = certificates().path("server.crt"),
                    .key = certificates().path("server.key"),
                    .client_ca = certificates().path("ca.crt"),
                    .resumes = false});
  cluster_.server = server.url();
  const Result<KubeAccess> found = access();
  ASSERT_TRUE(found.ok()) << found.error().message;
  HttpClient client(found->server, loop_.mailbox, loop_.timers);
  EXPECT_TRUE(loop_.get(client).ok());
  EXPECT_FALSE(loop_.get(client).ok());
  EXPECT_TRUE(loop_.get(client).ok());
}

TEST_F(Access, RefusesAServerOfAnotherAuthority) {
  cluster_.certificate_authority = certificates().path("stranger.crt");
  EXPECT_TRUE(has(failure(), "the server's certificate was rejected")) << failure();
  EXPECT_TRUE(server_.requests().empty()) << "not a byte of a request";
}

TEST_F(Access, RefusesAServerThatTheSystemDoesNotKnow) {
  cluster_.certificate_authority.clear();
  EXPECT_TRUE(has(failure(), "the server's certificate was rejected")) << failure();
}

// cpprestsdk, in a library of its own, calls the same function for each connection.
TEST(SystemCertificates, AreReadOnceForAllConnections) {
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> first(SSL_CTX_new(TLS_client_method()),
                                                                SSL_CTX_free);
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> second(SSL_CTX_new(TLS_client_method()),
                                                                 SSL_CTX_free);
  using Function = int (*)(SSL_CTX*);
  const auto of_libraries =
      reinterpret_cast<Function>(::dlsym(RTLD_DEFAULT, "SSL_CTX_set_default_verify_paths"));
  ASSERT_NE(of_libraries, nullptr);
  ASSERT_EQ(of_libraries(first.get()), 1);
  ASSERT_EQ(of_libraries(second.get()), 1);
  EXPECT_EQ(SSL_CTX_get_cert_store(first.get()), SSL_CTX_get_cert_store(second.get()));
}

TEST_F(Access, RefusesACertificateForAnotherName) {
  cluster_.tls_server_name = "other.example";
  EXPECT_TRUE(has(failure(), "it is not valid for other.example")) << failure();
  EXPECT_TRUE(server_.requests().empty());
}

TEST_F(Access, IgnoresTheCommonNameOfACertificate) {
  const TlsServer named(
      {.certificate = certificates().path("named.crt"), .key = certificates().path("named.key")});
  cluster_.server = named.url();
  EXPECT_TRUE(has(failure(), "it is not valid for 127.0.0.1")) << failure();
}

TEST_F(Access, AsksForTheServerNameThatIsGiven) {
  cluster_.tls_server_name = "api.example";
  const test::TlsRequest got = request();
  EXPECT_EQ(got.server_name, "api.example");
  EXPECT_TRUE(has(got.head, "Host: 127.0.0.1:")) << got.head;
}

TEST_F(Access, AcceptsAnyCertificateWhereItIsToldTo) {
  cluster_.certificate_authority.clear();
  cluster_.insecure_skip_tls_verify = true;
  cluster_.tls_server_name = "other.example";
  EXPECT_EQ(failure(), "answered");
}

TEST_F(Access, PresentsTheClientCertificate) {
  user_.client_certificate = certificates().path("client.crt");
  user_.client_key_data = certificates().text("client.key");
  EXPECT_EQ(request().client_name, "jane");
}

TEST_F(Access, PresentsAnotherClientCertificateOnceItsFilesHoldOne) {
  const std::filesystem::path certificate = folder_.path() / "client.crt";
  const std::filesystem::path key = folder_.path() / "client.key";
  const auto put = [&](const std::string& name, const std::string& key_name) {
    test::write_file(certificate, certificates().text(name + ".crt"));
    test::write_file(key, certificates().text(key_name + ".key"));
  };
  put("client", "client");
  user_.client_certificate = certificate.string();
  user_.client_key = key.string();
  TlsServer server({.certificate = certificates().path("server.crt"),
                    .key = certificates().path("server.key"),
                    .client_ca = certificates().path("ca.crt"),
                    .keeps_open = true});
  cluster_.server = server.url();
  Result<KubeAccess> found = access();
  ASSERT_TRUE(found.ok()) << found.error().message;
  found->server.certificate_interval = Duration{0};
  HttpClient client(found->server, loop_.mailbox, loop_.timers);
  const auto name = [&] {
    EXPECT_TRUE(loop_.get(client).ok());
    return server.requests().back().client_name;
  };
  EXPECT_EQ(name(), "jane");
  put("second", "client");  // its key is not written yet
  EXPECT_EQ(name(), "jane");
  std::filesystem::remove(key);
  EXPECT_EQ(name(), "jane");
  put("second", "second");
  EXPECT_EQ(name(), "joan") << "over a new connection";
  put("second", "second");
  EXPECT_EQ(name(), "joan");
  server.wait_for_connections(1);  // the old one ends
}

TEST_F(Access, RefusesAKeyThatIsNotTheCertificates) {
  user_.client_certificate = certificates().path("client.crt");
  user_.client_key = certificates().path("ca.key");
  EXPECT_TRUE(has(refusal(), "user \"u\": client-certificate: the key does not match"))
      << refusal();
}

TEST_F(Access, SendsUserNameAndPassword) {
  user_.username = "me";
  user_.password = "p:w";
  EXPECT_TRUE(has(request().head, "Authorization: Basic " + base64_encode("me:p:w") + "\r\n"));
}

TEST_F(Access, PrefersTheTokenFileAndFallsBackToTheToken) {
  const std::filesystem::path file = folder_.path() / "token";
  user_.token = "fixed";
  user_.token_file = file.string();
  EXPECT_TRUE(has(request().head, "Bearer fixed\r\n"));
  test::write_file(file, "from-file\n");
  EXPECT_TRUE(has(request().head, "Bearer from-file\r\n"));
}

TEST_F(Access, ImpersonatesWithEveryGroupInAFieldOfItsOwn) {
  user_.token = "t";
  user_.as = "jane";
  user_.as_uid = "7";
  user_.as_groups = {"a", "b"};
  user_.as_user_extra["Scopes/x"] = {"v"};
  const std::string head = request().head;
  for (const char* field :
       {"Impersonate-User: jane\r\n", "Impersonate-Uid: 7\r\n", "Impersonate-Group: a\r\n",
        "Impersonate-Group: b\r\n", "Impersonate-Extra-Scopes%2fx: v\r\n"}) {
    EXPECT_TRUE(has(head, field)) << field << "\n" << head;
  }
  user_.as_groups = {"a\r\nAuthorization: x"};
  EXPECT_TRUE(has(refusal(), "control characters")) << refusal();
}

TEST_F(Access, PutsThePathOfTheServerBeforeThatOfRequests) {
  cluster_.server += "/clusters/one/?a=b";
  EXPECT_TRUE(has(request().head, "GET /clusters/one/x HTTP/1.1\r\n"));
}

TEST_F(Access, SendsNoCredentialsWithoutTls) {
  cluster_.server = "http://127.0.0.1:1";
  cluster_.certificate_authority.clear();
  user_.token = "secret";
  const Result<KubeAccess> result = access();
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(Credentials(result->credentials, loop_.clock).authorization(), "");
}

TEST_F(Access, RunsAPluginForItsToken) {
  user_.exec = ExecPlugin{.api_version = "client.authentication.k8s.io/v1",
                          .command = plugin("test \"$A$1\" = bc || exit 9\n"
                                            "case \"$KUBERNETES_EXEC_INFO\" in *" +
                                            cluster_.server +
                                            "*) ;; *) exit 8;; esac\n"
                                            "echo '{\"kind\":\"ExecCredential\",\"apiVersion\":"
                                            "\"client.authentication.k8s.io/v1\",\"status\":"
                                            "{\"token\":\"run\"}}'"),
                          .args = {"c"},
                          .env = {{"A", "b"}},
                          .interactive_mode = "Never",
                          .provide_cluster_info = true};
  EXPECT_TRUE(has(request().head, "Bearer run\r\n"));
}

TEST_F(Access, RunsAPluginAgainWhenItsTokenHasExpired) {
  user_.exec = ExecPlugin{
      .api_version = "client.authentication.k8s.io/v1beta1",
      .command = plugin("cd " + folder_.path().string() +
                        "; echo x >> runs\n"
                        "echo '{\"kind\":\"ExecCredential\",\"apiVersion\":"
                        "\"client.authentication.k8s.io/v1beta1\",\"status\":{\"token\":\"run-'"
                        "$(wc -l < runs)'\",\"expirationTimestamp\":\"2020-01-01T00:00:00Z\"}}'"),
      .interactive_mode = "IfAvailable"};
  const Result<KubeAccess> result = access();
  ASSERT_TRUE(result.ok()) << result.error().message;
  Credentials credentials(result->credentials, loop_.clock);
  EXPECT_EQ(credentials.authorization(), "Bearer run-2");
  EXPECT_TRUE(credentials.refresh());
  EXPECT_EQ(credentials.authorization(), "Bearer run-4") << "one for the refusal, one for the date";
}

// Prints an expired credential whose token counts the plugin's runs.
constexpr char kCountedRun[] =
    "echo x >> runs\n"
    "echo '{\"kind\":\"ExecCredential\",\"apiVersion\":\"client.authentication.k8s.io/v1\","
    "\"status\":{\"token\":\"run-'$(wc -l < runs)'\","
    "\"expirationTimestamp\":\"2020-01-01T00:00:00Z\"}}'";

TEST_F(Access, APluginThatLivesOnAfterItsLastWordIsKilled) {
  ExecPlugin lasting{.api_version = "client.authentication.k8s.io/v1",
                     .command = plugin("echo $$ > " + (folder_.path() / "pid").string() +
                                       "; exec >&-; exec sleep 1000"),
                     .interactive_mode = "Never"};
  const Result<ExecCredential> late =
      run_exec_plugin(lasting, {}, {.time = std::chrono::milliseconds(300)});
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code, Code::kUnavailable);
  EXPECT_TRUE(has(late.error().message, "did not end")) << late.error().message;
  const std::string pid = *read_small_file((folder_.path() / "pid").string());
  EXPECT_EQ(::kill(static_cast<pid_t>(std::stoi(pid)), 0), -1) << "it was reaped";
  std::stop_source stop;
  stop.request_stop();
  const Result<ExecCredential> stopped = run_exec_plugin(lasting, {}, {.stop = stop.get_token()});
  ASSERT_FALSE(stopped.ok());
  EXPECT_TRUE(has(stopped.error().message, "was stopped")) << stopped.error().message;
}

TEST_F(Access, APluginThatFailsIsLeftInPeaceForAWhile) {
  const std::string folder = folder_.path().string();
  user_.exec = ExecPlugin{
      .api_version = "client.authentication.k8s.io/v1",
      .command = plugin("cd " + folder + "; test -e broken && echo y >> failures && exit 1\n" +
                        kCountedRun),
      .interactive_mode = "Never"};
  const Result<KubeAccess> result = access();
  ASSERT_TRUE(result.ok()) << result.error().message;
  ManualClock clock;
  clock.jump(std::chrono::hours(24 * 365 * 2));  // 2020 is over on this clock too
  Credentials credentials(result->credentials, clock);
  std::ofstream(folder + "/broken") << "";
  for (int i = 0; i < 10; ++i) EXPECT_EQ(credentials.authorization(), "Bearer run-1");
  EXPECT_FALSE(credentials.refresh());
  EXPECT_EQ(*read_small_file(folder + "/failures"), "y");
  std::filesystem::remove(folder + "/broken");
  clock.advance(std::chrono::seconds(30));
  EXPECT_EQ(credentials.authorization(), "Bearer run-2");
}

TEST_F(Access, WhoMustNotStandStillHasThePluginRunBeside) {
  const std::string folder = folder_.path().string();
  user_.exec = ExecPlugin{
      .api_version = "client.authentication.k8s.io/v1",
      .command =
          plugin("cd " + folder + "; while test -e hold; do sleep 0.01; done\n" + kCountedRun),
      .interactive_mode = "Never"};
  const Result<KubeAccess> result = access();
  ASSERT_TRUE(result.ok()) << result.error().message;
  CredentialOptions options = result->credentials;
  options.waits_for_plugin = false;
  std::ofstream(folder + "/hold") << "";
  {
    Credentials credentials(options, loop_.clock);
    EXPECT_EQ(credentials.authorization(), "Bearer run-1");
    EXPECT_FALSE(credentials.refresh());
    EXPECT_EQ(credentials.authorization(), "Bearer run-1");
    std::filesystem::remove(folder + "/hold");
    while (credentials.authorization() == "Bearer run-1") std::this_thread::yield();
    EXPECT_EQ(credentials.authorization(), "Bearer run-2");
  }
  std::ofstream(folder + "/hold") << "";
  Credentials ending(options, loop_.clock);
  EXPECT_EQ(ending.authorization(), "Bearer run-1");  // its destructor doesn't wait for the plugin
}

class CertificatePlugin : public Access {
 protected:
  // Writes an expired credential, so that the plugin is run again.
  void give(const std::string& name, const std::string& key_name) {
    const Json credential = {{"kind", "ExecCredential"},
                             {"apiVersion", "client.authentication.k8s.io/v1"},
                             {"status",
                              {{"clientCertificateData", certificates().text(name + ".crt")},
                               {"clientKeyData", certificates().text(key_name + ".key")},
                               {"expirationTimestamp", "2020-01-01T00:00:00Z"}}}};
    test::write_file(folder_.path() / "new", dump_json(credential));
    std::filesystem::rename(folder_.path() / "new", folder_.path() / "document");
  }
  Result<KubeAccess> access_by_plugin() {
    user_.exec = ExecPlugin{.api_version = "client.authentication.k8s.io/v1",
                            .command = plugin("cat " + (folder_.path() / "document").string()),
                            .interactive_mode = "Never"};
    return access();
  }
};

TEST_F(CertificatePlugin, RequestsPresentWhatItGivesLater) {
  give("client", "client");
  const Result<KubeAccess> found = access_by_plugin();
  ASSERT_TRUE(found.ok()) << found.error().message;
  give("second", "second");
  KubeClient client({.server = found->server, .credentials = found->credentials}, loop_.mailbox,
                    loop_.timers, loop_.clock);
  const auto name = [&] {
    bool is_answered = false;
    client.send({.verb = loop::ApiVerb::kGet, .type = loop::kPods, .namespace_ = "ns", .name = "p"},
                [&](const loop::ApiReply&) { is_answered = true; });
    while (!is_answered) {
      loop_.timers.run_due();
      loop_.mailbox.run();
      if (!is_answered) loop_.mailbox.wait(loop_.timers.next());
    }
    return server_.requests().back().client_name;
  };
  std::string presented = name();
  EXPECT_EQ(presented, "jane") << "the plugin runs beside";
  while (presented == "jane") presented = name();
  EXPECT_EQ(presented, "joan");
}

TEST_F(CertificatePlugin, APairThatDoesNotFitChangesNothing) {
  give("client", "client");
  const Result<KubeAccess> found = access_by_plugin();
  ASSERT_TRUE(found.ok()) << found.error().message;
  Credentials credentials(found->credentials, loop_.clock);
  EXPECT_FALSE(credentials.refresh()) << "the same pair";
  EXPECT_FALSE(credentials.take_certificate());
  give("second", "second");
  EXPECT_TRUE(credentials.refresh());
  const auto second = credentials.take_certificate();
  ASSERT_TRUE(second);
  EXPECT_EQ(second->first, certificates().text("second.crt"));
  EXPECT_FALSE(credentials.take_certificate()) << "taken";
  give("client", "second");
  EXPECT_FALSE(credentials.refresh());
  EXPECT_FALSE(credentials.take_certificate());
}

TEST_F(Access, SaysWhatIsWrongWithAPlugin) {
  user_.exec = ExecPlugin{.api_version = "client.authentication.k8s.io/v1",
                          .command = "no-such-plugin",
                          .install_hint = "get it from the shop",
                          .interactive_mode = "Never"};
  EXPECT_TRUE(has(refusal(), "no-such-plugin")) << refusal();
  EXPECT_TRUE(has(refusal(), "get it from the shop")) << refusal();
  user_.exec->command = plugin("exit 3");
  EXPECT_TRUE(has(refusal(), "failed with exit code 3")) << refusal();
  user_.exec->command = plugin("echo hello");
  EXPECT_TRUE(has(refusal(), "its output is not valid JSON")) << refusal();
  user_.exec->command = plugin("yes");
  EXPECT_TRUE(has(refusal(), "printed more than 1 MiB")) << refusal();
  user_.exec->interactive_mode = "";
  EXPECT_TRUE(has(refusal(), "exec.interactiveMode")) << refusal();
  user_.exec->api_version = "client.authentication.k8s.io/v9";
  EXPECT_TRUE(has(refusal(), "exec.apiVersion")) << refusal();
}

// Refuses what kubectl refuses too, and what this version does not support.
TEST_F(Access, RefusesWithWords) {
  const KubeconfigCluster cluster = cluster_;
  struct Case {
    std::function<void()> change;
    const char* words;
  };
  const std::vector<Case> cases = {
      {[&] { cluster_.certificate_authority_data = "x"; }, "certificate-authority-data are both"},
      {[&] { cluster_.certificate_authority = "/none"; }, "can't open /none"},
      {[&] { cluster_.insecure_skip_tls_verify = true; }, "insecure-skip-tls-verify"},
      {[&] { cluster_.certificate_authority = certificates().path("ca.key"); },
       "expected a certificate in PEM format"},
      {[&] { cluster_.server = ""; }, "server is not set"},
      {[&] { cluster_.server = "ftp://x"; }, "expected http:// or https://"},
      {[&] { cluster_.server = "https://a b"; }, "is not a URL"},
      {[&] { cluster_.server = "https://x:99999"; }, "is not a URL"},
      {[&] { cluster_.proxy_url = "socks5://x"; }, "proxy-url"},
      {[&] {
         user_.token = "t";
         user_.username = "u";
       },
       "both a token and a user name"},
      {[&] { user_.auth_provider = "gcp"; }, "auth-provider \"gcp\" is not in this version"},
      {[&] { user_.as_groups = {"a"}; }, "need `as`"},
      {[&] { user_.token_file = "/none"; }, "tokenFile"},
      {[&] { user_.client_certificate = certificates().path("client.crt"); }, "needs client-key"},
  };
  for (const Case& one : cases) {
    cluster_ = cluster;
    user_ = {};
    one.change();
    EXPECT_TRUE(has(refusal(), one.words)) << one.words << ": " << refusal();
  }
}

TEST(KubeAccessNames, LeadSomewhereOrSayWhatThereIs) {
  Kubeconfig config;
  config.contexts["a"] = {.cluster = "c", .user = "", .namespace_ = ""};
  config.contexts["b"] = {.cluster = "none", .user = "", .namespace_ = ""};
  config.clusters["c"] = {.server = "https://one"};
  config.clusters["d"] = {.server = "https://two"};
  EXPECT_EQ(kube_access(config, {}).error().message,
            "no current-context is set in the kubeconfig (available: a, b); choose one "
            "with --context");
  EXPECT_EQ(kube_access(config, {.context = "z"}).error().message,
            "context \"z\" does not exist (available: a, b)");
  EXPECT_EQ(kube_access(config, {.context = "b"}).error().message,
            "cluster \"none\" does not exist (available: c, d)");
  EXPECT_EQ(kube_access(config, {.context = "a", .user = "u"}).error().message,
            "user \"u\" does not exist (none exist)");
  const Result<KubeAccess> other = kube_access(config, {.context = "b", .cluster = "d"});
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(other->server.url, "https://two");
  EXPECT_EQ(other->namespace_, "default");
  EXPECT_EQ(kube_access(config, {.context = "a", .namespace_ = "n"})->namespace_, "n");
}

}  // namespace
}  // namespace lockstep::kube
