#!/usr/bin/env python3
"""Checks that dependencies point down: every include against the table of docs/design.md.

Also checks that
  - the namespace of a source follows its folder;
  - third parties are included only where they are adapted;
  - our own includes are quoted and root-relative;
  - a source includes its own header first;
  - every CUDA kernel declares its threads per block, so that nvcc limits its registers accordingly.
The waiver list may only shrink.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

# folder -> prefixes that it may include in addition to its own. The longest matching folder counts.
MAY_INCLUDE = {
    "common/base": [],
    "common/crypto": ["common/base"],
    "common/http": ["common/base", "common/crypto"],
    "common/metrics": ["common/base"],
    "common/text": ["common/base"],
    "common/layout": ["common/base"],
    "common/api": ["common/base", "common/layout"],
    "kernels": ["common/base"],
    "controller/plan": ["common"],
    "controller/loop": ["common", "controller/plan"],
    "controller/kube": ["common", "controller/loop", "controller/plan"],
    "controller/monitor": ["common", "controller/kube", "controller/loop", "controller/plan"],
    "controller": ["common", "controller"],  # only main.cc
    "agent/comm": ["common", "kernels"],
    "agent/optim": ["common", "kernels"],
    "agent/rpc": ["common", "agent/comm"],
    "agent/server": ["common", "kernels", "agent/comm", "agent/optim", "agent/rpc"],
    "agent/model": ["common/base", "common/layout", "kernels"],
    "agent/parallel": ["common", "kernels", "agent/comm", "agent/model", "agent/optim"],
    "agent/train": ["common", "kernels", "agent/comm", "agent/model", "agent/optim", "agent/parallel", "agent/rpc",
                    "agent/server"],
    "agent/node": ["common"],
    "local": ["common", "controller"],
    "cli": ["common", "controller", "local"],
}

# folder -> its namespace, which may hold further ones. The longest matching folder counts.
NAMESPACES = {
    "common": "lockstep",  # the vocabulary of all layers: results, the API's types, layouts
    "common/http": "lockstep::http",
    "kernels": "lockstep::kernels",
    "controller/plan": "lockstep::plan",
    "controller/loop": "lockstep::loop",
    "controller/kube": "lockstep::kube",
    "controller/monitor": "lockstep::monitor",
    "controller": "lockstep::controller",
    "agent/comm": "lockstep::comm",
    "agent/optim": "lockstep::optim",
    "agent/rpc": "lockstep::rpc",
    "agent/server": "lockstep::server",
    "agent/model": "lockstep::model",
    "agent/parallel": "lockstep::parallel",
    "agent/train": "lockstep::train",
    "agent/node": "lockstep::node",
    "local": "lockstep::local",
    "cli": "lockstep::cli",
    "bench": "lockstep::bench",
}

# third party -> (what its includes look like, folders that may include it)
THIRD_PARTIES = {
    "cpprestsdk": (r"(cpprest|pplx)/", ["controller/kube/http", "controller/kube/cpprest_workarounds"]),
    "Boost": (r"boost/", ["common/http", "controller/kube/plain_connection",
                          "controller/kube/reply_body.h", "controller/kube/cpprest_workarounds"]),
    "OpenSSL": (r"openssl/", ["common/http/tls", "local/http/certificate", "controller/kube", "common/crypto/aead_openssl"]),
    "nlohmann/json": (r"nlohmann/", ["common/base"]),
    "yaml-cpp": (r"yaml-cpp/", ["common/api/yaml.cc"]),
    "prometheus-cpp": (r"prometheus/", ["common/metrics"]),
    "RE2": (r"re2/", ["local/schema/pattern"]),
    "oneDNN": (r"(oneapi/)?dnnl", ["kernels"]),
    "CUDA": (r"cuda|cublas|cudnn", ["kernels", "agent/comm"]),
    "NCCL": (r"nccl\.h", ["agent/comm"]),
    "sentencepiece": (r"sentencepiece_(processor|trainer)", ["cli/tokenize/sentencepiece_model"]),
    "CLI11": (r"CLI/", ["cli", "controller/main.cc"]),
}

WAIVERS: set[tuple[str, str]] = set()  # (file, included), each with its reason

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
ABSENT = re.compile(r"^\s*#\s*if(def|ndef)?\b.*\b(HAVE|WITH|USE)_", re.IGNORECASE)
NAMESPACE = re.compile(r"^(?:inline )?namespace (lockstep[\w:]*)", re.MULTILINE)
KERNEL = re.compile(r"__global__\s+void\s+(?!__launch_bounds__)(\w+)")


def sources(tops=("common", "kernels", "agent", "controller", "local", "cli")):
    for top in tops:
        for suffix in ("*.h", "*.cc", "*.cu", "*.cuh"):
            yield from sorted((ROOT / top).rglob(suffix))


def within(path, prefix):
    return path == prefix or path.startswith((prefix + "/", prefix + "."))


def folder_of(path, table=MAY_INCLUDE):
    matches = [folder for folder in table if path.startswith(folder + "/")]
    return max(matches, key=len, default=None)


def check_ours(path, included, errors):
    folder = folder_of(path)
    target = ROOT / included
    if not target.exists():
        errors.append(f"{path}: \"{included}\" is not a root-relative path of ours")
        return
    allowed = [folder, *MAY_INCLUDE[folder]]
    if not any(included.startswith(prefix + "/") for prefix in allowed):
        errors.append(f"{path}: includes {included}; {folder} may include {', '.join(allowed)}")


def check_third_party(path, included, errors):
    for name, (pattern, homes) in THIRD_PARTIES.items():
        if re.match(pattern, included) and not any(within(path, home) for home in homes):
            errors.append(f"{path}: includes {included}; {name} stays in {', '.join(homes)}")


def check_namespaces(path, text, errors):
    expected = NAMESPACES[folder_of(path, NAMESPACES)]
    for found in NAMESPACE.findall(text):
        if found != expected and not found.startswith(expected + "::"):
            errors.append(f"{path}: namespace {found}; the folder's is {expected}")


def check_kernels(path, text, errors):
    for kernel in KERNEL.findall(text):
        errors.append(f"{path}: {kernel} has no __launch_bounds__")


def check_file(file, errors):
    path = file.relative_to(ROOT).as_posix()
    if folder_of(path) is None:
        errors.append(f"{path}: no row of the table covers this folder")
        return 0
    count = 0
    first = None
    text = file.read_text()
    check_kernels(path, text, errors)
    check_namespaces(path, text, errors)
    for line in text.splitlines():
        if ABSENT.match(line):
            errors.append(f"{path}: absence is a twin file, not `{line.strip()}`")
        match = INCLUDE.match(line)
        if not match:
            continue
        count += 1
        bracket, included = match.groups()
        if (path, included) in WAIVERS:
            continue
        if bracket == '"':
            first = first or included
            check_ours(path, included, errors)
        else:
            first = first or included
            check_third_party(path, included, errors)
    own = path.rsplit(".", 1)[0] + ".h"
    if path.endswith(".cc") and (ROOT / own).exists() and first != own:
        errors.append(f"{path}: its own header {own} comes first, not {first}")
    return count


def self_test():
    """Finds an upward include, a stray third party, a kernel without bounds, a stray namespace."""
    errors = []
    check_ours("kernels/ops/x.cc", "tests/layers_test.py", errors)
    check_third_party("agent/train/x.cc", "cpprest/http_client.h", errors)
    check_kernels("kernels/ops/x.cu", "__global__ void __launch_bounds__(32) a()", errors)
    check_kernels("kernels/ops/x.cu", "template <class T>\n__global__ void\n b(T x) {", errors)
    check_namespaces("agent/comm/x.cc", "namespace lockstep::comm::ring {", errors)
    check_namespaces("agent/comm/x.cc", "namespace lockstep {", errors)
    assert len(errors) == 4, errors


def main():
    self_test()
    errors, files, includes = [], 0, 0
    for file in sources():
        files += 1
        includes += check_file(file, errors)
    for file in sources(("bench",)):
        check_namespaces(file.relative_to(ROOT).as_posix(), file.read_text(), errors)
    for error in errors:
        print(error, file=sys.stderr)
    print(f"{files} files, {includes} includes, {len(errors)} against the table")
    return 1 if errors or files == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
