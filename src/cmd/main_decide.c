/* SPDX-License-Identifier: Apache-2.0 */
/* libexec/pvisor/pvisor-decide: the commands that look at a job and decide on its changes. */
#include "base/parallel.h"
#include "cmd/command.h"

#define IN_MAIN(id)
#define IN_DECIDE(id) &pv_cmd_##id,
#define IN_DIFF(id)
#define ROW(executable, id, summary) IN_##executable(id)

static const struct pv_command *const commands[] = { PV_COMMANDS(ROW) NULL };

int main(int argc, char **argv)
{
        pv_parallel_use_threads();
        return pv_dispatch(commands, argc, argv);
}
