#!/usr/bin/env python3
"""permissions.py AUDIT_LOG ACCOUNT [--forbidden]: compares the account's requests with what its roles allow.

AUDIT_LOG is kube-apiserver's; the rules of the roles come as JSON (kubectl get -o json) on standard
input. The roles may have forbidden no request, and nothing may be allowed that was never requested, except what
RARE names with a reason. With --forbidden the roles are not compared.
"""
import json
import sys

# Resources and verbs that no ordinary run requests, and when the controller requests them.
RARE = {
    ("lockstep.dev", "trainingjobs", "get"): "after a conflict in a status write, the job is read again",
    ("lockstep.dev", "trainingjobs/finalizers", "update"): "checked by the server for owner references",
}


def allowed(documents):
    for document in documents["items"]:
        for rule in document.get("rules", []):
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    for verb in rule["verbs"]:
                        yield group, resource, verb


def asked(file, account):
    with open(file, encoding="utf-8") as lines:
        for line in lines:
            event = json.loads(line)
            if event["user"]["username"] != account or "objectRef" not in event:
                continue
            ref = event["objectRef"]
            resource = ref["resource"] + ("/" + ref["subresource"] if "subresource" in ref else "")
            # The roles allowed a request that was refused later, such as a create in a namespace that ends.
            was_allowed = event.get("annotations", {}).get("authorization.k8s.io/decision") == "allow"
            code = event.get("responseStatus", {}).get("code", 0)
            yield (ref.get("apiGroup", ""), resource, event["verb"]), code == 403 and not was_allowed


def main():
    file, account = sys.argv[1:3]
    may = set() if sys.argv[3:] else set(allowed(json.load(sys.stdin)))
    did = {}
    forbidden = set()
    for what, is_forbidden in asked(file, account):
        did[what] = did.get(what, 0) + 1
        if is_forbidden:
            forbidden.add(what)
    unused = may - set(did) - set(RARE)
    for what in sorted(forbidden):
        print("forbidden:", *what, file=sys.stderr)
    for what in sorted(unused):
        print("allowed but never requested:", *what, file=sys.stderr)
    rare = sorted(may & set(RARE) - set(did))
    print(f"{sum(did.values())} requests of {len(did)} kinds, all allowed; also allowed: "
          + (", ".join(f"{verb} {resource}" for _, resource, verb in rare) or "nothing"))
    sys.exit(1 if forbidden or unused or len(did) < 8 else 0)


if __name__ == "__main__":
    main()
