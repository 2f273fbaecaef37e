/* SPDX-License-Identifier: Apache-2.0 */
/* The smallest command: an options struct, its table, one function, and the description that joins them. */
#include <stdio.h>
#include <unistd.h>
#include "base/str.h"
#include "cmd/command.h"

struct version_options {
        bool json;
};

static const struct pv_opt options[] = {
        PV_OPT_JSON(struct version_options, json),
        { .name = NULL },
};

static int run_version(const void *given, const struct pv_args *args, struct pv_err *err)
{
        const struct version_options *o = given;
        pv_auto_str out = { 0 };
        pv_str_putf(&out, o->json ? "{\"version\": \"%s\"}\n" : "pvisor %s\n", PV_VERSION);
        return pv_fd_write_all(STDOUT_FILENO, out.s, out.len, "stdout", err);
}

const struct pv_command pv_cmd_version = {
        .name = "version",
        .usage = "[--json]",
        .options = options,
        .options_size = sizeof(struct version_options),
        .run = run_version,
};
