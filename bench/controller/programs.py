"""The two controllers that are compared, as processes with a given rate, and the jobs given to them."""
import concurrent.futures
import pathlib

from cluster import JOBS, Program, grown, wait_until

MASTER = "leader_election_master_status"


def lockstep(server, arguments, folder, qps, burst=None, elects=False):
    key = pathlib.Path(folder) / "key"
    key.write_text("measurement")
    return Program(
        [f"{arguments.build}/bin/lockstep-controller", "--kubeconfig", server.kubeconfig,
         "--key-file", str(key), "--listen", "127.0.0.1:{port}",
         f"--leader-elect={'true' if elects else 'false'}",
         "--qps", str(qps), "--burst", str(burst or qps)],
        folder, "http://127.0.0.1:{port}").wait_ready("/readyz")


def job_controller(server, arguments, folder, qps, burst=None):
    program = Program(
        [arguments.controller_manager, "--kubeconfig", server.kubeconfig, "--controllers", "job",
         "--leader-elect=false", "--kube-api-qps", str(qps), "--kube-api-burst", str(burst or qps),
         "--bind-address", "127.0.0.1", "--secure-port", "{port}", "--port", "0",
         "--cert-dir", str(folder), "--authorization-always-allow-paths", "/healthz,/metrics"],
        folder, "https://127.0.0.1:{port}").wait_ready("/healthz")
    # Healthy comes before its caches are filled: its workers start after that.
    log = pathlib.Path(program.log.name)
    wait_until("the job controller", lambda: "Caches are synced for job" in log.read_text(), 60)
    return program


def training_job(name, pods, **spec):
    return f"{JOBS}/namespaces/{{}}/trainingjobs", {
        "apiVersion": "lockstep.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name},
        "spec": {"nodes": pods, "command": ["true"], **spec}}


def kubernetes_job(name, pods):
    container = {"name": "node", "image": "lockstep", "command": ["true"]}
    return "/apis/batch/v1/namespaces/{}/jobs", {
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {"parallelism": pods, "completions": pods,
                 "template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}}


# What is compared: the name in tables, how it is started, and what makes a job of it.
CONTROLLERS = (("lockstep-controller", lockstep, training_job),
               ("Job controller", job_controller, kubernetes_job))


def create_jobs(server, namespace, make, jobs, pods, connections=8, **spec):
    """As fast as the server takes them."""
    def create(i):
        path, body = make(f"j{i:05}", pods, **spec)
        server.ask("POST", path.format(namespace), body)

    with concurrent.futures.ThreadPoolExecutor(connections) as pool:
        list(pool.map(create, range(jobs)))


def requests(before, after):
    """A controller's own count, by method."""
    return {method: int(count) for (method,), count in
            grown(before, after, "rest_client_requests_total", "method").items()}


def served(before, after):
    """The server's count of what changes or reads jobs, pods, secrets and events, by verb and resource.

    `pods/status` PATCH are those of who plays the pods.
    """
    kinds = ("pods", "secrets", "events", "trainingjobs", "jobs")
    counts = {}
    groups = grown(before, after, "apiserver_request_total", "verb", "resource", "subresource")
    for (verb, resource, subresource), count in groups.items():
        if resource in kinds:
            counts[f"{verb} {resource}" + (f"/{subresource}" if subresource else "")] = int(count)
    return counts
