/* SPDX-License-Identifier: Apache-2.0 */
/* libexec/pvisor/pvisor-decide: the commands that look at a job and decide on its changes. */
#include "cmd/command.h"

static const struct pv_command *const commands[] = { PV_COMMANDS_DECIDE(PV_COMMAND_POINTER) NULL };

int main(int argc, char **argv)
{
        return pv_dispatch(commands, argc, argv);
}
