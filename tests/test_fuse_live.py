# SPDX-License-Identifier: Apache-2.0
"""Deciding while the command runs, over the FUSE backend: the tests of test_live.py whose ground is another there."""
import pytest

from test_live import live, text, workspace  # noqa: F401
from test_live import (test_a_renamed_directory_lands_whole, test_files_that_the_host_saves_beside_are_no_conflict,  # noqa: F401
                       test_inspect_sees_one_moment, test_what_is_there_is_taken_and_the_job_goes_on,
                       test_what_lands_is_one_version_of_a_file_that_never_rests)
from test_live import start as start_any  # noqa: F401


@pytest.fixture
def start(start_any, fuse):  # noqa: F811
    return lambda cwd, *options: start_any(cwd, "--stage-backend", "fuse", *options)
