/* SPDX-License-Identifier: Apache-2.0 */
/* bin/pvisor: what has to start fast, and the door to the rest (libexec/pvisor/). */
#include "cmd/command.h"

#define IN_MAIN(id) &pv_cmd_##id,
#define IN_DECIDE(id)
#define IN_DIFF(id)
#define ROW(executable, id, summary) IN_##executable(id)

static const struct pv_command *const commands[] = { PV_COMMANDS(ROW) NULL };

int main(int argc, char **argv)
{
        return pv_dispatch(commands, argc, argv);
}
