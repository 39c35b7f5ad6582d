#!/usr/bin/env python3
"""Regenerates a golden file with this machine's PyTorch and runs a test against it.

    compare_fresh.py MAKE_SCRIPT OUT_FILE TEST_BINARY

Exits with 77 ("skipped") if no Python here has PyTorch.
"""
import os
import subprocess
import sys

SKIPPED = 77


def python_with_torch():
    for python in dict.fromkeys([sys.executable, "/usr/bin/python3"]):
        probe = subprocess.run([python, "-c", "import torch"], capture_output=True, check=False)
        if probe.returncode == 0:
            return python
    return None


def main(make_script, out_file, test_binary):
    python = python_with_torch()
    if python is None:
        print("skipped: no PyTorch on this machine (Debian: apt install python3-torch)")
        return SKIPPED
    subprocess.run([python, make_script, out_file], check=True)
    environment = dict(os.environ, LOCKSTEP_GOLDEN_FILE=out_file)
    return subprocess.run([test_binary], env=environment, check=False).returncode


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
