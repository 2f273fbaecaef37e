# SPDX-License-Identifier: Apache-2.0
"""Where the executables of the installation under test are."""
from pathlib import Path


def program(pv, name):
    """One of libexec/pvisor, found as `pvisor` itself finds it: in an installed tree or beside it in the build directory."""
    installed = Path(pv).parent.parent / "libexec" / "pvisor" / name
    return installed if installed.exists() else Path(pv).parent / name
