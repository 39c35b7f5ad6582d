"""The two controllers compared, as processes with a given request rate, and their jobs."""
import concurrent.futures
import pathlib

from cluster import JOBS, Program, grown, wait_until

MASTER = "leader_election_master_status"


def lockstep(server, arguments, folder, qps, burst=None, elects=False):
    key = pathlib.Path(folder) / "key"
    key.write_text("the key of a measurement")
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
    # It is healthy before its caches are filled, and its workers start only after that.
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


# The controllers compared: name in tables, function that starts it, function that makes its jobs.
CONTROLLERS = (("lockstep-controller", lockstep, training_job),
               ("Job controller", job_controller, kubernetes_job))


def create_jobs(server, namespace, make, jobs, pods, connections=8, **spec):
    """Creates jobs as fast as the server accepts them."""
    def create(i):
        path, body = make(f"j{i:05}", pods, **spec)
        server.ask("POST", path.format(namespace), body)

    with concurrent.futures.ThreadPoolExecutor(connections) as pool:
        list(pool.map(create, range(jobs)))


def requests(before, after):
    """Returns the requests that the controller itself counted, by method."""
    return {method: int(count) for (method,), count in
            grown(before, after, "rest_client_requests_total", "method").items()}


def served(before, after):
    """Returns the server's count of requests for jobs, pods, secrets and events.

    Keys are verb and resource. The measurement itself sends PATCH pods/status, since it plays the
    pods.
    """
    kinds = ("pods", "secrets", "events", "trainingjobs", "jobs")
    counts = {}
    groups = grown(before, after, "apiserver_request_total", "verb", "resource", "subresource")
    for (verb, resource, subresource), count in groups.items():
        if resource in kinds:
            counts[f"{verb} {resource}" + (f"/{subresource}" if subresource else "")] = int(count)
    return counts
